"""The difference of two means, its interval and its tests: over independent units, or over pairs.

Values are logs, so that a difference is the log of a ratio and a margin is the same up and down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from klat.stats.hierarchy import mean, variance

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True)
class MeanDifference:
    """The difference of two means, as klat.stats.three_sided takes it."""

    value: float
    error: float
    freedom: float
    resolution: float = 0.0

    def interval(self, confidence: float) -> tuple[float, float]:
        from klat.stats.three_sided import reach

        half = float(reach(self.error, self.freedom, self.resolution, confidence))
        return self.value - half, self.value + half

    def p_changed(self, margin: float) -> float:
        """p of |difference| <= margin."""
        from klat.stats.three_sided import p_changed

        return float(p_changed(self.value, self.error, self.freedom, self.resolution, margin))

    def p_within(self, margin: float) -> float:
        """p of |difference| >= margin."""
        from klat.stats.three_sided import p_within

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


Figure = TypeVar("Figure", float, "npt.NDArray[Any]")


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
