"""Checks for other work on this machine, and whether the kernel shows it."""

from __future__ import annotations

from collections.abc import Iterator

from klat.machine.findings import Finding, Severity
from klat.machine.machine_state import MachineState
from klat.machine.probes import ProbeResults

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
        yield Finding(
            "load",
            Severity.NOTE,
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
        yield Finding(
            "gaps",
            Severity.DISTORTS,
            f"a spinning process stood still for {longest:,.0f} us",
            f"Seen within a tenth of a second on each CPU ({seen}). The cause is another task, an"
            " interrupt, the firmware or the hypervisor, also where it reports no stolen time.",
            "see the other findings; on hardware look for SMIs (turbostat, the firmware's settings)",
        )


def counts(machine: MachineState, _: ProbeResults) -> Iterator[Finding]:
    """Whether the kernel shows the counts that the evidence needs."""
    if machine.interrupts_fault:
        yield Finding(
            "interrupts",
            Severity.SPOILS,
            machine.interrupts_fault,
            "Without these counts klat cannot prove that a TLB shootdown or a membarrier reached another CPU: runs"
            " of tlbflush are invalid, except where the hardware broadcasts shootdowns. klat also does not know"
            " whether an interrupt woke a sleeper. Container engines mask this file, or cover it with a copy.",
            "run outside the container, or unmask it: docker --security-opt systempaths=unconfined,"
            " podman --security-opt unmask=/proc/interrupts, Kubernetes procMount: Unmasked",
        )
    if not machine.cpu_time_counts:
        yield Finding(
            "cpu-time",
            Severity.DISTORTS,
            "/proc/stat does not count the time of this machine's CPUs",
            "It is absent or stands still, or a container's own view covers it (lxcfs). Other work on the"
            " CPUs and time that a hypervisor takes are unknown, here and in the record.",
            "run outside the container, or watch the CPUs from there (mpstat -P ALL)",
        )
