"""Whether there are enough units that chance cannot line them up, all of one side on one level and
all of the other on another. Student's t does not see this: units that never vary within a side have
no variance, however few they are."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np


def by_arrangement(a: int, b: int, pairs: bool = False) -> float:
    """The chance that equal units, dealt to two sides of a and b, come out in order: two of all ways
    to deal them. Of a pairs, that all differences have one sign."""
    ways: int = 2 ** a if pairs else math.comb(a + b, a)
    return 2 / ways


def fewest(alpha: float, pairs: bool = False) -> int:
    """Units on each side, or pairs, from which on chance lines them up in at most alpha."""
    units = 2
    while by_arrangement(units, units, pairs) > alpha:
        units += 1
    return units


# Shares of units in the slower state; 1/2 is one of them.
_SHARES = np.linspace(0, 1, 101)[1:-1, None]


@lru_cache(maxsize=1024)
def by_states(a: int, b: int, slow_a: int, slow_b: int) -> float:
    """The chance that of a and b units in two states the shares of the slower one differ as much as
    slow_a / a and slow_b / b do, where both sides are alike: for the share at which it is likeliest
    (Barnard, Biometrika 34, 1947). Of n and n that line up in full it is 2 / 4^n."""
    distance = abs(slow_a / a - slow_b / b) - 1e-9
    if distance <= 0:
        return 1.0
    shares_a, shares_b = np.arange(a + 1) / a, np.arange(b + 1) / b
    chances_b = _chances(b, np.arange(b + 1))
    below = np.searchsorted(shares_b, shares_a - distance, "right")
    above = np.searchsorted(shares_b, shares_a + distance, "left")
    nothing = np.zeros((len(_SHARES), 1))
    # Each sum begins at its small end: the chance of a million to one is kept.
    up_to = np.hstack([nothing, np.cumsum(chances_b, axis=1)])
    from_there = np.hstack([np.cumsum(chances_b[:, ::-1], axis=1)[:, ::-1], nothing])
    far = _chances(a, np.arange(a + 1)) * (up_to[:, below] + from_there[:, above])
    return float(far.sum(axis=1).max())


@lru_cache(maxsize=1024)
def by_paired_states(n: int, slower: int, faster: int) -> float:
    """The same for n pairs: only one side is slow in `slower` of them, only the other in `faster`."""
    from scipy.special import binom

    i, j = np.arange(n + 1)[:, None], np.arange(n + 1)
    alone = (_SHARES * (1 - _SHARES))[:, None]
    rest = np.maximum(n - i - j, 0)
    ways = binom(n, i) * binom(n - i, j) * alone ** (i + j) * (1 - 2 * alone) ** rest
    far = (np.abs(i - j) >= abs(slower - faster)) & (i + j <= n)
    return float((ways * far).sum(axis=(1, 2)).max())


def _chances(n: int, count: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    from scipy.special import binom

    found: np.ndarray = binom(n, count) * _SHARES**count * (1 - _SHARES) ** (n - count)  # type: ignore[type-arg]
    return found
