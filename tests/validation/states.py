"""Kernels whose boots are in one of two states and never vary within one, as in counted mode: how
often equal kernels are called faster or slower, summed over all outcomes instead of simulated."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from klat.compare.verdicts import Observed, Rules, Unit, judge

# How far the states are apart, and the share of boots in the slower one.
APART = (0.03, 0.1, 0.5)
SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
SIZES = tuple(range(2, 21))


@dataclass(frozen=True)
class States:
    """The largest chance of a false verdict over all distances and shares: of one comparison, and of
    a suite of `tests`."""

    units: int
    pairs: bool
    one: float
    suite: float


def states(units: int, pairs: bool, rules: Rules, tests: int = 10) -> States:
    one = suite = 0.0
    for apart in APART:
        found = p_values(units, pairs, apart, rules)
        for share in SHARES:
            chances = list(outcomes(units, pairs, share))
            one = max(one, _chance(found, chances, rules.alpha))
            # Holm's first step: any false verdict has the smallest p at most alpha / tests.
            alarm = _chance(found, chances, rules.alpha / tests)
            suite = max(suite, 1 - (1 - alarm) ** tests)
    return States(units, pairs, one, suite)


def _chance(found: dict[tuple[int, int], float], chances: list[float], alpha: float) -> float:
    return math.fsum(chance for p, chance in zip(found.values(), chances) if p <= alpha)


@lru_cache(maxsize=256)
def p_values(units: int, pairs: bool, apart: float, rules: Rules) -> dict[tuple[int, int], float]:
    """Of each outcome. Without pairs (i, j) is how many boots of BASE and NEW are in the slower state;
    with pairs, in how many pairs NEW alone is, and BASE alone."""
    return {(i, j): _p(units, pairs, i, j, apart, rules) for i, j in _outcomes(units, pairs)}


def _outcomes(units: int, pairs: bool) -> Iterator[tuple[int, int]]:
    for i in range(units + 1):
        yield from ((i, j) for j in range(units + 1 - (i if pairs else 0)))


def _p(units: int, pairs: bool, i: int, j: int, apart: float, rules: Rules) -> float:
    step = math.log1p(apart)
    slow = ([k < i for k in range(units)], [k < j for k in range(units)])
    if pairs:
        slow = ([i <= k < i + j for k in range(units)], [k < i for k in range(units)])
    sides = [
        Observed(tuple(Unit(str(k), (x * step,), str(k) * pairs) for k, x in enumerate(side)))
        for side in slow
    ]
    (found,) = judge([(sides[0], sides[1])], rules)
    return 1.0 if found.p is None else found.p


def outcomes(units: int, pairs: bool, share: float) -> Iterator[float]:
    """The chance of each outcome, in their order, of kernels that do not differ."""

    def binomial(count: int, n: int, p: float) -> float:
        return math.comb(n, count) * p**count * (1 - p) ** (n - count)

    alone = share * (1 - share)
    for i, j in _outcomes(units, pairs):
        if pairs:
            yield binomial(i, units, alone) * binomial(j, units - i, alone / (1 - alone))
        else:
            yield binomial(i, units, share) * binomial(j, units, share)
