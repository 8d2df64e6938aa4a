"""The words for how much runs and units vary."""

from __future__ import annotations

import math
from collections.abc import Sequence

from klat.compare.verdicts import Judgement, Spread
from klat.report.text.numbers import MISSING, percent


def spreads(j: Judgement, noun: str, run: str) -> list[str]:
    """T and S of Kalibera and Jones. T is the variation that a level adds. S is the variation seen at
    a level, with all levels below. Standard deviations of logs, so they are relative. The two are
    equal for runs, which have no level below. `run` is the
    word for a run."""
    sides = (("BASE", j.base), ("NEW", j.new))
    runs = [(name, deviation(spread.run.own if spread.run else None)) for name, spread in sides]
    units = [(name, _unit_deviation(spread, run)) for name, spread in sides]
    return [
        f"variation between {level}s: {_of_sides(parts)}"
        for level, parts in ((run, runs), (noun, units))
        if any(text != MISSING for _, text in parts)
    ]


def _unit_deviation(spread: Spread, run: str) -> str:
    if spread.unit is None or spread.unit.own is None:
        return MISSING
    without, observed = deviation(spread.unit.own), deviation(spread.unit.observed)
    return without if without == observed else f"{without} ({observed} with the {run}s' own)"


def _of_sides(parts: Sequence[tuple[str, str]]) -> str:
    texts = {text for _, text in parts}
    return texts.pop() if len(texts) == 1 else ", ".join(f"{name} {text}" for name, text in parts)


def deviation(value: float | None) -> str:
    if value is None:
        return MISSING
    return percent(math.sqrt(value)) if value > 0 else "none"
