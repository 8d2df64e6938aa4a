"""Finds the machine of each session. The machine id names it, except in containers with another id, and on clones of
one image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from klat.compare.conditions import RECORDED
from klat.compare.environment_conditions import GUEST
from klat.compare.sources import Source
from klat.record.session import printable

_ID = RECORDED["machine"]
_WITHOUT_RANDOMNESS = ("counted", "emulated")  # guests that begin alike can have one boot id


def unify_machine_ids(sides: Iterable[Sequence[Source]]) -> tuple[list[list[Source]], list[str]]:
    """The sides, with one machine id for all sessions of a boot, and warnings: on ids that several machines have, and
    on boots with several ids. Ids that share a boot are one machine in all boots."""
    of_sides = [list(side) for side in sides]
    sources = [source for side in of_sides for source in side if _id_of(source)]
    machine_of = _machines(sources)
    problems = _overlap_warnings(sources, machine_of)
    if renamed := {m for m, machine in machine_of.items() if m != machine}:
        machines = len(set(machine_of.values()))
        problems.append(
            f"sessions of one boot have several machine ids, as in containers: {len(machine_of)} ids count as"
            f" {machines} machine{'s' if machines > 1 else ''}"
        )
        of_sides = [
            [_renamed(s, machine_of[_id_of(s)]) if _id_of(s) in renamed else s for s in side]
            for side in of_sides
        ]
    return of_sides, problems


def _id_of(source: Source) -> str:
    """Empty if it was not recorded, or in a mode whose guests can have the same id."""
    return (source.session.mode not in _WITHOUT_RANDOMNESS and source.session.info.get(_ID)) or ""


def _machines(sources: Iterable[Source]) -> dict[str, str]:
    """For each machine id, the first id of the same machine."""
    machine_of: dict[str, str] = {}
    first_of_boot: dict[str, str] = {}
    for source in sources:
        machine = _id_of(source)
        former = machine_of.setdefault(machine, machine)
        first = machine_of[first_of_boot.setdefault(source.session.boot_id, machine)]
        machine_of |= {m: first for m, of in machine_of.items() if of == former}
    return machine_of


def _overlap_warnings(sources: Iterable[Source], machine_of: dict[str, str]) -> list[str]:
    """A warning for each machine id whose boots overlap in time. One machine cannot run two boots at once, but a clock
    that was set looks the same, and klat lab sets the clocks of its guests."""
    latest: dict[str, tuple[int, str]] = {}
    overlapping: dict[str, tuple[str, str]] = {}
    for source in sorted(
        (s for s in sources if s.is_dated and GUEST not in s.values), key=lambda s: s.span
    ):
        machine, boot = machine_of[_id_of(source)], source.session.boot_id
        start, end = source.span
        busy_until, other = latest.get(machine, (0, boot))
        if start < busy_until and boot != other:
            overlapping.setdefault(machine, (other, boot))
        latest[machine] = max((busy_until, other), (end, boot))
    return [
        f"boots {printable(a)} and {printable(b)} of machine {printable(machine)} overlap in time: several"
        " machines have this id (clones of one image), or the clock was set. klat counts one machine; give each"
        " clone a machine id of its own"
        for machine, (a, b) in overlapping.items()
    ]


def _renamed(source: Source, machine: str) -> Source:
    session = replace(source.session, info=source.session.info | {_ID: machine})
    return replace(source, session=session, values=source.values | {("machine", _ID): machine})
