"""How a machine differs from the environment that a session recorded when it began."""

from __future__ import annotations

from pathlib import Path

from klat.compare.environment_conditions import NET, Alike, Files, Rule, Values
from klat.compare.environment_conditions import meaning, of_files, rule_of
from klat.record.environment import captured, short
from klat.record.session import printable

_ONLINE = "sys/devices/system/cpu/online"


def changed_conditions(environment: Path, machine: Path) -> list[str]:
    """A sentence for each condition that differs between the session and this machine. Skips the network, whose
    namespace may be another one, and vulnerabilities, whose text changes when a module or a guest starts.
    """
    recorded = _conditions(captured(environment))
    current = _conditions(captured(environment, machine))
    alike = Alike.of([recorded, current])
    return [
        f"{name} was {printable(short(recorded[key, name]))} and is {printable(short(current[key, name]))} now"
        for key, name in recorded.keys() & current.keys()
        if rule_of(key) is not Rule.NEVER
        and key.partition(".")[0] not in (NET, "vulnerability")
        and meaning(key, recorded[key, name], recorded, alike)
        != meaning(key, current[key, name], current, alike)
    ]


def _conditions(files: Files) -> Values:
    """Also which CPUs are online. Between sessions, compare takes their number from session.json."""
    online = {("cpus-online", _ONLINE): value for value in files.get(_ONLINE, {}).values()}
    return of_files(files) | online
