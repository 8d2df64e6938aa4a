"""The checks of `klat doctor`: what on this machine would spoil a session, each with its cure.

A check is a pure function of MachineState and ProbeResults that yields findings. A new finding goes into
the function of its subject; a new function goes into CHECKS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from klat.base.errors import installing, printable
from klat.machine import hardware_checks, kernel_checks
from klat.machine.findings import Finding, Severity, distorts, note, spoils
from klat.machine.machine_state import MachineState
from klat.machine.probes import ProbeResults

_GRANT = (
    "run with sudo, or raise the limit: sudo prlimit --pid $$ --{} for this shell, docker run --ulimit {} for a"
    " container, Limit{} in a systemd unit. With a lower limit, root also needs {}"
)
_FREE_SPOILS = 64 << 20
_FREE_NOTE = 1 << 30


def cpu_limits(machine: MachineState, _: ProbeResults) -> Iterator[Finding]:
    """The CPUs and the CPU time that klat may use."""
    title = "fewer than two CPUs"
    if len(machine.cpus_online) == 1:
        yield spoils(
            "cpus",
            title,
            "There is one CPU only: nothing that passes between two CPUs can be measured.",
            "measure on two CPUs or more; pipes, cv and timer still run on one"
            f" (--cpus {machine.cpus_online[0]},{machine.cpus_online[0]})",
        )
    elif machine.cpus_online and len(machine.cpus_allowed) < 2:
        yield spoils(
            "cpus",
            title,
            f"{len(machine.cpus_online)} CPUs are online and this process may use CPU"
            f" {','.join(map(str, machine.cpus_allowed))} only (affinity, cpuset or container).",
            "start klat without taskset, or widen the cpuset of its control group or container",
        )
    if machine.cpu_quota is not None:
        yield Finding(
            "quota",
            Severity.SPOILS if machine.cpu_quota < 2 else Severity.DISTORTS,
            f"this control group may use {machine.cpu_quota:g} CPUs' worth of time",
            "When the quota of a period is used up, everything in the group stops until the next"
            " period, which looks like a latency of tens of milliseconds.",
            "start klat outside the container, or lift the quota (cpu.max, docker run --cpus)",
        )
    if machine.hides_tasks:
        yield note(
            "hidden-tasks",
            "klat does not see the tasks outside its PID namespace",
            "Real-time tasks of the host that run on the CPUs of a run are not named as its neighbours. The time"
            " that they take is in other_busy_us.",
            "start klat outside the container, or in the host's PID namespace (docker run --pid host)",
        )


def privileges(machine: MachineState, probes: ProbeResults) -> Iterator[Finding]:
    """What the kernel refused to the probes."""
    if probes.realtime:
        cure = _GRANT.format("rtprio=98", "rtprio=98", "RTPRIO=98", "CAP_SYS_NICE")
        if "RT_GROUP_SCHED" in machine.config:
            cure += (
                "; this kernel has RT_GROUP_SCHED: also give the control group a cpu.rt_runtime_us"
            )
        yield spoils(
            "realtime",
            "real-time scheduling is refused",
            f"Asking for SCHED_FIFO priority 98 failed ({probes.realtime}). The programs fall back"
            " to SCHED_OTHER, where any other task delays them and preemption is not what is timed.",
            cure,
        )
    if probes.memory_lock:
        swaps = ". That is likelier as this machine swaps" if machine.swap_total_kib else ""
        yield distorts(
            "memory-lock",
            "locking memory is refused",
            f"mlock of 8 MiB failed ({probes.memory_lock}). Page faults may fall into the"
            f" samples{swaps}. Runs with one are marked invalid.",
            _GRANT.format("memlock=unlimited", "memlock=-1", "MEMLOCK=infinity", "CAP_IPC_LOCK"),
        )
    wanted = (("/dev/net/tun", probes.tun), ("a namespace", probes.namespace))
    if refused := [f"{what} ({why})" for what, why in wanted if why]:
        yield spoils(
            "network",
            "network will be skipped",
            "It makes a tun device in a network namespace of its own, and is refused"
            f" {' and '.join(refused)}.",
            "modprobe tun, run with sudo; in a container add the device and CAP_NET_ADMIN and"
            " CAP_SYS_ADMIN",
        )


def sessions(_: MachineState, probes: ProbeResults) -> Iterator[Finding]:
    """What measures, where sessions go, and what reads them."""
    if probes.programs:
        what, *cures = probes.programs.split("; ", 1)
        cure = "".join(cures) or "install klat again"
        yield spoils("programs", "the programs do not start", f"{what}.", cure)
    free = probes.results_free
    if probes.results_refused:
        yield spoils(
            "results",
            "sessions cannot be written",
            f"{probes.results}: {probes.results_refused}.",
            "give klat run another directory with --output",
        )
    elif free is not None and free < _FREE_NOTE:
        yield Finding(
            "results",
            Severity.SPOILS if free < _FREE_SPOILS else Severity.NOTE,
            f"{free >> 20} MiB are free for sessions",
            f"{probes.results}: every sample is kept, 8 bytes each. The core benchmarks, 500 runs"
            " each, take tens of megabytes.",
            "make room, or give klat run another directory with --output",
        )
    if probes.missing:
        modules = [name for name in probes.missing if name != "gnuplot"]
        tools = ["apt install gnuplot-nox (Debian, Ubuntu)"] if "gnuplot" in probes.missing else []
        tools += [installing(*modules)] if modules else []
        yield note(
            "tools",
            f"{', '.join(probes.missing)} not found",
            "klat can run sessions. Without numpy, scipy and jinja2 it cannot report them."
            if modules
            else "klat can run, summarise and compare sessions. It cannot draw figures.",
            "; ".join(tools),
        )


_BUSY_SPOILS = 0.5  # CPUs
_BUSY_DISTORTS = 0.05
_GAP_DISTORTS_US = 500
_QUEUE_PER_CPU = 0.5


def other_work(machine: MachineState, probes: ProbeResults) -> Iterator[Finding]:
    """Other processes, and whatever else takes a CPU from a spinning process."""
    cpus = len(machine.cpus_online)
    average = machine.load_average
    if machine.busy_cpus >= _BUSY_DISTORTS:
        names = ", ".join(f"{c.name} ({c.pid}) {100 * c.share:.0f} %" for c in machine.consumers)
        yield Finding(
            "neighbours",
            Severity.SPOILS if machine.busy_cpus >= _BUSY_SPOILS else Severity.DISTORTS,
            f"other processes use {machine.busy_cpus:.2f} of {cpus} CPUs",
            "They take caches, interrupts and idle time from what is measured."
            + (f" Load average: {average:.2f}." if average else "")
            + (f" The busiest: {names}." if names else ""),
            "stop them, or keep them off the measured CPUs (taskset, cpuset, isolcpus=)",
        )
    elif average >= _QUEUE_PER_CPU * max(1, cpus):
        yield note(
            "load",
            f"the load average is {average:.2f}"
            + (", though the CPUs are idle now" if machine.cpu_time_counts else ""),
            "Something was busy within the last minute and may be again.",
            "wait for it to end, or find it: top, systemctl list-timers",
        )
    longest = max((gap.longest_us for gap in probes.gaps), default=0)
    if longest >= _GAP_DISTORTS_US:
        seen = "; ".join(
            f"CPU {g.cpu}: {g.count}, longest {g.longest_us:,.0f} us" for g in probes.gaps
        )
        yield distorts(
            "gaps",
            f"a spinning process stood still for {longest:,.0f} us",
            f"Seen within a tenth of a second on each CPU ({seen}). The cause is another task, an"
            " interrupt, the firmware or the hypervisor, also where it reports no stolen time.",
            "see the other findings; on hardware look for SMIs (turbostat, the firmware's settings)",
        )


def counts(machine: MachineState, _: ProbeResults) -> Iterator[Finding]:
    """Whether the kernel shows the counts that the evidence needs."""
    if machine.interrupts_fault:
        yield spoils(
            "interrupts",
            machine.interrupts_fault,
            "Without these counts klat cannot prove that a TLB shootdown or a membarrier reached another CPU: runs"
            " of tlbflush are invalid, except where the hardware broadcasts shootdowns. klat also does not know"
            " whether an interrupt woke a sleeper. Container engines mask this file, or cover it with a copy.",
            "run outside the container, or unmask it: docker --security-opt systempaths=unconfined,"
            " podman --security-opt unmask=/proc/interrupts, Kubernetes procMount: Unmasked",
        )
    if not machine.cpu_time_counts:
        yield distorts(
            "cpu-time",
            "/proc/stat does not count the time of this machine's CPUs",
            "It is absent or stands still, or a container's own view covers it (lxcfs). Other work on the"
            " CPUs and time that a hypervisor takes are unknown, here and in the record.",
            "run outside the container, or watch the CPUs from there (mpstat -P ALL)",
        )


# Findings of one severity are reported in this order.
CHECKS: tuple[Callable[[MachineState, ProbeResults], Iterator[Finding]], ...] = (
    hardware_checks.hypervisor,
    hardware_checks.clocks,
    cpu_limits,
    privileges,
    sessions,
    other_work,
    counts,
    hardware_checks.cpu_speed,
    kernel_checks.instrumentation,
    kernel_checks.cpu_sets,
    kernel_checks.memory,
    kernel_checks.realtime_limits,
    kernel_checks.scheduler,
)


def examine(machine: MachineState, probes: ProbeResults) -> list[Finding]:
    """All findings, the most harmful first."""
    order = list(Severity)
    findings = [finding for check in CHECKS for finding in check(machine, probes)]
    # Texts from files can contain control characters.
    shown = (
        Finding(f.check, f.severity, *map(printable, (f.title, f.detail, f.cure))) for f in findings
    )
    return sorted(shown, key=lambda finding: order.index(finding.severity))
