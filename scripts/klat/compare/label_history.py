"""A metric over the sessions of one label: where it changed, and whether it drifted. `History`
holds all that a report prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from klat.compare.session_problems import same_samples
from klat.compare.conditions import Distinctions
from klat.record.environment import Difference, differences, recorded_differences
from klat.base.errors import KlatError
from klat.compare.estimands import MEDIAN, Estimand
from klat.stats.change_points import Change, Drift, changes, drift, is_line, needed, needed_beside
from klat.record import renamed_metrics
from klat.record.session import printable
from klat.compare.dataset import Dataset, Key
from klat.compare.runs import Runs, by_boot
from klat.compare.observations import NoLogarithm, Units, observe_sides
from klat.compare.sources import Source, undated


class TrendKind(str, Enum):
    CHANGED = "changed"
    DRIFTS = "drifts"
    WITHIN_STEP = "within one step"  # of the counter
    STEADY = "no change found"
    TOO_FEW = "too few boots"
    NO_FIGURE = "no figure"


@dataclass(frozen=True)
class HistoryOptions:
    alpha: float = 0.05
    estimand: Estimand = MEDIAN
    metrics: tuple[str, ...] = ()
    seed: int = 1


@dataclass(frozen=True)
class HistoryBoot:
    """A point in time: all sessions of one boot. `date` is the first one's, as text."""

    name: str
    date: str
    kernel: str


@dataclass(frozen=True)
class BootPoint:
    """One boot: `value` is the geometric mean over its runs, `low` and `high` are the smallest and
    the largest run."""

    boot: int  # in History.boots
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Step:
    """A change before point `at`. `before` and `after` are geometric means of the points between
    this change and its neighbours."""

    at: int
    p: float
    before: float
    after: float
    kernels: tuple[str, str]
    differences: tuple[Difference, ...]
    resolution: float = 0.0  # as a log: what the counter's granularity can hide at both levels

    @property
    def ratio(self) -> float:
        return self.after / self.before

    @property
    def excess(self) -> float:
        """How much of the change, as a log, the counter's granularity cannot make."""
        return abs(math.log(self.ratio)) - self.resolution

    @property
    def is_within_step(self) -> bool:
        return self.resolution > 0 and self.excess <= 0


@dataclass(frozen=True)
class HistorySeries:
    """One metric of one setting. `overall` is the last level over the first one: of the steps if it
    changed, of the line if it drifts, else None. `within_step` are changes that the counter's
    granularity alone can make."""

    key: Key
    unit: str
    apart: Distinctions  # from other series of its key
    points: tuple[BootPoint, ...] = ()
    shape: TrendKind = TrendKind.NO_FIGURE
    steps: tuple[Step, ...] = ()
    within_step: tuple[Step, ...] = ()
    drift: Drift | None = None
    overall: float | None = None
    reason: str = ""
    pooled: str = ""  # why a point is of all samples of a boot; empty if runs have figures


@dataclass(frozen=True)
class History:
    """`level` is the alpha of each of the two tests of a series, so that alpha holds over all of
    them. `needed` is the smallest number of boots that can show a change. A change needs `beside`
    boots on either side."""

    label: str
    boots: tuple[HistoryBoot, ...]
    series: tuple[HistorySeries, ...]
    options: HistoryOptions
    level: float
    needed: int
    beside: int
    problems: tuple[str, ...]
    unmeasurable: tuple[str, ...] = ()

    @property
    def telling(self) -> bool:
        """Whether any series has enough boots for a statement."""
        return any(s.shape not in (TrendKind.TOO_FEW, TrendKind.NO_FIGURE) for s in self.series)


def history(side: Dataset, options: HistoryOptions) -> History:
    units = {session.figure_unit for session in side.sessions}
    if len(units) > 1:
        raise KlatError(
            f"{side.name}: its sessions are in {' and in '.join(sorted(units))},"
            " but a series must have one unit"
        )
    renamed_metrics.require(options.metrics, side.known_metrics())
    first = side.first_of_boots
    boots = list(first)
    unmeasurable = side.unmeasurable_lines(options.metrics)
    metric_names = options.metrics
    parts = [p for p in _parts(side) if renamed_metrics.is_asked(metric_names, p.key[0], p.key[3])]
    if not parts:
        why = "; ".join(unmeasurable) or "no run measured anything"
        raise KlatError(f"{side.name}: {why}, so there is no history")
    for part in parts:
        if lost := undated(part.sources.values()):
            raise KlatError(_without_order(side, lost))
    # Each series is tested for a change and for a drift.
    level = options.alpha / (2 * len(parts))
    return History(
        label=side.name,
        boots=tuple(_boot(first[boot]) for boot in boots),
        series=tuple(_series(part, side.figure_unit, boots, options, level) for part in parts),
        options=options,
        level=level,
        needed=needed(level),
        beside=needed_beside(max(len(boots), needed(level)), level),
        unmeasurable=tuple(unmeasurable),
        problems=(*side.problems, *same_samples(side.sessions)),
    )


@dataclass(frozen=True)
class _Part:
    """Runs that may be in one series: compare would accept them as one side, except for their
    kernels. `apart` names the conditions that separate them from other runs of the same key."""

    key: Key
    cell: Runs
    sources: dict[str, Source]  # by boot
    apart: Distinctions


