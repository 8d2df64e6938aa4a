"""Probes what the kernel grants to this user, here and now.

Root may still be refused: by a container, RT_GROUP_SCHED or a security module. A probe that would
change this process runs in a child.
"""

from __future__ import annotations

import ctypes
import importlib.util
import mmap
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from klat.base import programs

_PRIORITY = 98  # the highest a program of klat asks for
_LOCKED_BYTES = 8 << 20  # more than a program has, without its samples
_CLONE_NEWNET = 0x40000000
_CLONE_NEWUSER = 0x10000000
_GAP_NS = 200_000
_SPIN_SECONDS = 0.1
_SPUN_CPUS = 4


@dataclass(frozen=True)
class Gap:
    """A CPU on which a spinning process stood still."""

    cpu: int
    count: int
    longest_us: float


@dataclass(frozen=True)
class ProbeResults:
    """A text is the kernel's reason to refuse; it is empty if the kernel granted the request."""

    realtime: str
    memory_lock: str
    namespace: str
    tun: str
    dma_latency: str
    results: Path
    results_refused: str
    results_free: int | None  # bytes
    programs: str  # why they do not start; empty if they do
    missing: tuple[str, ...]  # of gnuplot, numpy, scipy
    gaps: tuple[Gap, ...]
    clock_ppm: float  # by how much CLOCK_MONOTONIC is faster than the machine's own rate


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _in_child(action: Callable[[], str]) -> str:
    """What `action` returns in a process of its own, or why it failed."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        answer = "failed"
        try:
            os.close(reader)
            try:
                answer = action()
            except OSError as error:
                answer = _reason(error)
            os.write(writer, answer.encode()[:4096])
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        result = pipe.read().decode(errors="replace")
    status = os.waitpid(pid, 0)[1]
    return result if not status else f"ended by signal {status & 0x7F}"


def _call(name: str, *arguments: object) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _realtime() -> str:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    obtained = (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority)
    granted = obtained == (os.SCHED_FIFO, _PRIORITY)
    return "" if granted else f"asked for FIFO {_PRIORITY}, obtained policy {obtained}"


def _memory_lock() -> str:
    memory = mmap.mmap(-1, _LOCKED_BYTES)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    _call("mlock", ctypes.c_void_p(address), ctypes.c_size_t(_LOCKED_BYTES))
    return ""


def _namespace() -> str:
    try:
        _call("unshare", _CLONE_NEWNET)
    except PermissionError:
        # As an ordinary user, if the kernel allows users to make user namespaces.
        _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNET)
    return ""


def _opens(path: str, flags: int) -> str:
    try:
        os.close(os.open(path, flags | os.O_CLOEXEC))
    except OSError as error:
        return _reason(error)
    return ""


def _results_directory(path: Path) -> tuple[str, int | None]:
    """The reason why sessions cannot be written below `path`, and the free space there."""
    existing = path.absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        free = os.statvfs(existing)
    except OSError as error:
        return _reason(error), None
    space = free.f_bavail * free.f_frsize
    if not existing.is_dir():
        return "Not a directory", space
    return ("" if os.access(existing, os.W_OK | os.X_OK) else "Permission denied"), space


def _longest_gaps(cpu: int) -> str:
    os.sched_setaffinity(0, {cpu})
    clock = time.perf_counter_ns
    count = longest = 0
    last = clock()
    end = last + int(_SPIN_SECONDS * 1e9)
    while last < end:
        now = clock()
        if now - last > _GAP_NS:
            count += 1
            longest = max(longest, now - last)
        last = now
    return f"{count} {longest}"


def find_gaps(cpus: Sequence[int]) -> tuple[Gap, ...]:
    """Spin for a tenth of a second on each of the first few CPUs, and note when the process did not
    run."""
    gaps = []
    for cpu in cpus[:_SPUN_CPUS]:
        words = _in_child(lambda cpu=cpu: _longest_gaps(cpu)).split()  # type: ignore[misc]
        if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[0]):
            gaps.append(Gap(cpu, int(words[0]), int(words[1]) / 1000))
    return tuple(gaps)


def _missing() -> Iterable[str]:
    if not shutil.which("gnuplot"):
        yield "gnuplot"
    for module in ("numpy", "scipy"):
        if importlib.util.find_spec(module) is None:
            yield module


def _clocks() -> tuple[int, int]:
    """CLOCK_MONOTONIC and CLOCK_MONOTONIC_RAW at one time: the narrowest of several readings."""
    readings = []
    for _ in range(20):
        first = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        raw = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        readings.append((time.clock_gettime_ns(time.CLOCK_MONOTONIC) - first, first, raw))
    return min(readings)[1:]


def _correction_ppm(first: tuple[int, int], last: tuple[int, int]) -> float:
    corrected, raw = (later - earlier for later, earlier in zip(last, first))
    # Each reading can be wrong by a microsecond.
    return 1e6 * (corrected / raw - 1) if raw > 50_000_000 else 0.0


def probe(results: Path, cpus: Sequence[int]) -> ProbeResults:
    """Run all probes. It takes a tenth of a second for each of up to four CPUs."""
    refused, free = _results_directory(results)
    clocks = _clocks()
    gaps = find_gaps(cpus)
    clock_ppm = _correction_ppm(clocks, _clocks())
    return ProbeResults(
        realtime=_in_child(_realtime),
        memory_lock=_in_child(_memory_lock),
        namespace=_in_child(_namespace),
        tun=_opens("/dev/net/tun", os.O_RDWR),
        dma_latency=_opens("/dev/cpu_dma_latency", os.O_WRONLY),
        results=results,
        results_refused=refused,
        results_free=free,
        programs=programs.refusal(),
        missing=tuple(_missing()),
        gaps=gaps,
        clock_ppm=clock_ppm,
    )
