from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from klat.compare.compare_sides import settled
from klat.compare.verdicts import Judgement, Method, Observed, Rules, Unit, Verdict, describe, judge

RULES = Rules()


def side(
    seed: int, boots: int = 6, runs: int = 5, ratio: float = 1.0, boot: float = 0.003
) -> Observed:
    """Boots of a kernel that is `ratio` as slow, with 1 % of noise between runs."""
    draw = np.random.default_rng(seed)
    units = []
    for name in range(boots):
        centre = math.log(5_000 * ratio) + draw.normal(0, boot)
        units.append(Unit(f"{seed}-{name}", tuple(draw.normal(centre, 0.01, runs))))
    return Observed(tuple(units))


def constant(value: float, boots: int = 4, runs: int = 3) -> Observed:
    return Observed(tuple(Unit(str(boot), (math.log(value),) * runs) for boot in range(boots)))


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (1.0, Verdict.SAME),
        (1.01, Verdict.SAME),
        (
            1.025,
            Verdict.INCONCLUSIVE,
        ),  # longer beyond chance, but not shown to be beyond the margin
        (1.10, Verdict.SLOWER),
        (1.0 / 1.10, Verdict.FASTER),
    ],
)
def test_the_verdict_follows_the_ratio(ratio, verdict):
    (found,) = judge([(side(1), side(2, ratio=ratio))], RULES)
    assert found.verdict == verdict
    assert found.ratio == pytest.approx(ratio, rel=0.01)
    assert found.interval and found.interval[0] < found.ratio < found.interval[1]
    assert found.method is Method.WELCH


@pytest.mark.parametrize("boots", [5, 10, 40])
@pytest.mark.parametrize("ratio", [1.01, 1.015, 1.0 / 1.015])
def test_a_change_that_the_margin_calls_none_is_not_called_one(boots, ratio):
    changed = (Verdict.SLOWER, Verdict.FASTER)
    pairs = [(side(i, boots), side(i + 1_000, boots, ratio=ratio)) for i in range(100)]
    said = [judge([pair], RULES)[0].verdict for pair in pairs]
    assert sum(verdict in changed for verdict in said) <= 3
    assert boots < 10 or Verdict.SAME in said


def test_a_margin_of_zero_is_the_plain_two_sided_test():
    for seed in range(20):
        pair = side(seed, boot=0.01), side(seed + 100, boot=0.01, ratio=1.01)
        (found,) = judge([pair], replace(RULES, margin=0.0))
        means = [[float(np.mean(unit.logs)) for unit in s.units] for s in pair]
        p = float(stats.ttest_ind(means[1], means[0], equal_var=False).pvalue)
        assert found.p == pytest.approx(max(p, 2 / 4**6)) and found.verdict is not Verdict.SAME
        assert (found.verdict is Verdict.INCONCLUSIVE) == (p > 0.05)


def test_too_few_boots_or_pairs_allow_no_claim_and_say_how_many_do():
    few = constant(340, 3), constant(371, 3)
    for sides in (few, (few[0], few[0])):
        (found,) = judge([sides], RULES)
        assert found.verdict is Verdict.INCONCLUSIVE and found.p is None
        assert found.reason == "3 and 3 boots can differ by chance alone at alpha 0.05: 4 boots a side are needed"  # fmt: skip
        assert found.interval == (found.ratio, found.ratio)
    (enough,) = judge([(constant(340, 4), constant(371, 4))], RULES)
    assert enough.verdict is Verdict.SLOWER
    for pairs, verdict in ((5, Verdict.INCONCLUSIVE), (6, Verdict.SLOWER)):
        base, new = (
            Observed(tuple(replace(unit, pair=unit.name) for unit in constant(x, pairs).units))
            for x in (340, 371)
        )
        (found,) = judge([(base, new)], RULES)
        assert found.verdict is verdict
        assert verdict is Verdict.SLOWER or "6 pairs are needed" in found.reason


def test_units_that_never_vary_are_no_certainty_for_many_tests():
    for boots, tests, verdict in (
        (4, 6, Verdict.SLOWER),
        (4, 7, Verdict.INCONCLUSIVE),
        (5, 25, Verdict.SLOWER),
        (5, 26, Verdict.INCONCLUSIVE),
    ):
        found = judge([(constant(340, boots), constant(371, boots))] * tests, RULES)
        assert {judgement.verdict for judgement in found} == {verdict}
        few = f"{tests} tests need more than {boots} and {boots} boots"
        assert verdict is Verdict.SLOWER or few in found[0].reason


