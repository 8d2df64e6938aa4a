"""From the runs of two sides, unit by unit, to verdicts. Pure functions: no files, no printing.

A *unit* is independent of the other units of its side: a boot or, where two settings alternate within
one boot, a block of runs. The caller forms the units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from klat.compare.estimands import FINER
from klat.stats import power, multiplicity
from klat.stats.multiplicity import Look
from klat.stats.means import Level, MeanDifference, Statement, branch_means, combined, conclude
from klat.stats.means import from_intervals, mean, paired, variance_components, welch
from klat.stats.descriptive import effective_size, squared_error

Interval = tuple[float, float]

# The exit statuses of a comparison.
NO_REGRESSION, REGRESSION, UNREADABLE, INCONCLUSIVE, NOT_COMPARABLE, NOT_DELIVERED = range(6)

# Why more boots do not settle a verdict, and what settles it.
GRANULAR = (
    "the counter's granularity is coarse compared with the margin, and more boots or runs do not help:"
    f" {FINER}"
)

# Of each of two settings in a block.
TURNS = 2


class Verdict(str, Enum):
    SAME = "same"
    FASTER = "faster"
    SLOWER = "slower"
    INCONCLUSIVE = "inconclusive"
    UNATTRIBUTABLE = "cannot be attributed"
    WITHIN = "within"  # this and the next two: a limit
    EXCEEDED = "exceeded"
    CANNOT_TELL = "cannot tell"
    FEWER = "fewer"  # this and the next: samples above a limit
    MORE = "more"
    NOT_DELIVERED = "not delivered"
    NOT_COMPARABLE = "not comparable"


class Method(str, Enum):
    WELCH = "Welch over units"
    PAIRED = "Student over pairs of units"
    RUNS = "Welch over the runs of one unit a side"
    SAMPLES = "order statistics of the samples of one run a side"
    NONE = "none"


@dataclass(frozen=True)
class Rules:
    """The rules of a verdict. `correction` is holm or bh. At an interim `look`, alpha is its level."""

    margin: float = 0.02
    alpha: float = 0.05
    correction: str = "holm"
    power: float = 0.8  # the chance with which the numbers in `settle` would settle a verdict
    look: Look | None = None

    @property
    def log_margin(self) -> float:
        """The margin as a difference of logs: a ratio of 1.02 up, of 1/1.02 down."""
        return math.log1p(self.margin)

    def strictest(self, family: int) -> float:
        """The lowest level that Holm's correction applies among so many tests. For bh, alpha."""
        return self.alpha / self.factor(family) if self.correction == "holm" else self.alpha

    def adjusted(self, p: Sequence[float | None]) -> list[float | None]:
        """Each p after the correction over all of them. None: not tested, and not counted in the correction."""
        correct = multiplicity.CORRECTIONS[self.correction]
        adjusted = iter(correct([value for value in p if value is not None], self.factor))
        return [None if value is None else float(next(adjusted)) for value in p]

    def factor(self, tests: float) -> float:
        return self.alpha / self.look.level(tests) if self.look else tests


@dataclass(frozen=True)
class Unit:
    """The logs of the runs of one unit, in order of start. Units of the two sides with the same
    non-empty `pair` were measured close together."""

    name: str
    logs: tuple[float, ...]
    pair: str = ""

    @property
    def values(self) -> list[float]:
        return [math.exp(log) for log in self.logs]


@dataclass(frozen=True)
class Observed:
    """One estimand of one metric on one side.

    `resolution` bounds, as a log, what the counter's granularity and unequal numbers of samples can hide. `coarse` is
    the reason if that is too much. `sample_interval` is the log interval of a single run whose samples were read.
    `noun` is the word for a unit. `pooled` is why each unit has one figure, of all its samples; empty if runs have
    figures. `needed_and_present` is how many samples a figure needs, and how many there are, if they are too few.
    """

    units: tuple[Unit, ...]
    resolution: float = 0.0
    coarse: str = GRANULAR
    sample_interval: Interval | None = None
    noun: str = "boot"
    pooled: str = ""
    needed_and_present: tuple[int, int] | None = None

    @property
    def runs(self) -> int:
        return sum(len(unit.logs) for unit in self.units)

    @cached_property
    def means(self) -> list[float]:
        """The mean of the logs of each unit that has some."""
        return branch_means([unit.logs for unit in self.units if unit.logs])


@dataclass(frozen=True)
class Spread:
    """One side. `value` is the geometric mean over units of their runs' geometric means; `run` and
    `unit` are the variance components of the logs (Kalibera and Jones's S^2 and T^2)."""

    units: int
    runs: int
    value: float | None
    run: Level | None
    unit: Level | None


@dataclass(frozen=True)
class Settle:
    """What would settle an inconclusive verdict, as `verdict`, with the chance `power`, assuming these
    estimates are correct: either `units` a side with runs as now, or `runs` in each unit with units
    as now. None where no number up to the limits of klat.stats.power is enough."""

    verdict: Verdict
    units: int | None
    runs: int | None
    power: float


