"""Checks of what the system allows this user and this control group."""

from __future__ import annotations

from klat.machine.findings import Finding, Severity
from klat.machine.privileges import Attempts
from klat.machine.system import Facts


_FREE_SPOILS = 64 << 20


_FREE_NOTE = 1 << 30


def one_cpu(facts: Facts, _: Attempts) -> Finding | None:
    if len(facts.cpus_allowed) >= 2 or not facts.cpus_online:
        return None
    if len(facts.cpus_online) < 2:
        detail = "There is one CPU only: nothing that passes between two CPUs can be measured."
        cure = "measure on two CPUs or more; pipes, cv and timer still run on one (--cpus 0,0)"
    else:
        detail = (
            f"{len(facts.cpus_online)} CPUs are online and this process may use CPU"
            f" {','.join(map(str, facts.cpus_allowed))} only (affinity, cpuset or container)."
        )
        cure = "start klat without taskset, or widen the cpuset of its control group or container"
    return Finding("cpus", Severity.SPOILS, "fewer than two CPUs", detail, cure)


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
