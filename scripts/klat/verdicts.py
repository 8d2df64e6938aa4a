"""From the runs of two sides, unit by unit, to verdicts. Pure functions: no files, no printing.

A *unit* is what is independent of everything else on its side: a boot or, where two settings take
turns within one boot, a block of runs. What makes the units is no matter here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from klat.inference import bootstrap, multiplicity, permutation
from klat.inference.means import Difference, combined, from_intervals, paired, welch
from klat.inference.nested import Level, branch_means, mean, variance, variance_components
from klat.inference.permutation import Permutation
from klat.inference.power import (
    MOST_RUNS,
    MOST_UNITS,
    Design,
    fewest_units,
    power_of_equivalence,
    power_of_verdict,
    smallest,
)
from klat.statistics import lag1_autocorrelation

Interval = tuple[float, float]


class Verdict(str, Enum):
    SAME = "same"
    FASTER = "faster"
    SLOWER = "slower"
    INCONCLUSIVE = "inconclusive"
    NOT_IDENTIFIABLE = "kernel effect not identifiable"
    NOT_COMPARABLE = "not comparable"


class Method(str, Enum):
    WELCH = "Welch over units"
    PAIRED = "Student over pairs of units"
    RUNS = "Welch over the runs of one unit a side"
    SAMPLES = "order statistics of the samples of one run a side"
    NONE = "none"


@dataclass(frozen=True)
class Rules:
    """What the verdict is held to. `correction` is holm or bh."""

    margin: float = 0.02
    alpha: float = 0.05
    correction: str = "holm"
    seed: int = 1
    power: float = 0.8  # at which boots that would settle it are counted
    cross_checks: bool = True  # what is only shown: the bootstrap, what would settle it

    @property
    def log_margin(self) -> float:
        """The margin as a difference of logs: a ratio of 1.02 up, of 1/1.02 down."""
        return math.log1p(self.margin)


@dataclass(frozen=True)
class Unit:
    """The logs of the runs of one unit, in order of start. Units of the two sides with the same
    `pair`, which is not empty, were taken beside each other."""

    name: str
    logs: tuple[float, ...]
    pair: str = ""


@dataclass(frozen=True)
class Observed:
    """One estimand of one metric on one side.

    `resolution` bounds, as a log, what the counter's granularity can hide. `sampled` is the log
    interval of the one run, where there is only one and its samples were read. `noun` is what a
    unit is called.
    """

    units: tuple[Unit, ...]
    resolution: float = 0.0
    sampled: Interval | None = None
    noun: str = "boot"

    @property
    def runs(self) -> int:
        return sum(len(unit.logs) for unit in self.units)


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
    """What would settle an inconclusive verdict at the stated power, were the estimates the truth:
    so many units a side with runs as now, or so many runs in each unit with units as now. None
    where nothing up to `MOST_UNITS` or `MOST_RUNS` would."""

    units: int | None
    runs: int | None
    power: float


@dataclass(frozen=True)
class Judgement:
    """What is known of one estimand, NEW over BASE. `verdict` is None where nothing was tested.

    `p` is of no difference: the larger of the method's and, where that could be smaller, the
    permutation test's. `p_adjusted` is over the family, `p_same` of a difference of at least the
    margin (not adjusted: to say `same` of all of many needs each of them at alpha, no more). The
    interval has level 1 - alpha for this one ratio and is the method's.
    """

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
    permutation: Permutation | None
    bootstrap: Interval | None
    verdict: Verdict | None
    beyond: bool
    settle: Settle | None
    reason: str
    unpaired: int = 0  # pairs left out of a paired analysis, for one side of them is missing
    cautions: tuple[str, ...] = ()


def judge(
    pairs: Sequence[tuple[Observed, Observed]], rules: Rules, obstacles: Sequence[str] = ()
) -> list[Judgement]:
    """Judge (BASE, NEW) of each of a family of tests. Where `obstacles` has a text for one, its
    units stand for no kernel: it is described and not tested."""
    told = list(obstacles) or [""] * len(pairs)
    drafts = [_draft(base, new, rules, why, True) for (base, new), why in zip(pairs, told)]
    tested = [i for i, draft in enumerate(drafts) if draft.p is not None]
    adjust = multiplicity.CORRECTIONS[rules.correction]
    adjusted = adjust([p for i in tested if (p := drafts[i].p) is not None])
    for i, p in zip(tested, adjusted):
        drafts[i] = _decide(replace(drafts[i], p_adjusted=p), rules, len(tested), pairs[i])
    return drafts


def _confirmed(p: float, check: Permutation | None) -> float:
    """Student's tail is too light for means of few units in two states, and a correction asks for
    that tail: the permutation test, which is exact for units that may change places, has to agree.
    That few units can be arranged in few ways is not held against data as extreme as can be."""
    if check is None or check.p <= check.smallest:
        return p
    return max(p, check.p)


def describe(base: Observed, new: Observed, rules: Rules, obstacle: str = "") -> Judgement:
    """The same without a test: ratio and interval, for what the verdict does not rest on."""
    found = _draft(base, new, rules, obstacle, False)
    return replace(found, verdict=None, settle=None)


def spread(side: Observed) -> Spread:
    units = [unit.logs for unit in side.units if unit.logs]
    if not units:
        return Spread(0, 0, None, None, None)
    run, unit = variance_components(units, 2)
    return Spread(len(units), side.runs, math.exp(mean(branch_means(units))), run, unit)


def _draft(base: Observed, new: Observed, rules: Rules, obstacle: str, check: bool) -> Judgement:
    pairs, unpaired = paired_means(base, new)
    if pairs:
        base, new = _with_partner(base, new), _with_partner(new, base)
    sides = spread(base), spread(new)
    blank = Judgement(
        *sides, Method.NONE, None, None, None, None, None, None, base.resolution + new.resolution,
        None, None, Verdict.INCONCLUSIVE, False, None, "",
    )  # fmt: skip
    for name, side in zip(("BASE", "NEW"), sides):
        if not side.runs:
            return replace(blank, reason=f"no run of {name} has this figure")
    if obstacle or min(sides[0].units, sides[1].units) < 2:
        return _within_units(base, new, rules, blank, obstacle or _few(sides, base.noun))
    if unpaired and not pairs:
        return _within_units(base, new, rules, blank, f"no pair of {base.noun}s is complete")
    if pairs:
        differences = [b - a for a, b in pairs]
        found = paired(differences, blank.resolution)
        method = Method.PAIRED
        if found is None:
            return _within_units(
                base, new, rules, blank, f"only one pair of {base.noun}s is complete"
            )
    else:
        a, b = _means(base), _means(new)
        found = welch(a, b, blank.resolution)
        method = Method.WELCH
        unpaired = 0
    assert found is not None
    draft = _estimated(blank, method, found, rules)
    if check:
        draft = replace(draft, p=found.p_different(), p_same=found.p_within(rules.log_margin))
        # Of what is not below alpha by itself no permutation changes any verdict.
        if rules.cross_checks or found.p_different() <= rules.alpha:
            shuffled = (
                permutation.signs(differences, rules.seed)
                if pairs
                else permutation.two_sides(a, b, rules.seed)
            )
            p = _confirmed(found.p_different(), shuffled)
            draft = replace(draft, p=p, permutation=shuffled)
        if rules.cross_checks:
            level = 1 - rules.alpha
            drawn = (
                bootstrap.mean_of_pairs(differences, level, rules.seed)
                if pairs
                else bootstrap.difference_of_means(a, b, level, rules.seed)
            )
            draft = replace(draft, bootstrap=_exp(drawn))
    return replace(draft, unpaired=unpaired)


def _few(sides: Sequence[Spread], noun: str) -> str:
    one = [name for name, side in zip(("BASE", "NEW"), sides) if side.units < 2]
    who = "each side is" if len(one) == 2 else f"{one[0]} is"
    return f"{who} one {noun}, so what is under test cannot be told from the {noun}"


def _means(side: Observed) -> list[float]:
    return branch_means([unit.logs for unit in side.units])


def paired_means(base: Observed, new: Observed) -> tuple[list[tuple[float, float]], int]:
    """The means of paired units, and how many pairs lack one side or the other. Units of one side
    with the same pair are one, so that an ABBA block in which drift cancels may be a pair. No pairs
    where a unit declares none."""
    units = [unit for side in (base, new) for unit in side.units]
    if not all(unit.pair for unit in units):
        return [], 0
    means: list[dict[str, list[float]]] = []
    for side in (base, new):
        found: dict[str, list[float]] = {}
        for unit, value in zip(side.units, _means(side)):
            found.setdefault(unit.pair, []).append(value)
        means.append(found)
    shared = [pair for pair in means[0] if pair in means[1]]
    lone = max(len(side) for side in means) - len(shared)
    return [(mean(means[0][pair]), mean(means[1][pair])) for pair in shared], lone


def _with_partner(side: Observed, other: Observed) -> Observed:
    names = {unit.pair for unit in other.units}
    return replace(side, units=tuple(unit for unit in side.units if unit.pair in names))


def _estimated(blank: Judgement, method: Method, found: Difference, rules: Rules) -> Judgement:
    return replace(
        blank,
        method=method,
        ratio=math.exp(found.value),
        interval=_exp(found.interval(1 - rules.alpha)),
        freedom=found.freedom,
    )


def _exp(interval: Interval | None) -> Interval | None:
    return None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))


def _within_units(
    base: Observed, new: Observed, rules: Rules, blank: Judgement, reason: str
) -> Judgement:
    """The difference of these very boots, from their runs or, of one run, from its samples."""
    blank = replace(blank, verdict=Verdict.NOT_IDENTIFIABLE, reason=reason)
    centres = [mean(_means(side)) for side in (base, new)]
    blank = replace(blank, ratio=math.exp(centres[1] - centres[0]))
    squares = [_run_level(side) for side in (base, new)]
    one, two = squares
    if one and two:
        found = combined(centres[0], *one, centres[1], *two, blank.resolution)
        return _estimated(blank, Method.RUNS, found, rules)
    if base.sampled and new.sampled and base.runs == new.runs == 1:
        low, high = from_intervals(centres[0], base.sampled, centres[1], new.sampled)
        reach = low - blank.resolution, high + blank.resolution
        return replace(blank, method=Method.SAMPLES, interval=_exp(reach))
    return blank


def _run_level(side: Observed) -> tuple[float, float] | None:
    """Squared error and degrees of freedom of the mean of these units, from runs alone.

    Runs of a boot follow one another, so those that tell as much independently are counted, for a
    first-order autoregression; a negative correlation is no licence.
    """
    import numpy as np

    square, freedom = 0.0, []
    for unit in side.units:
        n = len(unit.logs)
        if n < 2:
            return None
        r = max(0.0, lag1_autocorrelation(np.array(unit.logs))) if n > 4 else 0.0
        effective = max(2.0, n * (1 - r) / (1 + r))
        share = variance(unit.logs) / effective
        square += share / len(side.units) ** 2
        freedom.append(effective - 1)
    return square, sum(freedom)


def _decide(
    draft: Judgement, rules: Rules, family: int, pair: tuple[Observed, Observed]
) -> Judgement:
    """`same` goes first: what is shown to lie within the margin is by the user's word no change,
    also where it is no chance."""
    assert draft.ratio is not None and draft.interval is not None
    assert draft.p_adjusted is not None and draft.p_same is not None
    if draft.p_same <= rules.alpha:
        decided = replace(draft, verdict=Verdict.SAME)
    elif draft.p_adjusted <= rules.alpha:
        low, high = draft.interval
        beyond = low > 1 + rules.margin or high < 1 / (1 + rules.margin)
        verdict = Verdict.SLOWER if draft.ratio > 1 else Verdict.FASTER
        decided = replace(draft, verdict=verdict, beyond=beyond)
    else:
        reason = _why_not(draft, rules)
        settle = _settle(draft, rules, family, pair) if rules.cross_checks else None
        decided = replace(draft, verdict=Verdict.INCONCLUSIVE, settle=settle, reason=reason)
    return replace(decided, cautions=_cautions(decided))


def _why_not(draft: Judgement, rules: Rules) -> str:
    assert draft.interval is not None and draft.p is not None
    if 2 * draft.resolution >= rules.log_margin:
        return "the counter's granularity is coarse beside this figure and the margin"
    if draft.p <= rules.alpha:
        return "the difference does not survive the correction for so many tests"
    low, high = draft.interval
    if not low <= 1 <= high:
        return "the interval holds no 1, but the permutation test over units does not agree"
    return "the interval holds both no change and more than the margin"


def _cautions(draft: Judgement) -> tuple[str, ...]:
    """Where the cross-check disagrees."""
    changed = draft.verdict in (Verdict.FASTER, Verdict.SLOWER)
    if changed and draft.bootstrap and draft.bootstrap[0] <= 1 <= draft.bootstrap[1]:
        return ("the bootstrap disagrees: its interval holds 1",)
    return ()


def _settle(draft: Judgement, rules: Rules, family: int, pair: tuple[Observed, Observed]) -> Settle:
    """At the chance of faster or slower, with the correction at its hardest, or of same."""
    assert draft.ratio is not None
    effect = math.log(draft.ratio)
    alpha = rules.alpha / family if rules.correction == "holm" else rules.alpha
    design = _design(draft, pair)
    now = min(draft.base.units, draft.new.units)

    def same(count: int) -> bool:
        return _says_same(replace(design, units=count), effect, rules)

    either = (
        fewest_units(design, effect, alpha, rules.power, now + 1, MOST_UNITS),
        smallest(same, now + 1, MOST_UNITS),
    )
    units = min((count for count in either if count), default=None)
    return Settle(units, _settling_runs(draft, rules, alpha, effect, design), rules.power)


def _says_same(design: Design, effect: float, rules: Rules) -> bool:
    return power_of_equivalence(design, effect, rules.log_margin, rules.alpha) >= rules.power


def _design(draft: Judgement, pair: tuple[Observed, Observed]) -> Design:
    if draft.method is Method.PAIRED:
        pairs, _ = paired_means(*pair)
        observed = variance([b - a for a, b in pairs])
        return Design(len(pairs), observed, pairs=True, resolution=draft.resolution)
    base, new = draft.base.unit, draft.new.unit
    assert base and new and base.observed is not None and new.observed is not None
    units = min(draft.base.units, draft.new.units)
    return Design(units, base.observed, new.observed, resolution=draft.resolution)


def _settling_runs(
    draft: Judgement, rules: Rules, alpha: float, effect: float, design: Design
) -> int | None:
    """Runs per unit: they thin the runs' share of the variance between units, and only that."""
    observed = [design.variance_a, design.variance_b]
    runs: list[float] = []
    for side in (draft.base, draft.new):
        if side.run is None or side.run.own is None:
            return None
        runs.append(side.run.own)
    shares = [own * side.units / side.runs for own, side in zip(runs, (draft.base, draft.new))]
    if design.pairs:
        runs, shares = [sum(runs), 0.0], [sum(shares), 0.0]
    units = [max(0.0, whole - share) for whole, share in zip(observed, shares)]
    now = max(draft.base.runs // draft.base.units, draft.new.runs // draft.new.units)

    def by_runs(count: int) -> bool:
        a, b = (unit + run / count for unit, run in zip(units, runs))
        more = replace(design, variance_a=a, variance_b=b)
        if _says_same(more, effect, rules):
            return True
        return power_of_verdict(more, effect, alpha) >= rules.power

    return smallest(by_runs, now + 1, MOST_RUNS)
