"""Judges simulated kernels and counts how often the verdict is right.

Whole arrays of comparisons are judged at once, by the functions of klat.stats that klat.compare.verdicts calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from klat.stats import power, multiplicity
from klat.stats.granularity import hidden
from klat.stats.means import Statement, conclude, p_changed, p_within, reach, welch_freedom
from validation.interval import clopper_pearson
from validation.kernels import SHAPES, STEP, Logs, Shape, Size
from klat.compare.verdicts import Rules

Flags = npt.NDArray[np.bool_]

BOOTS = (4, 5, 10, 20)
# True changes in margins. The third must be the margin itself.
CHANGES = (0.5, 0.75, 1.0, 2.0)
_PART = 20  # comparisons of a suite that are held in memory at once


@dataclass(frozen=True)
class Plan:
    """How much is simulated. A suite is a comparison of `benchmarks` at once."""

    repetitions: int = 2_000
    benchmarks: int = 10
    boots: tuple[int, ...] = BOOTS
    runs: int = 5
    samples: int = 200
    seed: int = 1
    rules: Rules = Rules()


@dataclass(frozen=True)
class Rate:
    """`hits` of `of`; the interval is Clopper and Pearson's at 95 %."""

    hits: int
    of: int

    @classmethod
    def among(cls, flags: Iterable[object]) -> Rate:
        held = list(map(bool, flags))
        return cls(sum(held), len(held))

    @property
    def value(self) -> float:
        return self.hits / self.of

    @property
    def interval(self) -> tuple[float, float]:
        return clopper_pearson(self.hits, self.of, 0.95)

    @property
    def surely(self) -> tuple[float, float]:
        """The same at 99.9 %: over a hundred rates are held to a claim."""
        return clopper_pearson(self.hits, self.of, 0.999)


def rate(flags: Flags) -> Rate:
    return Rate(int(np.count_nonzero(flags)), flags.size)


@dataclass(frozen=True)
class Judged:
    """Of many families of tests, one family a row."""

    slower: Flags
    faster: Flags
    same: Flags
    covers: Flags  # the true ratio
    shows: Flags  # a two-sided test of no difference would call it slower

    @property
    def changed(self) -> Flags:
        return np.asarray(self.slower | self.faster)


@dataclass(frozen=True)
class Estimates:
    """Of many comparisons: the difference of the mean logs with its standard error, degrees of
    freedom, and what the counter can hide. `boots` on each side."""

    value: Logs
    error: Logs
    freedom: Logs
    hidden: Logs
    boots: int


def estimates(base: Logs, new: Logs, resolution: Logs | float = 0.0) -> Estimates:
    """From the logs of runs, ... x boots x runs. No side may be without variance."""
    boots = base.shape[-2]
    means = [side.mean(axis=-1) for side in (base, new)]
    one, two = (mean.var(axis=-1, ddof=1) / boots for mean in means)
    value = means[1].mean(axis=-1) - means[0].mean(axis=-1)
    freedom = welch_freedom(one / (one + two), boots - 1, two / (one + two), boots - 1)
    return Estimates(value, np.sqrt(one + two), freedom, value * 0 + resolution, boots)


def judged(estimated: Estimates, true: float, rules: Rules) -> Judged:
    """With Holm's correction over the last axis."""
    given = estimated.value, estimated.error, estimated.freedom, estimated.hidden
    p = np.maximum(
        p_changed(*given, rules.log_margin),
        power.by_states(estimated.boots, estimated.boots, 0, estimated.boots),
    )
    said = conclude(
        estimated.value, multiplicity.holm(p), p_within(*given, rules.log_margin), rules.alpha
    )
    limits = reach(*given[1:], 1 - rules.alpha)
    differs = (p_changed(*given, 0.0) <= rules.alpha) & (estimated.value > 0)
    return Judged(
        slower=said == Statement.ABOVE,
        faster=said == Statement.BELOW,
        same=said == Statement.WITHIN,
        covers=np.abs(estimated.value - true) <= limits,
        shows=differs & (said != Statement.WITHIN),
    )


@dataclass(frozen=True)
class Row:
    """What is found of kernels of one shape with so many boots a side. Changes are in margins."""

    shape: str
    boots: int
    coarse: bool
    errors: float  # standard errors in the margin, the median comparison's
    none: Rate  # any faster or slower in a suite of kernels that do not differ
    suite: Rate  # the same of kernels that all differ by the margin
    slower: dict[float, Rate]  # of each change, by one comparison
    shows: dict[float, Rate]  # the same by a two-sided test of no difference
    faster: Rate  # said of a slower kernel
    same: Rate  # said of a change of the margin
    covers: Rate

    def refuted(self, alpha: float) -> list[str]:
        """What is claimed and is not so, beyond what chance explains."""
        found = []
        for what, held in (("alike", self.none), ("a margin apart", self.suite)):
            if held.surely[0] > alpha:
                found.append(f"false alarms of suites {what}")
        if self.slower[1.0].surely[0] > alpha:
            found.append("slower at the margin")
        # Below, half the margin cannot be told from all of it, at which a test may err in alpha.
        half = 0.01 if self.errors >= 3 else 0.03
        if self.slower[0.5].surely[0] > half:
            found.append("slower at half the margin")
        if self.same.surely[0] > alpha:
            found.append("same at the margin")
        if self.covers.surely[1] < 1 - alpha - 0.01:
            found.append("coverage")
        if not self.coarse and self.covers.surely[0] > 1 - alpha + 0.02:
            found.append("coverage")
        return found


