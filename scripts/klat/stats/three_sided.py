"""Three statements on a difference of means, of which exactly one is true: it is below the margin, within it, or
above it. Functions over arrays: a comparison tests its family with them, and the validation tests thousands.

A difference `value` has the standard error `error` with `freedom` degrees of freedom. The error is 0 if all values
are equal on each side; then the difference is known exactly. `resolution` bounds how much the counter's granularity may add to
the difference or hide of it. It is the same in every unit, so no number of units averages it away: it widens the
interval, and every statement is tested against it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

Values = npt.NDArray[Any]
ArrayLike = npt.ArrayLike

# Logs of equal numbers may differ by this much.
_ROUNDING = 1e-12


class Statement(IntEnum):
    BELOW = -1
    WITHIN = 0
    ABOVE = 1
    NONE = 2  # two or three of them are not rejected


def reach(error: ArrayLike, freedom: ArrayLike, resolution: ArrayLike, confidence: float) -> Values:
    """Half the width of the interval."""
    sampled = stdtrit(freedom, (1 + confidence) / 2) * error
    return np.asarray(resolution + np.where(np.equal(error, 0), 0.0, sampled))


def p_changed(
    value: ArrayLike, error: ArrayLike, freedom: ArrayLike, resolution: ArrayLike, margin: float
) -> Values:
    """p of |difference| <= margin: both tails, from the nearer end of the margin (Hodges and
    Lehmann, J. Royal Statistical Society B 16, 1954). With margin 0 it is Student's two-sided p; with
    a margin of many errors it is that of the one-sided test against the margin."""
    end, far = np.add(margin, resolution), np.abs(value)
    return np.minimum(1.0, _tail(end - far, error, freedom) + _tail(-end - far, error, freedom))


def p_within(
    value: ArrayLike, error: ArrayLike, freedom: ArrayLike, resolution: ArrayLike, margin: float
) -> Values:
    """p of |difference| >= margin: the larger of two one-sided tests (Schuirmann, J.
    Pharmacokinetics and Biopharmaceutics 15, 1987)."""
    return _tail(np.abs(value) + np.asarray(resolution) - margin, error, freedom)


def conclude(value: ArrayLike, p_adjusted: ArrayLike, p_same: ArrayLike, alpha: float) -> Values:
    """The statement that remains, from p_changed() after the correction and p_within(). Only the test
    of the true statement can err, so each may use all of alpha. If "within" is rejected in favour of
    "above", "below" is rejected too."""
    side = np.where(np.greater(value, 0), Statement.ABOVE, Statement.BELOW)
    changed = np.where(np.less_equal(p_adjusted, alpha), side, Statement.NONE)
    return np.where(np.less_equal(p_same, alpha), Statement.WITHIN, changed)


def _tail(distance: Values, error: ArrayLike, freedom: ArrayLike) -> Values:
    """The tail of Student's t at distance / error."""
    exact = np.equal(error, 0)
    sampled = stdtr(freedom, distance / np.where(exact, 1.0, error))
    return np.where(exact, np.where(distance < -_ROUNDING, 0.0, 1.0), sampled)