@dataclass(frozen=True)
class Judgement:
    """What is known of one estimand, NEW over BASE. `verdict` is None if nothing was tested. `p`
    tests that the ratio is within the margin; `p_adjusted` is `p` after the correction over the
    family. `p_same` tests that the ratio is beyond the margin. It needs no correction: the
    statement "all are the same" is wrong only if one of its parts is wrong. The interval has level
    1 - alpha for this one ratio."""

    base: Spread
    new: Spread
    method: Method
    ratio: float | None
    interval: Interval | None
    p: float | None
    p_adjusted: float | None
    p_same: float | None
    freedom: float | None
    resolution: float
    verdict: Verdict | None
    settle: Settle | None
    reason: str
    unpaired: int = 0  # pairs left out because one side is missing
    noun: str = "boot"  # the unit
    pooled: bool = False  # each unit has one figure, of all its samples
    pooled_because: str = ""
    error: float | None = None  # the standard error of the log of the ratio


def judge(
    pairs: Sequence[tuple[Observed, Observed]], rules: Rules, obstacles: Sequence[str] = ()
) -> list[Judgement]:
    """Judge (BASE, NEW) of each of a family of tests. Where `obstacles` has a text for a test, its
    units do not represent a kernel: the result is described and not tested.

    The verdict is the statement of klat.stats.means that remains when the other two are rejected
    (Goeman, Solari and Stijnen, "Three-sided hypothesis testing", Statistics in Medicine 29, 2010).
    """
    reasons = list(obstacles) or [""] * len(pairs)
    drafts = [_draft(base, new, rules, why, True) for (base, new), why in zip(pairs, reasons)]
    family = sum(draft.p is not None for draft in drafts)
    return [
        draft if p is None else _decide(replace(draft, p_adjusted=p), rules, family, base)
        for draft, p, (base, _) in zip(drafts, rules.adjusted([d.p for d in drafts]), pairs)
    ]


def describe(base: Observed, new: Observed, rules: Rules, obstacle: str = "") -> Judgement:
    """Ratio and interval without a test, for figures that have no verdict."""
    return replace(_draft(base, new, rules, obstacle, False), verdict=None, settle=None)


def spread(side: Observed) -> Spread:
    if not (units := [unit.logs for unit in side.units if unit.logs]):
        return Spread(0, 0, None, None, None)
    run, unit = variance_components(units)
    return Spread(len(units), side.runs, math.exp(mean(side.means)), run, unit)


def _draft(base: Observed, new: Observed, rules: Rules, obstacle: str, check: bool) -> Judgement:
    pairs, unpaired = paired_means(base, new)
    if pairs:
        base, new = _with_partner(base, new), _with_partner(new, base)
    sides = spread(base), spread(new)
    blank = Judgement(
        *sides, Method.NONE, None, None, None, None, None, None, base.resolution + new.resolution,
        Verdict.INCONCLUSIVE, None, "", noun=base.noun, pooled=bool(base.pooled), pooled_because=base.pooled,
    )  # fmt: skip
    for name, side in zip(("BASE", "NEW"), (base, new)):
        if not side.runs:
            return replace(blank, reason=_unsupported(name, side))
    if obstacle or min(sides[0].units, sides[1].units) < 2:
        return _within_units(base, new, rules, blank, obstacle or _few(sides, base.noun))
    if unpaired and not pairs:
        return _within_units(base, new, rules, blank, f"no pair of {base.noun}s is complete")
    if pairs:
        differences = [b - a for a, b in pairs]
        shift = paired(differences, blank.resolution)
        method = Method.PAIRED
        if shift is None:
            return _within_units(
                base, new, rules, blank, f"only one pair of {base.noun}s is complete"
            )
    else:
        a, b = base.means, new.means
        shift = welch(a, b, blank.resolution)
        method = Method.WELCH
        unpaired = 0
    assert shift is not None
    draft = _estimated(blank, method, shift, rules)
    if check:
        draft = _tested(draft, shift, list(zip(*pairs)) if pairs else [a, b], base.noun, rules)
    return replace(draft, unpaired=unpaired)


def _unsupported(name: str, side: Observed) -> str:
    if side.needed_and_present is None:
        return f"no run of {name} supports this figure"
    needed, samples = side.needed_and_present
    return f"this figure needs {needed:,} samples, and {name} has {samples:,}"


def _tested(
    draft: Judgement,
    shift: MeanDifference,
    means: Sequence[Sequence[float]],
    noun: str,
    rules: Rules,
) -> Judgement:
    """With p, unless so few units line up by chance too often."""
    in_pairs = draft.method is Method.PAIRED
    units = len(means[0]), len(means[1])
    if why := too_few(*units, in_pairs, noun, rules.alpha):
        return replace(draft, reason=why)
    p = max(shift.p_changed(rules.log_margin), power.by_chance(means[0], means[1], in_pairs))
    return replace(draft, p=p, p_same=shift.p_within(rules.log_margin))


