"""Which other sessions of klat are at work on this machine. Each holds a shared lock on /proc, which all users can open."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from klat.base import owners


@contextmanager
def shown() -> Iterator[None]:
    """Show other sessions that this one is at work."""
    descriptor = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # without the lock, nobody sees this session
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def count_others() -> int:
    """How many other processes of klat are at work. Sessions in other containers are not seen."""
    descriptor = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        return len({*owners.lock_holders(descriptor)} - {os.getpid()})
    finally:
        os.close(descriptor)
