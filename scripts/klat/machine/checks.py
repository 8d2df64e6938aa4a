"""The checks of `klat doctor`: what on this machine would spoil a session, each with its cure.

A check is a pure function of MachineState and ProbeResults that yields findings. A new finding goes into
the function of its subject; a new function goes into CHECKS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from klat.base.errors import printable
from klat.machine import hardware_checks, kernel_checks, other_work_checks, permission_checks
from klat.machine.findings import Finding, Severity
from klat.machine.machine_state import MachineState
from klat.machine.probes import ProbeResults

# Findings of one severity are reported in this order.
CHECKS: tuple[Callable[[MachineState, ProbeResults], Iterator[Finding]], ...] = (
    hardware_checks.hypervisor,
    hardware_checks.clocks,
    permission_checks.cpu_limits,
    permission_checks.privileges,
    permission_checks.sessions,
    other_work_checks.other_work,
    other_work_checks.counts,
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
    found = [finding for check in CHECKS for finding in check(machine, probes)]
    # Texts from files can contain control characters.
    shown = (
        Finding(f.check, f.severity, *map(printable, (f.title, f.detail, f.cure))) for f in found
    )
    return sorted(shown, key=lambda finding: order.index(finding.severity))
