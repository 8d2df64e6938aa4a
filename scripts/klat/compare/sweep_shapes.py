"""What a sweep shows: how the time of a TLB shootdown grows with its responders, where two lines change places, and
up to how many pairs the rate grows with them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from klat.compare.settings import Setting
from klat.compare.sweeps import Quantity, RESPONDERS, Sweep, SweepLine, SweepPoint
from klat.stats.descriptive import LinearFit, fit_over_boots, linear_fit
from klat.stats.granularity import rounding_of_slope
from klat.stats.means import mean, welch

BENCHMARK, SWEPT = RESPONDERS
# These follow from the number of responders, so they may differ along a sweep.
_FOLLOWING = ("cpus",)


@dataclass(frozen=True)
class Shootdown:
    """One sweep of one metric over responders k, in the session's unit, by increasing k. The value of
    a point is T(k): the mean over runs of the run's median."""

    metric: str
    params: dict[str, str]
    points: list[SweepPoint]
    fit: LinearFit | None  # None with fewer than two counts

    @property
    def base(self) -> float | None:
        """T(0), the cost without any responder; None when it was not measured."""
        return None if self.points[0].x else self.points[0].value


def shootdowns(settings: Iterable[Setting]) -> list[Shootdown]:
    """Every sweep over responders. The settings of a sweep differ in nothing else. A sweep has at
    least two counts, or one count if the runs of the other counts are unusable."""
    groups: dict[tuple[tuple[str, str], ...], list[Setting]] = {}
    for setting in settings:
        count = setting.params.get(SWEPT, "")
        if setting.benchmark != BENCHMARK or not (count.isascii() and count.isdigit()):
            continue
        rest = {k: v for k, v in setting.params.items() if k not in (SWEPT, *_FOLLOWING)}
        groups.setdefault(tuple(rest.items()), []).append(setting)
    scalings = []
    for params, group in groups.items():
        for counts in _on_one_choice_of_cpus(group):
            if len(counts) > 1:
                scalings += [_sweep(metric, dict(params), counts) for metric in _metrics(counts)]
    return [sweep for sweep in scalings if sweep.points]


def _on_one_choice_of_cpus(settings: Sequence[Setting]) -> list[dict[int, Setting]]:
    """The settings by their number of responders: together if each number was measured on one
    choice of CPUs, else separately for each choice. A setting without responders has one CPU and
    belongs to any choice."""
    counts = [int(setting.params[SWEPT]) for setting in settings]
    if len(set(counts)) == len(counts):
        return [dict(zip(counts, settings))]
    alone = [setting for count, setting in zip(counts, settings) if not count]
    groups: dict[tuple[str, ...], dict[int, Setting]] = {}
    for count, setting in zip(counts, settings):
        if count:
            choice = (setting.placement, *(setting.params.get(name, "") for name in _FOLLOWING))
            base = {0: alone[0]} if len(alone) == 1 else {}
            groups.setdefault(choice, base)[count] = setting
    return list(groups.values())


def _metrics(counts: dict[int, Setting]) -> list[str]:
    """The initiator's metric: the one that is measured without responders too, else the first one."""
    names = list(counts[min(counts)].measurements)
    return names if min(counts) == 0 else names[:1]


def _sweep(metric: str, params: dict[str, str], counts: dict[int, Setting]) -> Shootdown:
    points = []
    for count in sorted(counts):
        if point := SweepPoint.of(count, [counts[count]], Quantity(metric)):
            points.append(point)
    return Shootdown(metric, params, points, _fit(points))


def _fit(points: Sequence[SweepPoint]) -> LinearFit | None:
    """A line for each boot, and their mean. The interval includes what the counter's granularity can
    hide."""
    by_boot: dict[str, tuple[list[float], list[float], list[float]]] = {}
    for point in points:
        for median, boot in zip(point.runs.tolist(), point.boots):
            x, y, rounded = by_boot.setdefault(boot, ([], [], []))
            x.append(point.x)
            y.append(median)
            rounded.append(point.resolution)
    fits, hidden = [], []
    for x, y, rounded in by_boot.values():
        if fit := linear_fit(np.array(x), np.array(y)):
            fits.append(fit)
            hidden.append(rounding_of_slope(x, rounded))
    if not fits:
        return None
    fit = fits[0] if len(by_boot) < 2 else fit_over_boots(fits)
    return fit.widened(mean(hidden))


# The option, its figure, and the share of growth in proportion that is still called linear.
_GROWING, _RATE, LINEAR = "pairs", "iterations_per_second", 0.9


def knee(sweep: Sweep, line: SweepLine) -> float | None:
    """The number of pairs up to which the rate of all pairs is at least LINEAR times the rate that is in proportion
    to the fewest pairs. None if there is no such end, and for another option or figure."""
    if sweep.option != _GROWING or sweep.name != _RATE:
        return None
    first = line.points[0]
    for last, point in zip(line.points, line.points[1:]):
        if point.value < LINEAR * first.value * point.x / first.x:
            return last.x
    return None


# Level of the test whether two lines differ at one value.
_CHANCE = 0.05


@dataclass(frozen=True)
class Crossing:
    """`low` has the lower figures up to one value of the option, `high` from another on."""

    low: SweepLine
    until: float
    high: SweepLine
    since: float


def crossings(sweep: Sweep) -> list[Crossing]:
    """Pairs of lines that change places once: one is lower at first and the other in the end, each
    beyond chance."""
    crossed = []
    for i, line in enumerate(sweep.lines):
        for other in sweep.lines[i + 1 :]:
            signs = [(x, s) for x in sweep.values if (s := _sign(line.at(x), other.at(x)))]
            changes = [(a, b) for a, b in zip(signs, signs[1:]) if a[1] != b[1]]
            if len(changes) == 1 and sweep.by and not sweep.choices:
                (until, sign), (since, _) = changes[0]
                low, high = (line, other) if sign < 0 else (other, line)
                crossed.append(Crossing(low, until, high, since))
    return crossed


def _sign(point: SweepPoint | None, other: SweepPoint | None) -> int:
    """The sign of the difference, or 0 if Welch's test finds none. Runs of one boot are not
    compared with several boots."""
    if point is None or other is None or (len(set(point.boots)) > 1) != (len(set(other.boots)) > 1):
        return 0
    difference = welch(other.units, point.units, other.resolution + point.resolution)
    if difference is None or difference.p_changed(0.0) > _CHANCE:
        return 0
    return int(math.copysign(1, difference.value))
