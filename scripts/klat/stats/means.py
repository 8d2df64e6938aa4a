"""Means of runs within boots, and the difference of two means with its interval and tests, over independent units or
over pairs. A boot is a branch of the two levels. Branches may differ in size.

Values are logs, so that a difference is the log of a ratio and a margin is the same up and down. Of three
statements exactly one is true: the difference is below the margin, within it, or above it. The tests are functions
over arrays: a comparison tests its family with them, and the validation tests thousands.

The effects of several groups, each an estimate with an error, are a model of random effects: the true effect of a
group is drawn from a population. Each group has the same weight. Then the error of the mean is that of Hartung and
Knapp (Statistics in Medicine 20, 2001) with equal weights. This equals the error of Student's t over the groups.
Weights from the estimated errors would be more precise. But an error that is estimated from few units is often too
small. The level is then not kept (docs/validation.md, Machines; Roever, Knapp and Friede, BMC Medical Research
Methodology 15, 2015). Student's t keeps a two-sided level of 8 % or less for any errors of the
groups (Bakirov and Szekely, J. Mathematical Sciences 139, 2006; Ibragimov and Mueller, J. Business & Economic
Statistics 28, 2010).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt


Values = npt.NDArray[Any]
ArrayLike = npt.ArrayLike


@dataclass(frozen=True)
class MeanDifference:
    """The difference `value` of two means has the standard error `error` with `freedom` degrees of freedom. The
    error is 0 if all values are equal on each side; then the difference is known exactly. `resolution` bounds how
    much the counter's granularity may add to the difference or hide of it. It is the same in every unit, so no
    number of units averages it away: it widens the interval, and every statement is tested against it.
    """

    value: float
    error: float
    freedom: float
    resolution: float = 0.0

    def interval(self, confidence: float) -> tuple[float, float]:
        half = float(reach(self.error, self.freedom, self.resolution, confidence))
        return self.value - half, self.value + half

    def p_changed(self, margin: float) -> float:
        """p of |difference| <= margin."""
        return float(p_changed(self.value, self.error, self.freedom, self.resolution, margin))

    def p_within(self, margin: float) -> float:
        """p of |difference| >= margin."""
        return float(p_within(self.value, self.error, self.freedom, self.resolution, margin))


def welch(a: Sequence[float], b: Sequence[float], resolution: float = 0.0) -> MeanDifference | None:
    """mean(b) - mean(a) of independent values with variances of their own: Welch, "The
    generalization of 'Student's' problem when several different population variances are
    involved", Biometrika 34 (1947). None with fewer than two values on a side."""
    if min(len(a), len(b)) < 2:
        return None
    of_a, of_b = variance(a) / len(a), variance(b) / len(b)
    return combined(mean(a), of_a, len(a) - 1, mean(b), of_b, len(b) - 1, resolution)


def student(a: Sequence[float], b: Sequence[float]) -> MeanDifference | None:
    """mean(b) - mean(a) of independent values with one variance. None with fewer than two values on
    a side."""
    if min(len(a), len(b)) < 2:
        return None
    freedom = len(a) + len(b) - 2
    square = ((len(a) - 1) * variance(a) + (len(b) - 1) * variance(b)) / freedom
    error = math.sqrt(square * (1 / len(a) + 1 / len(b)))
    return MeanDifference(mean(b) - mean(a), error, freedom)


def combined(
    a: float, square_a: float, freedom_a: float, b: float, square_b: float, freedom_b: float,
    resolution: float = 0.0,
) -> MeanDifference:  # fmt: skip
    """b - a, each with a squared standard error of its own: Welch's equation."""
    square = square_a + square_b
    if not square:
        return MeanDifference(b - a, 0.0, freedom_a + freedom_b, resolution)
    freedom = welch_freedom(square_a / square, freedom_a, square_b / square, freedom_b)
    return MeanDifference(b - a, math.sqrt(square), freedom, resolution)


Figure = TypeVar("Figure", float, Values)


def welch_freedom(share_a: Figure, freedom_a: float, share_b: Figure, freedom_b: float) -> Figure:
    """The degrees of freedom of a sum of two squared errors, from the share of each in it. The squares of
    shares do not underflow, however small the errors are."""
    return 1 / (share_a**2 / freedom_a + share_b**2 / freedom_b)


def paired(differences: Sequence[float], resolution: float = 0.0) -> MeanDifference | None:
    """Of b - a within each pair: Student's t. None with fewer than two pairs."""
    n = len(differences)
    if n < 2:
        return None
    error = math.sqrt(variance(differences) / n)
    return MeanDifference(mean(differences), error, n - 1, resolution)


def from_intervals(
    a: float, interval_a: tuple[float, float], b: float, interval_b: tuple[float, float]
) -> tuple[float, float]:
    """An interval for b - a from the intervals of a and b: the method of variance estimates
    recovery (Zou and Donner, Statistics in Medicine 27, 2008)."""
    low = math.hypot(b - interval_b[0], interval_a[1] - a)
    high = math.hypot(interval_b[1] - b, a - interval_a[0])
    return b - a - low, b - a + high


# Logs of equal numbers may differ by this much.
_ROUNDING = 1e-12


class Statement(IntEnum):
    BELOW = -1
    WITHIN = 0
    ABOVE = 1
    NONE = 2  # two or three of them are not rejected


def reach(error: ArrayLike, freedom: ArrayLike, resolution: ArrayLike, confidence: float) -> Values:
    """Half the width of the interval."""
    from scipy.special import stdtrit

    sampled = stdtrit(freedom, (1 + confidence) / 2) * error
    return np.asarray(resolution + np.where(np.equal(error, 0), 0.0, sampled))


def p_changed(
    value: ArrayLike, error: ArrayLike, freedom: ArrayLike, resolution: ArrayLike, margin: float
) -> Values:
    """p of |difference| <= margin: both tails, from the nearer end of the margin (Hodges and
    Lehmann, J. Royal Statistical Society B 16, 1954). With margin 0 it is Student's two-sided p; with
    a margin of many errors it is that of the one-sided test against the margin."""
    end, far = np.add(margin, resolution), np.abs(value)
    return np.minimum(1.0, _tail(end - far, error, freedom) + _tail(-end - far, error, freedom))


def p_within(
    value: ArrayLike, error: ArrayLike, freedom: ArrayLike, resolution: ArrayLike, margin: float
) -> Values:
    """p of |difference| >= margin: the larger of two one-sided tests (Schuirmann, J.
    Pharmacokinetics and Biopharmaceutics 15, 1987)."""
    return _tail(np.abs(value) + np.asarray(resolution) - margin, error, freedom)


def conclude(value: ArrayLike, p_adjusted: ArrayLike, p_same: ArrayLike, alpha: float) -> Values:
    """The statement that remains, from p_changed() after the correction and p_within(). Only the test
    of the true statement can err, so each may use all of alpha. If "within" is rejected in favour of
    "above", "below" is rejected too."""
    side = np.where(np.greater(value, 0), Statement.ABOVE, Statement.BELOW)
    changed = np.where(np.less_equal(p_adjusted, alpha), side, Statement.NONE)
    return np.where(np.less_equal(p_same, alpha), Statement.WITHIN, changed)


def _tail(distance: Values, error: ArrayLike, freedom: ArrayLike) -> Values:
    """The tail of Student's t at distance / error."""
    from scipy.special import stdtr

    exact = np.equal(error, 0)
    sampled = stdtr(freedom, distance / np.where(exact, 1.0, error))
    return np.where(exact, np.where(distance < -_ROUNDING, 0.0, 1.0), sampled)


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
