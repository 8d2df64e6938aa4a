"""Checks of the CPUs, their clocks and counters, and the hypervisor below them."""

from __future__ import annotations

from klat.machine.findings import Finding, Severity
from klat.machine.privileges import Attempts
from klat.machine.system import Facts


# A CPU that takes longer to wake than this is seen in every cross-CPU figure.
_DEEP_IDLE_US = 10


_STEAL_SPOILS = 0.02  # of all CPU time


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
