"""The numbers of units and runs that find a change in the least time, from the variances that a pilot
shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from klat.compare.dataset import Key
from klat.compare.estimands import FINER, Estimand
from klat.stats import power
from klat.stats.power import MOST_UNITS, Design, power_of_change, power_of_equivalence, smallest

# The numbers of runs in a unit that are tried.
RUNS = (*range(1, 11), 12, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 300, 500)
# The start of the reason why no number of units is enough.
TOO_COARSE = "too coarse"
# The chance that the variance is not above its bound.
CAUTION = 0.8


@dataclass(frozen=True)
class Target:
    """The change to find, the power and alpha to find it with, and the cost of a boot. Without
    `estimands`, the plan is for those that compare tests by default."""

    change: float = 0.04
    power: float = 0.9
    alpha: float = 0.05
    margin: float = 0.02
    boot_seconds: float = 60.0
    estimands: tuple[Estimand, ...] = ()
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Effort:
    """A number of boots or blocks, and of runs of each benchmark in a boot or in each turn. `runs` includes
    those that will not count."""

    units: int
    runs: int
    seconds: float | None  # None if the time of a run is unknown


@dataclass(frozen=True)
class Metric:
    """One estimand of a metric in a pilot, with the variances of its logs; None if the pilot does
    not show them.

    For boots, `run` is the variance between the runs of a boot and `unit` the variance between
    boots. For blocks, `run` is the variance of a run of A plus that of a run of B, and `unit` the
    variance of B - A between blocks.

    `unit` does not contain the runs' contribution (it is Kalibera and Jones's T^2; a negative
    estimate counts as 0). `unit_bound` is its upper limit. `alone` is what this metric needs by
    itself. `resolution` is how much of a change, as a log, the counter's granularity can hide.
    """

    key: Key
    estimand: str
    units: int
    runs: int
    run: float | None
    unit: float | None
    unit_bound: float | None
    run_seconds: float | None
    alone: Effort | None = None
    reason: str = ""
    resolution: float = 0.0

    def with_alone(self, target: Target, cost: UnitCost) -> Metric:
        if self.reason:
            return self
        cost = replace(cost, round_seconds=self.run_seconds)
        return replace(self, alone=least_effort([self], target, 1, cost))


@dataclass(frozen=True)
class UnitCost:
    """A unit is a boot of one kernel, or with `pairs` a block of `turns` turns of each of two
    settings. `start_seconds` pass before the first run of a boot or a turn. `round_seconds` is the
    time of one run of every benchmark. If it is None, a round counts like a start. `counted` is the
    share of runs that count."""

    start_seconds: float
    round_seconds: float | None
    turns: int = 1
    pairs: bool = False
    counted: Fraction = Fraction(1)

    def planned_runs(self, runs: int) -> int:
        """How many runs to plan so that `runs` of them count."""
        return math.ceil(runs / self.counted)

    def seconds(self, units: int, runs: int) -> float:
        turns = 2 * self.turns if self.pairs else 1
        of_round = self.start_seconds if self.round_seconds is None else self.round_seconds
        return units * turns * (self.start_seconds + self.planned_runs(runs) * of_round)


def efforts(
    metrics: Sequence[Metric], target: Target, tests: int, cost: UnitCost
) -> dict[str, Effort | None]:
    """Efforts by name: `effort` finds the change, `same` shows that nothing has changed. The
    `cautious` ones use the bounds of the variances."""
    fixed = (metrics, target, tests, cost)
    return {
        "effort": least_effort(*fixed),
        "cautious": least_effort(*fixed, cautious=True),
        "same": least_effort(*fixed, same=True),
        "cautious_same": least_effort(*fixed, cautious=True, same=True),
    }


def least_effort(
    metrics: Sequence[Metric],
    target: Target,
    tests: int,
    cost: UnitCost,
    cautious: bool = False,
    same: bool = False,
) -> Effort | None:
    """The least time in which each metric by itself shows the change with the power of the target;
    with `same`, in which all metrics together are shown to be the same. None if no number is enough.

    For one metric and many boots this is Kalibera and Jones's r = sqrt(c2 / c1 x T1^2 / T2^2). Here
    every r is tried, because boots are few and the metrics differ.
    """
    best, least = None, math.inf
    if not metrics:
        return None
    for runs in RUNS:
        units = power.fewest(target.alpha, cost.pairs)
        for metric in metrics:
            deviation = metric.unit_bound if cautious else metric.unit
            assert deviation is not None and metric.run is not None
            varies = deviation + metric.run / (cost.turns * runs)
            other = 0.0 if cost.pairs else varies
            design = Design(units, varies, other, cost.pairs, metric.resolution)
            needed = _fewest_units(design, target, tests, same)
            if needed is None:
                break
            units = max(units, needed)
        else:
            seconds = cost.seconds(units, runs)
            if seconds < least:
                known = cost.round_seconds is not None
                planned = cost.planned_runs(runs)
                best, least = Effort(units, planned, seconds if known else None), seconds
    return best


def _fewest_units(design: Design, target: Target, tests: int, same: bool) -> int | None:
    """At least as many as the design has. None if no number is enough."""
    margin = math.log1p(target.margin)

    def likely(units: int) -> bool:
        chosen = replace(design, units=units)
        if same:  # all tests have to succeed
            missed = (1 - target.power) / max(1, tests)
            return power_of_equivalence(chosen, 0.0, margin, target.alpha) >= 1 - missed
        hardest = target.alpha / max(1, tests)  # of Holm's correction
        effect = math.log1p(target.change)
        return power_of_change(chosen, effect, margin, hardest) >= target.power

    return smallest(likely, design.units, MOST_UNITS)


def bound(observed: float, units: int) -> float:
    """Upper limit of a variance with units - 1 degrees of freedom, from the chi-square
    distribution."""
    from scipy.special import chdtri

    return float(observed * (units - 1) / chdtri(units - 1, CAUTION))


def coarse(resolution: float, target: Target) -> str:
    """Why no number of units shows the change, or empty."""
    if resolution < math.log1p(target.change) - math.log1p(target.margin):
        return ""
    hidden = 100 * math.expm1(resolution)
    return (
        f"{TOO_COARSE}: the counter's steps may hide a change of up to {hidden:.2g} %, however many"
        f" runs there are; {FINER}"
    )
