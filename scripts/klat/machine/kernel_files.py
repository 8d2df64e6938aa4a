"""Reads /proc and /sys: small files, the types of cores and nodes of CPUs, and temperatures."""

from __future__ import annotations

import gzip
import re
import zlib
from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from klat.base.bounded_read import read_at_most

_LARGEST = 16 << 20
_LARGEST_CONFIG = 4 << 20


def text(path: Path) -> str:
    """At most _LARGEST bytes of the file. Empty if it cannot be read."""
    try:
        with path.open("rb", buffering=0) as file:
            return read_at_most(file, 1 << 16, _LARGEST).decode(errors="replace").strip("\n\0 ")
    except OSError:
        return ""


_OCTAL = re.compile(r"\\([0-7]{3})")  # a blank or a backslash in mountinfo


class Mount(NamedTuple):
    top: str  # the directory of the file system that is mounted
    point: str
    kind: str
    source: str
    options: str


def mounts(root: Path) -> Iterator[Mount]:
    """The mounted file systems: proc_pid_mountinfo(5). A later one covers an earlier one."""
    for line in text(root / "proc/self/mountinfo").splitlines():
        mount, _, file_system = line.partition(" - ")
        fields = (*mount.split(" ")[3:5], *file_system.split(" ")[:3])
        if len(fields) == len(Mount._fields):
            yield Mount(*(_OCTAL.sub(lambda code: chr(int(code[1], 8)), field) for field in fields))


def number(path: Path) -> int | None:
    content = text(path)
    return int(content) if re.fullmatch("-?[0-9]{1,18}", content) else None


MOST_CPUS = 8192  # that the kernel supports


def running_config(root: Path) -> str:
    """The configuration of the running kernel; empty if the kernel does not show it."""
    try:
        with gzip.open(root / "proc/config.gz") as file:
            return file.read(_LARGEST_CONFIG).decode(errors="replace")
    except (OSError, EOFError, zlib.error):
        return ""


def cpu_list(content: str) -> tuple[int, ...]:
    """`0-3,8` as the kernel writes it."""
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
    parts = (line.partition(":") for line in lines)
    rows = {name.strip(): row.split()[: len(named)] for name, _, row in parts}
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


_CPU = "sys/devices/system/cpu"
_NODE = "sys/devices/system/node"
_PART = 0xFF00FFF0  # of an arm64 identification register: implementer and part
_FASTEST = 1 << 24  # as in lib/machine/core_types.c

Types = dict[str, tuple[int, ...]]


