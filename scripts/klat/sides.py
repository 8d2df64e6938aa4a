"""The two sides of a comparison as read: their sessions, and of each metric its runs by unit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from klat import statistics, unrecorded
from klat.comparability import (
    PARAMS,
    Declared,
    Values,
    conditions,
    declared_options,
    read_run_facts,
)
from klat.errors import KlatError
from klat.estimands import Estimand
from klat.inference.nested import mean
from klat.inference.within import STRETCH, RunQuantile, quantile_of
from klat.programs import CORE
from klat.samples import PART, SampleFiles, Samples
from klat.session import (
    NOT_MEASURABLE,
    STATUSES,
    Row,
    Session,
    SessionError,
    find_sessions,
    printable,
    read_session,
)
from klat.verdicts import Observed, Unit


@dataclass(frozen=True)
class Pairing:
    """What run.json may declare under `pairing`: that runs were taken in turns with those of
    another label. `experiment` names the whole, the same on both sides; `pairs` holds the pair of
    each run as (first order, last order, pair), or one pair for all runs; `turns`, where a pair has
    several, the first and last order of each."""

    experiment: str
    pairs: tuple[tuple[int, int, str], ...] | str
    turns: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def of(facts: dict[str, Any]) -> Pairing | None:
        declared = facts.get("pairing")
        if not isinstance(declared, dict) or not declared.get("experiment"):
            return None
        experiment = str(declared["experiment"])
        if "pair" in declared:
            return Pairing(experiment, str(declared["pair"]))
        pairs = declared.get("pairs")
        if not isinstance(pairs, list):
            return None
        try:
            spans = tuple((int(first), int(last), str(pair)) for first, last, pair in pairs)
            turns = tuple((int(turn[0]), int(turn[1])) for turn in facts.get("turns") or ())
        except (TypeError, ValueError, LookupError, OverflowError):
            return None
        return Pairing(experiment, spans, turns)

    def of_order(self, order: int) -> str:
        """The pair of the run at that place of the plan, and whose it is; empty where it is in
        none."""
        if isinstance(self.pairs, str):
            return f"{self.experiment} {self.pairs}"
        for first, last, pair in self.pairs:
            if first <= order <= last:
                return f"{self.experiment} {pair}"
        return ""

    def is_complete(self, orders: Sequence[int]) -> bool:
        """Whether runs of one pair are of each of its turns. Of two turns of four a drift does not
        cancel."""
        for first, last, _ in () if isinstance(self.pairs, str) else self.pairs:
            if first <= orders[0] <= last:
                own = [turn for turn in self.turns if first <= turn[0] and turn[1] <= last]
                return all(any(a <= order <= b for order in orders) for a, b in own)
        return True


@dataclass(frozen=True)
class Source:
    """One session with what is needed to read its runs."""

    session: Session
    files: SampleFiles
    values: Values
    pairing: Pairing | None
    declared: Declared = frozenset()

    @cached_property
    def scale(self) -> float:
        """What a tick is multiplied by: nanoseconds where time means something."""
        return 1e6 / self.session.khz if self.session.khz else 1.0

    @cached_property
    def step(self) -> float:
        """By how much the counter's granularity may round a sample, in the scaled unit. Instructions
        are counted, not rounded."""
        return self.session.quantum * self.scale if self.session.unit == "ticks" else 0.0


@dataclass(frozen=True)
class Run:
    row: Row
    source: Source

    def value(self, estimand: Estimand) -> float | None:
        """In the side's unit; None where the run does not support it."""
        if estimand.column:
            found = estimand.of_row(self.row)
        else:
            assert estimand.q is not None
            (found,) = self.quantiles([estimand.q])
        return None if found is None else found * self.source.scale

    def parts(self) -> Iterator[Samples]:
        """The samples piece by piece, read into memory and not mapped: what is done with is given
        back at once."""
        return self.source.files.parts(self.row)

    def ranked(self, places: Sequence[int]) -> list[int]:
        """The samples at these places, from 0, in ascending order."""
        if (self.row.n or 0) > PART:  # what is left of a long run when it is counted is short
            return [
                int(sample) for sample in self.source.files.tally(self.row).take(np.array(places))
            ]
        samples = self.source.files.read(self.row)
        samples.partition(sorted(set(places)))
        return [int(samples[place]) for place in places]

    def quantiles(self, qs: Sequence[Fraction]) -> list[int | None]:
        """In ticks or instructions; None for what the run does not support."""
        n = self.row.n or 0
        supported = [q for q in qs if statistics.supports(n, q)]
        places = [statistics.rank(n, q) - 1 for q in supported]
        found = dict(zip(supported, self.ranked(places))) if places else {}
        return [found.get(q) for q in qs]

    def run_quantile(self, q: Fraction) -> RunQuantile | None:
        """Quantile q with its interval."""
        first = next(self.parts(), None)
        if first is None:
            return None
        return quantile_of(first[:STRETCH], self.row.n or 0, self.ranked, q)


