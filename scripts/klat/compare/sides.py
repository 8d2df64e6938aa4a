"""The two sides of a comparison as read: their sessions, and of each metric its runs by unit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import TypeVar

import numpy as np

from klat.compare.conditions import PARAMS
from klat.base.errors import KlatError
from klat.compare.estimands import Estimand
from klat.stats.granularity import hidden
from klat.base.programs import CORE
from klat.record.session import (
    NOT_MEASURABLE,
    STATUSES,
    USABLE,
    Row,
    Session,
    SessionError,
    printable,
)
from klat.compare.sources import Run, Source, read_sources
from klat.compare.verdicts import Observed, Unit

# Benchmark, params, placement, metric.
Key = tuple[str, str, str, str]
UnitKey = tuple[str, str]  # boot, pair
Kind = TypeVar("Kind")


@dataclass
class CellRuns:
    """One metric on one side."""

    statuses: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)  # of the runs that do not count
    units: dict[UnitKey, list[Run]] = field(default_factory=dict)
    values: dict[tuple[str, str], dict[str, None]] = field(default_factory=dict)

    @property
    def runs(self) -> list[Run]:
        return [run for unit in self.units.values() for run in unit]

    @property
    def boots(self) -> int:
        """In how many boots it was measured, by runs that count."""
        return len({boot for boot, _ in self.units})

    def parts(self, kind_of: Callable[[Run], Kind]) -> dict[Kind, CellRuns]:
        """The runs that count by their kind, the kind of most runs first; with it are those that do
        not count. Left out is what a pair has of a kind that is not in all of its turns."""
        found: dict[Kind, CellRuns] = {}
        for unit, runs in self.units.items():
            for run in runs:
                part = found.setdefault(kind_of(run), CellRuns(values=self.values))
                part.units.setdefault(unit, []).append(run)
        if len(found) == 1:
            return {kind: self for kind in found}
        for part in found.values():
            part.units = {
                unit: runs
                for unit, runs in part.units.items()
                if _is_whole(runs) or not _is_whole(self.units[unit])
            }
            part.statuses.update(run.row.status for run in part.runs)
        ordered = sorted(found.items(), key=lambda item: -item[1].statuses.total())
        for _, part in ordered[:1]:
            part.reasons = self.reasons if part.units else Counter(["no pair is of one kind"])
            part.statuses += Counter({s: n for s, n in self.statuses.items() if s not in USABLE})
        return dict(ordered)

    def uncounted(self, row: Row) -> None:
        """Take in a run that does not count."""
        self.statuses[row.status] += 1
        self.reasons[row.reason or "no reason was recorded"] += 1


@dataclass
class Side:
    """All sessions of one label, which are its boots or parts of them."""

    path: Path
    sources: list[Source]
    cells: dict[Key, CellRuns]
    problems: list[str]
    unmeasurable: tuple[Key, ...] = ()  # to which the mode gives no number, and so no cell
    # Of the runs that ended before there was a metric, which is empty in their keys.
    failed: dict[Key, CellRuns] = field(default_factory=dict)

    @property
    def sessions(self) -> list[Session]:
        return [source.session for source in self.sources]

    @property
    def name(self) -> str:
        return printable(self.sessions[0].label)

    @property
    def boots(self) -> list[str]:
        return list(dict.fromkeys(session.boot_id for session in self.sessions))

    @property
    def unit(self) -> str:
        """Of every figure: ns, ticks where ticks are no time, or instructions."""
        first = self.sessions[0]
        return "ns" if first.khz else first.unit


def read_side(path: Path) -> Side:
    """SessionError where there is no session or none with a run; KlatError where several labels
    are."""
    by_label, problems = read_sources(path)
    labels = [printable(label) for label in by_label]
    if len(labels) > 1:
        shown = ", ".join(labels[:4]) + (", ..." if labels[4:] else "")
        raise KlatError(
            f"{printable(str(path))}: holds {len(labels)} labels, {shown}; give one of them"
        )
    (sources,) = by_label.values()
    return side_of(path, sources, problems)


def side_of(path: Path, sources: list[Source], problems: list[str]) -> Side:
    """Of sessions of one label."""
    return Side(path, sources, _cells(sources), problems, _unmeasurable(sources), _failed(sources))


def _failed(sources: Sequence[Source]) -> dict[Key, CellRuns]:
    found: dict[Key, CellRuns] = {}
    for source in sources:
        for row in source.session.rows:
            if not row.metric:
                found.setdefault(_key(row), CellRuns()).uncounted(row)
    return dict(sorted(found.items(), key=lambda item: _order(item[0])))


def _unmeasurable(sources: Sequence[Source]) -> tuple[Key, ...]:
    found = {
        _key(row)
        for source in sources
        for row in source.session.rows
        if not source.session.measurable(row)
    }
    return tuple(sorted(found, key=_order))


def _key(row: Row) -> Key:
    return (row.benchmark, row.params, row.placement, row.metric)


def unmeasurable_lines(side: Side, metrics: Sequence[str] = ()) -> list[str]:
    """A sentence for each program that has metrics, of these where any is named, that its mode
    gives no number."""
    found: dict[str, dict[str, None]] = {}
    for benchmark, _, _, metric in side.unmeasurable:
        if not metrics or metric in metrics:
            found.setdefault(printable(benchmark), {})[printable(metric)] = None
    return [f"{NOT_MEASURABLE}: {name} {', '.join(held)}" for name, held in found.items()]


def _cells(sources: Sequence[Source]) -> dict[Key, CellRuns]:
    cells: dict[Key, CellRuns] = {}
    for source in sources:
        for row in source.session.rows:
            if not row.metric or not source.session.measurable(row):
                continue
            key = _key(row)
            cell = cells.get(key)
            if cell is None:
                cell = cells[key] = CellRuns()
            if not row.usable:
                cell.uncounted(row)
                continue
            cell.statuses[row.status] += 1
            for name, value in source.run_conditions(row).values(row.benchmark).items():
                cell.values.setdefault(name, {})[value] = None
            pair = source.pairing.of_order(row.order) if source.pairing else ""
            cell.units.setdefault((row.boot, pair), []).append(Run(row, source))
    for key, cell in cells.items():
        _, held = split_params(key[1])
        cell.values |= {(name, f"the option {name}"): {value: None} for name, value in held.items()}
        cell.units = dict(map(_whole_pair, cell.units.items()))
        for runs in cell.units.values():
            runs.sort(key=lambda run: run.place)
    return dict(sorted(cells.items(), key=lambda item: _order(item[0])))


def _whole_pair(item: tuple[UnitKey, list[Run]]) -> tuple[UnitKey, list[Run]]:
    """The unit under a name of its own, which finds no partner, where a turn of it is missing."""
    (boot, pair), runs = item
    if not _is_whole(runs):
        pair = f"{pair}, incomplete in {runs[0].source.session.label}"
    return (boot, pair), runs


def _is_whole(runs: Sequence[Run]) -> bool:
    """Whether runs of one pair are of each of its turns."""
    pairing = runs[0].source.pairing
    return pairing is None or pairing.is_complete([run.row.order for run in runs])


def split_params(params: str) -> tuple[str, dict[str, str]]:
    """The params that say what is measured, and the others, which are conditions of it."""
    conditions = dict(PARAMS)
    kept = []
    for item in params.split(";"):
        name, _, value = item.partition("=")
        if name in conditions:
            conditions[name] = value
        else:
            kept.append(item)
    return ";".join(kept), conditions


def _order(key: Key) -> tuple[object, ...]:
    """The five programs first; numbers by value, so that responders=10 follows responders=9."""
    benchmark, params, placement, metric = key
    values = [item.partition("=")[2] for item in params.split(";")]
    numbers = [(0, float(v), "") if v.isascii() and v.isdigit() else (1, 0.0, v) for v in values]
    place = CORE.index(benchmark) if benchmark in CORE else len(CORE)
    return (place, benchmark, numbers, placement, metric)


class NoLogarithm(Exception):
    """A run's figure is 0, of which there is no ratio."""


