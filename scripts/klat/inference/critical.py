"""How large a difference has to be for a verdict, by simulation: of few units the permutation test
asks for more than Student's t does, and the larger p decides."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from klat.inference import permutation

Values = npt.NDArray[np.float64]

DRAWS = 1_000
_SEED = 1
# Draws that are held in memory with all their arrangements at once.
_PART = 100


def enumerated(units: int, pairs: bool) -> bool:
    """Whether the permutation test of so many units a side, or pairs, goes through all arrangements."""
    arrangements: int = 2 ** units if pairs else math.comb(2 * units, units)
    return arrangements <= permutation.EXACT


@lru_cache(maxsize=256)
def critical_shifts(units: int, pairs: bool, alpha: float) -> Values:
    """Of each of DRAWS experiments with normal units the shift, in standard deviations of a unit (of
    pairs: of a difference), from which on both tests see it at alpha; in ascending order. Of data
    as extreme as can be the permutation test is not asked: see klat.verdicts. For numbers of units
    that are `enumerated`."""
    from scipy.special import stdtrit

    draw = np.random.default_rng([_SEED, units, pairs])
    if pairs:
        values = draw.standard_normal((DRAWS, units))
        critical = float(stdtrit(units - 1, 1 - alpha / 2))
        student = critical * values.std(axis=1, ddof=1) / math.sqrt(units) - values.mean(axis=1)
        signs, shifted = permutation.sign_changes(units, _SEED), np.ones(units)
        return np.sort(np.maximum(student, _shuffled(values, signs, shifted, alpha)))
    values = draw.standard_normal((DRAWS, 2 * units))
    a, b = values[:, :units], values[:, units:]
    one, two = a.var(axis=1, ddof=1) / units, b.var(axis=1, ddof=1) / units
    freedom = (units - 1) * (one + two) ** 2 / (one**2 + two**2)
    critical = stdtrit(freedom, 1 - alpha / 2)
    student = critical * np.sqrt(one + two) + a.mean(axis=1) - b.mean(axis=1)
    signs = 1 - 2 * permutation.sides(units, units, _SEED)
    shifted = np.repeat([0.0, 1.0], units)
    return np.sort(np.maximum(student, _shuffled(values, signs, shifted, alpha)))


def _shuffled(values: Values, signs: Values, shifted: Values, alpha: float) -> Values:
    """For the permutation test alone. Each arrangement has a row of signs, the data's own first. On
    two sides of equal size Welch's t grows with the difference of the sums, so that both tests
    order arrangements by |signs @ values|, to which the shift adds signs @ shifted: it grows most
    for the data's own, and every other one is as extreme up to some shift."""
    # Half of the arrangements have all signs changed, and the same sums: each of these stands for two.
    signs = signs[: len(signs) // 2]
    allowed = max(1, math.floor(alpha * len(signs) * (1 + 1e-9)))
    slopes = signs @ shifted
    place = max(0, len(signs) - allowed - 1)
    found = []
    for part in np.split(values, range(_PART, len(values), _PART)):
        sums = part @ signs.T
        own = sums[:, :1]
        with np.errstate(divide="ignore", invalid="ignore"):
            until = (sums - own) / (slopes[0] - slopes)
            np.maximum(until, (-sums - own) / (slopes[0] + slopes), out=until)
        until[:, np.abs(slopes) == slopes[0]] = np.inf
        found.append(np.partition(until, place, axis=1)[:, place])
    return np.concatenate(found)
