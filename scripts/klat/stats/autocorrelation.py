"""How well the samples of one run, which are not independent, resolve a quantile."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from klat.stats.descriptive import rank, supports

Samples = npt.NDArray[np.uint64]

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


def run_quantile(samples: Samples, q: Fraction, confidence: float = 0.95) -> RunQuantile | None:
    """Quantile q with its interval from order statistics over the effective sample size; None where
    n does not support q. Samples in the order in which they were taken.

    With m effective samples, the interval is from the largest rank l with P(B < l) <= tail to the
    smallest rank u with P(B >= u) <= tail, B binomial(m, q) (David and Nagaraja, Order Statistics,
    2003, section 7.1), scaled to the ranks of all n. The autocorrelation is that of "this
    sample is at most the quantile", which has a variance even if the tail is heavy.
    """

    def ranked(places: Sequence[int]) -> list[int]:
        ordered = np.partition(samples, places)
        return [int(ordered[place]) for place in places]

    return quantile_of(samples[:STRETCH], len(samples), ranked, q, confidence)


def quantile_of(
    stretch: Samples,
    n: int,
    ranked: Callable[[Sequence[int]], Sequence[int]],
    q: Fraction,
    confidence: float = 0.95,
) -> RunQuantile | None:
    """The same for n samples that need not be in memory. `stretch` holds the first `STRETCH`
    samples. `ranked` returns the samples at given ranks, in ascending order."""
    if not n or not supports(n, q):
        return None
    (value,) = ranked([rank(n, q) - 1])
    effective = n / correlation_time((stretch <= value).astype(np.float64))
    m = max(1, math.floor(effective))
    tail = (1 - confidence) / 2
    low, high = _low_rank(m, float(q), tail), m + 1 - _low_rank(m, float(1 - q), tail)
    interval = None
    if low >= 1 and high <= m:
        first, last = (low - 1) * n // m, n - 1 - (m - high) * n // m
        below, above = ranked([first, last])
        interval = below, above
    return RunQuantile(value, interval, n, effective)


def _low_rank(m: int, q: float, tail: float) -> int:
    """The largest l with P(Binomial(m, q) < l) <= tail; 0 where there is none."""
    from scipy.special import bdtr

    low, high = 0, m
    while low < high:  # the largest l in [0, m] for which the statement holds
        middle = (low + high + 1) // 2
        if float(bdtr(middle - 1, m, q)) <= tail:
            low = middle
        else:
            high = middle - 1
    return low
