"""The types of cores and the nodes of CPUs, by the rules of core_types.c and cpu.c in lib/machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from klat.machine.kernel_files import cpu_list, number, text

_CPU = "sys/devices/system/cpu"
_NODE = "sys/devices/system/node"
_PART = 0xFF00FFF0  # of an arm64 identification register: implementer and part

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
    """The CPUs by type, the fastest type first. Empty if all cores are of one type."""
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
        (number(path / file) or 0, _part(path / "regs/identification/midr_el1"), -cpu)
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
