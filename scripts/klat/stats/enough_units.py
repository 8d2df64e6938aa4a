"""Whether chance could put all units of one side on one level and all units of the other side on
another.

Student's t does not see this: units that never vary within a side have no variance, however few
there are.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def by_arrangement(a: int, b: int, pairs: bool = False) -> float:
    """The chance that equal units, dealt to sides of a and b units, are completely separated: two
    of all ways to deal them. For a pairs: that all differences have one sign."""
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
    """The smallest number with which a change can be significant after Holm's correction over so many tests: the p of
    by_states() and by_paired_states() is at least 2 / 4^n."""
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
