"""Reads the samples of a session in pieces, because a session may hold gigabytes of them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from klat.base.bounded_read import open_below
from klat.record.session import Row, Session, SessionError, printable
from klat.stats.distribution import Distribution

Samples = npt.NDArray[np.uint64]

_WIDTH = 8
# The most samples that are read at once. A larger number is not faster.
PART = 1 << 17
# Rows with at most this many samples are read several at a time. Rows with more are counted by value.
PIECE = 1 << 17
# A file up to this many samples is read whole, because many short runs share it.
_WHOLE = 1 << 17
# Distributions are kept up to this many values in total.
_KEPT_VALUES = 1 << 22
# Small files are kept up to this many bytes in total.
_KEPT_BYTES = 1 << 25
# A soak of 32 MiB cannot hold more pairs of one row.
MOST_PAIRS = 1 << 21
_PAIRS = 1 << 16  # read at once


def is_counted(row: Row) -> bool:
    """Whether its samples are best read by value: those of a long row have few values."""
    return row.soak or (row.n or 0) > PIECE


def adjacent(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Groups of rows with adjacent samples and equal numbers of samples, each group at most one piece."""
    group: list[Row] = []
    size = end = most = 0
    for row in rows:
        n, first = row.n or 0, row.first_sample
        if first != end or n != size or end + n > most:
            if group:
                yield group
            group, size, end = [], n, first or 0
            most = end + PIECE
        group.append(row)
        end += n
    if group:
        yield group


class DamagedPairs(SessionError):
    """The pairs of a soak can be read, but they are not those of the row."""


@dataclass
class SampleBudget:
    """How many values of distributions, and bytes of small files, several SampleFiles may still keep
    together."""

    values_left: int = _KEPT_VALUES
    bytes_left: int = _KEPT_BYTES


