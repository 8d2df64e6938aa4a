"""Access to the samples of a session, mapped rather than read: a session may hold gigabytes of
them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from klat.session import Row, Session, SessionError, printable
from klat.tally import Tally

Samples = npt.NDArray[np.uint64]

_WIDTH = 8
# Read at once of a run: more does not go faster.
PART = 1 << 21


class SampleFiles:
    """The files below samples/ of one session. Opened when first asked for."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._maps: dict[str, Samples] = {}
        self._tally: tuple[Row, Tally] | None = None

    def of(self, row: Row) -> Samples:
        """The samples a row points to, as shared read-only uint64. SessionError when they are
        not all there."""
        if not row.n:
            return np.empty(0, dtype=np.uint64)
        assert row.first_sample is not None  # klat.session refuses such rows
        held = self._map(row.benchmark)
        end = row.first_sample + row.n
        if end > len(held):
            raise SessionError(
                f"{printable(str(self._path(row.benchmark)))}: holds {len(held):,} samples where"
                f" line {row.line} of runs.csv points up to {end:,}; the file was cut,"
                " copy the session again"
            )
        return held[row.first_sample : end]

    def read(self, row: Row) -> Samples:
        """The same in memory of their own, for samples that are looked at once: pages of a map
        would stay with the process, gigabytes of them. SessionError as `of()`."""
        return self._read(row, 0, row.n or 0)

    def parts(self, row: Row) -> Iterator[Samples]:
        """The same piece by piece, each at most `PART` long."""
        for start in range(0, row.n or 0, PART):
            yield self._read(row, start, min(PART, (row.n or 0) - start))

    def tally(self, row: Row) -> Tally:
        """The same counted by value; of the last row asked for it is kept for the next question."""
        if self._tally is None or self._tally[0] is not row:
            self._tally = (row, Tally.of(self.parts(row)))
        return self._tally[1]

    def _read(self, row: Row, start: int, count: int) -> Samples:
        if not count:
            return np.empty(0, dtype=np.uint64)
        assert row.first_sample is not None  # klat.session refuses such rows
        path = self._named(row.benchmark)
        place = (row.first_sample + start) * _WIDTH
        try:
            found = np.fromfile(path, dtype="<u8", count=count, offset=place)
        except OSError as error:
            raise SessionError(
                f"{printable(str(path))}: {error.strerror or error}; the rows of"
                f" {printable(row.benchmark)} point to samples that cannot be read"
            ) from error
        if len(found) != count:
            return self.of(row)[start : start + count]  # which says what is missing
        return found

    def _named(self, benchmark: str) -> Path:
        # A name from a file must not lead out of the session.
        if Path(benchmark).name != benchmark:
            raise SessionError(f"'{printable(benchmark)}' is not the name of a benchmark")
        return self._path(benchmark)

    def _path(self, benchmark: str) -> Path:
        return self.session.path / "samples" / f"{benchmark}.u64"

    def _map(self, benchmark: str) -> Samples:
        if benchmark not in self._maps:
            self._maps[benchmark] = self._open(benchmark)
        return self._maps[benchmark]

    def _open(self, benchmark: str) -> Samples:
        path = self._named(benchmark)
        try:
            count = path.stat().st_size // _WIDTH
            if count == 0:
                return np.empty(0, dtype=np.uint64)
            mapped = np.memmap(path, dtype="<u8", mode="r", shape=(count,))
        except OSError as error:
            raise SessionError(
                f"{printable(str(path))}: {error.strerror or error}; the rows of"
                f" {printable(benchmark)} point to samples that cannot be read"
            ) from error
        # A plain view: slicing a memmap costs ten times as much as slicing an array.
        return mapped.view(np.ndarray)
