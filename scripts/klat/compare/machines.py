"""Matches the sessions of two sides by the machine that they were recorded on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from klat.compare.comparison import LeftOutMachine
from klat.compare.conditions import RECORDED
from klat.compare.dataset import Dataset
from klat.compare.sources import Source
from klat.record.session import printable

_MACHINE = RECORDED["machine"]


@dataclass(frozen=True)
class MachinePair:
    """The sessions of both sides on one machine. `machine` is its id. If the sides are not split by machine,
    it is empty, and this has all sessions."""

    machine: str
    base: Dataset
    new: Dataset


def match_machines(
    base: Dataset, new: Dataset, allow: Sequence[str]
) -> tuple[list[MachinePair], list[LeftOutMachine]]:
    """The machines with both sides, in the order of BASE, and those that are left out.

    In three cases the sides are not split:

    - all sessions are of one machine;
    - no machine has both sides;
    - the user allows machines to differ.
    """
    sides = [_by_machine(side) for side in (base, new)]
    both = [machine for machine in sides[0] if machine and machine in sides[1]]
    if not both or len({*sides[0], *sides[1]}) < 2 or "machine" in allow:
        return [MachinePair("", base, new)], []
    pairs = [
        MachinePair(machine, *(_part(s, h[machine]) for s, h in zip((base, new), sides)))
        for machine in both
    ]
    path = printable(str(new.path))
    return pairs, [replace(left, new_path=path) for left in _left_out(*sides)]


def _by_machine(side: Dataset) -> dict[str, list[Source]]:
    """The sessions of each machine id. Those without one have an empty key."""
    by_machine: dict[str, list[Source]] = {}
    for source in side.sources:
        by_machine.setdefault(str(source.session.info.get(_MACHINE) or ""), []).append(source)
    return by_machine


def _part(side: Dataset, sources: list[Source]) -> Dataset:
    return replace(side, sources=sources, problems=[])


def _left_out(
    base: dict[str, list[Source]], new: dict[str, list[Source]]
) -> Iterator[LeftOutMachine]:
    for name, of_side, other in (("BASE", base, new), ("NEW", new, base)):
        for machine, sources in of_side.items():
            if not machine:
                yield LeftOutMachine("", f"{len(sources)} of {name} without a machine id")
            elif machine not in other:
                yield LeftOutMachine(machine, f"only in {name}")