def _parts(side: Dataset) -> list[_Part]:
    """By key."""
    by_key: dict[Key, list[_Part]] = {}
    for pool in side.pools(across_kernels=True):
        for key, cell in pool.cells.items():
            kinds = cell.by_run_conditions()
            parts = by_key.setdefault(key, [])
            for kind, runs in kinds.items():
                apart = pool.apart + kind.differs_from(kinds)
                parts.append(_Part(key, runs, pool.first_of_boots, apart))
            if not kinds:  # no run counts
                parts.append(_Part(key, cell, pool.first_of_boots, pool.apart))
    return [part for key in side.cells for part in by_key[key]]


def _without_order(side: Dataset, lost: Source) -> str:
    return (
        f"{side.name}: the order of its boots is not known, because the clock was not set in"
        f" {printable(lost.session.path.name)}, whose date is {printable(lost.begun)[:40]}; set the clock"
        " before klat measures, or use klat campaign, which numbers the boots"
    )


def _boot(source: Source) -> HistoryBoot:
    info = source.session.info
    date = printable(str(info.get("created")))[:16].replace("T", " ")
    return HistoryBoot(
        name=printable(source.session.path.name),
        date=date if source.is_dated else "no date",
        kernel=printable(str(info.get("kernel_release") or "unknown")),
    )


def _series(
    part: _Part, unit: str, boots: Sequence[str], options: HistoryOptions, level: float
) -> HistorySeries:
    series = HistorySeries(part.key, unit, part.apart)
    try:
        (observed,) = observe_sides([part.cell], options.estimand, [Units()], grouped=False)
    except NoLogarithm as error:
        reason = f"the {options.estimand.name} of a run {error}, so there is no ratio"
        return replace(series, reason=reason)
    points = sorted(
        (
            BootPoint(
                boots.index(u.name),
                math.exp(float(np.mean(u.logs))),
                math.exp(min(u.logs)),
                math.exp(max(u.logs)),
            )
            for u in observed.units
        ),
        key=lambda point: point.boot,
    )
    if not points:
        why = f"no run has a {options.estimand.name} that counts"
        if observed.needed_and_present:
            why = f"no boot has the {observed.needed_and_present[0]:,} samples that {options.estimand.name} needs"
        return replace(series, reason=why)
    series = replace(series, points=tuple(points), pooled=observed.pooled)
    logs = [math.log(point.value) for point in points]
    if len(points) < needed(level):
        return replace(series, shape=TrendKind.TOO_FEW)
    places = changes(logs, level, options.seed)
    trend = drift(logs)
    drifts = trend is not None and trend.p <= level
    starts = [change.at for change in places]
    if (places or drifts) and is_line(logs, starts) and trend is not None:
        overall = trend.slope * (len(logs) - 1)
        if min(abs(overall), max(logs) - min(logs)) <= 2 * observed.resolution:
            return replace(series, shape=TrendKind.WITHIN_STEP, drift=trend)
        return replace(series, shape=TrendKind.DRIFTS, drift=trend, overall=math.exp(overall))
    if not places:
        return replace(series, shape=TrendKind.STEADY)
    names = [boots[point.boot] for point in points]
    return _with_steps(series, part, names, logs, places, options.estimand)


def _with_steps(
    series: HistorySeries,
    part: _Part,
    names: Sequence[str],
    logs: Sequence[float],
    places: Sequence[Change],
    estimand: Estimand,
) -> HistorySeries:
    """`names` and `logs` hold the boot and the figure of each point."""
    sources = [part.sources[name] for name in names]
    within_step = []
    while True:
        levels = _levels(part.cell, names, logs, places, estimand)
        steps = tuple(_step(*three, sources) for three in zip(places, levels, levels[1:]))
        weakest = min(steps, key=lambda step: step.excess, default=None)
        if weakest is None or not weakest.is_within_step:
            break
        # Without this change, the levels beside it are one level.
        within_step.append(weakest)
        places = [change for change in places if change.at != weakest.at]
    within_step.sort(key=lambda step: step.at)
    series = replace(series, within_step=tuple(within_step))
    if not steps:
        return replace(series, shape=TrendKind.WITHIN_STEP)
    overall = steps[-1].after / steps[0].before
    return replace(series, shape=TrendKind.CHANGED, steps=steps, overall=overall)


@dataclass(frozen=True)
class _Level:
    """The points between two changes. `resolution` bounds, as a log, what the counter's granularity can
    hide of their mean."""

    value: float
    resolution: float


def _levels(
    cell: Runs,
    names: Sequence[str],
    logs: Sequence[float],
    places: Sequence[Change],
    estimand: Estimand,
) -> list[_Level]:
    ends = [0, *(change.at for change in places), len(names)]
    spans = list(zip(ends, ends[1:]))
    boots = by_boot(cell.runs)
    cells = [Runs([run for name in names[a:b] for run in boots[name]]) for a, b in spans]
    observed = observe_sides(cells, estimand, [Units() for _ in cells], grouped=False)
    return [
        _Level(math.exp(float(np.mean(logs[a:b]))), level.resolution)
        for (a, b), level in zip(spans, observed)
    ]


def _step(change: Change, before: _Level, after: _Level, sources: Sequence[Source]) -> Step:
    """`sources` holds one source per point."""
    last, first = sources[change.at - 1], sources[change.at]
    a, b = last.session, first.session
    differing = recorded_differences(a.info, b.info)
    differing += differences(a.path / "environment", b.path / "environment")
    kernels = (_boot(last).kernel, _boot(first).kernel)
    return Step(
        at=change.at,
        p=change.p,
        before=before.value,
        after=after.value,
        kernels=kernels,
        differences=tuple(differing),
        resolution=before.resolution + after.resolution,
    )
