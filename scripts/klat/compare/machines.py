"""Which machine a session is of. Its machine id says so, except in containers that have ids of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from klat.compare.conditions import RECORDED
from klat.compare.dataset import Dataset
from klat.compare.sources import Source

_ID = RECORDED["machine"]
_WITHOUT_RANDOMNESS = ("counted", "emulated")  # guests that begin alike can have one boot id


def one_machine_a_boot(sides: Sequence[Dataset]) -> tuple[list[Dataset], list[str]]:
    """The sides with one machine id for all sessions of a boot, and a sentence if that changed an id. Two ids that
    share a boot are one machine in all boots."""
    sources = [source for side in sides for source in side.sources]
    machine_of = _machines(sources)
    renamed = {m for m, machine in machine_of.items() if m != machine}
    if not renamed:
        return list(sides), []
    machines = len(set(machine_of.values()))
    problem = (
        f"sessions of one boot have several machine ids, as in containers: {len(machine_of)} ids count as"
        f" {machines} machine{'s' if machines > 1 else ''}"
    )
    return [
        replace(side, sources=[_of_machine(s, machine_of) for s in side.sources]) for side in sides
    ], [problem]


def _machines(sources: Iterable[Source]) -> dict[str, str]:
    """For each machine id, the first id of the same machine."""
    machine_of: dict[str, str] = {}
    first_of_boot: dict[str, str] = {}
    for source in sources:
        machine = source.session.info.get(_ID)
        if not machine or source.session.mode in _WITHOUT_RANDOMNESS:
            continue
        former = machine_of.setdefault(machine, machine)
        first = machine_of[first_of_boot.setdefault(source.session.boot_id, machine)]
        machine_of |= {m: first for m, of in machine_of.items() if of == former}
    return machine_of


def _of_machine(source: Source, machine_of: dict[str, str]) -> Source:
    recorded = source.session.info.get(_ID)
    machine = machine_of.get(recorded) if recorded else None
    if not machine or machine == recorded:
        return source
    session = replace(source.session, info=source.session.info | {_ID: machine})
    return replace(source, session=session, values=source.values | {("machine", _ID): machine})
