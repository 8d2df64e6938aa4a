"""Whether the extremes of a sample follow the distribution that was fitted to them.

The parameters are estimated, so tables for known parameters do not hold. Samples are drawn from the
fitted distribution and fitted again (parametric bootstrap). These statistics of the values are compared
with those of the drawn samples:

- the reach of the 2, 8 and 32 largest values: how far they are above the others on average,
  transformed to standard exponential by a fit in which they are censored. So a few values of a second
  cause do not bend the fit that they are compared with ("masking": Barnett and Lewis, Outliers in
  Statistical Data, 1994);
- the widest gap: the largest of the spacings, each of which should be standard exponential (Pyke, J. R.
  Statist. Soc. B 27, 1965);
- the statistic of Anderson and Darling;
- its form that weights the upper end only (Sinclair, Spurr and Ahmad, Communications in Statistics -
  Theory and Methods 19, 1990).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from klat.stats.pareto_tail import standardized

Values = npt.NDArray[np.float64]

REPLICATES = 399
_LARGEST = 2, 8, 32
_OTHERS = 2  # for each of the largest, at least so many other values
_SMALLEST = 1e-300


@dataclass(frozen=True)
class FitCheck:
    """`p` is for all statistics together: the share of drawn samples that are at least as extreme. `far`
    is true if a reach or the gap is the most extreme statistic."""

    p: float
    far: bool


def check_fit(standard: Values, excesses: Values) -> FitCheck:
    """Both have a row for each sample: the first is checked, the others are drawn from the fit. Each row
    ascends. `standard` should be standard exponential. `excesses` are over a threshold."""
    n = excesses.shape[1]
    reaches = [_reach(excesses, count) for count in _LARGEST if n >= (1 + _OTHERS) * count]
    apart = [*reaches, _widest_gap(standard)]
    found = np.stack([*apart, *_anderson_darling(standard)])
    p = np.stack([_shares(row) for row in found])
    # The smallest p of a sample is a statistic itself, with its own distribution.
    together = _shares(-p.min(axis=0))
    return FitCheck(p=float(together[0]), far=int(np.argmin(p[:, 0])) < len(apart))


def _reach(excesses: Values, count: int) -> Values:
    """The mean of the largest `count`, minus the largest of the others."""
    standard = np.minimum(standardized(excesses, censored=count), -np.log(_SMALLEST))
    found: Values = standard[:, -count:].mean(axis=1) - standard[:, -count - 1]
    return found


def _widest_gap(rows: Values) -> Values:
    """The largest spacing, times the number of values above it."""
    n = rows.shape[1]
    spacings = np.diff(np.minimum(rows, -np.log(_SMALLEST)), axis=1) * np.arange(n - 1, 0, -1)
    found: Values = spacings.max(axis=1)
    return found


def _shares(statistics: Values) -> Values:
    """For each, the share of all that are at least as large."""
    ordered = np.sort(statistics)
    found: Values = 1 - np.searchsorted(ordered, statistics, side="left") / len(statistics)
    return found


def _anderson_darling(rows: Values) -> tuple[Values, Values]:
    """Of rows that ascend: the statistic, and its form for the upper end."""
    n = rows.shape[1]
    odd = 2.0 * np.arange(1, n + 1) - 1
    beyond = np.minimum(rows, -np.log(_SMALLEST))  # -log(1 - F)
    inside = np.maximum(-np.expm1(-rows), _SMALLEST)  # F
    both = -n - ((np.log(inside) - beyond[:, ::-1]) * odd).mean(axis=1)
    upper = n / 2 - 2 * inside.sum(axis=1) + ((2 - odd / n) * beyond).sum(axis=1)
    return both, upper
