"""How likely a verdict is, how many boots and runs make it likely enough, and how few can support none.

Chance could put all units of one side on one level and all units of the other side on another. Student's t
does not see this: units that never vary within a side have no variance, however few there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

# More boots a side are impractical.
MOST_UNITS = 1_000
MOST_RUNS = 10_000


@dataclass(frozen=True)
class Design:
    """`units` on each side, with the variances of their means. `pairs` if each unit has a partner;
    `variance_a` is then the variance of the pairs' differences. Every claim is tested against
    `resolution`, whatever the number of units: see klat.stats.means.MeanDifference."""

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
    klat.stats.means.MeanDifference.p_changed at alpha: the noncentral t distribution (Johnson and
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
        low, reach = reach + 1, min(high, max(1, reach * 2))
    while low < reach:
        middle = (low + reach) // 2
        if likely(middle):
            reach = middle
        else:
            low = middle + 1
    return reach


def by_arrangement(a: int, b: int, pairs: bool = False) -> float:
    """The chance that equal units, dealt to sides of a and b units, are completely separated: two
    of all ways to deal them. For `a` pairs: the chance that all differences have one sign."""
    ways: int = 2 ** a if pairs else math.comb(a + b, a)
    return 2 / ways


def fewest(alpha: float, pairs: bool = False) -> int:
    """The smallest number of units on each side, or of pairs, for which this chance is at most
    alpha."""
    units = 2
    while by_arrangement(units, units, pairs) > alpha:
        units += 1
    return units


def fewest_of_tests(tests: int, alpha: float, pairs: bool = False) -> int:
    """The smallest number with which a change can be significant after Holm's correction over this number of tests: with
    n units, the p of by_states() and by_paired_states() is at least 2 / 4^n."""
    units = fewest(alpha, pairs)
    while tests * 2 / 4**units > alpha:
        units += 1
    return units


def _shares() -> np.ndarray:  # type: ignore[type-arg]
    """Shares of units in the slower state that are tried; 1/2 is one of them."""
    import numpy as np

    return np.linspace(0, 1, 101)[1:-1, None]


@lru_cache(maxsize=1024)
def by_states(a: int, b: int, slow_a: int, slow_b: int) -> float:
    """For two equal sides of a and b units in two states: the chance that the shares of the slower
    state differ at least as much as slow_a / a and slow_b / b. The chance is for the share at which
    it is largest (Barnard, Biometrika 34, 1947). For n and n units that are completely separated it
    is 2 / 4^n."""
    import numpy as np

    distance = abs(slow_a / a - slow_b / b) - 1e-9
    if distance <= 0:
        return 1.0
    shares_a, shares_b = np.arange(a + 1) / a, np.arange(b + 1) / b
    chances_b = _chances(b, np.arange(b + 1))
    below = np.searchsorted(shares_b, shares_a - distance, "right")
    above = np.searchsorted(shares_b, shares_a + distance, "left")
    nothing = np.zeros((len(_shares()), 1))
    # Each sum begins with its small terms, so that a chance of one in a million stays exact.
    up_to = np.hstack([nothing, np.cumsum(chances_b, axis=1)])
    from_there = np.hstack([np.cumsum(chances_b[:, ::-1], axis=1)[:, ::-1], nothing])
    far = _chances(a, np.arange(a + 1)) * (up_to[:, below] + from_there[:, above])
    return float(far.sum(axis=1).max())


@lru_cache(maxsize=1024)
def by_paired_states(n: int, slower: int, faster: int) -> float:
    """The same for n pairs: in `slower` of them only one side is slow, in `faster` of them only the
    other."""
    import numpy as np
    from scipy.special import binom

    i, j = np.arange(n + 1)[:, None], np.arange(n + 1)
    alone = (_shares() * (1 - _shares()))[:, None]
    rest = np.maximum(n - i - j, 0)
    ways = binom(n, i) * binom(n - i, j) * alone ** (i + j) * (1 - 2 * alone) ** rest
    far = (np.abs(i - j) >= abs(slower - faster)) & (i + j <= n)
    return float((ways * far).sum(axis=(1, 2)).max())


def _chances(n: int, count: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    from scipy.special import binom

    chances: np.ndarray = binom(n, count) * _shares() ** count * (1 - _shares()) ** (n - count)  # type: ignore[type-arg]
    return chances


# Figures that never vary may be rounded differently.
_EQUAL = 1e-9


def by_chance(a: Sequence[float], b: Sequence[float], in_pairs: bool) -> float:
    """The smallest p that units in two fixed states can have: for the observed states, if there are
    only two; otherwise for two sides that are completely apart."""
    low, high = min(*a, *b), max(*a, *b)
    two = all(min(x - low, high - x) < _EQUAL for x in (*a, *b))
    slow = [[x - low > _EQUAL for x in side] for side in (a, b)]
    if not two:
        slow = [[False] * len(a), [True] * len(b)]
    if in_pairs:
        alone = [sum(x and not y for x, y in zip(*order)) for order in (slow, slow[::-1])]
        return by_paired_states(len(a), *alone)
    return by_states(len(a), len(b), sum(slow[0]), sum(slow[1]))
