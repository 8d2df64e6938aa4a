"""The exit statuses of klat's programs and of the commands that run them, and their order of severity."""

from __future__ import annotations

from collections.abc import Iterable

# What the programs return for each enum klat_status. USAGE also stands for input, output and a full disk.
MEASURED, FAILED, USAGE, INVALID, SKIPPED = range(5)
KILLED = 128  # a status above this means that a signal ended the process
_BY_SEVERITY = (SKIPPED, MEASURED, INVALID, USAGE, FAILED)


def ends_all(status: int) -> bool:
    """Whether further programs would end in the same way: after a signal, or on a full disk."""
    return status == USAGE or status > KILLED


def worst(statuses: Iterable[int]) -> int:
    """The most severe status. SKIPPED if everything was skipped. A status that klat does not know counts as
    FAILED, unless it is that of a signal."""
    ranked = [s if s in _BY_SEVERITY or s > KILLED else FAILED for s in statuses]
    return max(ranked, key=lambda s: (s > KILLED, _BY_SEVERITY.index(s) if s <= KILLED else 0))
