"""Measurements in levels: samples in runs, runs in boots, boots of a kernel.

A *tree* of depth 1 is a sequence of numbers. A tree of depth k is a sequence of trees of depth k -
1. For a kernel: a list of boots, each the list of its runs' logs. Branches may differ in size.

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
from dataclasses import dataclass
from typing import Any

Tree = Sequence[Any]


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


@dataclass
class _Sums:
    squares: float = 0.0
    freedom: int = 0
    members: int = 0
    # The factor of each lower level's T^2 in `squares`.
    lower: list[float] | None = None


def branch_means(branches: Sequence[Sequence[float]]) -> list[float]:
    return [mean(values) for values in branches]


def mean(values: Sequence[float]) -> float:
    """Equal values have exactly this mean, but a rounded sum would differ."""
    first = values[0]
    return first + math.fsum([value - first for value in values]) / len(values)


def variance(values: Sequence[float]) -> float:
    """The variance with n - 1; exactly 0 for equal values. At least two values."""
    return _variance(values, mean(values))


def _variance(values: Sequence[float], centre: float) -> float:
    return math.fsum([(value - centre) ** 2 for value in values]) / (len(values) - 1)


def variance_components(tree: Tree, depth: int) -> list[Level]:
    """S^2 and T^2 of each level, the lowest first.

    Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time" (ISMM 2013), section 6: T_1^2 =
    S_1^2 and T_i^2 = S_i^2 - S_{i-1}^2 / r_{i-1}. If branches differ in size, the same unweighted
    means are used, and the expected contribution of the lower levels is subtracted (the principle
    is in Searle, Casella and McCulloch, Variance Components, 1992, section 3.6). With equal sizes
    both give the same number. Both are unbiased.
    """
    sums = [_Sums(lower=[0.0] * level) for level in range(depth)]
    _descend(tree, depth, sums)
    levels: list[Level] = []
    for level in sums:
        if not level.freedom:
            levels.append(Level(level.members, 0, None, None))
            continue
        observed = level.squares / level.freedom
        own: float | None = observed
        for below, times in zip(levels, level.lower or ()):
            if times and below.own is None:
                own = None
                break
            assert own is not None
            own -= times / level.freedom * (below.own or 0.0)
        levels.append(Level(level.members, level.freedom, observed, own))
    return levels


def _descend(tree: Tree, depth: int, sums: list[_Sums]) -> tuple[float, list[float]]:
    """The mean of the tree, and the factor of each lower level's T^2 in the variance of that mean."""
    size = len(tree)
    if depth == 1:
        means: Sequence[float] = list(map(float, tree))
        lower: list[float] = []
    else:
        means, factors = zip(*(_descend(branch, depth - 1, sums) for branch in tree))
        lower = [math.fsum(of_level) / size for of_level in zip(*factors)]
    centre = mean(means)
    level = sums[depth - 1]
    level.members += size
    if size > 1:
        level.squares += (size - 1) * _variance(means, centre)
        level.freedom += size - 1
        assert level.lower is not None
        for k in range(depth - 1):
            level.lower[k] += (size - 1) * lower[k]
    return centre, [share / size for share in lower] + [1 / size]


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
