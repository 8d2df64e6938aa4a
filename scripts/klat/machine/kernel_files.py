"""Reads small files of /proc and /sys."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path


_LARGEST = 16 << 20


def text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode(errors="replace").strip("\n\0 ")
    except OSError:
        return ""


def number(path: Path) -> int | None:
    content = text(path)
    return int(content) if re.fullmatch("-?[0-9]{1,18}", content) else None


def cpu_list(content: str) -> tuple[int, ...]:
    """`0-3,8` as the kernel writes it. The kernel supports 8192 CPUs."""
    parts = (re.fullmatch("([0-9]{1,4})(?:-([0-9]{1,4}))?", p.strip()) for p in content.split(","))
    ends = ((int(part[1]), int(part[2] or part[1])) for part in parts if part)
    return tuple(cpu for first, last in ends for cpu in range(first, last + 1))


# The rows that are evidence. A count has at most 18 digits.
_PROOFS, _COUNT = ("RES", "CAL", "TLB", "LOC"), re.compile("[0-9]{1,18}")


def interrupts_fault(root: Path, earlier: str, allowed: Collection[int]) -> str:
    """Why /proc/interrupts is no evidence for these CPUs; empty if it is. `earlier` is its text a moment ago."""
    cpus = {*allowed}.intersection(cpu_list(text(root / "sys/devices/system/cpu/online")))
    header, *lines = earlier.splitlines() or [""]
    named = [int(number) for number in re.findall("CPU([0-9]{1,4})", header)]
    rows = {
        name.strip(): row.split()[: len(named)]
        for name, _, row in (x.partition(":") for x in lines)
    }
    counting = {name for name, row in rows.items() if row and all(map(_COUNT.fullmatch, row))}
    if not counting:
        return "/proc/interrupts has no counts"
    if damaged := [name for name in _PROOFS if name in rows and name not in counting]:
        return f"/proc/interrupts has no numbers in row {damaged[0]}"
    if missing := sorted(cpus.difference(named)):
        return f"/proc/interrupts lacks CPU {ranges(missing)}"
    is_still = earlier == text(root / "proc/interrupts")
    return "/proc/interrupts does not change" if is_still else ""


def is_rt_limit_damaged(kernel: Path) -> bool:
    """Whether the files of the limit of real-time tasks exist, and are no numbers."""
    runtime, period = kernel / "sched_rt_runtime_us", kernel / "sched_rt_period_us"
    return runtime.exists() and (number(runtime) is None or not number(period))


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
