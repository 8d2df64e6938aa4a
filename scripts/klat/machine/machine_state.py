"""The state of a machine as /proc and /sys show it, as far as it affects latency.

All files are read below a root directory, so that a test can plant a tree for any machine. A value that
cannot be read is empty or None. A missing file is no finding: other architectures lack some of them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from klat.machine.kernel_files import core_types, cpu_list, cpus_of_unknown_nodes, interrupts_fault
from klat.machine.kernel_files import is_rt_limit_damaged, mounts, number as _number
from klat.machine.kernel_files import online_and_allowed, running_config, text as _text
from klat.machine.kernel_files import traced_events

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_HYPERVISOR_LEAF = 0x40000000
_VENDORS = {
    "KVMKVMKVM": "KVM",
    "TCGTCGTCGTCG": "TCG",
    "Microsoft Hv": "Hyper-V",
    "VMwareVMware": "VMware",
    "XenVMMXenVMM": "Xen",
}
_CLOCKS = {"kvm-clock": "KVM", "hyperv_clocksource_tsc_page": "Hyper-V", "xen": "Xen"}


@dataclass(frozen=True)
class IdleState:
    name: str
    latency_us: int


@dataclass(frozen=True)
class Consumer:
    """A process and how much of one CPU it used."""

    name: str
    pid: int
    share: float


@dataclass(frozen=True)
class MachineState:
    flags: frozenset[str]  # of the first CPU in /proc/cpuinfo; only x86 has this line
    model: str
    hypervisor: str  # its name where the flag is set and the name is known
    cpus_online: tuple[int, ...]
    cpus_allowed: tuple[int, ...]  # to this process
    cpus_isolated: tuple[int, ...]
    cpus_of_unknown_nodes: tuple[int, ...]
    core_types: dict[str, tuple[int, ...]]  # the fastest first; empty if all cores are of one type
    cpu_quota: float | None  # in CPUs, by the tightest control group
    clocksource: str
    clocksources: tuple[str, ...]
    busy_cpus: float  # CPUs' worth of work done by others while sampling
    cpu_time_counts: bool  # /proc/stat is the kernel's own, and counts
    interrupts_fault: str  # why /proc/interrupts is no evidence; empty if it is
    consumers: tuple[Consumer, ...]  # the largest first
    steal: float  # share of all CPU time
    load_average: float
    rt_runtime_us: int | None
    rt_period_us: int | None
    rt_limit_is_damaged: bool  # the files exist, and are no numbers
    kernel: tuple[int, int]  # version, as (6, 12); zeros if unknown
    fair_server_ms: tuple[float, float] | None  # runtime and period; None if unknown
    scheduler: str  # of sched_ext; empty if there is none
    hides_tasks: bool  # /proc is that of a PID namespace: it lacks the tasks outside
    hides_debugfs: bool  # the kernel has it, and this user cannot read what it shows of the scheduler
    governors: frozenset[str]
    idle_driver: str
    idle_governor: str
    idle_states: tuple[IdleState, ...]  # enabled ones, of any CPU
    latency_requests: tuple[str, ...]  # for idle exits, each with its file
    smt: bool
    turbo: str  # the file that switches it off; empty if it is off
    throttled: int  # thermal throttling events since boot
    huge_pages: str  # always, madvise or never
    numa_balancing: bool
    watchdog_s: float  # period of the soft-lockup watchdog on each CPU; 0 if it is off
    nodes: int
    swap_total_kib: int
    swap_used_kib: int
    irqbalance: bool
    tracer: str  # the tracer in use; "nop" or empty for none
    traced_event: str  # in the kernel's trace or an instance; empty for none
    config: frozenset[str]  # kernel options that are y, if the configuration can be read
    mitigations: tuple[str, ...]  # vulnerabilities that this kernel works around


def _watchdog_s(kernel: Path) -> float:
    """2/5 of watchdog_thresh: kernel/watchdog.c, set_sample_period()."""
    if _text(kernel / "watchdog") in ("", "0"):
        return 0.0
    threshold = _text(kernel / "watchdog_thresh")
    return 2 * int(threshold) / 5 if threshold.isascii() and threshold.isdigit() else 0.0


def _version(release: str) -> tuple[int, int]:
    numbers = [int(n) for n in re.findall(r"\d+", release)[:2]]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 0)


def _fair_server_ms(debug: Path) -> tuple[float, float] | None:
    """The longest of all CPUs. A CPU that came up late has zeros until its server's first turn."""
    servers = []
    for cpu in debug.glob("fair_server/cpu[0-9]*"):
        runtime, period = _number(cpu / "runtime"), _number(cpu / "period")
        if runtime is not None and period:
            servers.append((runtime / 1e6, period / 1e6))
    return max(servers, default=None)


