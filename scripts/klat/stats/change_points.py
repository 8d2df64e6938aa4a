"""Where a series of independent values changes, and whether it drifts. Pure functions.

Changes are found by E-divisive (Matteson and James, "A Nonparametric Approach for Multiple Change
Point Analysis of Multivariate Data", J. American Statistical Association 109, 2014), with the
energy distance of exponent 1 and segments of at least two values. It takes the best of all splits,
and repeats this as long as permutations within segments show that chance gives no split as good.

Drift is found by Kendall's tau over time (Mann, Econometrica 13, 1945). Its slope is Theil and
Sen's (Sen, J. American Statistical Association 63, 1968).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

_LEAST = 2  # values of a segment: with fewer there is no distance within the segment
_BATCH = 1 << 21  # numbers held at a time
_MOST_DRAWN = 19_999


@dataclass(frozen=True)
class Change:
    """Before value number `at`, from 0."""

    at: int
    p: float


@dataclass(frozen=True)
class Drift:
    """`slope` per step with its interval of 95 %. `p` tests that there is no drift."""

    p: float
    slope: float
    low: float
    high: float


def needed(level: float) -> int:
    """The smallest number of values for which a permutation can be significant at that level. The
    halves of n values can be exchanged in n over n/2 ways, and either half may come first."""
    n = 2 * _LEAST
    while 2 / math.comb(n, n // 2) > level:
        n += 1
    return n


def needed_beside(n: int, level: float) -> int:
    """How many of n values must be on the shorter side of a change, so that the change can be
    found. At most n/2, if `needed(level)` is at most n."""
    side = _LEAST
    while side < n // 2 and 2 / math.comb(n, side) > level:
        side += 1
    return side


def changes(values: Sequence[float], level: float, seed: int) -> list[Change]:
    """The changes in order. If the order of the values within each segment has no effect, the
    chance of one change too many is at most `level`."""
    if len(values) < needed(level):
        return []
    series = np.array(values, dtype=np.float64)
    drawn = min(_MOST_DRAWN, max(999, math.ceil(20 / level) - 1))
    random = np.random.default_rng([seed, len(values)])
    accepted: list[Change] = []
    while True:
        ends = [0, *sorted(change.at for change in accepted), len(series)]
        segments = [np.arange(a, b) for a, b in zip(ends, ends[1:]) if b - a >= 2 * _LEAST]
        best = max((_best(series[s]) + (int(s[0]),) for s in segments), default=(0.0, 0, 0))
        if best[0] <= 1e-12:
            break
        extreme = 1 + _as_good([series[s] for s in segments], best[0], drawn, random)
        p = extreme / (drawn + 1)
        if p > level:
            break
        accepted.append(Change(best[2] + best[1], p))
    return sorted(accepted, key=lambda change: change.at)


def _best(segment: Values) -> tuple[float, int]:
    """The largest statistic of all splits, and the first value after it."""
    statistics = _statistics(segment[None, :])[0]
    at = int(np.argmax(statistics))
    return float(statistics[at]), at + _LEAST


def _statistics(rows: Values) -> Values:
    """Matteson and James's Q for each split of each row: m n / (m + n) times the energy distance
    between the m values before the split and the n values after it."""
    count = rows.shape[1]
    distance = np.triu(np.abs(rows[:, :, None] - rows[:, None, :]))
    within_left = np.cumsum(distance.sum(axis=1), axis=1)  # pairs among the first i + 1
    within_right = np.cumsum(distance.sum(axis=2)[:, ::-1], axis=1)[:, ::-1]  # among i and later
    total = within_left[:, -1:]
    m = np.arange(_LEAST, count - _LEAST + 1)
    n = count - m
    left, right = within_left[:, m - 1], within_right[:, m]
    between = total - left - right
    energy = 2 * between / (m * n) - left / (m * (m - 1) / 2) - right / (n * (n - 1) / 2)
    return np.asarray(m * n / count * energy)


def _as_good(
    segments: Sequence[Values], observed: float, drawn: int, random: np.random.Generator
) -> int:
    """Of `drawn` permutations within the segments, how many have a split that is at least as good."""
    best = np.full(drawn, -np.inf)
    for segment in segments:
        batch = max(1, _BATCH // len(segment) ** 2)
        for first in range(0, drawn, batch):
            count = min(batch, drawn - first)
            order = np.argsort(random.random((count, len(segment))), axis=1)
            largest = _statistics(segment[order]).max(axis=1)
            best[first : first + count] = np.maximum(best[first : first + count], largest)
    return int(np.count_nonzero(best >= observed * (1 - 1e-9)))


def drift(values: Sequence[float]) -> Drift | None:
    """None for fewer than four values and for constants."""
    from scipy.stats import kendalltau, theilslopes

    if len(values) < 4 or min(values) == max(values):
        return None
    time = np.arange(len(values), dtype=np.float64)
    series = np.array(values, dtype=np.float64)
    slope, _, low, high = theilslopes(series, time, 0.95)
    return Drift(float(kendalltau(time, series).pvalue), float(slope), float(low), float(high))


def is_line(values: Sequence[float], starts: Sequence[int]) -> bool:
    """Whether a straight line fits the values better than steps at `starts` do, by Schwarz's
    criterion (Annals of Statistics 6, 1978). A step has two parameters, its place and its height.
    """
    series = np.array(values, dtype=np.float64)
    n = len(series)
    time = np.arange(n, dtype=np.float64)
    line = series - np.polyval(np.polyfit(time, series, 1), time)
    steps = np.concatenate([part - part.mean() for part in np.split(series, list(starts))])

    def criterion(residuals: Values, parameters: int) -> float:
        square = max(float(residuals @ residuals) / n, 1e-300)
        return n * math.log(square) + parameters * math.log(n)

    return criterion(line, 2) < criterion(steps, 1 + 2 * len(starts))
