"""How likely a verdict is, and how many boots and runs make it likely enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from klat.stats.enough_units import by_states

# More boots a side are impractical.
MOST_UNITS = 1_000
MOST_RUNS = 10_000


@dataclass(frozen=True)
class Design:
    """`units` on each side, with the variances of their means. `pairs` if each unit has a partner;
    `variance_a` is then the variance of the pairs' differences. Every claim is tested against
    `resolution`, whatever the number of units: see klat.stats.means.Difference."""

    units: int
    variance_a: float
    variance_b: float = 0.0
    pairs: bool = False
    resolution: float = 0.0

    def error(self) -> float:
        return math.sqrt((self.variance_a + self.variance_b) / self.units)

    def freedom(self) -> float:
        """Welch's degrees of freedom, as estimated on average from so few units. They are fewer
        than with the true variances: the square of an estimated variance is on average 1 + 2 /
        (units - 1) times the true one."""
        if self.pairs:
            return self.units - 1
        total = self.variance_a + self.variance_b
        if not total:
            return 2 * (self.units - 1)
        squares = (self.variance_a / total) ** 2 + (self.variance_b / total) ** 2
        more = 2 / (self.units - 1)
        return (self.units - 1) * (1 + more * squares) / (squares * (1 + more))


def power_of_change(design: Design, effect: float, margin: float, alpha: float) -> float:
    """The chance that an effect is shown to lie beyond the margin, on its own side, by the test of
    klat.stats.means.Difference.p_changed at alpha: the noncentral t distribution (Johnson and
    Welch, Biometrika 31, 1940), with the critical value of the true error."""
    from scipy.special import nctdtr

    error, freedom = design.error(), design.freedom()
    reach = margin + design.resolution
    if abs(effect) <= reach or by_states(design.units, design.units, 0, design.units) > alpha:
        return 0.0
    if not error:
        return 1.0
    critical = critical_t(freedom, reach / error, alpha)
    beyond = (abs(effect) - reach) / error
    if beyond > critical + 30:  # where the series of the distribution function fails
        return 1.0
    return 1 - float(nctdtr(freedom, beyond, critical))


def critical_t(freedom: float, reach: float, alpha: float) -> float:
    """How many errors beyond a margin of `reach` errors give a p of alpha. It is between Student's
    two-sided value, at reach 0, and the one-sided one."""
    from scipy.special import stdtr, stdtrit

    low, high = (float(stdtrit(freedom, 1 - share)) for share in (alpha, alpha / 2))
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        p = float(stdtr(freedom, -middle)) + float(stdtr(freedom, -middle - 2 * reach))
        low, high = (middle, high) if p > alpha else (low, middle)
    return high


def power_of_equivalence(design: Design, effect: float, margin: float, alpha: float) -> float:
    """The chance that both one-sided tests at alpha show |effect| < margin, by the central-t
    approximation (Diletti, Hauschke and Steinijans, Int. J. Clinical Pharmacology 29, 1991)."""
    from scipy.special import stdtr, stdtrit

    error, freedom = design.error(), design.freedom()
    margin -= design.resolution
    if not error:
        return 1.0 if abs(effect) < margin else 0.0
    critical = float(stdtrit(freedom, 1 - alpha))
    upper = float(stdtr(freedom, (margin - effect) / error - critical))
    lower = float(stdtr(freedom, (margin + effect) / error - critical))
    return max(0.0, upper + lower - 1)


def smallest(likely: Callable[[int], bool], low: int, high: int) -> int | None:
    """The smallest count from low to high that is likely enough, if a larger count is never less
    likely. None if `high` is not likely enough."""
    if not likely(high):
        return None
    reach = low
    while reach < high and not likely(reach):
        low, reach = reach + 1, min(high, reach * 2)
    while low < reach:
        middle = (low + reach) // 2
        if likely(middle):
            reach = middle
        else:
            low = middle + 1
    return reach
