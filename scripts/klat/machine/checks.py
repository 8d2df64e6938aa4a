"""The checks of `klat doctor`: what on this machine would spoil a session, each with its cure.

A check is a pure function of Facts and Attempts. It returns a finding or None. To add a check,
write the function in the module of its subject and name it in CHECKS.
"""

from __future__ import annotations

from collections.abc import Callable

from klat.machine import hardware_checks, kernel_checks, other_work_checks, permission_checks
from klat.machine.findings import Finding, Severity
from klat.machine.privileges import Attempts
from klat.machine.system import Facts

Check = Callable[[Facts, Attempts], "Finding | None"]

# Findings of one severity are reported in this order.
CHECKS: tuple[Check, ...] = (
    hardware_checks.emulated,
    hardware_checks.counter,
    permission_checks.one_cpu,
    permission_checks.results_directory,
    permission_checks.realtime,
    permission_checks.network,
    hardware_checks.steal,
    permission_checks.quota,
    other_work_checks.neighbours,
    hardware_checks.clocksource,
    kernel_checks.debugging,
    other_work_checks.gaps,
    permission_checks.memory_lock,
    hardware_checks.virtual,
    hardware_checks.idle_states,
    hardware_checks.governor,
    kernel_checks.tracing,
    hardware_checks.turbo,
    hardware_checks.siblings,
    kernel_checks.interrupts,
    kernel_checks.numa_balancing,
    kernel_checks.watchdog,
    kernel_checks.realtime_budget,
    other_work_checks.queue,
    hardware_checks.throttled,
    kernel_checks.isolated,
    kernel_checks.realtime_groups,
    kernel_checks.huge_pages,
    kernel_checks.swap,
    kernel_checks.mitigations,
    permission_checks.tools,
)


def examine(facts: Facts, attempts: Attempts) -> list[Finding]:
    """All findings, the most harmful first."""
    order = list(Severity)
    found = [finding for check in CHECKS if (finding := check(facts, attempts))]
    return sorted(found, key=lambda finding: order.index(finding.severity))
