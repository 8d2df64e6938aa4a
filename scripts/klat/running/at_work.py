"""Whether other sessions of klat are at work on this machine. Each holds a shared lock on /proc, which all users can
open."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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


def has_others(load: int) -> bool:
    """Whether other sessions are at work, without those in the process group `load`. Does not see sessions
    in other containers."""
    descriptor = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        others = {*owners.lock_holders(descriptor)} - {0, os.getpid()}
    finally:
        os.close(descriptor)
    return any(_is_klat(pid) and _group(pid) != load for pid in others)


def _is_klat(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except PermissionError:  # of another user, with hidepid
        return True
    except OSError:
        return False
    return any(os.path.basename(word) == b"klat" for word in words)


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None