def test_runs_of_one_boot_are_never_evidence_on_the_kernel():
    for sides in ((1, 1), (1, 6), (6, 1)):
        (found,) = judge([(side(1, sides[0], 500), side(2, sides[1], 500, 1.5))], RULES)
        assert found.verdict is Verdict.UNATTRIBUTABLE
        assert (found.p, found.p_adjusted) == (None, None)
        assert found.ratio and found.interval and found.method is Method.RUNS
        assert "one boot" in found.reason


def test_the_interval_of_one_boot_each_is_that_of_its_runs():
    base, new = side(1, 1, 40), side(2, 1, 40, 1.1)
    (found,) = judge([(base, new)], RULES)
    spread = np.std(base.units[0].logs, ddof=1) / math.sqrt(40)
    assert found.interval
    width = math.log(found.interval[1] / found.interval[0])
    assert width == pytest.approx(2 * 2 * math.sqrt(2) * spread, rel=0.5)


def test_a_drift_of_runs_widens_the_interval_of_one_boot():
    drift = tuple(8.5 + 0.001 * i + 0.0001 * (i % 2) for i in range(40))
    shuffled = tuple(np.random.default_rng(1).permutation(drift))
    widths = []
    for logs in (drift, shuffled):
        found = describe(Observed((Unit("a", logs),)), Observed((Unit("b", logs),)), RULES)
        assert found.interval
        widths.append(math.log(found.interval[1] / found.interval[0]))
    assert widths[0] > 2 * widths[1]


def test_one_run_each_has_the_interval_of_its_samples_and_no_verdict():
    base = Observed((Unit("a", (math.log(100),)),), sample_interval=(math.log(98), math.log(103)))
    new = Observed((Unit("b", (math.log(120),)),), sample_interval=(math.log(117), math.log(122)))
    (found,) = judge([(base, new)], RULES)
    assert found.verdict is Verdict.UNATTRIBUTABLE and found.method is Method.SAMPLES
    assert found.interval and found.interval[0] < 1.2 < found.interval[1]
    (bare,) = judge([(replace(base, sample_interval=None), new)], RULES)
    assert bare.interval is None and bare.ratio == pytest.approx(1.2)


def test_many_comparisons_ask_for_more_evidence():
    others = [(side(i, 6, boot=0.01), side(i + 100, 6, boot=0.01)) for i in range(40)]
    # Beyond chance by itself, at p = 0.01 or so, and more than the margin.
    a = Observed(
        tuple(Unit(str(i), (8.5 + x,)) for i, x in enumerate((0, 0.01, 0.02, 0.03, 0.04, 0.05)))
    )
    b = Observed(tuple(Unit(u.name, (u.logs[0] + 0.055,)) for u in a.units))
    alone, among = judge([(a, b)], RULES)[0], judge([(a, b), *others], RULES)[0]
    assert alone.p is not None and 0.002 < alone.p < 0.02 and alone.verdict is Verdict.SLOWER
    assert among.p == alone.p and among.p_adjusted == pytest.approx(41 * alone.p, abs=1e-12)
    assert among.verdict is Verdict.INCONCLUSIVE and "correction" in among.reason
    shares = judge([(a, b), *others], replace(RULES, correction="bh"))[0]
    assert shares.p_adjusted is not None and among.p_adjusted is not None
    assert shares.p_adjusted <= among.p_adjusted


def test_pairs_cancel_a_common_shift():
    draw = np.random.default_rng(3)
    base, new = [], []
    for block in range(8):
        shared = math.log(5_000) + draw.normal(0, 0.2)
        base.append(Unit(f"a{block}", tuple(shared + draw.normal(0, 0.002, 4)), str(block)))
        new.append(Unit(f"b{block}", tuple(shared + 0.03 + draw.normal(0, 0.002, 4)), str(block)))
    (found,) = judge([(Observed(tuple(base)), Observed(tuple(new)))], RULES)
    assert found.verdict is Verdict.SLOWER and found.method is Method.PAIRED
    alone = [Observed(tuple(replace(unit, pair="") for unit in units)) for units in (base, new)]
    (unpaired,) = judge([(alone[0], alone[1])], RULES)
    assert unpaired.verdict is Verdict.INCONCLUSIVE
    (lone,) = judge([(Observed(tuple(base)), Observed(tuple(new[:-2])))], RULES)
    assert lone.unpaired == 2 and lone.freedom == 5


def test_units_of_one_side_in_one_pair_are_one_so_that_drift_cancels_in_abba():
    base, new = [], []
    at = 0
    for block in range(6):
        for who in "ABBA":
            unit = Unit(f"{block}{who}{at}", (8.5 + 0.01 * at,) * 2, str(block))
            (base if who == "A" else new).append(unit)
            at += 1
    (found,) = judge([(Observed(tuple(base)), Observed(tuple(new)))], RULES)
    assert found.ratio == pytest.approx(1.0, abs=1e-12) and found.verdict is Verdict.SAME
    assert found.freedom is not None


