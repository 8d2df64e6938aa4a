"""Measurements in two levels: the runs of a kernel in its boots. A boot is a branch, and branches may differ in size.

The effects of several groups, each an estimate with an error, are a model of random effects: the true effect of a
group is drawn from a population. Each group has the same weight. Then the error of the mean is that of Hartung and
Knapp (Statistics in Medicine 20, 2001) with equal weights. This equals the error of Student's t over the groups, so
klat.stats.means computes it. Weights from the estimated errors would be more precise. But an error that is estimated
from few units is often too small. The level is then not kept (docs/validation.md, Machines; Roever, Knapp and Friede,
BMC Medical Research Methodology 15, 2015). Student's t keeps a two-sided level of 8 % or less for any errors of the
groups (Bakirov and Szekely, J. Mathematical Sciences 139, 2006; Ibragimov and Mueller, J. Business & Economic
Statistics 28, 2010).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Level:
    """One level. Variances are None if no branch has two members. `observed` is S^2: the variance
    of the means of this level's members around the mean of their branch. `own` is T^2: the part of
    S^2 that this level alone adds. An estimate of T^2 may be negative; then the level adds nothing
    that can be seen."""

    members: int
    freedom: int
    observed: float | None
    own: float | None


def branch_means(branches: Sequence[Sequence[float]]) -> list[float]:
    return [mean(values) for values in branches]


def mean(values: Sequence[float]) -> float:
    """Equal values have exactly this mean, but a rounded sum would differ."""
    first = values[0]
    return first + math.fsum([value - first for value in values]) / len(values)


def variance(values: Sequence[float]) -> float:
    """The variance with n - 1; exactly 0 for equal values. At least two values."""
    centre = mean(values)
    return math.fsum([(value - centre) ** 2 for value in values]) / (len(values) - 1)


def variance_components(branches: Sequence[Sequence[float]]) -> tuple[Level, Level]:
    """S^2 and T^2 of the members of the branches, and of the branches.

    Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time" (ISMM 2013), section 6: T_1^2 =
    S_1^2 and T_2^2 = S_2^2 - S_1^2 / r_1. If branches differ in size, the same unweighted means are
    used, and the expected contribution of the members is subtracted (the principle is in Searle,
    Casella and McCulloch, Variance Components, 1992, section 3.6). With equal sizes both give the
    same number. Both are unbiased.
    """
    lower = _level(branches)
    upper = _level([branch_means(branches)])
    if upper.observed is None:
        return lower, upper
    if lower.own is None:
        return lower, replace(upper, own=None)
    # How often the squares of the upper level contain the variance of a member.
    times = upper.freedom * (math.fsum([1 / len(values) for values in branches]) / len(branches))
    return lower, replace(upper, own=upper.observed - times / upper.freedom * lower.own)


def _level(branches: Sequence[Sequence[float]]) -> Level:
    """The members of these branches, as the lowest level."""
    members = sum(map(len, branches))
    freedom = members - len(branches)
    if not freedom:
        return Level(members, 0, None, None)
    squares = sum([(len(values) - 1) * variance(values) for values in branches if len(values) > 1])
    return Level(members, freedom, squares / freedom, squares / freedom)


def between_variance(effects: Sequence[float], errors: Sequence[float]) -> float:
    """The variance of the true effects, from at least two estimates with their standard errors: Hedges and
    Olkin, Statistical Methods for Meta-Analysis (1985), chapter 9. It is unbiased, so it can be negative.
    The errors then explain the whole variation of the estimates."""
    return variance(effects) - mean([error**2 for error in errors])


def next_effect(effects: Sequence[float], confidence: float) -> tuple[float, float]:
    """The interval in which the estimate of one more group is expected: Student's prediction interval (Hahn
    and Meeker, Statistical Intervals, 1991, chapter 4). It needs at least two effects, and assumes that the
    errors of all groups are alike. It covers the true effect of that group at least as often."""
    from scipy.special import stdtrit

    n = len(effects)
    quantile = float(stdtrit(n - 1, (1 + confidence) / 2))
    reach = quantile * math.sqrt(variance(effects) * (1 + 1 / n))
    return mean(effects) - reach, mean(effects) + reach
