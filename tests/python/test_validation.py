from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from validation import machines, shares, simulation
from validation.__main__ import machines_markdown, markdown, states_markdown
from validation.kernels import SHAPES, Size

from validation.simulation import Judged, Plan, estimates, judged, looks, quick, read, row, validate
from validation.states import outcomes, states
from klat.compare.verdicts import Judgement, Observed, Rules, Unit, Verdict, judge

SMALL = replace(quick(Plan()), repetitions=60, samples=50, boots=(8,))
RULES = Rules()


def ids(number: int) -> str:
    return SHAPES[number].name


@pytest.mark.parametrize("number", range(len(SHAPES)), ids=ids)
def test_the_verdicts_hold_for_every_shape_of_kernel(number):
    found = row(number, 8, replace(SMALL, repetitions=150))
    assert found.refuted(0.05) == []
    assert found.covers.of == 1_500 and found.suite.of == 150


COARSE = next(number for number, shape in enumerate(SHAPES) if shape.ticks)


@pytest.mark.parametrize("number", [0, COARSE], ids=ids)
@pytest.mark.parametrize("boots", [4, 9])
def test_the_validation_judges_as_the_verdicts_do(number, boots):
    shape, draw = SHAPES[number], np.random.default_rng(3)
    dims = (12, 3, boots, 4)
    base, new = (shape.runs(draw, 36, Size(boots, 4, 50)).reshape(dims) for _ in range(2))
    new = new + np.linspace(-0.08, 0.08, 12)[:, None, None, None]
    if shape.ticks:
        found = read(base, new, shape.ticks, np.full((12, 3, 1, 1), 0.3))
        base, new = (26 * np.rint(np.exp(x) * (shape.ticks - 26 * 0.2) / 26) for x in (base, new))
        base, new = np.log(base), np.log(new)
    else:
        found = estimates(base, new)
    of_arrays = judged(found, 0.0, RULES)

    def side(logs: np.ndarray, resolution: float) -> Observed:  # type: ignore[type-arg]
        units = tuple(Unit(str(i), tuple(boot)) for i, boot in enumerate(logs.tolist()))
        return Observed(units, resolution / 2)

    for family in range(12):
        pairs = [
            (side(base[family, i], hidden), side(new[family, i], hidden))
            for i, hidden in enumerate(found.hidden[family].tolist())
        ]
        verdicts = [judgement.verdict for judgement in judge(pairs, RULES)]
        for name in ("slower", "faster", "same"):
            of_array = getattr(of_arrays, name)[family].tolist()
            assert of_array == [verdict is Verdict(name) for verdict in verdicts]
    assert of_arrays.slower.any() or boots == 4 or shape.ticks or shape.estimand.q is None


def test_runs_taken_for_boots_are_refuted(monkeypatch):
    def pseudo(base: np.ndarray, new: np.ndarray) -> simulation.Estimates:  # type: ignore[type-arg]
        return estimates(*(x.reshape(*x.shape[:-2], -1, 1) for x in (base, new)))

    monkeypatch.setattr(simulation, "estimates", pseudo)
    found = row(1, 8, SMALL).refuted(0.05)
    assert "coverage" in found and "false alarms of suites a margin apart" in found


def test_a_test_of_no_difference_is_refuted(monkeypatch):
    rule = judged

    def today(found: simulation.Estimates, true: float, rules: Rules) -> Judged:
        said = rule(found, true, rules)
        return replace(said, slower=said.shows)

    monkeypatch.setattr(simulation, "judged", today)
    found = row(0, 8, SMALL).refuted(0.05)
    assert "slower at the margin" in found and "slower at half the margin" in found


def test_sameness_said_too_easily_is_refuted():
    lax = replace(SMALL, rules=replace(SMALL.rules, alpha=0.4))
    assert "same at the margin" in row(0, 8, lax).refuted(0.05)


def test_a_suite_without_correction_is_refuted(monkeypatch):
    monkeypatch.setattr(simulation.multiplicity, "holm", lambda p: p)
    assert "false alarms of suites a margin apart" in row(0, 8, SMALL).refuted(0.05)


def test_power_grows_with_boots_and_never_points_the_wrong_way():
    few, many = row(0, 5, SMALL), row(0, 15, SMALL)
    assert many.slower[2.0].value > few.slower[2.0].value > few.slower[1.0].value
    assert not few.faster.hits


