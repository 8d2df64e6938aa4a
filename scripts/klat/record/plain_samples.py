"""Reads the samples of a run without numpy, which the runner does not need."""

from __future__ import annotations

import sys
from array import array

from klat.base.bounded_read import open_to_read
from klat.record.rows import Row
from klat.record.session import Session, SessionError, printable


def plain_samples(session: Session, row: Row) -> array[int]:
    """The samples of a row. SessionError if some are missing."""
    found = array("Q")
    path = session.path / "samples" / f"{row.benchmark}.u64"
    if not row.n:
        return found
    assert row.first_sample is not None  # klat.record.rows refuses such rows
    try:
        with open_to_read(path) as file:
            file.seek(found.itemsize * row.first_sample)
            found.fromfile(file, row.n)
    except (OSError, EOFError) as error:
        raise SessionError(
            f"{printable(str(path))}: the samples of run {row.run} cannot be read: {error}"
        ) from error
    if sys.byteorder == "big":
        found.byteswap()
    return found
