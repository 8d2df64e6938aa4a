"""The data behind the verdict on a metric, for figures: its samples, its runs by unit, and the
ratio of the sides at every quantile. No verdict rests on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from klat.compare.cell_tests import MatchedSides
from klat.compare.comparison import Cell
from klat.stats.means import mean
from klat.compare.matching import MatchedCell, SideUnits
from klat.compare.runs import Runs, by_boot, distribution_at
from klat.compare.sources import UnitKey
from klat.record.session import SessionError
from klat.compare.observations import NoLogarithm, Units, observe_values
from klat.stats.descriptive import Values
from klat.stats.distribution import Distribution
from klat.compare.verdicts import Interval, Rules, describe

# Every twentieth of the samples, and the end that latencies are read for.
SHARES = (*(Fraction(n, 20) for n in range(1, 20)), Fraction(99, 100))


@dataclass(frozen=True)
class UnitRuns:
    """A boot or a block: the medians and the maxima of its runs in order of start. `pair` is empty
    without one."""

    pair: str
    medians: tuple[float, ...]
    maxima: tuple[float, ...]
    centre: float  # their geometric mean


@dataclass(frozen=True)
class SideFigures:
    """`samples` are all that count, in ticks or instructions, and `boots` those of each boot; times
    `scale` they are in the side's unit, like all other figures here."""

    samples: Distribution
    boots: tuple[Distribution, ...]
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


def side_figures(matched: MatchedSides, rules: Rules) -> list[CellFigures | str]:
    """The figures of each cell, or why it has none. Empty if there is nothing to compare, or if the
    report has several machines. Reads every sample."""
    if matched.datasets.machine:
        return [""] * len(matched.pairs)
    cells = zip(matched.pairs, matched.against.cells)
    return [_cell(pair, cell, matched.units, rules) for pair, cell in cells]


def _cell(pair: MatchedCell, cell: Cell, units: SideUnits, rules: Rules) -> CellFigures | str:
    base, new = pair.base, pair.new
    if cell.refused or not base.runs or not new.runs:
        return ""
    try:
        shifts = tuple(_shifts(base, new, units, units.obstacle_of(cell.benchmark), rules))
        return CellFigures(_side(base, units.base), _side(new, units.new), shifts)
    except SessionError as error:
        return str(error)


def _side(cell: Runs, units: Units) -> SideFigures:
    runs = cell.runs
    scale = mean([run.source.scale for run in runs])
    unit_figures = []
    for key, members in units.of(cell).items():
        medians, maxima = [], []
        for run in members:
            if run.row.p50 is not None and run.row.max is not None:
                medians.append(run.row.p50 * run.source.scale)
                maxima.append(run.row.max * run.source.scale)
        if medians and min(medians) > 0:
            centre = float(np.exp(np.log(medians).mean()))
            pair = units.pairs.get(key, "")
            unit_figures.append(UnitRuns(pair, tuple(medians), tuple(maxima), centre))
    boots = tuple(distribution_at(members, scale) for members in by_boot(runs).values())
    return SideFigures(
        samples=Distribution.merged(boots),
        boots=boots,
        scale=scale,
        quantum=max(run.source.session.step for run in runs),
        units=tuple(unit_figures),
    )


def _shifts(base: Runs, new: Runs, units: SideUnits, obstacle: str, rules: Rules) -> list[Shift]:
    base_quantiles, new_quantiles = _quantiles(base, units.base), _quantiles(new, units.new)
    shifts = []
    for share, of_base, of_new in zip(SHARES, base_quantiles, new_quantiles):
        try:
            a = observe_values(base, units.base, of_base)
            b = observe_values(new, units.new, of_new)
        except NoLogarithm:
            continue
        judgement = describe(a, b, rules, obstacle)
        if judgement.ratio is not None:
            shifts.append(Shift(float(share), judgement.ratio, judgement.interval))
    return shifts


def _quantiles(cell: Runs, units: Units) -> list[dict[UnitKey, list[float]]]:
    """For each of SHARES, the quantile of the runs of each unit, where they support it."""
    by_share: list[dict[UnitKey, list[float]]] = [{} for _ in SHARES]
    for key, runs in units.of(cell).items():
        for run in runs:
            for figures, tick in zip(by_share, run.quantiles(SHARES)):
                if tick is not None:
                    figures.setdefault(key, []).append(tick * run.source.scale)
    return by_share


def medians_of(units: Sequence[UnitRuns]) -> Values:
    """Of all runs, unit by unit."""
    return np.array([median for unit in units for median in unit.medians], dtype=np.float64)


def maxima_of(units: Sequence[UnitRuns]) -> Values:
    """Of all runs, unit by unit."""
    return np.array([maximum for unit in units for maximum in unit.maxima], dtype=np.float64)
