"""Checks for other work on this machine."""

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
            f"the load average is {average:.2f}, though the CPUs are idle now",
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
