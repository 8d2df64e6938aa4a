"""Statistics of samples and runs. Pure functions over arrays: no files, no printing.

The statistics of a record's row are integer arithmetic, so that they can be compared digit for
digit (docs/samples.md, Exactness). Inferred figures are floating point. The unit of inference is the
run within a boot: samples of one run are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import repeat

import numpy as np
import numpy.typing as npt

from klat.stats.power import smallest

Samples = npt.NDArray[np.uint64]
Values = npt.NDArray[np.float64]

P50, P90, P99 = Fraction(1, 2), Fraction(9, 10), Fraction(99, 100)
P999 = Fraction(999, 1000)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def supports(n: int, q: Fraction) -> bool:
    """Whether n samples support quantile q: at least five of them are expected beyond it."""
    # In integers, because Fraction is slow and this is computed for every run.
    return n * (q.denominator - q.numerator) >= 5 * q.denominator


def fewest(q: Fraction) -> int:
    """How many samples quantile q needs."""
    return math.ceil(5 / (1 - q))


def rank(n: int, q: Fraction) -> int:
    """Rank from 1 of quantile q among n samples: Hyndman and Fan's type 1 (The American
    Statistician, 1996)."""
    return math.ceil(q * n)


def _sum(values: Samples) -> int:
    """Exact sum of uint64, which numpy would let wrap. For up to 2^32 values."""
    high = int(np.sum(values >> _HALF, dtype=np.uint64))
    low = int(np.sum(values & _LOW_HALF, dtype=np.uint64))
    return (high << 32) + low


def _sum_of_squares(values: Samples) -> int:
    """Exact, by (2^32 h + l)^2 = 2^64 h^2 + 2^33 hl + l^2. No product exceeds 64 bits."""
    high, low = values >> _HALF, values & _LOW_HALF
    squares = _sum(low * low)
    if high.any():
        squares += (_sum(high * high) << 64) + (_sum(high * low) << 33)
    return squares


def exact_sums(samples: Samples) -> tuple[int, int]:
    """The sum, and the sum of squares."""
    return _sum(samples), _sum_of_squares(samples)


def thousandths(value: int) -> str:
    """value / 1000 with exactly three decimals."""
    return f"{value // 1000}.{value % 1000:03d}"


def exact_moments(n: int, total: int, squares: int) -> tuple[int, int]:
    """The mean and the standard deviation in thousandths, rounded down, from the sums of n samples."""
    spread = 10**6 * (n * squares - total * total) // (n * (n - 1)) if n > 1 else 0
    return 1000 * total // n, math.isqrt(spread)


# The figures of a row of runs.csv, in the order of klat.record.rows.FIGURES: integers, with the mean and the
# deviation in thousandths. None for a quantile that the samples do not support.
RowFigures = tuple[int | None, ...]


def row_figures(rows: Samples) -> Iterator[RowFigures]:
    """The figures of each line of samples, which has at least one sample and at most 2^32."""
    n = rows.shape[1]
    low, high = rows.min(axis=1), rows.max(axis=1)
    ranks = _ranks(n)
    if places := [rank - 1 for rank in ranks if rank]:
        ordered = np.partition(rows, places, axis=1)
    quantiles = (ordered[:, rank - 1].tolist() if rank else repeat(None) for rank in ranks)
    if int(high.max()) <= math.isqrt((2**64 - 1) // n):  # each sum fits 64 bits
        totals = rows.sum(axis=1, dtype=np.uint64).tolist()
        squares = np.einsum("ij,ij->i", rows, rows).tolist()
    else:
        totals, squares = zip(*map(exact_sums, rows))
    moments = zip(*map(exact_moments, repeat(n), totals, squares))
    return zip(*moments, low.tolist(), *quantiles, high.tolist())


@lru_cache(maxsize=64)
def _ranks(n: int) -> list[int]:
    """The rank, from 1, of each quantile that a row can hold; 0 if n does not support it."""
    return [rank(n, q) if supports(n, q) else 0 for q in (P50, P90, P99)]


def lag1_autocorrelation(values: Values) -> float:
    """Correlation of each value with the next, in the order given; 0 for constants and under 3
    values."""
    if len(values) < 3:
        return 0.0
    centred = values - values.mean()
    variance = float(centred @ centred)
    # A constant whose mean was rounded leaves a residue without meaning.
    if variance <= len(values) * (1e-12 * float(np.abs(values).max())) ** 2:
        return 0.0
    return float(centred[:-1] @ centred[1:]) / variance


def effective_size(values: Values) -> float:
    """How many independent values have the same information about the centre, for a first-order
    autoregression: n (1 - r) / (1 + r). At most n, because a negative estimate of r may be chance.

    The estimate of r is too low by (1 + 3 r) / n on average (Marriott and Pope, Biometrika 41, 1954).
    """
    if not (n := len(values)):
        return 0.0
    estimate = lag1_autocorrelation(values)
    if not estimate:  # constants, or fewer than 3 values
        return float(n)
    r = min(max(0.0, estimate + (1 + 3 * estimate) / n), 1.0)
    return max(1.0, n * (1 - r) / (1 + r))


def squared_error(values: Sequence[float] | Values, effective: float) -> float:
    """The squared standard error of the mean, for values with this effective size n, above 1. The mean of np.var() is
    the variance less this error, and the error is the variance / n. So the error is np.var() / (n - 1).
    """
    return float(np.var(values)) / (effective - 1)


# The chance beyond each end of an interval.
_TAIL = (1 - 0.95) / 2


def median_interval(values: Values) -> tuple[float, float] | None:
    """Distribution-free confidence interval for the median, from order statistics, in the order
    measured.

    With l the largest rank for which P(Binomial(n, 1/2) < l) <= 2.5 %, the interval is from the l-th
    smallest value to the l-th largest. Drift makes it wider: the ranks are those of the effective
    sample size. None when even the extremes do not reach the confidence (n < 6).
    """
    n = len(values)
    m = math.floor(effective_size(values))
    low_rank = _low_rank(m, 0.5)
    if low_rank < 1:
        return None
    below = (low_rank - 1) * n // m
    ordered = np.sort(values)
    return float(ordered[below]), float(ordered[n - 1 - below])


def mean_interval(values: Values) -> tuple[float, float] | None:
    """Student's confidence interval for the mean of values in the order measured, with as many
    degrees of freedom as their effective size allows. None with fewer than two."""
    from scipy.special import stdtrit

    n = effective_size(values)
    if n < 2:
        return None
    error = math.sqrt(squared_error(values, n))
    reach = float(stdtrit(n - 1, 1 - _TAIL)) * error
    return float(values.mean()) - reach, float(values.mean()) + reach


@dataclass(frozen=True)
class LinearFit:
    """y = intercept + slope x by least squares. The interval is None if the data cannot give one."""

    slope: float
    intercept: float
    interval: tuple[float, float] | None
    n: int

    def widened(self, reach: float) -> LinearFit:
        if self.interval is None:
            return self
        low, high = self.interval
        return replace(self, interval=(low - reach, high + reach))


def fit_over_boots(fits: Sequence[LinearFit]) -> LinearFit:
    """The mean of the lines of several boots, at least one. Runs of one boot are not independent, but boots
    are: the interval is Student's t over their slopes."""
    slopes = np.array([fit.slope for fit in fits])
    intercept = float(np.mean([fit.intercept for fit in fits]))
    return LinearFit(float(slopes.mean()), intercept, mean_interval(slopes), sum(f.n for f in fits))


