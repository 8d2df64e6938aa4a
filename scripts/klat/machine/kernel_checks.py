"""Checks of how the kernel was built and set up."""

from __future__ import annotations

from collections.abc import Iterator

from klat.machine.findings import Finding, Severity, distorts, note
from klat.machine.kernel_files import ranges
from klat.machine.machine_state import MachineState
from klat.machine.probes import ProbeResults

_HEAVY_DEBUG = ("KASAN", "KCSAN", "KMSAN", "PROVE_LOCKING", "DEBUG_LOCK_ALLOC", "DEBUG_PAGEALLOC")
_SCHED_IN_DEBUGFS = (5, 13)  # the first version with /sys/kernel/debug/sched
_LIGHT_DEBUG = (
    "DEBUG_PREEMPT DEBUG_OBJECTS DEBUG_VM DEBUG_SPINLOCK DEBUG_MUTEXES DEBUG_ATOMIC_SLEEP"
    " DEBUG_KMEMLEAK LOCK_STAT SLUB_DEBUG_ON IRQSOFF_TRACER PREEMPT_TRACER"
).split()


def instrumentation(machine: MachineState, _: ProbeResults) -> Iterator[Finding]:
    """What the kernel adds to the timed paths, and what it hides."""
    heavy = [name for name in _HEAVY_DEBUG if name in machine.config]
    light = [name for name in _LIGHT_DEBUG if name in machine.config]
    if heavy or light:
        yield Finding(
            "debugging",
            Severity.SPOILS if heavy else Severity.DISTORTS,
            "this kernel is built for debugging",
            f"CONFIG_{', CONFIG_'.join(heavy + light)}: checks on the timed paths. The heavier ones"
            " make them several times slower.",
            "build the kernel without them, or compare with kernels that have the same ones only",
        )
    if machine.tracer not in ("", "nop"):
        yield distorts(
            "tracing",
            f"the tracer '{machine.tracer}' is on",
            "It records on the timed paths.",
            "echo nop | sudo tee /sys/kernel/tracing/current_tracer",
        )
    if machine.traced_event:
        yield distorts(
            "traced-events",
            f"the kernel traces events, for example {machine.traced_event}",
            "Each event on a timed path takes the time to record it, and the run is then disturbed.",
            "end the tracer; or: echo | sudo tee /sys/kernel/tracing/set_event",
        )
    if machine.hides_debugfs and machine.kernel >= _SCHED_IN_DEBUGFS:
        yield note(
            "debugfs",
            "debugfs is not mounted, or this user cannot read it",
            "A record then lacks what only /sys/kernel/debug/sched shows: the preemption model in effect,"
            " the fair server and base_slice_ns.",
            "run klat with sudo; if debugfs is not mounted: sudo mount -t debugfs none /sys/kernel/debug",
        )
    if machine.watchdog_s:
        yield note(
            "watchdog",
            f"the soft-lockup watchdog runs on each CPU every {machine.watchdog_s:g} s",
            "It preempts a thread of any real-time priority for about 20 us. The run is then"
            " disturbed.",
            "sysctl kernel.watchdog=0 for the session",
        )
    if machine.mitigations:
        yield note(
            "mitigations",
            f"this kernel works around {len(machine.mitigations)} CPU vulnerabilities",
            f"{', '.join(machine.mitigations)}: most cost time on each entry to the kernel. That is"
            " part of its latency, if both kernels of a comparison do it.",
            "none needed; compare kernels with the same mitigations= only",
        )


_FAIR_SERVER = (6, 12)  # the first Linux that has it


def _server(machine: MachineState) -> str:
    """A sentence that says how much time the fair server takes."""
    shown = "/sys/kernel/debug/sched/fair_server cannot be read; the default is 50 of every 1000 ms"
    if machine.fair_server_ms:
        runtime, period = machine.fair_server_ms
        shown = f"up to {runtime:g} of every {period:g} ms"
    return (
        "Since Linux 6.12 the fair server lets a waiting ordinary task run in place of a real-time task that"
        f" does not sleep, whatever kernel.sched_rt_runtime_us is: {shown}."
    )


