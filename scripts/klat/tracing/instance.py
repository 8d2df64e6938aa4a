"""The tracing instance of `klat explain`: its clock, its events, and its removal."""

from __future__ import annotations

import errno
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from klat.base.errors import KlatError

_SKIPPED = 4
_PLACES = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
_NAME = "klat-{}"
# The clock of the trace that reads the counter of klat's stamps, by machine.
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
# Every interrupt with an entry and an exit.
_VECTORS = "irq_vectors"


def tracefs() -> Path:
    """Where tracefs is mounted. KlatError if it is not, or not for this user."""
    for place in _PLACES:
        instances = place / "instances"
        if os.path.isdir(instances) and os.access(instances, os.R_OK | os.W_OK | os.X_OK):
            return place
    if os.geteuid() != 0:
        raise KlatError("this user may not use the kernel's trace; run as root", status=_SKIPPED)
    raise KlatError(
        "tracefs is not mounted, or this kernel has no tracing;"
        " mount -t tracefs nodev /sys/kernel/tracing",
        status=_SKIPPED,
    )


def clock() -> str:
    """The name of the trace's clock. KlatError on a machine where no clock of the trace reads the counter."""
    found = _CLOCKS.get(platform.machine())
    if found is None:
        raise KlatError(
            f"no clock of the kernel's trace reads the counter of {platform.machine()};"
            " klat lab explain works there",
            status=_SKIPPED,
        )
    return found


@contextmanager
def tracing_instance(buffer_kb: int = 256) -> Iterator[Path]:
    """A tracing instance that records the events of `klat explain` into one buffer for each CPU. It is removed
    at the end. An instance whose klat was killed is removed by the next one."""
    wanted = clock()
    instances = tracefs() / "instances"
    remove_stale(instances)
    instance = instances / _NAME.format(os.getpid())
    try:
        instance.mkdir()
    except PermissionError:
        raise KlatError(f"cannot make {instance}; run as root", status=_SKIPPED) from None
    except OSError as error:
        raise KlatError(f"cannot make {instance}: {error.strerror}", status=_SKIPPED) from None
    try:
        _set_up(instance, wanted, buffer_kb)
        yield instance
    finally:
        _remove(instance)


def _set_up(instance: Path, wanted: str, buffer_kb: int) -> None:
    try:
        _write(instance / "tracing_on", "0")
        _write(instance / "current_tracer", "nop")
        _write(instance / "trace_clock", wanted)
    except OSError as error:
        raise KlatError(
            f"the kernel's trace has no clock {wanted}: {error.strerror}; is the counter the"
            " clock source? see /sys/devices/system/clocksource/clocksource0/current_clocksource",
            status=_SKIPPED,
        ) from None
    try:
        _write(instance / "buffer_size_kb", str(buffer_kb))
        for event in [*_EVENTS, *_vectors(instance)]:
            switch = instance / "events" / event / "enable"
            if switch.exists():
                _write(switch, "1")
        _write(instance / "tracing_on", "1")
    except OSError as error:
        raise KlatError(f"cannot set up {instance}: {error.strerror}", status=_SKIPPED) from None


def _vectors(instance: Path) -> list[str]:
    directory = instance / "events" / _VECTORS
    names = [entry.name for entry in directory.iterdir()] if directory.is_dir() else []
    return [f"{_VECTORS}/{name}" for name in sorted(names) if name.endswith(("_entry", "_exit"))]


def _write(file: Path, text: str) -> None:
    """One write() without O_CREAT, which tracefs refuses."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _remove(instance: Path) -> None:
    try:
        _write(instance / "events" / "enable", "0")
        instance.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise KlatError(
                f"{instance} is still in use; end the reader, then: rmdir {instance}", status=1
            ) from None
        raise


def remove_stale(instances: Path) -> None:
    """Remove the instances of klats that no longer run."""
    for entry in instances.iterdir():
        found = re.fullmatch(_NAME.format(r"(\d+)"), entry.name)
        if found and not Path("/proc", found[1]).exists():
            try:
                _remove(entry)
            except KlatError:
                pass  # in use; a later klat removes it
