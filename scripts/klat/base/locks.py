"""Takes locks without waiting, and says who holds them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def try_take(descriptor: int) -> bool:
    """Whether this process holds the lock now. Raises OSError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def holder(descriptor: int) -> int | None:
    """The pid that took the lock of a file, from /proc/locks; None if it is unknown. This process may
    have ended: its children keep the lock."""
    status = os.fstat(descriptor)
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    for line in lines:
        # "1: FLOCK  ADVISORY  WRITE 4711 fd:01:1234 0 EOF"; a waiting process has "->" before FLOCK.
        words = line.split()
        if words[1:2] == ["FLOCK"] and words[5:6] == [f"{device}:{status.st_ino}"]:
            return int(words[4]) if words[4].isdecimal() and int(words[4]) else None
    return None


def name_of(pid: int | None) -> str:
    """`klat (pid 4711)`, for messages."""
    if pid is None:
        return "another process"
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return f"a process that pid {pid} started before it ended"
    return f"{''.join(c if c.isprintable() else '?' for c in name)} (pid {pid})"