# Benchmark, params, placement, metric.
Key = tuple[str, str, str, str]
UnitKey = tuple[str, str]  # boot, pair


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
    sessions = [read_session(found) for found in find_sessions(path)]
    problems = [f"{printable(str(s.path))}: {p}" for s in sessions for p in s.problems]
    problems += [
        f"{printable(str(s.path))}: {left.sentence()}"
        for s in sessions
        for left in unrecorded.of_session(s.path)
    ]
    held = [session for session in sessions if session.rows]
    if not held:
        first = problems[0] if problems else f"{printable(str(path))}: no run in it"
        raise SessionError(f"{first}; there is nothing to compare")
    labels = list(dict.fromkeys(printable(session.label) for session in held))
    if len(labels) > 1:
        shown = ", ".join(labels[:4]) + (", ..." if labels[4:] else "")
        raise KlatError(
            f"{printable(str(path))}: holds {len(labels)} labels, {shown}; give one of them"
        )
    sources = []
    for session in sorted(held, key=lambda s: (str(s.info.get("created")), str(s.path))):
        facts = read_run_facts(session.path)
        sources.append(
            Source(
                session,
                SampleFiles(session),
                conditions(session, facts),
                Pairing.of(facts),
                declared_options(facts),
            )
        )
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
        programs = source.session.info.get("programs")
        programs = programs if isinstance(programs, dict) else {}
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
            found = cell.values
            found.setdefault(("cpus", "the CPUs used"), {})[row.cpus] = None
            found.setdefault(("policy", "the policy obtained"), {})[row.policy] = None
            build = str(programs.get(row.benchmark))[:12]
            found.setdefault(("program", f"the build of {row.benchmark}"), {})[build] = None
            pair = source.pairing.of_order(row.order) if source.pairing else ""
            cell.units.setdefault((row.boot, pair), []).append(Run(row, source))
    for key, cell in cells.items():
        _, held = split_params(key[1])
        cell.values |= {(name, f"the option {name}"): {value: None} for name, value in held.items()}
        cell.units = dict(map(_whole_pair, cell.units.items()))
        for runs in cell.units.values():
            runs.sort(key=lambda run: run.row.start_ns)
    return dict(sorted(cells.items(), key=lambda item: _order(item[0])))


def _whole_pair(item: tuple[UnitKey, list[Run]]) -> tuple[UnitKey, list[Run]]:
    """The unit under a name of its own, which finds no partner, where a turn of it is missing."""
    (boot, pair), runs = item
    source = runs[0].source
    if source.pairing and not source.pairing.is_complete([run.row.order for run in runs]):
        pair = f"{pair}, incomplete in {source.session.label}"
    return (boot, pair), runs


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
    """How far, as a log, the counter's granularity may have rounded all the values together. Noise
    that carries values across steps makes their mean resolve more than a step; a run that strayed
    from the others, or two states with nothing between them, does not."""
    if not values:
        return 0.0
    step = max(run.source.step for run in runs)
    if not step:
        return 0.0
    rounded = _stuck_share(values, step) * step / 2 / mean(values)
    return -math.log1p(-min(0.5, rounded))  # downwards, where a step is longer


# Of normal noise with a deviation of 0.7 steps or more so many values lie outside of the two fullest
# steps beside each other, and what rounding does to their mean is below 0.0001 of a step.
_SCATTERED = 0.2
# Steps without a value between those that one noise spreads.
_GAP = 3


def _stuck_share(values: Sequence[float], step: float) -> float:
    """The share of values that lie together and that no noise spreads over the steps there. One by
    itself is spread, unless it is all there is."""
    low = min(values)
    places = sorted(round((value - low) / step) for value in values)
    if len(places) == 1:
        return 1.0
    stuck = 0
    for group in _together(places):
        held = Counter(group)
        fullest = max(held[place] + held[place + 1] for place in group)
        if len(group) > 1 and len(group) - fullest <= _SCATTERED * len(group):
            stuck += len(group)
    return stuck / len(places)


def _together(places: Sequence[int]) -> Iterator[list[int]]:
    """Ascending numbers in groups without a wide gap."""
    group: list[int] = []
    for place in places:
        if group and place - group[-1] > _GAP + 1:
            yield group
            group = []
        group.append(place)
    if group:
        yield group


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
