"""The interval that a profile likelihood gives for one parameter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

_WIDENINGS = 40
_REACH = 0.05  # of the first step of a search, in each parameter
_IMPOSSIBLE = 1e300
_FAR_BELOW = -1e9
_TOLERANCE = 1e-3  # of the first guess


def profile_interval(
    likelihood: Callable[[float, Values], float],
    best: float,
    others: Values,
    step: float,
    drop: float,
) -> tuple[float, float] | None:
    """The interval in which the log likelihood, maximized over the other parameters, is at most `drop`
    below its maximum. None if an end is not found. The maximum is at `best` and `others`. `step` is
    a first guess of half the interval's width.

    `drop` is half a quantile of chi-squared with one degree of freedom (Coles, 2001, 2.6.6).
    """
    # The maximum is searched again: at the end of a tail, rounding can make the given one impossible.
    at_best = _Profile(likelihood, others, 0.0)
    least = at_best(best) - drop
    ends = [_end(_Profile(likelihood, at_best.others, least), best, d) for d in (-step, step)]
    low, high = ends
    return None if low is None or high is None else (low, high)


class _Profile:
    """The log likelihood of a value, maximized over the other parameters, minus `least`. Each search
    begins where the last one ended."""

    def __init__(
        self, likelihood: Callable[[float, Values], float], others: Values, least: float
    ) -> None:
        self._likelihood = likelihood
        self.others = others
        self._least = least
        self._known: dict[float, float] = {}

    def __call__(self, value: float) -> float:
        if value not in self._known:
            self._known[value] = self._search(value)
        return self._known[value]

    def _search(self, value: float) -> float:
        from scipy.optimize import minimize

        def lost(others: Values) -> float:
            return min(_IMPOSSIBLE, -self._likelihood(value, others))

        corners = self.others + np.vstack(
            [np.zeros(len(self.others)), _REACH * np.eye(len(self.others))]
        )
        options = {"initial_simplex": corners, "xatol": 1e-5, "fatol": 1e-5, "maxiter": 600}
        found = minimize(lost, self.others, method="Nelder-Mead", options=options)
        if found.fun < _IMPOSSIBLE:
            self.others = found.x
        return max(_FAR_BELOW, -float(found.fun)) - self._least


def _end(profile: _Profile, best: float, step: float) -> float | None:
    from scipy.optimize import brentq

    inside, reach = best, step
    for _ in range(_WIDENINGS):
        outside = best + reach
        if profile(outside) < 0:
            return float(brentq(profile, inside, outside, xtol=abs(step) * _TOLERANCE))
        inside, reach = outside, 1.6 * reach
    return None