def _hides_debugfs(debug: Path) -> bool:
    return os.path.isdir(debug) and not os.access(debug / "sched", os.R_OK | os.X_OK)


def _scheduler(directory: Path) -> str:
    is_loaded = _text(directory / "state") not in ("", "disabled")
    return (_text(directory / "root/ops") or "unnamed") if is_loaded else ""


def _chosen(text: str) -> str:
    """`always` of `[always] madvise never`."""
    return text.partition("[")[2].partition("]")[0]


def _cpuinfo(root: Path) -> tuple[frozenset[str], str]:
    flags: frozenset[str] = frozenset()
    model = ""
    for line in _text(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags" and not flags:
            flags = frozenset(value.split())
        elif name.strip() == "model name" and not model:
            model = value.strip()
    return flags, model


def _hypervisor(root: Path, clocksources: Iterable[str]) -> str:
    try:
        with open(root / "dev/cpu/0/cpuid", "rb") as file:
            file.seek(_HYPERVISOR_LEAF)
            vendor = file.read(16)[4:].rstrip(b"\0").decode("ascii", "replace")
        if vendor:
            return _VENDORS.get(vendor, vendor)
    except OSError:
        pass
    for source, name in _CLOCKS.items():
        if source in clocksources:
            return name
    return _text(root / "sys/class/dmi/id/sys_vendor")


def _quota(root: Path) -> float | None:
    limits = []
    base = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        for mount in (base / "cpu", base / "cpu,cpuacct") if controllers else (base,):
            group = mount / path.strip("/")
            for directory in (group, *group.parents):
                if not directory.is_relative_to(mount):
                    break
                limits.append(_group_limit(directory))
    return min((limit for limit in limits if limit is not None), default=None)


def _group_limit(directory: Path) -> float | None:
    quota, _, period = _text(directory / "cpu.max").partition(" ")
    if not quota:
        quota = _text(directory / "cpu.cfs_quota_us")
        period = _text(directory / "cpu.cfs_period_us")
    if quota.isdecimal() and period.isdecimal() and int(period):
        return int(quota) / int(period)
    return None


def _idle_states(root: Path) -> tuple[IdleState, ...]:
    states: dict[str, int] = {}
    for directory in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpuidle/state[0-9]*"):
        if _text(directory / "disable") not in ("", "0"):
            continue
        name, latency = _text(directory / "name"), _number(directory / "latency")
        if name and latency is not None:
            states[name] = max(latency, states.get(name, 0))
    return tuple(sorted((IdleState(n, l) for n, l in states.items()), key=lambda s: s.latency_us))


_NO_REQUEST = 2_000_000_000  # PM_QOS_CPU_LATENCY_DEFAULT_VALUE


def _latency_requests(root: Path) -> Iterator[str]:
    try:
        with open(root / "dev/cpu_dma_latency", "rb", buffering=0) as file:
            limit = int.from_bytes(file.read(4), "little")
        if limit < _NO_REQUEST:
            yield f"/dev/cpu_dma_latency is {limit} us"
    except OSError:
        pass
    name = "power/pm_qos_resume_latency_us"
    for path in sorted((root / "sys/devices/system/cpu").glob(f"cpu[0-9]*/{name}")):
        if (value := _text(path)) != "0":
            yield f"/{path.relative_to(root)} is {value}"


def _config(root: Path) -> frozenset[str]:
    installed = root / f"boot/config-{_text(root / 'proc/sys/kernel/osrelease')}"
    text = running_config(root) or _text(installed)
    chosen = (line for line in text.splitlines() if line.endswith("=y"))
    return frozenset(o[len("CONFIG_") : -len("=y")] for o in chosen if o.startswith("CONFIG_"))


def _mitigations(root: Path) -> tuple[str, ...]:
    directory = root / "sys/devices/system/cpu/vulnerabilities"
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return ()
    return tuple(name for name in names if "Mitigation" in _text(directory / name))


def _meminfo(root: Path, name: str) -> int:
    for line in _text(root / "proc/meminfo").splitlines():
        words = line.split()
        if words[0:1] == [f"{name}:"] and words[1:] and words[1].isdecimal():
            return int(words[1])
    return 0


def _load_average(root: Path) -> float:
    average = _text(root / "proc/loadavg").partition(" ")[0]
    return float(average) if average.replace(".", "", 1).isdecimal() else 0.0


def _turbo(root: Path) -> str:
    for name, on in (("intel_pstate/no_turbo", "0"), ("cpufreq/boost", "1")):
        file = f"/sys/devices/system/cpu/{name}"
        if _text(root / file[1:]) == on:
            return file
    return ""


def _processes(root: Path) -> dict[int, tuple[str, int]]:
    """Name and CPU time in clock ticks, by pid."""
    processes: dict[int, tuple[str, int]] = {}
    try:
        names = os.listdir(root / "proc")
    except OSError:
        return processes
    for name in names:
        if not name.isdecimal():
            continue
        head, _, tail = _text(root / "proc" / name / "stat").rpartition(")")
        fields = tail.split()
        if len(fields) > 12 and fields[11].isdecimal() and fields[12].isdecimal():
            processes[int(name)] = (head.partition("(")[2], int(fields[11]) + int(fields[12]))
    return processes


def _cpu_times(root: Path) -> list[int]:
    """user, nice, system, idle, iowait, irq, softirq, steal of all CPUs, in clock ticks."""
    fields = _text(root / "proc/stat").partition("\n")[0].split()[1:9]
    times = [int(field) for field in fields if field.isdecimal()]
    return times + [0] * (8 - len(times))


def _is_covered(root: Path, file: str) -> bool:
    """Whether another file system covers this file. lxcfs covers /proc/stat with a container's own times."""
    return any(mount.point == file for mount in mounts(root))


@dataclass(frozen=True)
class _CpuTimeUse:
    """`busy` and `steal` are shares of all CPU time; klat's own time is not in `busy`. `total` is all of it, in
    clock ticks."""

    total: int
    busy: float
    steal: float
    consumers: tuple[Consumer, ...]  # the three largest
    processes: frozenset[str]  # names


def _cpu_time_use(root: Path, seconds: float, sleep: Callable[[float], None]) -> _CpuTimeUse:
    """Measure for `seconds`."""
    before, processes = _cpu_times(root), _processes(root)
    sleep(seconds)
    spent = [max(0, b - a) for a, b in zip(before, _cpu_times(root))]
    later = _processes(root)
    total = sum(spent)
    user, nice, system, _, _, irq, softirq, steal = spent
    ticks_of_klat = later.get(os.getpid(), ("", 0))[1] - processes.get(os.getpid(), ("", 0))[1]
    busy = max(0, user + nice + system + irq + softirq - ticks_of_klat)
    consumers = (
        Consumer(name, pid, (ticks - processes[pid][1]) / (seconds * _TICKS_PER_SECOND))
        for pid, (name, ticks) in later.items()
        if pid in processes and pid != os.getpid() and ticks > processes[pid][1]
    )
    return _CpuTimeUse(
        total=total,
        busy=busy / total if total else 0.0,
        steal=steal / total if total else 0.0,
        consumers=tuple(sorted(consumers, key=lambda c: -c.share)[:3]),
        processes=frozenset(name for name, _ in later.values()),
    )


def _throttled(cpu: Path) -> int:
    files = cpu.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
    return sum(_number(file) or 0 for file in files)


def gather(
    root: Path = Path("/"), seconds: float = 1.0, sleep: Callable[[float], None] = time.sleep
) -> MachineState:
    """Read everything. Measures the use of CPU time for `seconds`."""
    cpu = root / "sys/devices/system/cpu"
    kernel = root / "proc/sys/kernel"
    flags, model = _cpuinfo(root)
    clock = root / "sys/devices/system/clocksource/clocksource0"
    clocksources = tuple(_text(clock / "available_clocksource").split())
    online, allowed = online_and_allowed(root)
    interrupts = _text(root / "proc/interrupts")
    time_use = _cpu_time_use(root, seconds, sleep)
    swap = _meminfo(root, "SwapTotal")
    return MachineState(
        flags=flags,
        model=model,
        hypervisor=_hypervisor(root, clocksources) if "hypervisor" in flags else "",
        cpus_online=online,
        cpus_allowed=allowed,
        cpus_isolated=cpu_list(_text(cpu / "isolated")),
        cpus_of_unknown_nodes=cpus_of_unknown_nodes(root, online),
        core_types=core_types(root, online),
        cpu_quota=_quota(root),
        clocksource=_text(clock / "current_clocksource"),
        clocksources=clocksources,
        busy_cpus=time_use.busy * len(online),
        cpu_time_counts=time_use.total > 0 and not _is_covered(root, "/proc/stat"),
        interrupts_fault=interrupts_fault(root, interrupts, allowed),
        consumers=time_use.consumers,
        steal=time_use.steal,
        load_average=_load_average(root),
        rt_runtime_us=_number(kernel / "sched_rt_runtime_us"),
        rt_period_us=_number(kernel / "sched_rt_period_us"),
        rt_limit_is_damaged=is_rt_limit_damaged(kernel),
        kernel=_version(_text(kernel / "osrelease")),
        fair_server_ms=_fair_server_ms(root / "sys/kernel/debug/sched"),
        scheduler=_scheduler(root / "sys/kernel/sched_ext"),
        hides_tasks=_text(root / "proc/1/comm") != "" and _text(root / "proc/2/comm") != "kthreadd",
        hides_debugfs=_hides_debugfs(root / "sys/kernel/debug"),
        governors=frozenset(filter(None, map(_text, cpu.glob("cpu*/cpufreq/scaling_governor")))),
        idle_driver=_text(cpu / "cpuidle/current_driver"),
        idle_governor=_text(cpu / "cpuidle/current_governor")
        or _text(cpu / "cpuidle/current_governor_ro"),
        idle_states=_idle_states(root),
        latency_requests=tuple(_latency_requests(root)),
        smt=_text(cpu / "smt/active") == "1",
        turbo=_turbo(root),
        throttled=_throttled(cpu),
        huge_pages=_chosen(_text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        numa_balancing=_text(kernel / "numa_balancing") not in ("", "0"),
        watchdog_s=_watchdog_s(kernel),
        nodes=len(cpu_list(_text(root / "sys/devices/system/node/online"))),
        swap_total_kib=swap,
        swap_used_kib=max(0, swap - _meminfo(root, "SwapFree")),
        irqbalance="irqbalance" in time_use.processes,
        tracer=_text(root / "sys/kernel/tracing/current_tracer"),
        traced_event=next(traced_events(root / "sys/kernel/tracing"), ""),
        config=_config(root),
        mitigations=_mitigations(root),
    )
