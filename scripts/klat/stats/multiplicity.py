"""Many tests, and many looks at a growing sample, with one level for all of them together.

The p values of tests are adjusted, so that each can be compared with alpha itself. `factor` maps a number of
tests to the factor of p that keeps alpha in so many tests. By Bonferroni it is that number. At an interim
look it is another one: see Look.

The levels of looks are those of Lan and DeMets, "Discrete sequential boundaries for clinical trials", Biometrika
70 (1983), with their spending function of the type of O'Brien and Fleming. The recursion is that of Armitage,
McPherson and Rowe, J. Royal Statistical Society A 132 (1969). At the looks the statistic is a Brownian motion W at
the shares of the information. For means of independent units whose variance is known, the information is their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Factor = Callable[[float], float]
PValues = npt.NDArray[Any]


def bonferroni(tests: float) -> float:
    return tests


def holm(p: npt.ArrayLike, factor: Factor = bonferroni) -> PValues:
    """The chance of any false rejection is at most alpha, however the tests depend on each other:
    Holm, "A simple sequentially rejective multiple test procedure", Scandinavian J. Statistics 6
    (1979). The tests of a family are along the last axis."""
    p = np.asarray(p, dtype=float)
    order = np.argsort(p, axis=-1, kind="stable")
    factors = [factor(tests) for tests in range(p.shape[-1], 0, -1)]
    raised = np.minimum(1.0, np.take_along_axis(p, order, axis=-1) * factors)
    return _in_order(np.maximum.accumulate(raised, axis=-1), order)


def benjamini_hochberg(p: npt.ArrayLike, factor: Factor = bonferroni) -> PValues:
    """The expected share of false ones among the rejections is at most alpha, where tests are
    independent or positively dependent: Benjamini and Hochberg, J. Royal Statistical Society B 57
    (1995). The tests of a family are along the last axis."""
    p = np.asarray(p, dtype=float)
    order = np.argsort(-p, axis=-1, kind="stable")
    count = p.shape[-1]
    factors = [factor(count / tests) for tests in range(count, 0, -1)]
    raised = np.minimum(1.0, np.take_along_axis(p, order, axis=-1) * factors)
    return _in_order(np.minimum.accumulate(raised, axis=-1), order)


def _in_order(values: PValues, order: PValues) -> PValues:
    """Undoes the sort."""
    unsorted = np.empty_like(values)
    np.put_along_axis(unsorted, order, values, axis=-1)
    return unsorted


_Correction = Callable[[npt.ArrayLike, Factor], PValues]
CORRECTIONS: dict[str, _Correction] = {"holm": holm, "bh": benjamini_hochberg}


_Array = npt.NDArray[np.float64]

_POINTS = 301  # of the grid for W; odd, for Simpson's rule
_LOWEST = 1e-300
_BEYOND = 38.0  # standard deviations; the normal tail beyond is 0 in floating point


@dataclass(frozen=True)
class Look:
    """A look after `units` units. Looks are planned after the numbers of units `planned`; the last number is
    the whole sample. `alpha` is the level of all looks together."""

    units: int
    planned: tuple[int, ...]
    alpha: float

    @property
    def number(self) -> int:
        """From 1; 0 if this look is not planned."""
        return self.planned.index(self.units) + 1 if self.units in self.planned else 0

    def level(self, tests: float = 1.0) -> float:
        """The level of this look, where all looks together have the level alpha / tests. It does not depend
        on later looks, so an unplanned look has one too. Never 0."""
        looks = [*(units for units in self.planned if units < self.units), self.units]
        alpha, end = self.alpha / tests, max(self.planned)
        shares = tuple(units / end for units in looks)
        information = tuple(_information(u, alpha) / _information(end, alpha) for u in looks)
        return max(look_levels(alpha, shares, information)[-1], _LOWEST)


def _information(units: int, alpha: float) -> float:
    """The information of Student's t after this number of units. The squared correlation of two looks is the
    ratio of their information.

    Each look estimates the variance again, so t at two looks is less correlated than W. Let the looks have
    n < m units, and let z be the bound. Then 1 - correlation^2 is n (1 / n - 1 / m) for W. For t it is
    (n + z^2 / 2) (1 / n - 1 / m), by the delta method. The function has this value for looks that are close.
    """
    from scipy.special import ndtri

    return units * math.exp(-float(ndtri(alpha / 2)) ** 2 / 2 / units)


def spent(alpha: float, share: float) -> float:
    """The part of the two-sided level `alpha` that the looks up to this share of the sample, in (0, 1], may
    spend. On each side it is the one-sided function for alpha / 2."""
    from scipy.special import ndtr, ndtri

    return float(4 * ndtr(ndtri(alpha / 4) / math.sqrt(share)))


@lru_cache(maxsize=4096)
def look_levels(
    alpha: float, shares: tuple[float, ...], information: tuple[float, ...] = ()
) -> tuple[float, ...]:
    """The two-sided level of the test at each look. `shares` are the shares of the sample at the looks, and
    `information` those of the information, by default the same. Both increase, and are at most 1.

    If each look tests at its level, and the first rejection ends the measurement, the chance of a false
    rejection is `alpha`.
    """
    from scipy.special import ndtr

    if not shares or any(b <= a for a, b in zip((0.0, *shares), shares)) or shares[-1] > 1:
        raise ValueError("shares must increase from above 0 to at most 1")
    levels: list[float] = []
    # The density of W at the last look, where no look has rejected. At first all of it is at 0.
    grid, mass = np.zeros(1), np.ones(1)
    before, already = 0.0, 0.0
    for time, share in zip(shares, information or shares):
        step, total = math.sqrt(share - before), spent(alpha, time)
        bound = _bound(grid, mass, step, share, total - already)
        levels.append(float(2 * ndtr(-bound)))
        limit = bound * math.sqrt(share)
        ahead = np.linspace(-limit, limit, _POINTS)
        kernel = np.exp(-(((ahead[:, None] - grid) / step) ** 2) / 2)
        mass = kernel @ mass / (step * math.sqrt(2 * math.pi)) * _simpson(ahead)
        grid, before, already = ahead, share, total
    return tuple(levels)


def _bound(grid: _Array, mass: _Array, step: float, share: float, budget: float) -> float:
    """The bound for |W| / sqrt(share) that W crosses at this look, and at no earlier one, with the chance
    `budget`."""
    from scipy.optimize import brentq
    from scipy.special import ndtr

    def excess(bound: float) -> float:
        limit = bound * math.sqrt(share)
        crosses = ndtr((grid - limit) / step) + ndtr((-limit - grid) / step)
        return float(mass @ crosses) - budget

    if excess(_BEYOND) >= 0:
        return _BEYOND
    return float(brentq(excess, 0.0, _BEYOND, xtol=1e-10))


def _simpson(grid: _Array) -> _Array:
    weights = np.ones(len(grid))
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    scaled: _Array = weights * (grid[1] - grid[0]) / 3
    return scaled
