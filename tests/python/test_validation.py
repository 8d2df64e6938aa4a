from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from klat.validation import simulation
from klat.validation.__main__ import markdown
from klat.validation.kernels import SHAPES, Logs, Size
from klat.validation.simulation import Plan, Rate, errors, powers, quick, validate
from klat.verdicts import Observed, Rules, Unit

SMALL = replace(quick(Plan()), repetitions=60, samples=50, boots=(8,))


@pytest.mark.parametrize("number", range(len(SHAPES)), ids=[shape.name for shape in SHAPES])
def test_the_verdicts_hold_for_every_shape_of_kernel(number: int) -> None:
    found = errors(number, 8, replace(SMALL, repetitions=150))
    assert found.refuted(0.05) == []
    assert found.coverage.of == 1_500 and found.suite.of == 150


def test_runs_taken_for_boots_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    def pseudo(logs: Logs) -> Observed:
        return Observed(tuple(Unit(str(i), (x,)) for i, x in enumerate(logs.ravel().tolist())))

    monkeypatch.setattr(simulation, "side", pseudo)
    assert "coverage" in errors(1, 8, SMALL).refuted(0.05)


def test_sameness_said_too_easily_is_refuted() -> None:
    lax = replace(SMALL, rules=replace(SMALL.rules, alpha=0.4))
    assert "same at the margin" in errors(0, 8, lax).refuted(0.05)


def test_a_suite_without_correction_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    from klat.inference import multiplicity

    monkeypatch.setitem(multiplicity.CORRECTIONS, "holm", list)
    assert "false alarms of suites" in errors(4, 8, SMALL).refuted(0.05)


def test_power_grows_with_boots_and_effect_and_never_points_the_wrong_way() -> None:
    few, many = powers(0, 5, SMALL), powers(0, 15, SMALL)
    assert [p.slower.value for p in few] == sorted(p.slower.value for p in few)
    assert many[0].slower.value > few[0].slower.value
    assert few[-1].slower.value == 1.0 and not any(p.faster.hits for p in few)


def test_sides_and_repetitions_share_nothing() -> None:
    draw = np.random.default_rng(1)
    runs = SHAPES[0].runs(draw, 40, Size(10, 5, 50))
    boots = runs.mean(axis=2)
    assert abs(np.corrcoef(boots[:20].ravel(), boots[20:].ravel())[0, 1]) < 0.2
    assert boots.std() > 0.004


def test_the_seed_alone_decides_the_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "SHAPES", SHAPES[:2])
    monkeypatch.setattr(simulation, "BOOTS", (5,))
    plan = replace(SMALL, repetitions=6)
    one, two = validate(plan, workers=1), validate(plan, workers=2)
    assert one == two
    assert validate(replace(plan, seed=2), workers=1) != one
    text = list(markdown(one, "make validate"))
    assert text == list(markdown(two, "make validate"))
    assert sum(line.startswith("| lognormal") for line in text) == 2


def test_a_rate_has_the_interval_of_its_simulation() -> None:
    low, high = Rate(100, 2_000).interval
    assert low < 0.05 < high and Rules().alpha == 0.05
