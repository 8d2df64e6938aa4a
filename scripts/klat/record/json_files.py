"""Reads the JSON files of a session, and checks each field by its kind.

docs/record.md and docs/session.md say what the fields mean. Sessions of earlier versions lack some of them. A key that is not
named here is not checked: a newer klat may have written it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from klat.base.bounded_read import checked, open_below, parse_json, read_json, read_open
from klat.base.errors import SessionError, printable
from klat.base.fields import Either, Kind, ListOf, Maybe, Number, Object, OneOf, Text, Truth, Tuple
from klat.base.fields import Whole
from klat.record.plan_csv import MAX_RUNS

SCHEMA = 1
SESSION_FILE = "session.json"
FACTS = "run.json"
MACHINE_FILE = "lab/machine.json"
UNITS = ("ticks", "instructions")
MODES = ("hardware", "virtual", "emulated", "counted")
# The modes in which ticks can be converted to nanoseconds.
TIMED_MODES = ("hardware", "virtual")

MOST_PAUSE_MS = 60_000
MOST_SECONDS = 86_400
MOST_SOAK_SECONDS = 100_000_000
MOST_BOOTS = 1_000_000  # of an experiment
MOST_LOOKS = 64  # each takes time to compute
LARGEST_INTEGER = 2**63 - 1
_LARGEST_PID = 1 << 22
# Maximum sizes of files in bytes.
_LARGEST_SESSION = 1 << 20
LARGEST_RUN = 1 << 26
LARGEST_PLAN = 1 << 28
_LARGEST_KHZ = 1e12
_QUANTUM = Number(1, 2**40)

_ANY = Text()
_OPTIONAL = Maybe(Text())
_LONG = Text(1 << 17)  # a command, which the kernel limits to this
_PPM = Maybe(Number(-1e9, 1e9))
_KHZ = Maybe(Number(0, _LARGEST_KHZ))
_HASH = Text(128)
_ORDER = Whole(0, LARGEST_INTEGER)

_TSC = Object(
    {
        "counter": _OPTIONAL,
        "khz": _KHZ,
        "method": _OPTIONAL,
        "uncertainty_ppm": _PPM,
        "second_khz": _KHZ,
        "second_method": _OPTIONAL,
        "difference_ppm": _PPM,
        "independent": Maybe(Truth()),
        "invariant": Maybe(Truth()),
        "quantum": Maybe(_QUANTUM),
    }
)
_SESSION = Object(
    {
        "label": Text(),
        "boot_id": Text(64, r"[!-+\--~]*", "printable ASCII without commas"),
        "mode": OneOf(MODES),
        "unit": OneOf(UNITS),
        "tsc": _TSC,
        "klat_version": _OPTIONAL,
        "klat_commit": _OPTIONAL,
        "seed": Maybe(Whole(0, LARGEST_INTEGER)),
        "created": _OPTIONAL,
        "machine_id": _OPTIONAL,
        "kernel_release": _OPTIONAL,
        "kernel_version": _OPTIONAL,
        "architecture": _OPTIONAL,
        "cpu_model": _OPTIONAL,
        "cpus_online": Maybe(Whole(1, 1 << 20)),
        "preemption": _OPTIONAL,
        "programs": Maybe(Object(others=_HASH)),
        "libraries": Maybe(Object(others=_ANY)),
        "inherited": Maybe(Object(others=_ANY)),
        "under_load": Maybe(Truth()),
    },
    needed=frozenset({"label", "boot_id", "mode", "unit", "tsc"}),
)
# Needed to convert ticks to time.
_USED: dict[str, Kind] = {"khz": Number(1, _LARGEST_KHZ), "quantum": _QUANTUM}
_TIMED = Object({"tsc": Object(_USED, frozenset(_USED))}, frozenset({"tsc"}))

_PAIR = Either((Whole(-LARGEST_INTEGER, LARGEST_INTEGER), _ANY))
_PAIRING = Object(
    {
        "experiment": _OPTIONAL,
        "pair": _PAIR,
        "pairs": ListOf(Tuple((_ORDER, _ORDER, _PAIR)), 1 << 16),
        "looks": ListOf(Whole(1, MOST_BOOTS), MOST_LOOKS, 1),
    }
)
_NUMBER = Maybe(Whole(0, MOST_BOOTS))
_EXPERIMENT = Maybe(Object({"identity": _OPTIONAL}))
_LAB = Object({"experiment": _EXPERIMENT, "boot": _NUMBER, "round": _NUMBER})
_UNRECORDED = Object(
    {"benchmark": _ANY, "arguments": _LONG, "orders": ListOf(_ORDER, MAX_RUNS), "reason": _LONG},
    needed=frozenset({"benchmark", "arguments", "orders", "reason"}),
)
_SOAK = Object(
    {
        "seconds": Whole(1, MOST_SOAK_SECONDS),
        "segment_s": Whole(1, MOST_SECONDS),
        "limit_ns": Maybe(Whole(1, LARGEST_INTEGER)),
        "stop_above": Truth(),
    },
    needed=frozenset({"seconds"}),
)
_RUN_FIELDS: dict[str, Kind] = {
    "schema": Whole(1, LARGEST_INTEGER),
    "klat_version": _OPTIONAL,
    "command": ListOf(_LONG, 1 << 16),
    "created": _OPTIONAL,
    "label": Text(),
    "seed": Whole(0, LARGEST_INTEGER),
    "boot_id": Text(64),
    "plan_sha256": _HASH,
    "load": Maybe(_LONG),
    "profile": _OPTIONAL,
    "soak": Maybe(_SOAK),
    "setup": Maybe(_LONG),  # setup, prefix and restore: only in sessions of klat ab
    "prefix": Maybe(_LONG),
    "restore": Maybe(_LONG),
    "pause_ms": Whole(0, MOST_PAUSE_MS),
    "time_limit_s": Whole(1, MOST_SECONDS),
    "runner": Whole(1, _LARGEST_PID),
    "resumed": ListOf(_ANY, 1 << 16),
    # Key and name of a condition, its value when the session began, and a later one.
    "changed": ListOf(Tuple((_ANY, _ANY, _LONG, _LONG)), 1 << 12),
    "first": Truth(),
    "partner": _OPTIONAL,
    "options": Maybe(ListOf(_LONG, 1 << 16)),
    # Earlier versions wrote the first and the last order only.
    "turns": Maybe(ListOf(Tuple((_ORDER, _ORDER, _ORDER), optional=1), MAX_RUNS)),
    "pairing": Maybe(_PAIRING),
    "under_test": Maybe(Object({"experiment": _OPTIONAL, "append": Maybe(_LONG)})),
    "lab": Maybe(_LAB),
    "unrecorded": Maybe(ListOf(_UNRECORDED, MAX_RUNS)),
}
_RUN = Object(_RUN_FIELDS)
# The fields that are needed to resume a session.
_RESUMABLE = Object(
    _RUN_FIELDS,
    needed=frozenset(
        "schema label seed boot_id plan_sha256 pause_ms time_limit_s runner resumed".split()
    ),
)
_MACHINE = Object(
    {
        "qemu": _OPTIONAL,
        "stopped_clock": Maybe(Truth()),
        "seconds": Maybe(Number(0, MOST_SECONDS)),
        "seconds_until_ready": Maybe(Number(0, MOST_SECONDS)),
        "kernel": Maybe(
            Object({"initramfs_sha256": _HASH, "started_as": _ANY, "vmlinux_sha256": Maybe(_HASH)})
        ),
    }
)


def read_session_json(path: Path) -> dict[str, Any]:
    """session.json of a session. SessionError if it cannot be read."""
    file = path / SESSION_FILE
    try:
        info: dict[str, Any] = read_json(file, Object(), _LARGEST_SESSION)
    except FileNotFoundError:
        name = printable(str(path))
        raise SessionError(f"{name}: has no {SESSION_FILE}, so it is not a klat session") from None
    _check_schema(file, info.get("schema"))
    checked(file, _SESSION, info)
    if info["unit"] == "ticks" and info["mode"] in TIMED_MODES:
        checked(file, _TIMED, info)
    return info


def _check_schema(file: Path, schema: object) -> None:
    where = printable(str(file))
    if type(schema) is not int:
        raise SessionError(f"{where}: has no schema number, so klat cannot read it safely")
    if schema > SCHEMA:
        raise SessionError(
            f"{where}: has schema {str(schema)[:20]} and this klat reads {SCHEMA}; use a newer klat"
        )
    if schema != SCHEMA:
        raise SessionError(
            f"{where}: has schema {str(schema)[:20]}, which no klat wrote; it was edited"
        )


def read_run_json(path: Path) -> dict[str, Any]:
    """run.json of a session; empty if it is missing. SessionError if it cannot be read."""
    try:
        facts: dict[str, Any] = read_json(path / FACTS, _RUN, LARGEST_RUN)
    except FileNotFoundError:
        return {}
    return facts


def parse_resumable(file: Path, data: bytes) -> dict[str, Any]:
    """run.json of a session that can be resumed. SessionError if a field for this is missing."""
    facts: dict[str, Any] = parse_json(file, data, Object())
    if facts.get("schema") != SCHEMA:
        where = printable(str(file))
        raise SessionError(
            f"{where}: its schema is not {SCHEMA}, the only one that this klat resumes"
        )
    if facts.get("soak"):
        where = printable(str(file))
        raise SessionError(f"{where}: is of a soak, which cannot be resumed; start a new soak")
    checked(file, _RESUMABLE, facts)
    return facts


def read_machine_json(path: Path) -> dict[str, Any]:
    """The lab's record of the guest's machine; empty outside the lab. SessionError if it cannot be
    read."""
    try:
        with open_below(file := path / MACHINE_FILE) as opened:
            facts: dict[str, Any] = parse_json(file, read_open(opened, file, LARGEST_RUN), _MACHINE)
    except FileNotFoundError:
        return {}
    return facts


@dataclass(frozen=True)
class Unrecorded:
    """Planned runs of one program with the same arguments, which failed and left no record."""

    benchmark: str
    arguments: str
    orders: tuple[int, ...]  # places in the plan
    reason: str

    def sentence(self) -> str:
        program = f"{self.benchmark} {self.arguments}".strip()
        runs = f"{len(self.orders)} run{'s' if len(self.orders) > 1 else ''}"
        return printable(f"{program}: {runs} left no record: {self.reason}")


def failures(facts_by_session: Mapping[Path, dict[str, Any]]) -> list[str]:
    """A sentence for each program whose runs left no record, from run.json of the sessions."""
    by_reason: dict[tuple[str, str, str], list[tuple[Path, Unrecorded]]] = {}
    for session, facts in facts_by_session.items():
        for left in _unrecorded(facts):
            by_reason.setdefault((left.benchmark, left.arguments, left.reason), []).append(
                (session, left)
            )
    lines = []
    for sessions_and_runs in by_reason.values():
        first, left = sessions_and_runs[0]
        orders = tuple(order for _, other in sessions_and_runs for order in other.orders)
        others = len(sessions_and_runs) - 1
        where = f" and {others} other session{'s' if others > 1 else ''}" if others else ""
        lines.append(f"{printable(str(first))}{where}: {replace(left, orders=orders).sentence()}")
    return lines


def emulator(session: Path) -> str:
    """`QEMU 7.2.22`; empty where no emulator is recorded."""
    text = read_machine_json(session).get("qemu")
    return printable(f"QEMU {text.partition(' ')[0]}") if text else ""


def boot_seconds(sessions: Iterable[Path]) -> float | None:
    """The median time from the start of a guest to its first run; None outside the lab."""
    recorded = [read_machine_json(session).get("seconds_until_ready") for session in sessions]
    known = [seconds for seconds in recorded if seconds is not None]
    return median(known) if known else None


def seconds_of_runs(session: Path) -> float | None:
    """The host's time from a guest's first run to the guest's end; None if it is not recorded."""
    machine = read_machine_json(session)
    whole, ready = machine.get("seconds"), machine.get("seconds_until_ready")
    return None if whole is None or ready is None else whole - ready


def unrecorded(session: Path) -> list[Unrecorded]:
    """The runs without a record that run.json names."""
    return _unrecorded(read_run_json(session))


def _unrecorded(facts: Mapping[str, Any]) -> list[Unrecorded]:
    return [
        Unrecorded(entry["benchmark"], entry["arguments"], tuple(entry["orders"]), entry["reason"])
        for entry in facts.get("unrecorded") or ()
    ]
