"""Reads the samples of a session in pieces, because a session may hold gigabytes of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from klat.base.bounded_read import open_to_read
from klat.record.session import Row, Session, SessionError, printable
from klat.stats.histogram import CountedValues

Samples = npt.NDArray[np.uint64]

_WIDTH = 8
# The most samples that are read at once. A larger number is not faster.
PART = 1 << 21


class SampleFiles:
    """The files below samples/ of one session. A file is open only while it is read, because a
    session may have more files than a process may open."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._counted: tuple[Row, CountedValues] | None = None

    def read(self, row: Row) -> Samples:
        """The samples that a row points to. SessionError if some are missing."""
        return self.span(row, 0, row.n or 0)

    def parts(self, row: Row) -> Iterator[Samples]:
        """The samples of a row in pieces of at most `PART`. SessionError as read()."""
        for start in range(0, row.n or 0, PART):
            yield self.span(row, start, min(PART, (row.n or 0) - start))

    def counted_values(self, row: Row) -> CountedValues:
        """The samples of a row, counted by value. The result for the last row is kept."""
        if self._counted is None or self._counted[0] is not row:
            self._counted = (row, CountedValues.of(self.parts(row)))
        return self._counted[1]

    def span(self, row: Row, start: int, count: int) -> Samples:
        """`count` samples of a row. `start` 0 is its first sample. SessionError as read()."""
        if not count:
            return np.empty(0, dtype=np.uint64)
        assert row.first_sample is not None  # klat.record.rows refuses such rows
        path = self._path(row.benchmark)
        first = row.first_sample + start
        try:
            with open_to_read(path) as file:
                held = os.fstat(file.fileno()).st_size // _WIDTH
                found = np.empty(count if first + count <= held else 0, dtype="<u8")
                if len(found) and _fill(file.fileno(), found.data.cast("B"), first * _WIDTH):
                    return found
        except OSError as error:
            raise SessionError(
                f"{printable(str(path))}: {error.strerror or error}; the rows of"
                f" {printable(row.benchmark)} point to samples that cannot be read"
            ) from error
        raise SessionError(
            f"{printable(str(path))}: holds {held:,} samples, but line {row.line} of runs.csv"
            f" needs {row.first_sample + (row.n or 0):,}; the file was cut off: copy the session"
            " again"
        )

    def _path(self, benchmark: str) -> Path:
        return self.session.path / "samples" / f"{benchmark}.u64"


def _fill(descriptor: int, buffer: memoryview, place: int) -> bool:
    """Fill the buffer from that offset of the file. False if the file is too short."""
    while buffer:
        read = os.preadv(descriptor, [buffer], place)
        if not read:
            return False
        buffer, place = buffer[read:], place + read
    return True
