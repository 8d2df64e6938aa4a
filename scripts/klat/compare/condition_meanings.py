"""What the value of a condition counts as in a comparison."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from klat.compare.environment_conditions import KERNEL, NET, PROCESS, SAME_BOOST, SCALES_BY_ITSELF
from klat.compare.environment_conditions import Values, value_of
from klat.record.environment import ABSENT

_NO_SMT = {"forceoff": "off"}
_NO_STATEMENT = frozenset({"notsupported", "notimplemented"})
# Governors that follow the load. powersave does so, too, if the driver scales by itself.
_SCALING = frozenset({"schedutil", "ondemand", "conservative"})
# What a frequency driver sets when it starts.
_OF_DRIVER = frozenset(
    {"energy-preference", "energy-bias", "performance-limit-max", "performance-limit-min"}
)


@dataclass(frozen=True)
class Alike:
    """What all sessions of a comparison have in common. It decides what a value counts as."""

    kernel: bool
    frequency_driver: bool
    idle_governors: frozenset[str]  # that every kernel has

    @staticmethod
    def of(sessions: Sequence[Values]) -> Alike:
        known = [set(value_of(values, "idle-governors").split()) for values in sessions]
        return Alike(
            kernel=len({values.get(KERNEL) for values in sessions}) < 2,
            frequency_driver=len({value_of(values, "frequency-driver") for values in sessions}) < 2,
            idle_governors=frozenset(set.intersection(*known) if known else ()),
        )


def meaning(key: str, value: str, values: Values, alike: Alike) -> str | None:
    """What a value counts as; None if it says nothing. `values` are the values of its session."""
    family = key.partition(".")[0]
    if family == "vulnerability":
        # On hardware, two kernels differ only in their lists of CPUs. A virtual CPU can itself differ.
        is_one_cpu = value_of(values, "mode") == "hardware" and not alike.kernel
        return None if is_one_cpu else _class(value, alike.kernel)
    if key == "governor" and not alike.frequency_driver:
        by_itself = value_of(values, "frequency-driver") in SCALES_BY_ITSELF
        scales = value in _SCALING or (value == "powersave" and by_itself)
        return "follows the load" if scales else value
    if key in _OF_DRIVER and not alike.frequency_driver:
        return None
    # The kernel prints one digit for every four CPUs that it can have, so kernels print different numbers of zeros.
    if family == NET and re.fullmatch("[0,]+", value):
        return "0"
    if key == f"{PROCESS}.livepatch" and not alike.kernel:
        return None
    if key == "idle-governor" and not alike.kernel and value not in alike.idle_governors:
        return None
    if key == "smt":
        return None if value in _NO_STATEMENT and not alike.kernel else _NO_SMT.get(value, value)
    if key in ("isolated", "nohz-full"):
        return value.replace("(null)", "")
    if key == "clocksource":
        return "tsc" if value == "tsc-early" else value
    if family == PROCESS and "speculation" in key.lower() and not alike.kernel:
        return _speculation(value, values)
    # A kernel without huge pages, as every PREEMPT_RT kernel, has them enabled in no process.
    if key == f"{PROCESS}.THP_enabled" and not value_of(values, "huge-pages"):
        return None
    if key == f"{PROCESS}.Mems_allowed_list" and not alike.kernel:
        # A kernel without NUMA has one node.
        nodes = value_of(values, "nodes") or "1"
        last = int(nodes) - 1 if nodes.isdecimal() else 0
        return "all" if value == (f"0-{last}" if last else "0") else value
    if _LIKE_ABSENT.fullmatch(f"{key} {value}"):
        return ABSENT
    return value


# A kernel, or an earlier klat, without the file is the same.
_LIKE_ABSENT = re.compile(
    r"sysctl\.((nmi_)?watchdog|numa_balancing|stack_tracer_enabled|task_delayacct|timer_migration"
    r"|percpu_pagelist.*|legacy_va_layout) 0"
    r"|sysctl\.overcommit_memory [01]"  # both account alike; 1 refuses nothing
    r"|sysctl\.randomize_va_space 2"
    r"|damon off"
    r"|huge-pages always .*\[never\]"
    f"|boost {SAME_BOOST}"
)


def _speculation(text: str, values: Values) -> str | None:
    """The process's own request. Kernels before 5.16 also mitigate all processes with a seccomp filter."""
    mitigated = re.fullmatch("thread (force )?mitigated|conditional (force )?disabled", text)
    filtered = value_of(values, f"{PROCESS}.Seccomp") not in ("", "0")
    return None if filtered else "mitigated by the process" if mitigated else "not by the process"


def _class(text: str, is_one_kernel: bool) -> str | None:
    """Not affected, vulnerable or mitigated. Between two kernels, only not affected or affected: a kernel may
    lack a mitigation, or word it differently. If somebody turned a mitigation off, the command line says so.
    """
    match = re.search("not affected|vulnerable|mitigation", text, re.IGNORECASE)
    if not match:
        return None
    kind = match[0].lower()
    return kind if is_one_kernel or kind == "not affected" else "affected"
