"""Reads small files of /proc and /sys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path


def text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip("\n\0 ")
    except OSError:
        return ""


def number(path: Path) -> int | None:
    content = text(path)
    return int(content) if content.lstrip("-").isdecimal() else None


def cpu_list(content: str) -> tuple[int, ...]:
    """`0-3,8` as the kernel writes it."""
    cpus: list[int] = []
    for part in content.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            cpus.extend(range(int(first), int(last or first) + 1))
    return tuple(cpus)


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as the kernel lists them: 0-3,7."""
    ends = [(a, b) for a, b in pairwise([-2, *numbers, numbers[-1] + 2]) if b - a > 1]
    return ",".join(f"{a}-{b}" if a < b else f"{a}" for (_, a), (b, _) in pairwise(ends))


# Daemons trace these for errors of hardware and devices. Runs accept the same: is_of_daemons() in lib/run/surplus.c.
_ERRORS = re.compile(
    r"(ras|memory_failure|mce|cxl|devlink|block):|net:net_dev_xmit_timeout|signal:signal_generate"
)


def traced_events(tracing: Path) -> Iterator[str]:
    """The events in the kernel's trace and its instances, without those of daemons."""
    for path in (tracing / "set_event", *sorted(tracing.glob("instances/*/set_event"))):
        yield from (event for event in text(path).splitlines() if not _ERRORS.match(event))