def online_and_allowed(root: Path) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The CPUs that are online, and those that this process may use. Containers can have an `online`
    of their own, which lacks an allowed CPU."""
    status = text(root / "proc/self/status").splitlines()
    name = "Cpus_allowed_list:"
    affinity = next((line.removeprefix(name) for line in status if line.startswith(name)), "")
    online, allowed = cpu_list(text(root / _CPU / "online")), cpu_list(affinity)
    return online if set(allowed) <= set(online) else allowed, allowed or online


def core_types(root: Path, cpus: Sequence[int]) -> Types:
    """The CPUs by type, the fastest type first. Empty if all cores are of one type. The rules are those of core_types.c
    in lib/machine."""
    types = _intel(root) or _by_speed(root, cpus)
    if len(types) < 2:
        return {}
    rest = set(cpus).difference(*types.values())
    return types | ({"unknown": tuple(sorted(rest))} if rest else {})


def _intel(root: Path) -> Types:
    core, atom, low_power = (
        set(cpu_list(text(root / f"sys/devices/cpu_{name}/cpus")))
        for name in ("core", "atom", "lowpower")
    )
    levels = {cpu: len(list((root / _CPU).glob(f"cpu{cpu}/cache/index*"))) for cpu in atom}
    low_power |= {cpu for cpu in atom if levels[cpu] < max(levels.values())}
    types = {"core": core, "atom": atom - low_power, "lowpower": low_power}
    return {name: tuple(sorted(members)) for name, members in types.items() if members}


@dataclass
class _Type:
    part: int
    slowest: int
    cpus: list[int]


def _by_speed(root: Path, cpus: Sequence[int]) -> Types:
    directories = {cpu: root / _CPU / f"cpu{cpu}" for cpu in cpus}
    has_capacity = any((path / "cpu_capacity").exists() for path in directories.values())
    file = "cpu_capacity" if has_capacity else "acpi_cppc/highest_perf"
    cores = (
        (_speed(path / file), _part(path / "regs/identification/midr_el1"), -cpu)
        for cpu, path in directories.items()
    )
    types: list[_Type] = []
    for speed, part, cpu in sorted(cores, reverse=True):
        if not speed and not part:
            continue
        for core_type in types:
            if core_type.part == part and 10 * core_type.slowest <= 11 * speed:
                break
        else:
            types.append(core_type := _Type(part, speed, []))
        core_type.slowest = speed
        core_type.cpus.append(-cpu)
    last = len(types) - 1
    middles = [f"middle-{rank}" for rank in range(1, last)] if last > 2 else ["middle"] * (last - 1)
    names = ["big", *middles, "little"]
    return {name: tuple(sorted(core_type.cpus)) for name, core_type in zip(names, types)}


def _speed(path: Path) -> int:
    speed = number(path) or 0
    return speed if 0 < speed <= _FASTEST else 0


def _part(path: Path) -> int:
    try:
        return int(text(path), 16) & _PART
    except ValueError:
        return 0


def cpus_of_unknown_nodes(root: Path, cpus: Sequence[int]) -> tuple[int, ...]:
    """The CPUs whose node sysfs does not show. A kernel without NUMA has one node."""
    if not (root / _NODE).exists():
        return ()
    lists = (root / _NODE).glob("node[0-9]*/cpulist")
    listed = {cpu for path in lists for cpu in cpu_list(text(path))}
    unlisted = (cpu for cpu in cpus if cpu not in listed)
    return tuple(cpu for cpu in unlisted if not any((root / _CPU / f"cpu{cpu}").glob("node[0-9]*")))


_CLASSES = Path("/sys/class")
# The kernel's drivers of the sensors in x86 CPUs, and a common one from outside the kernel.
_CPU_DRIVERS = frozenset({"coretemp", "k10temp", "zenpower"})


def celsius(classes: Path = _CLASSES) -> dict[str, float]:
    """The hottest temperature by driver of the CPU's sensors. Without such a driver: by kind of thermal
    zone. Empty without a sensor.

    AMD's CPUs are in no thermal zone. A zone of the firmware can have a constant temperature."""
    drivers = [(path, text(path / "name")) for path in classes.glob("hwmon/hwmon*")]
    of_cpus = ((path, name) for path, name in drivers if name in _CPU_DRIVERS)
    by_driver = _hottest((n, file) for path, n in of_cpus for file in path.glob("temp*_input"))
    zones = classes.glob("thermal/thermal_zone*")
    return by_driver or _hottest((text(zone / "type"), zone / "temp") for zone in zones)


def is_cool(now: Mapping[str, float], boots: Iterable[dict[str, float]], warmer: float) -> bool:
    """Whether no sensor is more than `warmer` degrees warmer than in the first of `boots` that has it."""
    first = ChainMap(*boots)
    return all(now[name] <= first[name] + warmer for name in now.keys() & first.keys())


def _hottest(files: Iterable[tuple[str, Path]]) -> dict[str, float]:
    """In the files are thousandths of a degree. A sensor without a value is left out."""
    hottest: dict[str, float] = {}
    for name, file in files:
        try:
            degrees = int(text(file)) / 1000
        except ValueError:
            continue
        hottest[name] = max(degrees, hottest.get(name, degrees))
    return hottest