@dataclass(frozen=True)
class Units:
    """How runs of a side are gathered into units: by boot, or by boot and declared pair. `pairs`
    gives the pair of each unit that has a partner on the other side."""

    noun: str = "boot"
    by_pair: bool = False
    pairs: Mapping[UnitKey, str] = field(default_factory=dict)

    def of(self, cell: CellRuns) -> dict[UnitKey, list[Run]]:
        if self.by_pair:
            return cell.units
        boots: dict[UnitKey, list[Run]] = {}
        for (boot, _), runs in cell.units.items():
            boots.setdefault((boot, ""), []).extend(runs)
        return boots


def observe(cell: CellRuns, estimand: Estimand, units: Units) -> Observed:
    """What a cell's runs say of one estimand, as logs.

    Where all there is is one run, its samples are read for an interval. NoLogarithm where a run's
    figure is 0.
    """
    found = gather(cell, units, lambda run: run.value(estimand), estimand.q is not None)
    if found.runs == 1 == len(cell.runs):
        return replace(found, sampled=_sampled(cell.runs[0], estimand))
    return found


def gather(
    cell: CellRuns, units: Units, value_of: Callable[[Run], float | None], quantised: bool
) -> Observed:
    """The same of any figure of a run; `quantised` where it is a sample, with its granularity."""
    observed = []
    values: list[float] = []
    for key, runs in units.of(cell).items():
        found = [value for run in runs if (value := value_of(run)) is not None]
        if not found:
            continue
        if min(found) <= 0:
            raise NoLogarithm
        values += found
        logs = tuple(math.log(value) for value in found)
        observed.append(Unit(":".join(filter(None, key)), logs, units.pairs.get(key, "")))
    resolution = _resolution(cell.runs, values) if quantised else 0.0
    return Observed(tuple(observed), resolution, noun=units.noun)