def too_few(base: int, new: int, in_pairs: bool, noun: str, alpha: float) -> str:
    """The reason why so few units support no verdict. Empty if they are enough."""
    if power.by_arrangement(base, new, in_pairs) <= alpha:
        return ""
    needed = power.fewest(alpha, in_pairs)
    count = f"{base} pairs of {noun}s" if in_pairs else f"{base} and {new} {noun}s"
    if base == new == 1 and not in_pairs:
        count = f"one {noun} a side"
    needs = f"{needed} pairs" if in_pairs else f"{needed} {noun}s a side"
    return f"{count} can differ by chance alone at alpha {alpha:.3g}: {needs} are needed"


def _few(sides: Sequence[Spread], noun: str) -> str:
    lacking = [name for name, side in zip(("BASE", "NEW"), sides) if side.units < 2]
    who = "each side is" if len(lacking) == 2 else f"{lacking[0]} is"
    return f"{who} one {noun}, so the difference may be one between {noun}s"


def paired_means(base: Observed, new: Observed) -> tuple[list[tuple[float, float]], int]:
    """The means of paired units, and how many pairs lack a side. Units of one side with the same pair
    count as one, so an ABBA block, in which drift cancels, can be a pair. No pairs if a unit declares
    none."""
    units = [unit for side in (base, new) for unit in side.units]
    if not all(unit.pair for unit in units):
        return [], 0
    means: list[dict[str, list[float]]] = []
    for side in (base, new):
        by_pair: dict[str, list[float]] = {}
        for unit, value in zip(side.units, side.means):
            by_pair.setdefault(unit.pair, []).append(value)
        means.append(by_pair)
    shared = [pair for pair in means[0] if pair in means[1]]
    lone = max(len(side) for side in means) - len(shared)
    return [(mean(means[0][pair]), mean(means[1][pair])) for pair in shared], lone


def _with_partner(side: Observed, other: Observed) -> Observed:
    names = {unit.pair for unit in other.units}
    return replace(side, units=tuple(unit for unit in side.units if unit.pair in names))


def _estimated(blank: Judgement, method: Method, shift: MeanDifference, rules: Rules) -> Judgement:
    ratio, interval = math.exp(shift.value), _exp(shift.interval(1 - rules.alpha))
    estimated = replace(blank, method=method, ratio=ratio, interval=interval)
    return replace(estimated, freedom=shift.freedom, error=shift.error)


def _exp(interval: Interval) -> Interval:
    return math.exp(interval[0]), math.exp(interval[1])


def _within_units(
    base: Observed, new: Observed, rules: Rules, blank: Judgement, reason: str
) -> Judgement:
    """The difference between these boots, from their runs, or from the samples of a single run."""
    centres = [mean(side.means) for side in (base, new)]
    ratio = math.exp(centres[1] - centres[0])
    blank = replace(blank, verdict=Verdict.UNATTRIBUTABLE, reason=reason, ratio=ratio)
    x, y = _run_level(base), _run_level(new)
    if x and y:
        shift = combined(centres[0], *x, centres[1], *y, blank.resolution)
        return _estimated(blank, Method.RUNS, shift, rules)
    if base.sample_interval and new.sample_interval and base.runs == new.runs == 1:
        low, high = from_intervals(
            centres[0], base.sample_interval, centres[1], new.sample_interval
        )
        reach = low - blank.resolution, high + blank.resolution
        return replace(blank, method=Method.SAMPLES, interval=_exp(reach))
    return blank


def _run_level(side: Observed) -> tuple[float, float] | None:
    """Squared error and degrees of freedom of the mean of these units, from runs alone.

    Consecutive runs of a boot are correlated, so the effective number of runs is used.
    """
    import numpy as np

    square, freedom = 0.0, []
    for unit in side.units:
        n = len(unit.logs)
        if n < 2:
            return None
        effective = max(2.0, effective_size(np.array(unit.logs))) if n > 4 else n
        share = squared_error(unit.logs, effective)
        square += share / len(side.units) ** 2
        freedom.append(effective - 1)
    return square, sum(freedom)


_VERDICTS: dict[int, Verdict] = {
    Statement.BELOW: Verdict.FASTER,
    Statement.WITHIN: Verdict.SAME,
    Statement.ABOVE: Verdict.SLOWER,
}


def _decide(draft: Judgement, rules: Rules, family: int, base: Observed) -> Judgement:
    assert draft.ratio is not None and draft.p_adjusted is not None and draft.p_same is not None
    value = math.log(draft.ratio)
    if verdict := _VERDICTS.get(int(conclude(value, draft.p_adjusted, draft.p_same, rules.alpha))):
        return replace(draft, verdict=verdict)
    return replace(draft, verdict=Verdict.INCONCLUSIVE, reason=_why_not(draft, rules, family, base))


def _why_not(draft: Judgement, rules: Rules, family: int, base: Observed) -> str:
    assert draft.p is not None
    if draft.resolution and 2 * draft.resolution >= rules.log_margin:
        return base.coarse
    if draft.p <= rules.alpha:
        a, b = draft.base.units, draft.new.units
        if rules.factor(family) * power.by_states(a, b, 0, b) > rules.alpha:
            return f"{family} tests need more than {a} and {b} {base.noun}s; one test alone would be settled"
        return f"settled as one test alone, but not after the correction for {family} tests"
    return "the interval crosses the edge of the margin"
