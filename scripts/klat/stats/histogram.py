"""A distribution as its distinct values with their counts. It is exact. Its size grows with the
range of the values in steps of the counter, and hardly with their number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from klat.stats.descriptive import Samples, Values, rank, supports

Counts = npt.NDArray[np.int64]

# Nearly all values lie within this distance of the smallest and are counted in a table. The others
# are sorted.
_TABLE = 1 << 21
# Parts shorter than this are counted together, because each count reads the whole table.
_TOGETHER = 1 << 18


class CountedValues:
    """`values` ascend; `counts` are at least 1."""

    def __init__(self, values: npt.NDArray[Any], counts: Counts) -> None:
        self.values = values
        self.counts = counts
        self.ends: Counts = np.cumsum(counts, dtype=np.int64)

    @staticmethod
    def of(parts: Iterable[Samples]) -> CountedValues:
        """The histogram of all samples of the parts. Only a few parts are in memory at a time."""
        table = np.zeros(0, dtype=np.int64)
        reach = 0
        first = np.uint64(0)
        others: list[CountedValues] = []
        for part in _gathered(parts):
            if not len(table):
                table, first = np.zeros(_TABLE, dtype=np.int64), part.min()
            places = part - first
            near = (part >= first) & (places < _TABLE)
            found = np.bincount(places[near].astype(np.int64))
            table[: len(found)] += found
            reach = max(reach, len(found))
            if not near.all():
                others.append(CountedValues(*np.unique(part[~near], return_counts=True)))
                if sum(len(other.values) for other in others[1:]) > len(others[0].values):
                    others = [CountedValues.joined(others)]
        taken = np.flatnonzero(table[:reach])
        values = taken.astype(np.uint64) + first
        return CountedValues.joined([CountedValues(values, table[taken]), *others])

    @staticmethod
    def joined(parts: Sequence[CountedValues]) -> CountedValues:
        """The histogram of all samples of several histograms."""
        if len(parts) == 1:
            return parts[0]
        values = np.concatenate([part.values for part in parts])
        counts = np.concatenate([part.counts for part in parts])
        order = np.argsort(values, kind="stable")
        values, counts = values[order], counts[order]
        starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]][: len(values)])
        if not len(starts):
            return CountedValues(values, counts)
        return CountedValues(values[starts], np.add.reduceat(counts, starts))

    def times(self, factor: float) -> CountedValues:
        """Every value times a positive factor, as floating point."""
        return CountedValues(self.values.astype(np.float64) * factor, self.counts)

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def take(self, places: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The values at these ranks, from 0, in ascending order."""
        found: npt.NDArray[Any] = self.values[np.searchsorted(self.ends, places, side="right")]
        return found

    def at(self, place: int) -> float:
        return float(self.take(np.array([place]))[0])

    def sample(self, q: Fraction) -> int | None:
        """The quantile of whole numbers of any size, as in runs.csv: one of the values; None if
        there are too few."""
        n = len(self)
        return int(self.take(np.array([rank(n, q) - 1]))[0]) if supports(n, q) else None

    def quantile(self, q: Fraction) -> float | None:
        """As in runs.csv: one of the values; None if there are too few."""
        n = len(self)
        return self.at(rank(n, q) - 1) if supports(n, q) else None

    def below(self, values: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """How many values are less than each of these."""
        places = np.searchsorted(self.values, np.asarray(values, dtype=self.values.dtype))
        return np.asarray(np.r_[0, self.ends][places], dtype=np.int64)

    def up_to(self, value: float) -> int:
        """How many values are at most this."""
        place = int(np.searchsorted(self.values, value, side="right"))
        return int(self.ends[place - 1]) if place else 0

    def total(self) -> float:
        return float(np.sum(self.values.astype(np.float64) * self.counts))

    def mean(self) -> float:
        return self.total() / len(self)

    def deviation(self) -> float:
        """The variance of the whole, as of a population."""
        centred: Values = self.values.astype(np.float64) - self.mean()
        return float(np.sqrt(np.sum(centred**2 * self.counts) / len(self)))


def _gathered(parts: Iterable[Samples]) -> Iterator[Samples]:
    held: list[Samples] = []
    count = 0
    for part in parts:
        held.append(part)
        count += len(part)
        if count >= _TOGETHER:
            yield np.concatenate(held)
            held, count = [], 0
    if count:
        yield np.concatenate(held)
