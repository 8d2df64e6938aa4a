"""The tracing instance of `klat explain`: its clock, its events, and its removal."""

from __future__ import annotations

import errno
import os
import platform
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from klat.base.errors import KlatError, SKIPPED

_PLACES = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
_NAME = "klat-{}"
# By machine: the trace clock that reads the same counter as klat's stamps.
_CLOCKS = {"x86_64": "x86-tsc"}
_EVENTS = (
    *("sched/sched_switch", "sched/sched_waking"),
    *("irq/irq_handler_entry", "irq/irq_handler_exit", "irq/softirq_entry", "irq/softirq_exit"),
    *("ipi/ipi_entry", "ipi/ipi_exit"),
    *("timer/hrtimer_expire_entry", "timer/hrtimer_expire_exit"),
    *("timer/timer_expire_entry", "timer/timer_expire_exit"),
    *("workqueue/workqueue_execute_start", "workqueue/workqueue_execute_end"),
    *("exceptions/page_fault_user", "exceptions/page_fault_kernel"),
    *("power/cpu_idle", "power/cpu_frequency"),
)
# A new instance has the options of the global one. These decide the form of a line (see trace_pipe in
# Documentation/trace/ftrace.rst), and which events are kept. A kernel can lack some of them.
_ON = frozenset({"context-info", "irq-info", "overwrite", "record-cmd"})
_OFF = frozenset(
    "annotate bin event-fork fields function-fork hex latency-format markers pause-on-trace raw record-tgid"
    " stacktrace sym-addr sym-offset sym-userobj userstacktrace verbose".split()
)
# The group of the events for interrupt vectors. klat takes those with an entry and an exit.
_VECTORS = "irq_vectors"
_IN_USE_S = 1.0


def tracefs() -> Path:
    """Where tracefs is mounted. KlatError if it is not mounted, or if this user cannot use it."""
    for place in _PLACES:
        instances = place / "instances"
        if os.path.isdir(instances) and os.access(instances, os.R_OK | os.W_OK | os.X_OK):
            return place
    if os.geteuid() != 0:
        raise KlatError("this user may not use the kernel's tracing; run as root", status=SKIPPED)
    raise KlatError(
        "tracefs is not mounted, or this kernel has no tracing; to mount it:"
        " mount -t tracefs nodev /sys/kernel/tracing",
        status=SKIPPED,
    )


def clock() -> str:
    """The name of the trace clock. KlatError if no trace clock of this machine reads the counter."""
    name = _CLOCKS.get(platform.machine())
    if name is None:
        raise KlatError(
            f"on {platform.machine()} the kernel has no trace clock that reads the CPU's counter;"
            " klat lab explain needs none",
            status=SKIPPED,
        )
    return name


@contextmanager
def tracing_instance(buffer_kb: int = 256) -> Iterator[Path]:
    """Makes a tracing instance with one buffer for each CPU, and removes it at the end. Its events are off:
    see switch_events().

    If klat is killed, the next klat removes the instance. The kernel refuses to remove an instance with an
    open file. So klat holds a file of its own instance open, and no other klat can remove this instance.
    """
    wanted = clock()
    instances = tracefs() / "instances"
    remove_stale(instances)
    instance = instances / _NAME.format(os.getpid())
    try:
        instance.mkdir()
    except PermissionError:
        raise KlatError(f"cannot make {instance}; run as root", status=SKIPPED) from None
    except OSError as error:
        raise KlatError(f"cannot make {instance}: {error.strerror}", status=SKIPPED) from None
    descriptor = -1
    try:
        descriptor = os.open(instance / "tracing_on", os.O_RDONLY | os.O_CLOEXEC)
        _set_up(instance, wanted, buffer_kb)
        yield instance
    finally:
        if descriptor >= 0:
            os.close(descriptor)
        _remove(instance)


def _set_up(instance: Path, wanted: str, buffer_kb: int) -> None:
    try:
        _write(instance / "tracing_on", "0")
        _write(instance / "current_tracer", "nop")
        _write(instance / "trace_clock", wanted)
    except OSError as error:
        raise KlatError(
            f"cannot set the trace clock {wanted}: {error.strerror}; check whether the clock source is"
            " the counter: /sys/devices/system/clocksource/clocksource0/current_clocksource",
            status=SKIPPED,
        ) from None
    try:
        wrong = {f"no{name}" for name in _ON} | _OFF
        for option in wrong.intersection((instance / "trace_options").read_text().split()):
            _write(instance / "trace_options", option[2:] if option[2:] in _ON else f"no{option}")
        _write(instance / "buffer_size_kb", str(buffer_kb))
        _write(instance / "tracing_on", "1")
    except OSError as error:
        raise KlatError(f"cannot set up {instance}: {error.strerror}", status=SKIPPED) from None


def switch_events(instance: Path, on: bool) -> None:
    """Enable or disable the events. An enabled event costs time in every run and in other programs."""
    events = instance / "events"
    names = [*_EVENTS, *_vectors(instance)] if on else ["."]
    try:
        for switch in (events / name / "enable" for name in names):
            if switch.exists():
                _write(switch, "1" if on else "0")
    except OSError as error:
        raise KlatError(f"cannot switch {events}: {error.strerror}", status=SKIPPED) from None


def _vectors(instance: Path) -> list[str]:
    directory = instance / "events" / _VECTORS
    names = [entry.name for entry in directory.iterdir()] if directory.is_dir() else []
    return [f"{_VECTORS}/{name}" for name in sorted(names) if name.endswith(("_entry", "_exit"))]


def _write(file: Path, text: str) -> None:
    """One write(). Opens without O_CREAT: tracefs refuses it."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _remove(instance: Path) -> None:
    """Remove the instance. Tries for a while, because every run on this machine opens a file of each instance briefly."""
    deadline = time.monotonic() + _IN_USE_S
    while True:
        try:
            instance.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            if time.monotonic() >= deadline:
                raise KlatError(
                    f"{instance} is still in use; end the program that reads it, then: rmdir {instance}",
                    status=1,
                ) from None
        time.sleep(0.01)


def remove_stale(instances: Path) -> None:
    """Remove the instances that killed klats left. The kernel refuses to remove those in use."""
    for entry in instances.iterdir():
        if re.fullmatch(_NAME.format(r"\d+"), entry.name):
            with suppress(OSError):
                entry.rmdir()