def test_sides_and_repetitions_share_nothing():
    draw = np.random.default_rng(1)
    runs = SHAPES[0].runs(draw, 40, Size(10, 5, 50))
    boots = runs.mean(axis=2)
    assert abs(np.corrcoef(boots[:20].ravel(), boots[20:].ravel())[0, 1]) < 0.2
    assert boots.std() > 0.004


def test_looking_until_there_is_a_verdict_errs_more_often_than_one_look():
    assert looks(SMALL, 12, 12).interval[0] < 0.05
    assert looks(SMALL, 4, 20).interval[0] > 0.1


@pytest.mark.parametrize("pairs", [False, True], ids=["boots", "pairs"])
def test_two_states_give_false_verdicts_in_at_most_alpha_also_in_a_suite(pairs):
    for units in range(2, 13):
        found = states(units, pairs, RULES)
        assert max(found.one, found.suite) <= 0.05
        assert (found.one > 0) == (units >= (6 if pairs else 4))
        assert sum(outcomes(units, pairs, 0.3)) == pytest.approx(1)


def test_two_states_are_refuted_without_their_condition(monkeypatch):
    from klat.stats import power
    from validation.states import p_values

    monkeypatch.setattr(power, "by_arrangement", lambda *_: 0.0)
    monkeypatch.setattr(power, "by_states", lambda *_: 0.0)
    p_values.cache_clear()
    assert states(2, False, RULES).one == pytest.approx(1 / 8, abs=0.001)
    assert states(4, False, RULES).suite > 0.05
    p_values.cache_clear()


def test_the_seed_alone_decides_the_outcome(monkeypatch):
    monkeypatch.setattr(simulation, "SHAPES", SHAPES[:2])
    plan = replace(SMALL, repetitions=6)
    one, two = validate(plan, workers=1), validate(plan, workers=2)
    assert one == two
    assert validate(replace(plan, seed=2), workers=1) != one
    text = list(markdown(one, "make validate"))
    assert text == list(markdown(two, "make validate"))
    assert sum(line.startswith("| lognormal") for line in text) == 2
    both = [states(4, pairs, RULES) for pairs in (False, True)]
    assert len(list(states_markdown(both, 10))) == 5


@pytest.mark.slow
@pytest.mark.parametrize("clustering", shares.CLUSTERINGS, ids=lambda c: str(c.name))
def test_the_bounds_of_a_share_hold_for_every_clustering(clustering):
    found = shares.simulate(clustering, Size(20, 10, 500), 250, 2)
    for name in ("upper", "lower", "upper_often", "lower_often", "differ", "unequal"):
        assert found.rate(name).surely[0] <= 0.05, name
    assert found.rate("within").value >= 0.8


def test_a_share_far_below_what_may_be_above_is_shown_within():
    found = shares.simulate(shares.CLUSTERINGS[0], Size(4, 5, 1_000), 30, 1)
    assert found.rate("within").surely[1] >= 0.95
    for name in ("upper", "lower", "upper_often", "lower_often", "differ", "unequal"):
        assert found.rate(name).surely[0] <= 0.05, name


def test_a_session_split_against_itself_rarely_differs(writer, tmp_path):
    draw = np.random.default_rng(1)
    for run in range(1, 121):
        values = (1_000 * (1 + draw.exponential(size=100))).astype(int).tolist()
        writer.run({"round_trip": values}, run=run, order=run)
    ((name, found),) = shares.split(writer.path, 200, 1)
    assert name == "pipes round_trip" and found.rate("differ").surely[0] <= 0.05


@pytest.mark.parametrize("unequal", [0.0, 1.0])
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_the_verdict_over_machines_keeps_its_level(spread, unequal):
    plan = machines.Plan(repetitions=200)
    found = machines.row(6, spread, unequal, plan)
    assert found.refuted(0.05) == []
    assert found.covers.of == 200
    assert len(list(machines_markdown([found], plan))) == 5


def test_machines_whose_boots_count_as_units_are_refuted(monkeypatch):
    """All boots of all machines together: the spread between machines is then taken for a change."""

    def together(boots: np.ndarray, rules: Rules) -> tuple[Judgement, list[float], list[float]]:  # type: ignore[type-arg]
        base, new = (
            Observed(tuple(Unit(str(i), (log,)) for i, log in enumerate(side.ravel().tolist())))
            for side in boots
        )
        return judge([(base, new)], rules)[0], [0.0, 0.0], [1.0, 1.0]

    monkeypatch.setattr(machines, "_over", together)
    found = machines.row(6, 2.0, 0.0, machines.Plan(repetitions=200))
    assert {"slower", "coverage"} <= set(found.refuted(0.05))