def _throttling(machine: MachineState) -> Iterator[Finding]:
    runtime, period = machine.rt_runtime_us, machine.rt_period_us
    has_server = machine.kernel >= _FAIR_SERVER
    is_served = has_server and (machine.fair_server_ms is None or machine.fair_server_ms[0] > 0)
    # Since Linux 6.12 the limit holds for real-time tasks only with RT_GROUP_SCHED.
    limits = not has_server or not machine.config or "RT_GROUP_SCHED" in machine.config
    if machine.rt_limit_is_damaged:
        yield note(
            "throttling",
            "the limit of real-time tasks is unknown",
            "kernel.sched_rt_runtime_us or kernel.sched_rt_period_us is no number of microseconds. The kernel may"
            " stop real-time tasks that do not sleep.",
            "run outside the container, or see what covers these files: findmnt",
        )
    if runtime is None or not period:
        return
    if limits and 0 <= runtime < period:
        share = runtime / period
        severity = Severity.NOTE if share >= 0.9 else Severity.DISTORTS
        yield Finding(
            "throttling",
            Severity.SPOILS if share < 0.1 else severity,
            f"real-time tasks get {runtime / 1000:g} of every {period / 1000:g} ms",
            "Beyond that the kernel stops them until the period is over, which looks like a latency"
            f" of up to {(period - runtime) / 1000:g} ms. klat's programs spin in bursts below the"
            " limit and flag a sample that long, but the bursts of adjacent runs add up."
            + (f" {_server(machine)}" if is_served else ""),
            "klat run --pause 20 if runs are flagged as throttled"
            if severity is Severity.NOTE
            else "sysctl kernel.sched_rt_runtime_us=950000 kernel.sched_rt_period_us=1000000",
        )
    elif is_served:
        yield note(
            "throttling",
            "the fair server takes time from real-time tasks that do not sleep",
            f"{_server(machine)} klat's programs spin in bursts and flag a sample that long, but the bursts of"
            " adjacent runs add up.",
            "klat run --pause 20 if runs are flagged as that long",
        )
    else:
        yield note(
            "throttling",
            "throttling of real-time tasks is switched off",
            f"kernel.sched_rt_runtime_us is {runtime}"
            + (", and the fair server is switched off" if has_server else "")
            + ": a real-time task that spins without end takes its CPU for good. klat's programs do not, but"
            " others may.",
            "for each CPU, write 50000000 to /sys/kernel/debug/sched/fair_server/cpuN/runtime"
            if has_server
            else f"sysctl kernel.sched_rt_runtime_us={period * 95 // 100}",
        )


def scheduler(machine: MachineState, _: ProbeResults) -> Iterator[Finding]:
    """Whether a BPF program schedules."""
    if machine.scheduler:
        yield distorts(
            "scheduler",
            f"the sched_ext scheduler '{machine.scheduler}' is loaded",
            "It schedules ordinary tasks in place of the kernel's own scheduler, so the times contain its work. compare"
            " refuses sides with different schedulers, unless klat ab has the scheduler under test.",
            "stop this scheduler, or compare only with sessions under the same scheduler",
        )


def realtime_limits(machine: MachineState, probes: ProbeResults) -> Iterator[Finding]:
    """How much CPU time real-time tasks get."""
    yield from _throttling(machine)
    if "RT_GROUP_SCHED" in machine.config and not probes.realtime:
        yield note(
            "rt-groups",
            "control groups limit real-time CPU time (RT_GROUP_SCHED)",
            "The kernel grants it here. It may refuse in another group, a service or a container.",
            "start klat from the same shell or service each time",
        )


def memory(machine: MachineState, _: ProbeResults) -> Iterator[Finding]:
    """What the kernel does to pages in the background."""
    if machine.numa_balancing and machine.nodes >= 2:
        yield distorts(
            "numa-balancing",
            "automatic NUMA balancing is on",
            "The kernel unmaps pages now and then to see who touches them, which causes page faults"
            " and TLB shootdowns.",
            "sysctl kernel.numa_balancing=0",
        )
    if machine.huge_pages == "always":
        yield note(
            "huge-pages",
            "transparent huge pages are always on",
            "khugepaged copies and remaps memory of running programs in the background.",
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        )
    if machine.swap_used_kib:
        yield note(
            "swap",
            f"{machine.swap_used_kib >> 10} MiB are swapped out",
            "The machine was short of memory. klat locks its own; the rest of the system may stall.",
            "free some memory, or swapoff -a for the session",
        )


def cpu_sets(machine: MachineState, _: ProbeResults) -> Iterator[Finding]:
    """Which CPUs get interrupts and programs."""
    if machine.irqbalance:
        yield distorts(
            "irqbalance",
            "irqbalance is running",
            "It moves device interrupts between CPUs every few seconds, onto the measured ones too.",
            "systemctl stop irqbalance for the session, or ban the measured CPUs in its settings",
        )
    unused = sorted(set(machine.cpus_isolated) & set(machine.cpus_online or machine.cpus_isolated))
    if unused:
        yield note(
            "isolated",
            f"CPUs {','.join(map(str, unused))} are isolated and not used by default",
            "isolcpus= keeps other work off them. A program uses them only if --cpus names them.",
            f"klat run --cpus {','.join(map(str, (unused * 2)[:2]))}",
        )
    if machine.cpus_of_unknown_nodes:
        yield note(
            "unknown-nodes",
            f"the NUMA nodes of CPUs {ranges(machine.cpus_of_unknown_nodes)} are unknown",
            "/sys/devices/system/node does not list these CPUs. Placements with these CPUs"
            " end in unknown-node: a pair can be on one node or on two.",
            "in a container, mount the host's /sys; else choose other CPUs with --cpus",
        )
    if machine.core_types:
        usable = {n: sorted({*c} & {*machine.cpus_allowed}) for n, c in machine.core_types.items()}
        other = next((name for name in reversed(usable) if len(usable[name]) > 1), "")
        yield note(
            "core-types",
            f"this machine has {len(usable)} types of cores",
            f"{'; '.join(f'{n}: CPUs {ranges(c)}' for n, c in machine.core_types.items())}. A program"
            " takes CPUs of one type, the fastest that has enough. The placement names the type:"
            " runs on two types measure two events.",
            f"klat run --cpus {','.join(map(str, usable[other][:2]))} for cores of type {other}"
            if other
            else "none needed",
        )
