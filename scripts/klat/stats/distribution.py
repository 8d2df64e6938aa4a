"""A distribution of samples: its distinct values with their counts. It is exact. Its size depends on
the range of the values in steps of the counter, and little on the number of samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from klat.stats.descriptive import P50, P90, P99, RowFigures, Samples, Values, exact_moments, rank
from klat.stats.descriptive import supports

Counts = npt.NDArray[np.int64]

# Nearly all values are counted in a table that begins at the smallest value of the first part and has at most
# this length. The others are sorted.
_TABLE = 1 << 21
# Parts shorter than this are counted together, because each count reads the whole table.
_TOGETHER = 1 << 16
# Distributions with more values than this are merged before more are read.
_HELD = 1 << 22


@dataclass(frozen=True, eq=False)
class Distribution:
    """`values` ascend strictly; `counts` are at least 1. Values as recorded are np.uint64."""

    values: npt.NDArray[Any]
    counts: Counts

    @cached_property
    def ends(self) -> Counts:
        """How many samples are at most each value."""
        return np.cumsum(self.counts, dtype=np.int64)

    @staticmethod
    def of(samples: Samples) -> Distribution:
        return Distribution(*np.unique(samples, return_counts=True))

    @staticmethod
    def of_parts(parts: Iterable[Samples]) -> Distribution:
        """The distribution of all samples of the parts. Only a few parts are in memory at a time, and a part may
        be overwritten by the next."""
        table = np.zeros(0, dtype=np.int64)
        buffer: Samples = np.empty(0, dtype=np.uint64)
        first = np.uint64(0)
        others: list[Distribution] = []
        for part in _gathered(parts):
            if not len(table) and len(part) < _TOGETHER:  # the only part
                return Distribution.of(part)
            if not len(table):
                first = part.min()
                common = np.quantile(part[::64] - first, 0.99)
                table = np.zeros(int(min(2 * common + 2, _TABLE)), dtype=np.int64)
            if len(part) > len(buffer):
                buffer = np.empty(len(part), dtype=np.uint64)
            places = buffer[: len(part)]
            np.subtract(part, first, out=places)  # smaller values wrap to large places
            np.minimum(places, len(table) - 1, out=places)
            table += np.bincount(places.view(np.int64), minlength=len(table))
            if table[-1]:
                table[-1] = 0
                others.append(Distribution.of(part[places == len(table) - 1]))
                if sum(len(other.values) for other in others[1:]) > len(others[0].values):
                    others = [Distribution.merged(others)]
        taken = np.flatnonzero(table)
        values = taken.astype(np.uint64) + first
        return Distribution.merged([Distribution(values, table[taken]), *others])

    @staticmethod
    def merged(parts: Iterable[Distribution]) -> Distribution:
        """The distribution of all samples of several. Only a few parts are in memory at a time."""
        pending: list[Distribution] = []
        size = 0
        for part in parts:
            pending.append(part)
            size += len(part.values)
            if size > _HELD and len(pending) > 1:
                pending = [_merged(pending)]
                size = len(pending[0].values)
        return _merged(pending)

    def times(self, factor: float) -> Distribution:
        """Every value times a positive factor, as floating point."""
        return Distribution(self.values.astype(np.float64) * factor, self.counts)

    @property
    def n(self) -> int:
        """The number of samples."""
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def min(self) -> Any:
        """Of at least one sample."""
        return self.values[0].item()

    @property
    def max(self) -> Any:
        """Of at least one sample."""
        return self.values[-1].item()

    def take(self, places: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The values at these ranks, from 0, in ascending order."""
        values: npt.NDArray[Any] = self.values[np.searchsorted(self.ends, places, side="right")]
        return values

    def at(self, place: int) -> float:
        """Exact, as an int, if the values are."""
        value: float = self.take(np.array([place]))[0].item()
        return value

    def quantile(self, q: Fraction) -> Any:
        """As in runs.csv: one of the values, an int if they are np.uint64; None if there are too
        few samples."""
        n = self.n
        return self.take(np.array([rank(n, q) - 1]))[0].item() if supports(n, q) else None

    def tail(self) -> tuple[Any, ...]:
        """The quantiles 9/10, 99/100, 999/1000 ... as far as the samples support them."""
        quantiles = []
        share = Fraction(1, 10)
        while supports(self.n, 1 - share):
            quantiles.append(self.quantile(1 - share))
            share /= 10
        return tuple(quantiles)

    def below(self, values: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """How many samples are less than each of these."""
        places = np.searchsorted(self.values, np.asarray(values, dtype=self.values.dtype))
        return np.asarray(np.r_[0, self.ends][places], dtype=np.int64)

    def up_to(self, value: float) -> int:
        """How many samples are at most this."""
        if value < 0:
            return 0
        whole = self.values.dtype == np.uint64
        exact: Any = np.uint64(min(math.floor(value), 2**64 - 1)) if whole else value
        place = int(np.searchsorted(self.values, exact, side="right"))
        return int(self.ends[place - 1]) if place else 0

    def above(self, limit: float) -> int:
        """How many samples are larger than this."""
        return self.n - self.up_to(limit)

    def total(self) -> float:
        return float(np.sum(self.values.astype(np.float64) * self.counts))

    def mean(self) -> float:
        return self.total() / self.n

    def deviation(self) -> float:
        """The standard deviation, as of a population."""
        centred: Values = self.values.astype(np.float64) - self.mean()
        return float(np.sqrt(np.sum(centred**2 * self.counts) / self.n))

    def row_figures(self) -> RowFigures:
        """The same as klat.stats.descriptive.row_figures() of these samples, of np.uint64."""
        n = self.n
        small = int(
            np.searchsorted(self.values, np.uint64(math.isqrt((2**64 - 1) // n)), "right")
        )
        values, counts = self.values[:small], self.counts[:small].astype(np.uint64)
        # The sums of these values fit in 64 bits. The few larger values are summed as Python integers.
        products = values * counts
        total, squares = int(products.sum()), int((products * values).sum())
        for value, count in zip(self.values[small:].tolist(), self.counts[small:].tolist()):
            total += value * count
            squares += value * value * count
        quantiles = map(self.quantile, (P50, P90, P99))
        return (*exact_moments(n, total, squares), self.min, *quantiles, self.max)


def log_quantile_places(n: int, q: Fraction) -> tuple[list[int], float]:
    """The ranks, from 0, of the two samples between whose logarithms quantile q of n samples is interpolated, and the
    share of the second: Hyndman and Fan's type 5 (The American Statistician, 1996). If the tail of the logarithms is
    exponential, its bias depends little on the number of samples, unlike that of Distribution.quantile().
    """
    # n q - 1/2, in units of 1 / (2 denominator).
    place, rest = divmod(max(0, 2 * n * q.numerator - q.denominator), 2 * q.denominator)
    return [place, min(place + 1, n - 1)], rest / (2 * q.denominator)


def between_logs(samples: npt.NDArray[Any], share: float) -> float:
    """The logarithm between those of two samples."""
    low, high = np.log(samples)
    return float(low + (high - low) * share)


def _merged(parts: list[Distribution]) -> Distribution:
    if len(parts) == 1:
        return parts[0]
    values = np.concatenate([part.values for part in parts] or [np.zeros(0, dtype=np.uint64)])
    counts = np.concatenate([part.counts for part in parts] or [np.zeros(0, dtype=np.int64)])
    order = np.argsort(values, kind="stable")
    values, counts = values[order], counts[order]
    starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]][: len(values)])
    if not len(starts):
        return Distribution(values, counts)
    return Distribution(values[starts], np.add.reduceat(counts, starts))


def _gathered(parts: Iterable[Samples]) -> Iterator[Samples]:
    """Parts that are long enough to be counted. Each is valid until the next."""
    buffer: Samples = np.empty(0, dtype=np.uint64)
    count = 0
    for part in parts:
        if not count and len(part) >= _TOGETHER:
            yield part
            continue
        if count + len(part) > len(buffer):
            longer = np.empty(count + max(_TOGETHER, len(part)), dtype=np.uint64)
            longer[:count] = buffer[:count]
            buffer = longer
        buffer[count : count + len(part)] = part
        count += len(part)
        if count >= _TOGETHER:
            yield buffer[:count]
            count = 0
    if count:
        yield buffer[:count]
