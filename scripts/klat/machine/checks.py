"""What on this machine would spoil a session, each thing with its cure.

A check is a pure function of the facts and the attempts, and answers with a finding or None.
CHECKS is in order of harm among findings of one severity; adding a check is writing the function
and naming it there.
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum

from klat.machine.privileges import Attempts
from klat.machine.system import Facts

# A CPU that takes longer to wake than this is seen in every cross-CPU figure.
_DEEP_IDLE_US = 10
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
_BUSY_SPOILS = 0.5  # CPUs
_BUSY_DISTORTS = 0.05
_STEAL_SPOILS = 0.02  # of all CPU time
_GAP_DISTORTS_US = 500
_QUEUE_PER_CPU = 0.5
_FREE_SPOILS = 64 << 20
_FREE_NOTE = 1 << 30


class Severity(Enum):
    """In order of harm. Only the first makes `klat doctor` end with status 1."""

    SPOILS = "spoils"  # figures are wrong, or a program cannot run
    DISTORTS = "distorts"  # figures are those of this setting as much as of the kernel
    NOTE = "note"  # know it when reading or comparing


@dataclass(frozen=True)
class Finding:
    check: str
    severity: Severity
    title: str
    detail: str
    cure: str


Check = Callable[[Facts, Attempts], "Finding | None"]


def _cpus(cpus: Sequence[int]) -> str:
    return ",".join(map(str, cpus))


def emulated(facts: Facts, _: Attempts) -> Finding | None:
    if "TCG" not in facts.model and not facts.hypervisor.startswith("TCG"):
        return None
    return Finding(
        "emulated",
        Severity.SPOILS,
        "this machine is emulated in software",
        "Its time stamps follow the host's clock while its instructions do not run at any"
        " hardware's speed, so no time measured here means anything. Counts of events are true.",
        "measure on hardware or under KVM, or count instructions: qemu -icount with one CPU",
    )


def counter(facts: Facts, _: Attempts) -> Finding | None:
    missing = [flag for flag in ("constant_tsc", "nonstop_tsc") if flag not in facts.flags]
    if not missing:
        return None
    return Finding(
        "counter",
        Severity.SPOILS,
        "the time-stamp counter is not invariant",
        f"/proc/cpuinfo does not show {' and '.join(missing)}: the counter may change its rate with"
        " the CPU's clock or stop when idle, and ticks are then no measure of time.",
        "in a virtual machine expose the host's counter (qemu: -cpu host,+invtsc); on hardware"
        " this old, hold the clock and the idle states fixed",
    )


def one_cpu(facts: Facts, _: Attempts) -> Finding | None:
    if len(facts.cpus_allowed) >= 2 or not facts.cpus_online:
        return None
    if len(facts.cpus_online) < 2:
        detail = "There is one CPU only: nothing that passes between two CPUs can be measured."
        cure = "measure on two CPUs or more; pipes, cv and timer still run on one (--cpus 0,0)"
    else:
        detail = (
            f"{len(facts.cpus_online)} CPUs are online and this process may use CPU"
            f" {_cpus(facts.cpus_allowed)} only (affinity, cpuset or container)."
        )
        cure = "start klat without taskset, or widen the cpuset of its control group or container"
    return Finding("cpus", Severity.SPOILS, "fewer than two CPUs", detail, cure)


def realtime(facts: Facts, attempts: Attempts) -> Finding | None:
    if not attempts.realtime:
        return None
    cure = "run with sudo, or allow it: ulimit -r 98, setcap cap_sys_nice+ep on the programs"
    if "RT_GROUP_SCHED" in facts.config:
        cure += "; this kernel has RT_GROUP_SCHED: also give the control group a cpu.rt_runtime_us"
    return Finding(
        "realtime",
        Severity.SPOILS,
        "real-time scheduling is refused",
        f"Asking for SCHED_FIFO priority 98 failed ({attempts.realtime}). The programs fall back to"
        " SCHED_OTHER, where any other task delays them and preemption is not what is timed.",
        cure,
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


def steal(facts: Facts, _: Attempts) -> Finding | None:
    if not facts.steal:
        return None
    return Finding(
        "steal",
        Severity.SPOILS if facts.steal >= _STEAL_SPOILS else Severity.DISTORTS,
        f"the hypervisor took {facts.steal:.1%} of the CPU time",
        "Time stolen from this machine's CPUs while sampling: its neighbours compete for the same"
        " cores, and whatever they take lies inside the samples.",
        "move to a host of its own or pin the virtual CPUs to cores; else measure at a calmer time",
    )


def neighbours(facts: Facts, _: Attempts) -> Finding | None:
    if facts.busy_cpus < _BUSY_DISTORTS:
        return None
    names = ", ".join(f"{c.name} ({c.pid}) {c.share:.0%}" for c in facts.consumers)
    return Finding(
        "neighbours",
        Severity.SPOILS if facts.busy_cpus >= _BUSY_SPOILS else Severity.DISTORTS,
        f"other processes use {facts.busy_cpus:.2f} of {len(facts.cpus_online)} CPUs",
        "They take caches, interrupts and idle time from what is measured"
        f"{', load average ' + format(facts.load_average, '.2f') if facts.load_average else ''}."
        f"{' The busiest: ' + names + '.' if names else ''}",
        "stop them, or keep them off the measured CPUs (taskset, cpuset, isolcpus=)",
    )


def queue(facts: Facts, attempts: Attempts) -> Finding | None:
    limit = _QUEUE_PER_CPU * max(1, len(facts.cpus_online))
    if facts.load_average < limit or neighbours(facts, attempts):
        return None
    return Finding(
        "load",
        Severity.NOTE,
        f"the load average is {facts.load_average:.2f}, though the CPUs are idle now",
        "Something was busy within the last minute and may be again.",
        "wait for it to end, or find it: top, systemctl list-timers",
    )


def gaps(_: Facts, attempts: Attempts) -> Finding | None:
    worst = max(attempts.gaps, key=lambda gap: gap.longest_us, default=None)
    if worst is None or worst.longest_us < _GAP_DISTORTS_US:
        return None
    seen = "; ".join(
        f"CPU {g.cpu}: {g.count}, longest {g.longest_us:.0f} us" for g in attempts.gaps
    )
    return Finding(
        "gaps",
        Severity.DISTORTS,
        f"a spinning process stood still for {worst.longest_us:.0f} us",
        f"Seen within a tenth of a second on each CPU ({seen}): another task, an interrupt, the"
        " firmware or the hypervisor, also where it reports no stolen time.",
        "see the other findings; on hardware look for SMIs (turbostat, the firmware's settings)",
    )


def quota(facts: Facts, _: Attempts) -> Finding | None:
    if facts.cpu_quota is None:
        return None
    return Finding(
        "quota",
        Severity.SPOILS if facts.cpu_quota < 2 else Severity.DISTORTS,
        f"this control group may use {facts.cpu_quota:g} CPUs' worth of time",
        "When the quota of a period is used up, everything in the group stops until the next one,"
        " which looks like a latency of tens of milliseconds.",
        "start klat outside the container, or lift the quota (cpu.max, docker run --cpus)",
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


def clocksource(facts: Facts, _: Attempts) -> Finding | None:
    if facts.clocksource in ("", "tsc"):
        return None
    rejected = "tsc" not in facts.clocksources
    return Finding(
        "clocksource",
        Severity.SPOILS if rejected else Severity.DISTORTS,
        f"the kernel's clock is {facts.clocksource}, not the counter",
        "It found the time-stamp counter unfit, often because the CPUs' counters disagree (dmesg |"
        " grep -i tsc), and klat measures with it."
        if rejected
        else "Timers and sleeps go through that clock, which costs more to read.",
        "tsc=reliable on the command line, only if you know why it was rejected"
        if rejected
        else "echo tsc | sudo tee"
        " /sys/devices/system/clocksource/clocksource0/current_clocksource",
    )


def results_directory(_: Facts, attempts: Attempts) -> Finding | None:
    free = attempts.results_free
    if attempts.results_refused:
        return Finding(
            "results",
            Severity.SPOILS,
            "sessions cannot be written",
            f"{attempts.results}: {attempts.results_refused}.",
            "give klat run another directory with --output",
        )
    if free is None or free >= _FREE_NOTE:
        return None
    return Finding(
        "results",
        Severity.SPOILS if free < _FREE_SPOILS else Severity.NOTE,
        f"{free >> 20} MiB are free for sessions",
        f"{attempts.results}: every sample is kept, 8 bytes each; the core benchmarks, 500 runs"
        " each, take tens of megabytes.",
        "make room, or give klat run another directory with --output",
    )


def network(_: Facts, attempts: Attempts) -> Finding | None:
    refused = [
        f"{what} ({why})"
        for what, why in (("/dev/net/tun", attempts.tun), ("a namespace", attempts.namespace))
        if why
    ]
    if not refused:
        return None
    return Finding(
        "network",
        Severity.SPOILS,
        "network will be skipped",
        f"It makes a tun device in a network namespace of its own, and is refused"
        f" {' and '.join(refused)}.",
        "modprobe tun, run with sudo; in a container add the device and CAP_NET_ADMIN and"
        " CAP_SYS_ADMIN",
    )


def memory_lock(facts: Facts, attempts: Attempts) -> Finding | None:
    if not attempts.memory_lock:
        return None
    return Finding(
        "memory-lock",
        Severity.DISTORTS,
        "locking memory is refused",
        f"mlock of 8 MiB failed ({attempts.memory_lock}). Page faults may fall into the samples;"
        " runs with one are marked invalid"
        f"{', the likelier as this machine swaps' if facts.swap_total_kib else ''}.",
        "run with sudo, or raise the limit: ulimit -l unlimited",
    )


def virtual(facts: Facts, attempts: Attempts) -> Finding | None:
    if "hypervisor" not in facts.flags or emulated(facts, attempts):
        return None
    return Finding(
        "virtual",
        Severity.DISTORTS,
        f"this is a virtual machine{' of ' + facts.hypervisor if facts.hypervisor else ''}",
        "Interrupts between CPUs, timers and leaving idle pass through the hypervisor, so those"
        " figures are the hypervisor's as much as the kernel's. Compare kernels on this same host"
        " only, and not with hardware.",
        "measure on hardware, or pin the virtual CPUs and say so beside the figures",
    )


def idle_states(facts: Facts, attempts: Attempts) -> Finding | None:
    deepest = facts.idle_states[-1] if facts.idle_states else None
    if deepest is None or deepest.latency_us < _DEEP_IDLE_US:
        return None
    held = f" (as this user: {attempts.dma_latency})" if attempts.dma_latency else ""
    return Finding(
        "idle-states",
        Severity.DISTORTS,
        f"idle CPUs sleep as deep as {deepest.name}, {deepest.latency_us} us to wake",
        f"Driver {facts.idle_driver or 'unknown'}, governor {facts.idle_governor or 'unknown'}: a"
        " wakeup on an idle CPU measures its way out of idle first, and the governor's guess adds"
        " spread.",
        f"klat run --option all.dma-latency=0, that is --dma-latency 0 for every program{held}",
    )


def governor(facts: Facts, _: Attempts) -> Finding | None:
    others = sorted(facts.governors - {"performance"})
    if not others:
        return None
    return Finding(
        "governor",
        Severity.DISTORTS,
        f"the clock's governor is {', '.join(others)}",
        "CPUs change their clock with load, and a short benchmark that sleeps looks like none."
        " Ticks are time, not cycles: at half the clock everything takes twice as many.",
        "cpupower frequency-set -g performance",
    )


def turbo(facts: Facts, _: Attempts) -> Finding | None:
    if not facts.turbo:
        return None
    return Finding(
        "turbo",
        Severity.DISTORTS,
        "turbo is on",
        "The clock depends on temperature and on the other cores: it drifts over a session.",
        "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo, or 0 to cpufreq/boost",
    )


def siblings(facts: Facts, _: Attempts) -> Finding | None:
    if not facts.smt:
        return None
    return Finding(
        "siblings",
        Severity.DISTORTS,
        "two CPUs share each core (SMT)",
        "klat places its threads on distinct cores, but whatever runs on a sibling takes half"
        " of the core from them.",
        "echo off | sudo tee /sys/devices/system/cpu/smt/control",
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
        f"CPUs {_cpus(unused)} are isolated and not used by default",
        "They were kept free of other work (isolcpus=), and a program uses them only when told to.",
        f"klat run --cpus {','.join(map(str, (unused * 2)[:2]))}",
    )


def throttled(facts: Facts, _: Attempts) -> Finding | None:
    if not facts.throttled:
        return None
    return Finding(
        "heat",
        Severity.NOTE,
        f"CPUs have slowed down to cool {facts.throttled} times since boot",
        "A session long enough to heat the machine drifts with its temperature.",
        "better cooling, or turbo off; see the run-by-run plot",
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


def tools(_: Facts, attempts: Attempts) -> Finding | None:
    if not attempts.missing:
        return None
    packages = [n if n == "gnuplot" else f"python3-{n}" for n in attempts.missing]
    return Finding(
        "tools",
        Severity.NOTE,
        f"{', '.join(attempts.missing)} not found",
        "Sessions can be run without, but not all be summarised, compared or drawn here.",
        f"apt install {' '.join(packages)}",
    )


CHECKS: tuple[Check, ...] = (
    emulated,
    counter,
    one_cpu,
    results_directory,
    realtime,
    network,
    steal,
    quota,
    neighbours,
    clocksource,
    debugging,
    gaps,
    memory_lock,
    virtual,
    idle_states,
    governor,
    tracing,
    turbo,
    siblings,
    interrupts,
    numa_balancing,
    watchdog,
    realtime_budget,
    queue,
    throttled,
    isolated,
    realtime_groups,
    huge_pages,
    swap,
    mitigations,
    tools,
)


def examine(facts: Facts, attempts: Attempts) -> list[Finding]:
    """All findings, the most harmful first."""
    order = list(Severity)
    found = [finding for check in CHECKS if (finding := check(facts, attempts))]
    return sorted(found, key=lambda finding: order.index(finding.severity))


def spoiled(findings: Sequence[Finding]) -> bool:
    return any(finding.severity is Severity.SPOILS for finding in findings)


def to_json(findings: Sequence[Finding]) -> str:
    """One object: `schema`, `spoiled`, and `findings` in order of harm."""
    plain = [asdict(finding) | {"severity": finding.severity.value} for finding in findings]
    document = {"schema": 1, "spoiled": spoiled(findings), "findings": plain}
    return json.dumps(document, indent=2, ensure_ascii=False)


def to_text(findings: Sequence[Finding], width: int = 80, colour: bool = False) -> str:
    """For people, at most `width` columns."""
    tints = {Severity.SPOILS: "31", Severity.DISTORTS: "33", Severity.NOTE: "36"}
    indent = " " * 10
    lines = []
    for finding in findings:
        word = f"{finding.severity.value:<8}"
        if colour:
            word = f"\x1b[{tints[finding.severity]}m{word}\x1b[0m"
        head, *rest = textwrap.wrap(finding.title, width - len(indent))
        lines.append(f"{word}  {head}")
        lines.extend(indent + line for line in rest)
        for text in (finding.detail, f"Cure: {finding.cure}"):
            lines.extend(
                textwrap.wrap(
                    text,
                    width,
                    initial_indent=indent,
                    subsequent_indent=indent,
                    break_on_hyphens=False,
                )
            )
        lines.append("")
    counts = Counter(finding.severity for finding in findings)
    summary = ", ".join(f"{counts[s]} {s.value}" for s in Severity if counts[s])
    lines.append(f"Findings: {summary or 'none, this machine is fit for a session'}")
    return "\n".join(lines)