def linear_fit(x: Values, y: Values) -> LinearFit | None:
    """Least squares, with each pair as an independent unit. None with fewer than two distinct x.

    The interval is Student's t with n - 2 degrees of freedom over the HC3 standard error (MacKinnon
    and White, J. Econometrics 1985). The textbook error assumes that all points vary alike, but the
    variance of a shootdown grows with the responders. None if a single point decides the slope (its
    leverage is 1), or n < 3.
    """
    from scipy.special import stdtrit

    n = len(x)
    if n < 2 or float(x.min()) == float(x.max()):
        return None
    centred = x - x.mean()
    spread = float(centred @ centred)
    slope = float(centred @ (y - y.mean())) / spread
    intercept = float(y.mean()) - slope * float(x.mean())
    leverage = 1 / n + centred**2 / spread
    if n < 3 or float(leverage.max()) > 1 - 1e-9:
        return LinearFit(slope, intercept, None, n)
    residuals = y - intercept - slope * x
    error = math.sqrt(float(np.sum((centred * residuals / (1 - leverage)) ** 2))) / spread
    reach = float(stdtrit(n - 2, 1 - _TAIL)) * error
    return LinearFit(slope, intercept, (slope - reach, slope + reach), n)


# The autocorrelation is a property of the process, so a part of the samples is enough.
STRETCH = 1 << 16


