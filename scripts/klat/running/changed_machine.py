"""How a machine differs from the environment that a session recorded when it began."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from klat.compare.condition_meanings import Alike, meaning
from klat.compare.environment_conditions import NET, Files, Rule, Values, of_files, rule_of
from klat.record import session_directory
from klat.record.environment import captured, short
from klat.record.session import printable

_ONLINE = "sys/devices/system/cpu/online"


class Change(NamedTuple):
    """A condition of a session whose value has changed since."""

    key: str
    name: str
    was: str
    now: str

    def sentence(self) -> str:
        was, now = (printable(short(value)) for value in (self.was, self.now))
        return f"{self.name} was {was} and is {now} now"


def changes(environment: Path, machine: Path) -> list[Change]:
    """The conditions that differ between the session and this machine. Skips the network, whose namespace may be
    another one, and vulnerabilities, whose text changes when a module or a guest starts.
    """
    recorded = _conditions(captured(environment))
    current = _conditions(captured(environment, machine))
    alike = Alike.of([recorded, current])
    return [
        Change(key, name, recorded[key, name], current[key, name])
        for key, name in sorted(recorded.keys() & current.keys())
        if rule_of(key) is not Rule.NEVER
        and key.partition(".")[0] not in (NET, "vulnerability")
        and meaning(key, recorded[key, name], recorded, alike)
        != meaning(key, current[key, name], current, alike)
    ]


@contextmanager
def noting_changes(session: Path, facts: dict[str, Any]) -> Iterator[None]:
    """At the end, adds to run.json what has changed on the machine since the session began: its runs are then not all
    of one setting. `facts` is run.json. Adds nothing if there is a prefix, because programs can then see another
    machine than klat does."""
    try:
        yield
    finally:
        if not facts.get("prefix"):
            _note_changes(session, facts)


def _note_changes(session: Path, facts: dict[str, Any]) -> None:
    changed = {(key, name): [was, now] for key, name, was, now in facts.get("changed", [])}
    for change in changes(session / "environment", Path("/")):
        changed.setdefault((change.key, change.name), [change.was, change.now])
    if changed:
        facts["changed"] = [[*place, *values] for place, values in changed.items()]
        session_directory.write_facts(session, facts)


def _conditions(files: Files) -> Values:
    """Also which CPUs are online. Of these, compare takes only the number, from session.json."""
    online = {("cpus-online", _ONLINE): value for value in files.get(_ONLINE, {}).values()}
    return of_files(files) | online
