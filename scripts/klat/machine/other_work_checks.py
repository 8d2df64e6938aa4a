"""Checks for other work on this machine."""

from __future__ import annotations

from klat.machine.findings import Finding, Severity
from klat.machine.privileges import Attempts
from klat.machine.system import Facts


_BUSY_SPOILS = 0.5  # CPUs


_BUSY_DISTORTS = 0.05


_GAP_DISTORTS_US = 500


_QUEUE_PER_CPU = 0.5


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