def _resolution(runs: Sequence[Run], values: Sequence[float]) -> float:
    """How far, as a log, the counter's granularity may have rounded all the values together."""
    return hidden(values, max((run.source.step for run in runs), default=0.0))


def _sampled(run: Run, estimand: Estimand) -> tuple[float, float] | None:
    if estimand.q is None:
        return None
    try:
        found = run.run_quantile(estimand.q)
    except SessionError:
        return None  # the row alone still gives the figure
    if found is None or found.interval is None or not found.interval[0]:
        return None
    low, high = found.interval
    return math.log(low * run.source.scale), math.log(high * run.source.scale)


@dataclass(frozen=True)
class Within:
    """How well single runs of a side tell a quantile: medians over `runs` of their samples, of those
    that would tell as much independently, and of the ends of the interval relative to the quantile.
    """

    runs: int
    samples: float
    effective: float
    low: float
    high: float


def within_runs(cell: CellRuns, q: Fraction) -> Within | None:
    """Reads every sample. None where no run supports an interval."""
    found = [run.run_quantile(q) for run in cell.runs]
    held = [f for f in found if f is not None and f.interval is not None and f.value]
    if not held:
        return None
    return Within(
        runs=len(held),
        samples=median(float(f.n) for f in held),
        effective=median(f.effective for f in held),
        low=median(f.interval[0] / f.value for f in held if f.interval),
        high=median(f.interval[1] / f.value for f in held if f.interval),
    )


@dataclass(frozen=True)
class Exceedances:
    """Samples above a threshold: how many of each unit's runs have one, and how many there are."""

    runs: tuple[int, ...]  # by unit, those with at least one
    of_runs: tuple[int, ...]  # by unit, all
    samples: int | None  # None where the samples cannot be read
    of_samples: int


def exceedances(cell: CellRuns, threshold: float, units: Units) -> Exceedances:
    """`threshold` in the side's unit. Only runs whose maximum is above it are read."""
    hit, every, counted, total = [], [], 0, 0
    readable = True
    for runs in units.of(cell).values():
        above = [run for run in runs if (run.row.max or 0) * run.source.scale > threshold]
        hit.append(len(above))
        every.append(len(runs))
        total += sum(run.row.n or 0 for run in runs)
        for run in above:
            try:
                limit = np.uint64(min(threshold / run.source.scale, 2.0**63))
                counted += int(sum(np.count_nonzero(part > limit) for part in run.parts()))
            except SessionError:
                readable = False
    return Exceedances(tuple(hit), tuple(every), counted if readable else None, total)


def told(statuses: Counter[str]) -> str:
    """`5 ok, 1 invalid`."""
    return ", ".join(f"{statuses[s]:,} {s}" for s in STATUSES if statuses[s])
