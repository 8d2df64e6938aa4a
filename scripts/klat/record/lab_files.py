"""Reads what klat lab adds to a session."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from klat.record.json_files import read_machine_json, read_run_json
from klat.record.session import printable


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


def failures(sessions: Iterable[Path]) -> list[str]:
    """A sentence for each program whose runs in these sessions left no record."""
    found: dict[tuple[str, str, str], list[tuple[Path, Unrecorded]]] = {}
    for session in sessions:
        for left in unrecorded(session):
            found.setdefault((left.benchmark, left.arguments, left.reason), []).append(
                (session, left)
            )
    lines = []
    for held in found.values():
        first, left = held[0]
        orders = tuple(order for _, one in held for order in one.orders)
        others = len(held) - 1
        where = f" and {others} other session{'s' if others > 1 else ''}" if others else ""
        lines.append(f"{printable(str(first))}{where}: {replace(left, orders=orders).sentence()}")
    return lines


def emulator(session: Path) -> str:
    """`QEMU 7.2.22`; empty where no emulator is recorded."""
    text = read_machine_json(session).get("qemu")
    return printable(f"QEMU {text.partition(' ')[0]}") if text else ""


def boot_seconds(sessions: Iterable[Path]) -> float | None:
    """The median time from the start of a guest to its first run; None outside the lab."""
    found = [read_machine_json(session).get("seconds_until_ready") for session in sessions]
    known = [seconds for seconds in found if seconds is not None]
    return median(known) if known else None


def seconds_of_runs(session: Path) -> float | None:
    """The host's time from a guest's first run to the guest's end; None if it is not recorded."""
    machine = read_machine_json(session)
    whole, ready = machine.get("seconds"), machine.get("seconds_until_ready")
    return None if whole is None or ready is None else whole - ready


def unrecorded(session: Path) -> list[Unrecorded]:
    """The runs without a record that run.json names."""
    return [
        Unrecorded(one["benchmark"], one["arguments"], tuple(one["orders"]), one["reason"])
        for one in read_run_json(session).get("unrecorded") or ()
    ]
