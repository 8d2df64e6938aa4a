"""How a machine differs from the environment that a session recorded when it began."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from klat.base.errors import KlatError, SessionError
from klat.compare.condition_meanings import Alike, meaning
from klat.compare.conditions import LOAD_PAUSE, OTHER_SESSIONS
from klat.compare.environment_conditions import NET, Files, Rule, Values, of_files, rule_of
from klat.record import session_directory
from klat.record.environment import captured, short
from klat.record.session import printable
from klat.running.loads import Load

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
def noting_changes(
    session: Path, facts: dict[str, Any], loads: Sequence[Load] = ()
) -> Iterator[None]:
    """At the end, adds to run.json what has changed on the machine since the session began: its runs are then not all
    of one setting. `facts` is run.json. With a prefix, programs can see another machine than klat does, so klat does not
    read the machine. Also notes if another klat session ran beside `loads`, because it adds to the load, and if a load did
    nothing for a time.
    """
    for load in loads:
        load.beside_others = False
    try:
        yield
    except BaseException:
        with suppress(KlatError, SessionError, OSError):  # the first error is the one to report
            _note_all(session, facts, loads)
        raise
    _note_all(session, facts, loads)


def _note_all(session: Path, facts: dict[str, Any], loads: Sequence[Load]) -> None:
    new_changes = [] if facts.get("prefix") else changes(session / "environment", Path("/"))
    if any(load.beside_others for load in loads):
        new_changes.append(
            Change(OTHER_SESSIONS, "the load", "as named", "with another klat session beside it")
        )
    if any(load.activity.paused for load in loads):
        new_changes.append(Change(LOAD_PAUSE, "the load", "at work for a time", "idle for a time"))
    _note(new_changes, session, facts)


def _note(new_changes: Sequence[Change], session: Path, facts: dict[str, Any]) -> None:
    changed = {(key, name): [was, now] for key, name, was, now in facts.get("changed", [])}
    for change in new_changes:
        changed.setdefault((change.key, change.name), [change.was, change.now])
    if changed and not session_directory.is_empty(session):  # the disk may be full
        facts["changed"] = [[*place, *values] for place, values in changed.items()]
        session_directory.write_facts(session, facts)


def _conditions(files: Files) -> Values:
    """Also which CPUs are online. Of these, compare takes only the number, from session.json."""
    online = {("cpus-online", _ONLINE): value for value in files.get(_ONLINE, {}).values()}
    return of_files(files) | online
