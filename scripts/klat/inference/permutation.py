"""Permutation tests over units, which assume no distribution: a cross-check of Student's t."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

# More arrangements than these are drawn from, not enumerated.
EXACT = 20_000
DRAWN = 9_999
# Statistics that differ by less are the same number, rounded differently.
_TIE = 1e-9


@dataclass(frozen=True)
class Permutation:
    """p of a two-sided test over `arrangements`; `exact` where those are all there are. `smallest`
    is the p that the most extreme data of this size would get."""

    p: float
    arrangements: int
    exact: bool
    smallest: float


def two_sides(a: Sequence[float], b: Sequence[float], seed: int) -> Permutation | None:
    """Whether the units' side matters. The statistic is Welch's t, which keeps the level also where
    the sides differ in variance (Janssen, Statistics and Probability Letters 36, 1997). None with
    fewer than two units on a side."""
    if min(len(a), len(b)) < 2:
        return None
    chosen = sides(len(a), len(b), seed)
    values = np.array([*a, *b], dtype=np.float64)
    statistics = _welch(values, chosen)
    total = math.comb(len(values), len(a))
    return _judged(statistics, total, len(a) == len(b))


def signs(differences: Sequence[float], seed: int) -> Permutation | None:
    """Whether the sign of the pairs' differences matters: each may as well be the other. The
    statistic is the sum. None with fewer than two pairs."""
    n = len(differences)
    if n < 2:
        return None
    sums = np.abs(sign_changes(n, seed) @ np.array(differences, dtype=np.float64))
    return _judged(sums, 2**n, True)


def _judged(statistics: Values, total: int, symmetric: bool) -> Permutation:
    """The first statistic is that of the data. Drawn arrangements are counted with the data's own
    among them: Phipson and Smyth, "Permutation p-values should never be zero", Statistical
    Applications in Genetics and Molecular Biology 9 (2010)."""
    observed = statistics[0]
    if math.isinf(observed):
        extreme = int(np.count_nonzero(np.isinf(statistics)))
    else:
        extreme = int(np.count_nonzero(statistics >= observed - _TIE * max(1.0, abs(observed))))
    exact = len(statistics) == total
    smallest = (2 if symmetric else 1) / total if exact else 1 / len(statistics)
    return Permutation(extreme / len(statistics), len(statistics), exact, smallest)


def _welch(values: Values, chosen: Values) -> Values:
    """|t| of every arrangement; `chosen` holds a row of zeros and ones for each, 1 for side a."""
    # Scaled, so that what is rounding and what is not looks the same for every kind of value.
    values = values - values.mean()
    scale = float(np.abs(values).max())
    if scale < 1e-13:
        return np.zeros(len(chosen))
    values = values / scale
    n = len(values)
    na = int(chosen[0].sum())
    nb = n - na
    sum_a = chosen @ values
    squares_a = chosen @ values**2
    sum_b, squares_b = float(values.sum()) - sum_a, float((values**2).sum()) - squares_a
    mean_a, mean_b = sum_a / na, sum_b / nb
    var_a = np.maximum(squares_a / na - mean_a**2, 0) / (na - 1)
    var_b = np.maximum(squares_b / nb - mean_b**2, 0) / (nb - 1)
    error = np.sqrt(var_a + var_b)
    difference = np.abs(mean_a - mean_b)
    # Without variance on either side any difference is infinitely many errors long.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error > 1e-7, difference / error, np.where(difference > 1e-7, np.inf, 0.0))


@lru_cache(maxsize=64)
def sides(na: int, nb: int, seed: int) -> Values:
    """Arrangements of units on two sides, 1 for the first, the data's own first."""
    n = na + nb
    if math.comb(n, na) <= EXACT:
        chosen = np.zeros((math.comb(n, na), n))
        for row, members in zip(chosen, combinations(range(n), na)):
            row[list(members)] = 1
        return chosen
    generator = np.random.default_rng([seed, na, nb])
    order = np.argsort(generator.random((DRAWN, n)), axis=1)
    chosen = np.zeros((DRAWN + 1, n))
    chosen[0, :na] = 1
    np.put_along_axis(chosen[1:], order[:, :na], 1, axis=1)
    return chosen


@lru_cache(maxsize=64)
def sign_changes(n: int, seed: int) -> Values:
    """Signs of n differences, the data's own first."""
    if 2**n <= EXACT:
        bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    else:
        bits = np.random.default_rng([seed, n]).integers(0, 2, size=(DRAWN + 1, n))
        bits[0] = 0
    return np.asarray(1.0 - 2.0 * bits)
