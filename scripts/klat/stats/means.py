"""The difference of two means, its interval and its tests: over independent units, or over pairs.

Values are logs, so that a difference is the log of a ratio and a margin is the same up and down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from klat.stats.hierarchy import mean, variance

# Logs of equal numbers may differ by this much.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class MeanDifference:
    """The difference of two means. `error` is its standard error with `freedom` degrees of freedom.
    The error is 0 if all values are equal on each side; then every statement below is exact.
    `resolution` bounds how much the counter's granularity may add to the difference or hide of it.
    It is the same in every unit, so no number of units averages it away. It widens the interval,
    and every claim is tested against it."""

    value: float
    error: float
    freedom: float
    resolution: float = 0.0

    def interval(self, confidence: float) -> tuple[float, float]:
        from scipy.special import stdtrit

        reach = self.resolution
        if self.error:
            reach += float(stdtrit(self.freedom, (1 + confidence) / 2)) * self.error
        return self.value - reach, self.value + reach

    def p_changed(self, margin: float) -> float:
        """p of |difference| <= margin: both tails at the end of the margin that is nearer (Hodges and
        Lehmann, J. Royal Statistical Society B 16, 1954). With margin 0 it is Student's two-sided p;
        with a margin of many errors it is that of the one-sided test against the margin."""
        reach, value = margin + self.resolution, abs(self.value)
        return min(1.0, self._tail(reach - value) + self._tail(-reach - value))

    def p_within(self, margin: float) -> float:
        """p of |difference| >= margin: the larger of two one-sided tests (Schuirmann, J.
        Pharmacokinetics and Biopharmaceutics 15, 1987)."""
        return self._tail(abs(self.value) + self.resolution - margin)

    def _tail(self, distance: float) -> float:
        """The tail of Student's t at distance / error."""
        from scipy.special import stdtr

        if not self.error:
            return 0.0 if distance < -_ROUNDING else 1.0
        return float(stdtr(self.freedom, distance / self.error))


def welch(a: Sequence[float], b: Sequence[float], resolution: float = 0.0) -> MeanDifference | None:
    """mean(b) - mean(a) of independent values with variances of their own: Welch, "The
    generalization of 'Student's' problem when several different population variances are
    involved", Biometrika 34 (1947). None with fewer than two values on a side."""
    if min(len(a), len(b)) < 2:
        return None
    one, two = variance(a) / len(a), variance(b) / len(b)
    return combined(mean(a), one, len(a) - 1, mean(b), two, len(b) - 1, resolution)


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
    # As shares of the sum: their squares do not underflow, however small the variances are.
    freedom = 1 / ((square_a / square) ** 2 / freedom_a + (square_b / square) ** 2 / freedom_b)
    return MeanDifference(b - a, math.sqrt(square), freedom, resolution)


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