class SampleFiles:
    """The files below samples/ of one session. A file is open only while it is read, because a
    session may have more files than a process may open. Small files and short distributions stay in
    memory up to a limit, because a row is read twice: to verify it, and for its figures."""

    def __init__(self, session: Session, budget: SampleBudget | None = None) -> None:
        self.session = session
        self._paths: dict[tuple[str, str], Path] = {}
        self._small: dict[Path, npt.NDArray[np.unsignedinteger[Any]]] = {}
        self._last_small = Path()  # the latest one stays even if the budget is used up
        self._kept: dict[int, Distribution] = {}  # by line of runs.csv
        self._budget = budget or SampleBudget()
        self._last: tuple[int, Distribution] | None = None

    def read(self, row: Row) -> Samples:
        """The samples that a row points to, in the order taken. SessionError if some are missing,
        or if the row has no order."""
        return self.span(row, 0, row.n or 0)

    def parts(self, row: Row, length: int = PART) -> Iterator[Samples]:
        """The samples of a row in pieces of this length; the last may be shorter. SessionError as
        read()."""
        for start in range(0, row.n or 0, length):
            yield self.span(row, start, min(length, (row.n or 0) - start))

    def _passing(self, row: Row) -> Iterator[Samples]:
        """The samples of a row in pieces. Each is overwritten by the next: fresh memory for each piece would cost
        more than the reading."""
        n = row.n or 0
        length = math.ceil(n / max(1, math.ceil(n / PART)))  # equal pieces
        buffer = np.empty(length, dtype="<u8")
        for start in range(0, n, length):
            yield self.span(row, start, min(length, n - start), buffer)

    def blocks(self, rows: Iterable[Row]) -> Iterator[tuple[list[Row], Samples | SessionError]]:
        """The blocks of all groups of adjacent rows."""
        for group in adjacent(rows):
            yield from self.block(group)

    def block(self, group: list[Row]) -> Iterator[tuple[list[Row], Samples | SessionError]]:
        """A group of adjacent rows with its samples: a line per row. If some cannot be read, each row is a group of
        its own, with its samples or the error."""
        n = group[0].n or 0
        try:
            yield group, self.span(group[0], 0, len(group) * n).reshape(len(group), n)
        except SessionError as error:
            if len(group) == 1:
                yield group, error
            else:
                for row in group:
                    yield from self.block([row])

    def distribution(self, row: Row) -> Distribution:
        """The samples of a row, counted by value. SessionError if some are missing; DamagedPairs if the
        pairs of a soak are not valid."""
        if (kept := self._kept.get(row.line)) is not None:
            return kept
        if self._last and self._last[0] == row.line:
            return self._last[1]
        counted = self._pairs(row) if row.soak else Distribution.of_parts(self._passing(row))
        self._last = row.line, counted
        if len(counted.values) <= self._budget.values_left:
            self._kept[row.line] = counted
            self._budget.values_left -= len(counted.values)
        return counted

    def release(self) -> None:
        """Forget what is kept beyond the budget."""
        self._small.pop(self._last_small, None)
        self._last = None

    def span(self, row: Row, start: int, count: int, buffer: Samples | None = None) -> Samples:
        """`count` samples of a row, which may be in `buffer`. `start` 0 is its first sample. SessionError as read()."""
        if not count:
            return np.empty(0, dtype=np.uint64)
        assert row.first_sample is not None  # klat.record.rows refuses such rows
        path = self._path(row.benchmark, "u64")
        if row.soak:
            raise SessionError(
                f"{printable(str(path.parent))}: the samples of line {row.line} of runs.csv are"
                " those of a soak, which are counted by value and have no order"
            )
        first = row.first_sample + start
        if (small := self._small.get(path)) is not None:
            samples = small[first : first + count].astype(np.uint64, copy=False)
            if len(samples) == count:
                return samples
        samples, length = _words(path, row, first, count, _WHOLE, buffer)
        if length <= _WHOLE:
            samples.setflags(write=False)
            self._keep(path, samples)
            samples = samples[first : first + count]
        if len(samples) == count:
            return samples
        raise SessionError(
            f"{printable(str(path))}: holds {length:,} samples, but line {row.line} of runs.csv"
            f" needs {row.first_sample + (row.n or 0):,}; the file was cut off: copy the session"
            " again"
        )

    def _keep(self, path: Path, samples: Samples) -> None:
        """Keep all samples of a small file. Those that fit 32 bits take half of the memory."""
        self._small.pop(self._last_small, None)
        self._small[path] = samples
        if samples.nbytes > self._budget.bytes_left:
            self._last_small = path
            return
        if samples.max(initial=0) < 1 << 32:
            self._small[path] = samples.astype(np.uint32)
        self._budget.bytes_left -= self._small[path].nbytes

    def _pairs(self, row: Row) -> Distribution:
        """The pairs from `first_sample` up to the one at which the counts add up to n."""
        assert row.first_sample is not None  # klat.record.rows refuses such rows
        path = self._path(row.benchmark, "histogram")
        where = f"{printable(str(path))}: the pairs of line {row.line} of runs.csv"
        parts = [np.empty((0, 2), dtype=np.uint64)]
        read, left = 0, row.n or 0
        while left > 0 and read < MOST_PAIRS:
            words, _ = _words(path, row, 2 * (row.first_sample + read), 2 * _PAIRS)
            pairs = words[: len(words) // 2 * 2].reshape(-1, 2)
            if not len(pairs):
                raise SessionError(
                    f"{where} lack {left:,} of {row.n:,} samples; the file was cut off: copy the"
                    " session again"
                )
            ends = np.cumsum(np.minimum(pairs[:, 1], np.uint64(left + 1)))  # does not wrap
            parts.append(pairs[: int(np.searchsorted(ends, np.uint64(left))) + 1])
            read += len(parts[-1])
            left -= int(ends[len(parts[-1]) - 1])
        values, counts = np.concatenate(parts).T
        wrong = {
            f"are more than {MOST_PAIRS:,}": left > 0,
            f"add up to more than {row.n:,} samples": left < 0,
            "have a count of 0": not counts.all(),
            "are not in ascending order of their values": not (values[1:] > values[:-1]).all(),
        }
        for what, value in wrong.items():
            if value:
                raise DamagedPairs(f"{where} {what}; they were edited or damaged")
        return Distribution(values.copy(), counts.astype(np.int64))

    def _path(self, benchmark: str, kind: str) -> Path:
        key = benchmark, kind
        if key not in self._paths:
            self._paths[key] = self.session.path / "samples" / f"{benchmark}.{kind}"
        return self._paths[key]


def _words(
    path: Path, row: Row, first: int, count: int, whole: int = 0, buffer: Samples | None = None
) -> tuple[Samples, int]:
    """Up to `count` words of a file from number `first` on, and how many the file has. All of its words, if it
    has at most `whole`; otherwise they are in `buffer`, if one is given."""
    try:
        with open_below(path) as file:
            size_in_words = os.fstat(file.fileno()).st_size // _WIDTH
            if size_in_words <= whole:
                first, count, buffer = 0, size_in_words, None
            size = max(0, min(count, size_in_words - first))
            words = np.empty(size, dtype="<u8") if buffer is None else buffer[:size]
            if len(words) and not _fill(file.fileno(), words.data.cast("B"), first * _WIDTH):
                words = words[:0]
            return words, size_in_words
    except OSError as error:
        raise SessionError(
            f"{printable(str(path))}: {error.strerror or error}; the rows of"
            f" {printable(row.benchmark)} point to samples that cannot be read"
        ) from error


def _fill(descriptor: int, buffer: memoryview, place: int) -> bool:
    """Fill the buffer from that offset of the file. False if the file is too short."""
    while buffer:
        read = os.preadv(descriptor, [buffer], place)
        if not read:
            return False
        buffer, place = buffer[read:], place + read
    return True