def row(number: int, boots: int, plan: Plan) -> Row:
    """One shape and size, every change on the same draws."""
    shape = SHAPES[number]
    draw = np.random.default_rng([plan.seed, number, boots])
    parts = [
        drawn
        for first in range(0, plan.repetitions, _PART)
        for drawn in [_drawn(shape, draw, min(_PART, plan.repetitions - first), boots, plan)]
    ]
    found = {change: _joined(parts, change) for change in (0.0, *CHANGES)}
    margin = plan.rules.log_margin
    # Each change as a family of its own, and by itself.
    families = {c: judged(e, c * margin, plan.rules) for c, e in found.items()}
    alone = {c: judged(_alone(e), c * margin, plan.rules) for c, e in found.items()}
    return Row(
        shape=shape.name,
        boots=boots,
        coarse=bool(shape.ticks),
        errors=margin / float(np.median(found[0.0].error)),
        none=rate(families[0.0].changed.any(axis=-1)),
        suite=rate(families[1.0].changed.any(axis=-1)),
        slower={c: rate(alone[c].slower) for c in CHANGES},
        shows={c: rate(alone[c].shows) for c in CHANGES},
        faster=rate(alone[CHANGES[-1]].faster),
        same=rate(alone[1.0].same),
        covers=rate(alone[0.0].covers),
    )


def _alone(found: Estimates) -> Estimates:
    """Each comparison a family of its own."""
    value, error, freedom, out_of = (
        x.reshape(-1, 1) for x in (found.value, found.error, found.freedom, found.hidden)
    )
    return Estimates(value, error, freedom, out_of, found.boots)


def _drawn(
    shape: Shape, draw: np.random.Generator, count: int, boots: int, plan: Plan
) -> dict[float, Estimates]:
    """Suites of every change."""
    size = Size(boots, plan.runs, plan.samples)
    dims = (count, plan.benchmarks, boots, plan.runs)
    base, new = (shape.runs(draw, count * plan.benchmarks, size).reshape(dims) for _ in range(2))
    level = draw.random((count, plan.benchmarks, 1, 1))  # where between two steps
    found = {}
    for change in (0.0, *CHANGES):
        shifted = new + change * plan.rules.log_margin
        if shape.ticks:
            found[change] = read(base, shifted, shape.ticks, level)
        else:
            found[change] = estimates(base, shifted)
    return found


def read(base: Logs, new: Logs, ticks: float, level: Logs) -> Estimates:
    """By a counter of coarse steps."""
    sides, resolution = [], []
    for side in (base, new):
        values = STEP * np.rint(np.exp(side) * (ticks + STEP * (level - 0.5)) / STEP)
        flat = values.reshape(-1, values.shape[-2] * values.shape[-1])
        bounds = [hidden(one, float(STEP)) for one in flat.tolist()]
        resolution.append(np.array(bounds).reshape(values.shape[:-2]))
        # The rule for arrays takes no side without variance: this much decides nothing.
        wiggle = 1e-9 * np.arange(values.shape[-2])[:, None]
        sides.append(np.log(values) + wiggle)
    return estimates(sides[0], sides[1], resolution[0] + resolution[1])


def _joined(parts: list[dict[float, Estimates]], change: float) -> Estimates:
    held = [part[change] for part in parts]
    value, error, freedom, out_of = (
        np.concatenate([getattr(one, name) for one in held])
        for name in ("value", "error", "freedom", "hidden")
    )
    return Estimates(value, error, freedom, out_of, held[0].boots)


def looks(plan: Plan, first: int = 4, last: int = 20, changes: float = 1.0) -> Rate:
    """False faster or slower where kernels that differ by the margin are judged after each boot from
    `first` to `last`, until there is a verdict. Boots vary by half the margin."""
    margin = plan.rules.log_margin
    draw = np.random.default_rng([plan.seed, first, last])
    shape = (10 * plan.repetitions, 1, last, 1)
    base, new = (draw.normal(mean, margin / 2, shape) for mean in (0, changes * margin))
    wrong = np.zeros(shape[:2], dtype=bool)
    open_ = ~wrong
    for boots in range(first, last + 1):
        found = judged(estimates(base[:, :, :boots], new[:, :, :boots]), margin, plan.rules)
        wrong |= open_ & found.changed
        open_ &= ~(found.changed | found.same)
    return rate(wrong)


@dataclass(frozen=True)
class Outcome:
    plan: Plan
    rows: list[Row]
    looks: Rate


def validate(plan: Plan, workers: int) -> Outcome:
    """Every shape; the seed alone decides the outcome, however many workers there are."""
    wanted = [(number, boots, plan) for number in range(len(SHAPES)) for boots in plan.boots]
    if workers == 1:
        return Outcome(plan, [row(*each) for each in wanted], looks(plan))
    with ProcessPoolExecutor(workers) as pool:
        found = [pool.submit(row, *each) for each in wanted]
        return Outcome(plan, [future.result() for future in found], looks(plan))


def quick(plan: Plan) -> Plan:
    """For a test in passing: the same shapes, fewer of them."""
    return replace(plan, repetitions=200, samples=100, boots=(10,))
