"""Which conditions of two sides have to agree before their figures may be compared.

A condition is a key with a value in each session. What makes the kernel under test itself, its
release, version, configuration and preemption model, is not among them, for that is what a
comparison is about; within one side it has to agree like the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from klat.environment import ABSENT, captured, short
from klat.session import Session, printable

# Keys of session.json, of the environment's files, and of the rows. `--allow` takes any but unit.
RECORDED = {
    "machine": "machine_id",
    "architecture": "architecture",
    "cpu": "cpu_model",
    "cpus-online": "cpus_online",
    "mode": "mode",
    "unit": "unit",
}
_CPUS = r"sys/devices/system/cpu/"
_MICROCODE = rf"{_CPUS}cpu\*/microcode/version|proc/cpuinfo microcode"
_VULNERABILITY = rf"{_CPUS}vulnerabilities/.*"
# What Documentation/admin-guide/kernel-parameters.txt says under mitigations=, on any architecture, and what else
# of it turns a mitigation on or off. In names the kernel takes a hyphen for an underscore.
_MITIGATION_PARAMETERS = (
    "mitigations pti nopti kpti nospectre_v1 nospectre_v2 nospectre_bhb spectre_v2 spectre_v2_user spectre_bhi"
    " spec_store_bypass_disable nospec_store_bypass_disable ssbd l1tf l1d_flush mds tsx tsx_async_abort"
    " mmio_stale_data retbleed srbds gather_data_sampling reg_file_data_sampling spec_rstack_overflow"
    " indirect_target_selection tsa vmscape"
    " kvm.nx_huge_pages kvm-intel.vmentry_l1d_flush no_stf_barrier stf_barrier no_rfi_flush no_entry_flush"
    " no_uaccess_flush nobp"
).split()
_MITIGATIONS = "|".join(
    re.escape(name).replace(r"\-", "_").replace("_", "[-_]") for name in _MITIGATION_PARAMETERS
)
FILES = {
    "microcode": _MICROCODE,
    "mitigations": rf"{_VULNERABILITY}|proc/cmdline ({_MITIGATIONS})",
    "governor": rf"{_CPUS}(cpu\*/cpufreq/|cpufreq/boost|intel_pstate/no_turbo).*",
    "idle": rf"{_CPUS}(cpuidle/|cpu\*/cpuidle/).*|sys/module/(haltpoll|intel_idle|processor)/.*"
    r"|proc/cmdline (idle|cpuidle\..*|intel_idle\..*|processor\.max_cstate)",
    "clocksource": r"sys/devices/system/clocksource/clocksource0/current_clocksource",
    "isolation": rf"{_CPUS}(isolated|nohz_full)",
    "smt": rf"{_CPUS}smt/control",
}
_FILES = {key: re.compile(pattern) for key, pattern in FILES.items()}
# A kernel that does not know a vulnerability has no file for it, and some show no microcode.
_WHERE_BOTH = re.compile(rf"{_MICROCODE}|{_VULNERABILITY}")
# What a file says when it says nothing but what is so without it.
_DEFAULTS = {"proc/cmdline mitigations": "auto"}
# Whether files of the environment are there at all.
CAPTURE = ("environment", "the environment")
NONE = "none"
RUN = {
    "load": "the background load",
    "setup": "the set-up command",
    "prefix": "the prefix",
    "options": "the options of one setting alone",
}
ROWS = ("program", "cpus", "policy", "placement")
# Of these, what no option alone decides.
OBTAINED = ("policy", "cpus", "program", "woken")
# Of the params: they set the conditions of a measurement and not what is measured.
PARAMS = {
    "dma-latency": "not held",
    "guest-halt-poll": "not held",
    "iterations": ABSENT,
    "warmup": ABSENT,
}
WITHIN_SIDE = {
    "kernel-release": "kernel_release",
    "kernel-version": "kernel_version",
    "preemption": "preemption",
}
ALLOWABLE = tuple(
    sorted({*RECORDED, *FILES, *RUN, *ROWS, *PARAMS, *WITHIN_SIDE, CAPTURE[0]} - {"unit"})
)
# What a set-up command and a prefix can change within a boot: where both settings declare that they took turns
# in one boot, these are what is under test.
SETTINGS = frozenset(
    {"governor", "idle", "smt", "cpus-online", "isolation", "clocksource", "mitigations", *RUN}
)


@dataclass(frozen=True)
class Condition:
    """A key that does not agree. `name` is the file or field, `base` and `new` short texts, each
    with every value of its side; `why` is in place of them where the values agree and are no good.
    """

    key: str
    name: str
    base: str
    new: str
    why: str = ""

    def sentence(self) -> str:
        if self.why:
            return f"{self.key}: {self.why}"
        if self.base == self.new:
            return f"{self.key}: the boots of a side differ in {self.name}: {self.base}"
        return f"{self.key}: {self.name} is {self.base} in BASE and {self.new} in NEW"


Values = dict[tuple[str, str], str]
# Keys of conditions, each with its value.
Distinctions = tuple[tuple[str, str], ...]


def conditions(session: Session, facts: Mapping[str, Any]) -> Values:
    """Of one session, by (key, name). `facts` is run.json, or empty."""
    found = {(key, name): _text(session.info.get(name)) for key, name in RECORDED.items()}
    # That of the figures: ticks become nanoseconds where they tell time, and stay ticks elsewhere.
    found["unit", RECORDED["unit"]] = "ns" if session.khz else session.unit
    for key, name in RUN.items():
        told = facts.get(key)
        found[key, name] = (
            " ".join(map(str, told)) if told and isinstance(told, list) else _text(told or NONE)
        )
    files = captured(session.path / "environment", configuration=False)
    for file, values in files.items():
        for part, value in values.items():
            name = f"{file} {part}".rstrip()
            if _DEFAULTS.get(name) == value:
                continue
            for key in _keys_of(name):
                found[key, name] = value
    found[CAPTURE] = "captured" if files else ABSENT
    return found


@dataclass(frozen=True)
class RunConditions:
    """What a run obtained besides what its params and placement say. A figure is over runs of one of
    each."""

    policy: str
    cpus: str
    program: str  # the start of its SHA-256
    woken: str  # how its sleepers were woken; empty where that was not counted

    def differs_from(self, others: Iterable[RunConditions]) -> Distinctions:
        """In what it is not that of all the others."""
        held = [asdict(other) for other in others]
        return tuple(
            (name, value or NONE)
            for name, value in asdict(self).items()
            if any(other[name] != value for other in held)
        )

    def values(self, benchmark: str) -> Values:
        """What one side has to agree in. How sleepers are woken is up to the kernel."""
        return {
            ("cpus", "the CPUs used"): self.cpus,
            ("policy", "the policy obtained"): self.policy,
            ("program", f"the build of {benchmark}"): self.program,
        }


# Benchmark, or "all", and option.
Declared = frozenset[tuple[str, str]]


def declared_options(facts: Mapping[str, Any]) -> Declared:
    """What run.json says that a setting alone was told, of settings that take turns."""
    told = facts.get("options")
    pairs = (
        [str(text).partition("=")[0].partition(".") for text in told or () if told]
        if isinstance(told, list)
        else []
    )
    return frozenset((benchmark, option) for benchmark, _, option in pairs if option)


@cache
def _keys_of(name: str) -> tuple[str, ...]:
    return tuple(key for key, pattern in _FILES.items() if pattern.fullmatch(name))


def is_captured(values: Values) -> bool:
    """Whether the session holds its environment."""
    return values.get(CAPTURE) != ABSENT


def of_kernel(session: Session) -> Values:
    """What makes the kernel under test, by (key, name)."""
    return {(key, name): _text(session.info.get(name)) for key, name in WITHIN_SIDE.items()}


def _text(value: object) -> str:
    return ABSENT if value is None else str(value)


def disagreements(base: Sequence[Values], new: Sequence[Values]) -> list[Condition]:
    """What is not the same in all sessions of both sides, each key once, by its first name."""
    found: dict[str, Condition] = {}
    every = [*base, *new]
    names = dict.fromkeys(name for values in every for name in values)
    captured_only = [[v for v in side if is_captured(v)] for side in (base, new)]
    for key, name in names:
        # Of a session without its environment nothing is known; that is said once, not for each
        # file.
        sides = captured_only if key in FILES else (base, new)
        if not all(sides):
            continue
        held = [[v.get((key, name)) for v in side] for side in sides]
        if _WHERE_BOTH.fullmatch(name):
            held = [[v for v in side if v is not None] for side in held]
            if not all(held):
                continue
        texts = [_several(ABSENT if v is None else v for v in side) for side in held]
        if len({v for side in held for v in side}) > 1 and key not in found:
            found[key] = Condition(key, printable(name), *texts)
    return sorted(found.values(), key=lambda condition: condition.key)


def alike(sessions: Sequence[Values]) -> list[list[int]]:
    """The places of the sessions in groups, each of which makes one side: without disagreements. A
    session joins the first group that it agrees with."""
    groups: list[tuple[Values, list[int]]] = []
    for place, values in enumerate(sessions):
        for held, places in groups:
            if not disagreements([held], [values]):
                held.update(values)
                places.append(place)
                break
        else:
            groups.append((dict(values), [place]))
    return [places for _, places in groups]


def distinctions(groups: Sequence[Sequence[Values]], number: int) -> Distinctions:
    """In what one of several groups differs from the others."""
    others = [values for place, group in enumerate(groups) if place != number for values in group]
    found = disagreements(groups[number], others) if others else []
    return tuple((condition.key, condition.base) for condition in found)


def kernels_within(label: str, sessions: Sequence[Session]) -> list[Condition]:
    """Where the sessions of one side are not of one kernel."""
    values = [of_kernel(session) for session in sessions]
    return [
        replace(found, why=f"the boots of {label} differ in {found.name}: {found.base}")
        for found in disagreements(values, values)
    ]


def _several(values: Iterable[str]) -> str:
    return " | ".join(short(value) for value in dict.fromkeys(values))


def read_run_facts(path: Path) -> dict[str, Any]:
    """run.json of a session; empty where there is none that can be read."""
    import json

    try:
        facts = json.loads((path / "run.json").read_bytes().decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}