def test_unequal_numbers_of_boots_and_runs_all_count():
    base = Observed(tuple(Unit(str(i), tuple([8.5 + 0.01 * i] * (i + 1))) for i in range(5)))
    new = side(2, boots=9, runs=2)
    found = describe(base, new, RULES)
    assert (found.base.units, found.base.runs, found.new.units, found.new.runs) == (5, 15, 9, 18)
    assert found.base.value == pytest.approx(math.exp(8.52))


def inconclusive(base: Observed, new: Observed) -> Judgement:
    """With what would settle it."""
    (found,) = settled(judge([(base, new)], RULES), [(base, new)], RULES)
    assert found.verdict is Verdict.INCONCLUSIVE and found.settle
    return found


def test_the_number_of_boots_that_would_settle_it_does():
    found = inconclusive(side(5, 4, boot=0.02), side(8, 4, boot=0.02, ratio=1.05))
    assert found.verdict is Verdict.INCONCLUSIVE and found.settle and found.settle.units
    assert found.settle.units > 4
    assert found.ratio and found.base.unit and found.base.unit.observed and found.new.unit
    hits = 0
    draw = np.random.default_rng(1)
    for _ in range(200):
        sides = []
        for spread, ratio in ((found.base, 1.0), (found.new, found.ratio)):
            assert spread.unit and spread.unit.observed
            error = math.sqrt(spread.unit.observed)
            logs = math.log(ratio) + draw.normal(0, error, found.settle.units)
            sides.append(Observed(tuple(Unit(str(i), (x,)) for i, x in enumerate(logs))))
        (again,) = judge([(sides[0], sides[1])], RULES)
        hits += again.verdict is found.settle.verdict
    assert hits / 200 > 0.7


def test_few_pairs_that_would_settle_it_settle_it():
    def sides(differences: list[float]) -> tuple[Observed, Observed]:
        names = [str(i) for i in range(len(differences))]
        base = Observed(tuple(Unit(name, (8.5,), name) for name in names))
        new = (Unit(name, (8.5 + x,), name) for name, x in zip(names, differences))
        return base, Observed(tuple(new))

    found = inconclusive(*sides([0.02, 0.073, 0.127, 0.18]))
    assert found.settle and found.settle.units and found.settle.units >= 6
    draw = np.random.default_rng(1)
    hits = 0
    for _ in range(400):
        again = sides(list(draw.normal(0.1, 0.069, found.settle.units)))
        hits += judge([again], RULES)[0].verdict is Verdict.SLOWER
    assert 0.75 < hits / 400 < 0.9 and found.settle.units < 14


def test_more_runs_settle_noise_between_runs():
    shifts = (-0.08, 0.0, 0.08, -0.08, 0.08, 0.0)
    noisy = Observed(tuple(Unit(str(i), (8.7, 8.3 + x)) for i, x in enumerate(shifts)))
    found = inconclusive(noisy, noisy)
    assert found.base.unit and found.base.unit.own and found.base.unit.own < 0
    assert found.settle and found.settle.runs and found.settle.runs > 2
    boots = inconclusive(side(1, 4, 5, boot=0.05), side(1, 4, 5, boot=0.05))
    assert boots.settle and boots.settle.units and boots.settle.runs is None


def test_a_test_without_boots_is_not_in_the_family():
    pairs = [(side(1), side(2)), (side(3, 1), side(4, 1))]
    alone, among = judge(pairs[:1], RULES), judge(pairs, RULES)
    assert alone[0].p_adjusted == among[0].p_adjusted


@pytest.mark.parametrize("r", [0.0, 0.6, 0.9])
def test_the_interval_within_a_boot_covers_the_ratio_also_if_its_runs_depend_on_each_other(r):
    draw = np.random.default_rng(6)

    def boot() -> Observed:
        logs = draw.normal(size=240) / 100
        for i in range(1, len(logs)):
            logs[i] += r * logs[i - 1]
        return Observed((Unit("boot", tuple(logs[-40:])),))

    intervals = [describe(boot(), boot(), RULES).interval for _ in range(400)]
    # Nominal 380.
    assert sum(low <= 1 <= high for low, high in filter(None, intervals)) >= 366


def test_the_interval_within_a_boot_of_few_runs_is_welchs():
    base, new = side(1, boots=1, runs=4), side(2, boots=1, runs=4)
    for end in describe(base, new, RULES).interval:
        shifted = np.array(new.units[0].logs) - math.log(end)
        welch = stats.ttest_ind(shifted, base.units[0].logs, equal_var=False)
        assert welch.pvalue == pytest.approx(0.05)
