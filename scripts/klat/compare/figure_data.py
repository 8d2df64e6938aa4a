"""The data behind the verdict on a metric, for figures: its samples, its runs by unit, and the
ratio of the sides at every quantile. No verdict rests on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from klat.compare.comparison import Cell
from klat.compare.estimands import MEDIAN
from klat.stats.hierarchy import mean
from klat.compare.units import SideUnits
from klat.compare.dataset import CellRuns
from klat.compare.observations import NoLogarithm, Units, observe_values
from klat.compare.sources import Run
from klat.stats.descriptive import Values
from klat.stats.histogram import CountedValues
from klat.compare.verdicts import Interval, Rules, describe

# Every twentieth of the samples, and the end that latencies are read for.
SHARES = (*(Fraction(n, 20) for n in range(1, 20)), Fraction(99, 100))


@dataclass(frozen=True)
class UnitRuns:
    """A boot or a block: the medians of its runs in order of start. `pair` is empty without one."""

    pair: str
    medians: tuple[float, ...]
    centre: float  # their geometric mean


@dataclass(frozen=True)
class SideFigures:
    """`samples` are all that count, in ticks or instructions; times `scale` they are in the side's
    unit, like all other figures here."""

    samples: CountedValues
    scale: float
    quantum: int
    units: tuple[UnitRuns, ...]


@dataclass(frozen=True)
class Shift:
    """The ratio of the sides at one quantile: NEW/BASE, computed like the ratio of medians. The
    interval is for this quantile alone."""

    share: float
    ratio: float
    interval: Interval | None


@dataclass(frozen=True)
class CellFigures:
    base: SideFigures
    new: SideFigures
    shifts: tuple[Shift, ...]


def cell_figures(
    cell: Cell, base: CellRuns, new: CellRuns, units: SideUnits, rules: Rules
) -> CellFigures | None:
    """Reads every sample. None if there is nothing to compare. SessionError if samples are missing."""
    if cell.refused or not base.runs or not new.runs:
        return None
    return CellFigures(
        _side(base, units.base), _side(new, units.new), tuple(_shifts(base, new, units, rules))
    )


def _side(cell: CellRuns, units: Units) -> SideFigures:
    runs = cell.runs
    scale = mean([run.source.scale for run in runs])
    found = []
    for key, members in units.of(cell).items():
        medians = [m for run in members if (m := run.value(MEDIAN)) is not None]
        if medians and min(medians) > 0:
            centre = float(np.exp(np.log(medians).mean()))
            found.append(UnitRuns(units.pairs.get(key, ""), tuple(medians), centre))
    return SideFigures(
        samples=_counted_values(runs, scale),
        scale=scale,
        quantum=max(run.source.session.step for run in runs),
        units=tuple(found),
    )


def _counted_values(runs: Sequence[Run], scale: float) -> CountedValues:
    """In ticks of one length, because some boots may have been calibrated differently."""
    by_scale: dict[float, list[Run]] = {}
    for run in runs:
        own = run.source.scale / scale
        by_scale.setdefault(1.0 if abs(own - 1) < 1e-3 else own, []).append(run)
    counted = []
    for own, members in by_scale.items():
        found = CountedValues.of(part for run in members for part in run.parts())
        if own != 1.0:
            found = CountedValues(np.rint(found.values * own).astype(np.uint64), found.counts)
        counted.append(found)
    return CountedValues.joined(counted)


def _shifts(base: CellRuns, new: CellRuns, units: SideUnits, rules: Rules) -> list[Shift]:
    known: dict[int, list[int | None]] = {}
    for run in (*base.runs, *new.runs):
        known[id(run)] = run.quantiles(SHARES)
    found = []
    for place, share in enumerate(SHARES):

        def value(run: Run, place: int = place) -> float | None:
            tick = known[id(run)][place]
            return None if tick is None else tick * run.source.scale

        try:
            a = observe_values(base, units.base, value, True)
            b = observe_values(new, units.new, value, True)
        except NoLogarithm:
            continue
        judgement = describe(a, b, rules, units.obstacle)
        if judgement.ratio is not None:
            found.append(Shift(float(share), judgement.ratio, judgement.interval))
    return found


def medians_of(units: Sequence[UnitRuns]) -> Values:
    """Of all runs, unit by unit."""
    return np.array([median for unit in units for median in unit.medians], dtype=np.float64)
