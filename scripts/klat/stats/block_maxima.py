"""The generalized extreme value distribution of the maxima of blocks.

Its distribution function is exp(-(1 + shape z)^(-1 / shape)) at z = (x - location) / scale (Coles, An
Introduction to Statistical Modeling of Extreme Values, 2001, chapter 3). The sign of the shape is the
one of the generalized Pareto distribution, and the opposite of scipy's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from klat.stats.pareto_tail import LEAST_SHAPE, reduced

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class MaximaFit:
    shape: float
    location: float
    scale: float


def log_likelihood_of_maxima(maxima: Values, shape: float, location: float, scale: float) -> float:
    """Of independent maxima; minus infinity if one is impossible."""
    if not 0 < scale < math.inf or shape < LEAST_SHAPE:
        return -math.inf
    z = reduced((maxima - location) / scale, shape)
    if not np.isfinite(z).all() or z.min() < -700:
        return -math.inf
    return -len(maxima) * math.log(scale) - (1 + shape) * float(z.sum()) - float(np.exp(-z).sum())


def fitted_maxima(maxima: Values) -> MaximaFit:
    """The fit of maximum likelihood, for maxima that are not all equal."""
    from scipy.optimize import minimize

    shapes, locations, scales = fits_by_moments(maxima[np.newaxis, :])
    start = np.array([float(shapes[0]), 0.0, 0.0])
    location, scale = float(locations[0]), float(scales[0])
    standard = (maxima - location) / scale

    def lost(x: Values) -> float:
        return -log_likelihood_of_maxima(standard, float(x[0]), float(x[1]), math.exp(x[2]))

    if not math.isfinite(lost(start)):
        start[0] = 0.0
    options = {"xatol": 1e-6, "fatol": 1e-6, "maxiter": 2000, "maxfev": 4000}
    found = minimize(lost, start, method="Nelder-Mead", options=options).x
    return MaximaFit(
        float(found[0]), location + scale * float(found[1]), scale * math.exp(found[2])
    )


def maxima_with_draws(maxima: Values, fit: MaximaFit, replicates: int, seed: int) -> Values:
    """For a check of the fit: a row of the maxima relative to the fit, then `replicates` rows drawn from
    the fit. Each row ascends."""
    draw = np.random.default_rng(seed)
    gumbel = -np.log(draw.standard_exponential((replicates, len(maxima))))
    drawn = gumbel if abs(fit.shape) < 1e-9 else np.expm1(fit.shape * gumbel) / fit.shape
    found: Values = np.sort(np.vstack([(maxima - fit.location) / fit.scale, drawn]), axis=1)
    return found


def standardized_maxima(samples: Values) -> Values:
    """Each row of maxima, transformed to standard exponential by a fit of its own, by L-moments, which
    need no search."""
    shapes, locations, scales = (x[:, np.newaxis] for x in fits_by_moments(samples))
    z = reduced((samples - locations) / scales, shapes)
    with np.errstate(divide="ignore", over="ignore"):
        found: Values = -np.log(-np.expm1(-np.exp(-z)))
    return found


def fits_by_moments(samples: Values) -> tuple[Values, Values, Values]:
    """Shape, location and scale of each row, by L-moments (Hosking, Wallis and Wood, Technometrics 27,
    1985)."""
    from scipy.special import gamma

    n = samples.shape[1]
    rows = np.sort(samples, axis=1)
    ranks = np.arange(n)
    b0 = rows.mean(axis=1)
    b1 = (rows * ranks).mean(axis=1) / (n - 1)
    b2 = (rows * ranks * (ranks - 1)).mean(axis=1) / ((n - 1) * (n - 2))
    spread = 2 * b1 - b0
    ratio = (3 * b2 - b0) / spread
    c = 1 / ratio - math.log(2) / math.log(3)
    # The approximation holds for shapes between -1/2 and 1/2, and is used a little beyond.
    k = np.clip(7.8590 * c + 2.9554 * c**2, -0.95, 2.0)
    k = np.where(np.abs(k) < 1e-6, 1e-6, k)
    scales = spread * k / ((1 - 2.0**-k) * gamma(1 + k))
    return -k, b0 - scales * (1 - gamma(1 + k)) / k, scales
