"""How a metric went over the sessions of one label: where it changed, and whether it drifts.

`History` holds all that a report prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from klat.comparability import disagreements
from klat.environment import Difference, differences, recorded_differences
from klat.errors import KlatError
from klat.estimands import MEDIAN, Estimand
from klat.inference.changes import Drift, changes, drift, is_line, needed, needed_beside
from klat.session import printable
from klat.sides import (
    CellRuns,
    Key,
    NoLogarithm,
    Side,
    Units,
    observe,
    unmeasurable_lines,
)
from klat.sources import Source


class Shape(str, Enum):
    CHANGED = "changed"
    DRIFTS = "drifts"
    STEADY = "no change found"
    TOO_FEW = "too few to tell"
    NO_FIGURE = "no figure"


@dataclass(frozen=True)
class HistoryOptions:
    alpha: float = 0.05
    estimand: Estimand = MEDIAN
    metrics: tuple[str, ...] = ()
    seed: int = 1


@dataclass(frozen=True)
class Boot:
    """A point in time: all sessions of one boot. `date` is the first one's, as text."""

    name: str
    date: str
    kernel: str


@dataclass(frozen=True)
class Point:
    """What one boot gave: `value` is the geometric mean over its runs, `low` and `high` the least
    and largest of them."""

    boot: int  # in History.boots
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Step:
    """A change before point `at`: geometric means of the points before it, back to the change
    before, and after it, up to the next."""

    at: int
    p: float
    before: float
    after: float
    kernels: tuple[str, str]
    differences: tuple[Difference, ...]

    @property
    def ratio(self) -> float:
        return self.after / self.before


@dataclass(frozen=True)
class Series:
    """One metric of one setting. `overall` is the last level over the first one: of the segments
    where it changed, of the line where it drifts; None where neither."""

    key: Key
    unit: str
    points: tuple[Point, ...]
    shape: Shape
    steps: tuple[Step, ...]
    drift: Drift | None
    overall: float | None
    reason: str = ""


@dataclass(frozen=True)
class History:
    """`level` is what each of the two tests of a series is held to, alpha over all of them;
    `needed` boots are the fewest that can tell, `beside` of the present number on either side of a
    change."""

    label: str
    boots: tuple[Boot, ...]
    series: tuple[Series, ...]
    options: HistoryOptions
    level: float
    needed: int
    beside: int
    cautions: tuple[str, ...]
    problems: tuple[str, ...]
    unmeasurable: tuple[str, ...] = ()

    @property
    def telling(self) -> bool:
        """Whether anything could be told of any series."""
        return any(s.shape not in (Shape.TOO_FEW, Shape.NO_FIGURE) for s in self.series)


def history(side: Side, options: HistoryOptions) -> History:
    units = {session.unit if not session.khz else "ns" for session in side.sessions}
    if len(units) > 1:
        raise KlatError(
            f"{side.name}: its sessions are in {' and in '.join(sorted(units))},"
            " which are no one series"
        )
    known = dict.fromkeys(key[3] for key in (*side.cells, *side.unmeasurable))
    for metric in options.metrics:
        if metric not in known:
            raise KlatError(
                f"there is no metric {metric!r}; there are {', '.join(map(printable, known))}"
            )
    first: dict[str, Source] = {}
    for source in side.sources:
        first.setdefault(source.session.boot_id, source)
    boots = list(first)
    cells = {k: c for k, c in side.cells.items() if not options.metrics or k[3] in options.metrics}
    unmeasurable = unmeasurable_lines(side, options.metrics)
    if not cells:
        why = "; ".join(unmeasurable) or "no run measured anything"
        raise KlatError(f"{side.name}: {why}, so there is no history")
    # Of each series both a change and a drift are looked for.
    level = options.alpha / (2 * max(1, len(cells)))
    found = []
    for key, cell in cells.items():
        found.append(_series(key, cell, side.unit, boots, first, options, level))
    moved = disagreements([source.values for source in side.sources], [])
    return History(
        label=side.name,
        boots=tuple(_boot(first[boot]) for boot in boots),
        series=tuple(found),
        options=options,
        level=level,
        needed=needed(level),
        beside=needed_beside(max(len(boots), needed(level)), level),
        cautions=tuple(f"{c.key}: {c.name} was {c.base}" for c in moved),
        unmeasurable=tuple(unmeasurable),
        problems=tuple(side.problems),
    )


def _boot(source: Source) -> Boot:
    info = source.session.info
    return Boot(
        name=printable(source.session.path.name),
        date=printable(str(info.get("created") or "no date"))[:16].replace("T", " "),
        kernel=printable(str(info.get("kernel_release") or "unknown")),
    )


def _series(
    key: Key,
    cell: CellRuns,
    unit: str,
    boots: Sequence[str],
    sources: dict[str, Source],
    options: HistoryOptions,
    level: float,
) -> Series:
    try:
        observed = observe(cell, options.estimand, Units())
    except NoLogarithm:
        reason = f"the {options.estimand.name} of a run is 0, of which there is no ratio"
        return Series(key, unit, (), Shape.NO_FIGURE, (), None, None, reason)
    place = {boot: i for i, boot in enumerate(boots)}
    points = sorted(
        (
            Point(
                place[u.name],
                math.exp(float(np.mean(u.logs))),
                math.exp(min(u.logs)),
                math.exp(max(u.logs)),
            )
            for u in observed.units
        ),
        key=lambda point: point.boot,
    )
    if not points:
        reason = f"no run has a {options.estimand.name} that counts"
        return Series(key, unit, (), Shape.NO_FIGURE, (), None, None, reason)
    logs = [math.log(point.value) for point in points]
    if len(points) < needed(level):
        return Series(key, unit, tuple(points), Shape.TOO_FEW, (), None, None)
    places = changes(logs, level, options.seed)
    trend = drift(logs)
    drifts = trend is not None and trend.p <= level
    starts = [change.at for change in places]
    if (places or drifts) and is_line(logs, starts) and trend is not None:
        overall = math.exp(trend.slope * (len(logs) - 1))
        return Series(key, unit, tuple(points), Shape.DRIFTS, (), trend, overall)
    ends = [0, *starts, len(logs)]
    levels = [math.exp(float(np.mean(logs[a:b]))) for a, b in zip(ends, ends[1:])]
    steps = []
    for number, change in enumerate(places):
        one, two = (sources[boots[points[i].boot]] for i in (change.at - 1, change.at))
        steps.append(
            Step(
                change.at,
                change.p,
                levels[number],
                levels[number + 1],
                (_boot(one).kernel, _boot(two).kernel),
                tuple(_between(one, two)),
            )
        )
    if not steps:
        return Series(key, unit, tuple(points), Shape.STEADY, (), None, None)
    overall = levels[-1] / levels[0]
    return Series(key, unit, tuple(points), Shape.CHANGED, tuple(steps), None, overall)


def _between(one: Source, two: Source) -> list[Difference]:
    a, b = one.session, two.session
    found = recorded_differences(a.info, b.info)
    return found + differences(a.path / "environment", b.path / "environment")
