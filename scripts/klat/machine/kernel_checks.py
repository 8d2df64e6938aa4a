"""Checks of how the kernel was built and set up."""

from __future__ import annotations

from klat.machine.findings import Finding, Severity
from klat.machine.privileges import Attempts
from klat.machine.system import Facts


_HEAVY_DEBUG = ("KASAN", "KCSAN", "KMSAN", "PROVE_LOCKING", "DEBUG_LOCK_ALLOC", "DEBUG_PAGEALLOC")


_LIGHT_DEBUG = (
    "DEBUG_PREEMPT",
    "DEBUG_OBJECTS",
    "DEBUG_VM",
    "DEBUG_SPINLOCK",
    "DEBUG_MUTEXES",
    "DEBUG_ATOMIC_SLEEP",
    "DEBUG_KMEMLEAK",
    "LOCK_STAT",
    "SLUB_DEBUG_ON",
    "UBSAN",
    "IRQSOFF_TRACER",
    "PREEMPT_TRACER",
)


def debugging(facts: Facts, _: Attempts) -> Finding | None:
    heavy = [name for name in _HEAVY_DEBUG if name in facts.config]
    light = [name for name in _LIGHT_DEBUG if name in facts.config]
    if not heavy and not light:
        return None
    return Finding(
        "debugging",
        Severity.SPOILS if heavy else Severity.DISTORTS,
        "this kernel is built for debugging",
        f"CONFIG_{', CONFIG_'.join(heavy + light)}: checks on the paths that are timed, several"
        " times slower with the heavier of them.",
        "build the kernel without them, or compare with kernels that have the same ones only",
    )


def tracing(facts: Facts, _: Attempts) -> Finding | None:
    if facts.tracer in ("", "nop"):
        return None
    return Finding(
        "tracing",
        Severity.DISTORTS,
        f"the tracer '{facts.tracer}' is on",
        "It records on the paths that are timed.",
        "echo nop | sudo tee /sys/kernel/tracing/current_tracer",
    )


def watchdog(facts: Facts, _: Attempts) -> Finding | None:
    if not facts.watchdog_s:
        return None
    return Finding(
        "watchdog",
        Severity.NOTE,
        f"the soft-lockup watchdog runs on each CPU every {facts.watchdog_s:g} s",
        "It preempts a thread of any real-time priority for about 20 us. The run is then disturbed.",
        "sysctl kernel.watchdog=0 for the session",
    )


def realtime_budget(facts: Facts, _: Attempts) -> Finding | None:
    runtime, period = facts.rt_runtime_us, facts.rt_period_us
    if runtime is None or not period:
        return None
    if runtime < 0:
        return Finding(
            "throttling",
            Severity.NOTE,
            "throttling of real-time tasks is switched off",
            "kernel.sched_rt_runtime_us is -1: a real-time task that spins without end takes its"
            " CPU for good. klat's programs do not, but others may.",
            f"sysctl kernel.sched_rt_runtime_us={period * 95 // 100}",
        )
    share = runtime / period
    severity = Severity.NOTE if share >= 0.9 else Severity.DISTORTS
    if share < 0.1:
        severity = Severity.SPOILS
    return Finding(
        "throttling",
        severity,
        f"real-time tasks get {runtime / 1000:g} of every {period / 1000:g} ms",
        "Beyond that the kernel stops them until the period is over, which looks like a latency of"
        f" up to {(period - runtime) / 1000:g} ms. klat's programs spin in bursts below it and flag"
        " a sample that long, but runs close together add up.",
        "klat run --pause 20 if runs are flagged as throttled"
        if severity is Severity.NOTE
        else "sysctl kernel.sched_rt_runtime_us=950000 kernel.sched_rt_period_us=1000000",
    )


def realtime_groups(facts: Facts, attempts: Attempts) -> Finding | None:
    if "RT_GROUP_SCHED" not in facts.config or attempts.realtime:
        return None
    return Finding(
        "rt-groups",
        Severity.NOTE,
        "real-time time is shared out by control groups (RT_GROUP_SCHED)",
        "It is granted here, but in another group, a service or a container, it may be refused.",
        "start klat from the same shell or service each time",
    )


def isolated(facts: Facts, _: Attempts) -> Finding | None:
    unused = sorted(set(facts.cpus_isolated) & set(facts.cpus_online or facts.cpus_isolated))
    if not unused:
        return None
    return Finding(
        "isolated",
        Severity.NOTE,
        f"CPUs {','.join(map(str, unused))} are isolated and not used by default",
        "They were kept free of other work (isolcpus=), and a program uses them only when told to.",
        f"klat run --cpus {','.join(map(str, (unused * 2)[:2]))}",
    )


def numa_balancing(facts: Facts, _: Attempts) -> Finding | None:
    if not facts.numa_balancing or facts.nodes < 2:
        return None
    return Finding(
        "numa-balancing",
        Severity.DISTORTS,
        "automatic NUMA balancing is on",
        "The kernel unmaps pages now and then to see who touches them, which makes page faults and"
        " TLB shootdowns of its own.",
        "sysctl kernel.numa_balancing=0",
    )


def huge_pages(facts: Facts, _: Attempts) -> Finding | None:
    if facts.huge_pages != "always":
        return None
    return Finding(
        "huge-pages",
        Severity.NOTE,
        "transparent huge pages are always on",
        "khugepaged copies and remaps memory of running programs in the background.",
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
    )


def swap(facts: Facts, _: Attempts) -> Finding | None:
    if not facts.swap_used_kib:
        return None
    return Finding(
        "swap",
        Severity.NOTE,
        f"{facts.swap_used_kib >> 10} MiB are swapped out",
        "The machine was short of memory; klat locks its own, the rest of the system may stall.",
        "free some memory, or swapoff -a for the session",
    )


def mitigations(facts: Facts, _: Attempts) -> Finding | None:
    if not facts.mitigations:
        return None
    return Finding(
        "mitigations",
        Severity.NOTE,
        f"this kernel works around {len(facts.mitigations)} CPU vulnerabilities",
        f"{', '.join(facts.mitigations)}: most cost time on each entry to the kernel. That is part"
        " of its latency, if both kernels of a comparison do it.",
        "none needed; compare kernels with the same mitigations= only",
    )


def interrupts(facts: Facts, _: Attempts) -> Finding | None:
    if not facts.irqbalance:
        return None
    return Finding(
        "irqbalance",
        Severity.DISTORTS,
        "irqbalance is running",
        "It moves device interrupts between CPUs every few seconds, onto the measured ones too.",
        "systemctl stop irqbalance for the session, or ban the measured CPUs in its settings",
    )