@dataclass(frozen=True)
class RunQuantile:
    """A quantile of one run. `effective` is the number of independent samples with the same information.
    The ends of the interval are samples; it is None if the samples do not support one."""

    value: int
    interval: tuple[int, int] | None
    n: int
    effective: float


def correlation_time(series: npt.NDArray[np.float64]) -> float:
    """By how much the variance of the series' mean exceeds the variance of a mean of as many
    independent values, at least 1.

    It is 1 + 2 (sum of the autocorrelations). The sum ends where the sums of neighbouring
    autocorrelations are no longer positive and falling (the initial monotone sequence of Geyer,
    "Practical Markov chain Monte Carlo", Statistical Science 7, 1992).
    """
    n = len(series)
    centred = series - series.mean()
    if n < 4 or not float(np.abs(centred).max()) > 1e-12:
        return 1.0
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(centred, size)
    correlations = np.fft.irfft(spectrum.real**2 + spectrum.imag**2, size)[:n]
    correlations /= correlations[0]
    even = len(correlations) // 2 * 2
    pairs = correlations[0:even:2] + correlations[1:even:2]
    ends = np.flatnonzero(pairs <= 0)
    pairs = pairs[: ends[0]] if len(ends) else pairs
    return max(1.0, 2.0 * float(np.minimum.accumulate(pairs).sum()) - 1.0) if len(pairs) else 1.0


def quantile_of(
    stretch: Samples, n: int, ranked: Callable[[Sequence[int]], Sequence[int]], q: Fraction
) -> RunQuantile | None:
    """Quantile q of n samples, with its interval from order statistics over the effective sample size; None where n
    does not support q. The samples need not be in memory: `stretch` holds the first `STRETCH` in the order in which
    they were taken, and `ranked` returns the samples at given ranks, in ascending order.

    With m effective samples, the interval is from the largest rank l with P(B < l) <= 2.5 % to the
    smallest rank u with P(B >= u) <= 2.5 %, B binomial(m, q) (David and Nagaraja, Order Statistics,
    2003, section 7.1), scaled to the ranks of all n. The autocorrelation is that of "this
    sample is at most the quantile", which has a variance even if the tail is heavy.
    """
    if not n or not supports(n, q):
        return None
    (value,) = ranked([rank(n, q) - 1])
    effective = n / correlation_time((stretch <= value).astype(np.float64))
    m = max(1, math.floor(effective))
    low, high = _low_rank(m, float(q)), m + 1 - _low_rank(m, float(1 - q))
    interval = None
    if low >= 1 and high <= m:
        first, last = (low - 1) * n // m, n - 1 - (m - high) * n // m
        below, above = ranked([first, last])
        interval = below, above
    return RunQuantile(value, interval, n, effective)


def _low_rank(m: int, q: float) -> int:
    """The largest l with P(Binomial(m, q) < l) <= 2.5 %; 0 where there is none."""
    from scipy.special import bdtr

    # bdtr(k, m, q) is P(Binomial(m, q) <= k).
    return smallest(lambda k: float(bdtr(k, m, q)) > _TAIL, 0, m) or 0
