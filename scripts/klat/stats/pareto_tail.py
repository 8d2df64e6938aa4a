"""The generalized Pareto distribution of excesses over a threshold.

Its survival function is (1 + shape x / scale)^(-1 / shape): an exponential at shape 0, a tail that ends at
-scale / shape at a negative shape, a heavy tail at a positive one (Coles, An Introduction to
Statistical Modeling of Extreme Values, 2001, chapter 4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

# A tail with a smaller shape has a density that grows towards its end, and no maximum of the likelihood.
LEAST_SHAPE = -1.0
_EXPONENTIAL = 1e-9  # shapes closer to 0 are taken for 0
# The grid of a search over log(1 + theta max(excess)).
_LOWEST, _HIGHEST, _PLACES = -12.0, 12.0, 25
_STEPS = 17  # of the golden-section search between two points of the grid
_GOLDEN = (np.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class ParetoTail:
    shape: float
    scale: float

    def excess(self, times: float) -> float:
        """The value that one of `times` excesses exceeds, on average."""
        return self.scale * growth(times, self.shape)


def with_draws(excesses: Values, tail: ParetoTail, replicates: int, seed: int) -> Values:
    """For a check of the fit: a row of the excesses divided by the scale, then `replicates` rows drawn
    from the tail. Each row ascends."""
    draw = np.random.default_rng(seed)
    drawn = draw.standard_exponential((replicates, len(excesses)))
    if abs(tail.shape) >= _EXPONENTIAL:
        drawn = np.expm1(tail.shape * drawn) / tail.shape
    found: Values = np.sort(np.vstack([excesses / tail.scale, drawn]), axis=1)
    return found


def standardized(samples: Values, censored: int = 0) -> Values:
    """Each row of excesses, transformed to standard exponential by a fit of its own."""
    shapes, scales = fits(samples, censored)
    return reduced(samples / scales[:, np.newaxis], shapes[:, np.newaxis])


def reduced(z: Values, shape: npt.ArrayLike) -> Values:
    """log(1 + shape z) / shape. If z are excesses divided by their scale, the result is standard
    exponential. Infinite beyond the end of the tail."""
    shapes = np.asarray(shape, dtype=np.float64)
    flat = np.abs(shapes) < _EXPONENTIAL
    safe = np.where(flat, 1.0, shapes)
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = np.log1p(np.maximum(safe * z, -1.0)) / safe
    return np.where(flat, z, inside)


def growth(times: float, shape: float) -> float:
    """(times^shape - 1) / shape."""
    logarithm = float(np.log(times))
    return logarithm if abs(shape) < _EXPONENTIAL else float(np.expm1(shape * logarithm) / shape)


def log_likelihood(excesses: Values, shape: float, scale: float) -> float:
    """Of excesses that are independent; minus infinity where one lies beyond the end of the tail."""
    if scale <= 0 or shape < LEAST_SHAPE or 1 + shape * float(excesses.max()) / scale <= 0:
        return -np.inf
    standard = float(reduced(excesses / scale, shape).sum())
    return -len(excesses) * float(np.log(scale)) - (1 + shape) * standard


def fitted(excesses: Values) -> ParetoTail:
    """The fit of maximum likelihood. At least two excesses, all above 0."""
    shapes, scales = fits(excesses[np.newaxis, :])
    return ParetoTail(float(shapes[0]), float(scales[0]))


def fits(samples: Values, censored: int = 0) -> tuple[Values, Values]:
    """Shape and scale of maximum likelihood for each row of excesses. With `censored`, the rows ascend, and
    of this number of the largest values the likelihood knows only that they are above the others.

    At theta = shape / scale, the best shape is the mean of log(1 + theta x), so the likelihood depends
    on theta alone (Grimshaw, Technometrics 35, 1993). It is searched over log(1 + theta max(x)), which
    may take any value.
    """
    samples = samples[:, : samples.shape[1] - censored]
    largest = samples.max(axis=1, keepdims=True)
    relative = samples / largest
    places = np.linspace(_LOWEST, _HIGHEST, _PLACES)
    heights = np.stack(
        [_profile(relative, censored, np.full(len(samples), place)) for place in places]
    )
    best = places[np.argmax(heights, axis=0)]
    step = places[1] - places[0]
    low, high = best - step, best + step
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = (_profile(relative, censored, place) for place in (left, right))
    for _ in range(_STEPS):
        lower = at_left > at_right
        high, low = np.where(lower, right, high), np.where(lower, low, left)
        probe = np.where(lower, high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
        at_probe = _profile(relative, censored, probe)
        left, right = np.where(lower, probe, right), np.where(lower, left, probe)
        at_left, at_right = (
            np.where(lower, at_probe, at_right),
            np.where(lower, at_left, at_probe),
        )
    shapes, scales, _ = _at(relative, censored, (low + high) / 2)
    return np.maximum(shapes, LEAST_SHAPE), scales * largest[:, 0]


def _at(relative: Values, censored: int, place: Values) -> tuple[Values, Values, Values]:
    """Shape, scale and the mean of log(1 + theta x) over the excesses that are not censored."""
    n = relative.shape[1]
    theta = np.expm1(place)
    mean: Values = np.log1p(theta[:, np.newaxis] * relative).mean(axis=1)
    shapes = mean + censored / n * place
    flat = np.abs(theta) < _EXPONENTIAL
    scales = np.where(
        flat, relative.mean(axis=1) + censored / n, shapes / np.where(flat, 1.0, theta)
    )
    return shapes, scales, mean


def _profile(relative: Values, censored: int, place: Values) -> Values:
    """The mean log likelihood at the best shape; minus infinity below LEAST_SHAPE."""
    shapes, scales, mean = _at(relative, censored, place)
    with np.errstate(divide="ignore", invalid="ignore"):
        heights = -np.log(scales) - mean - 1
    return np.where(shapes < LEAST_SHAPE, -np.inf, heights)
