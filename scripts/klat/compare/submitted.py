"""Sessions for the table of machines (docs/machines.md), and the files of klat submit that hold them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from klat.base.bounded_read import open_to_read, read_regular
from klat.base.errors import KlatError, SessionError, printable
from klat.compare.dataset import Dataset, read_datasets
from klat.compare.settings import Setting
from klat.compare.runs import Runs
from klat.record import received
from klat.record.json_files import LARGEST_PLAN, TIMED_MODES, read_run_json
from klat.record.plan_csv import from_csv
from klat.record.session import Session, find_sessions, read_session
from klat.record.session_directory import PLAN
from klat.record.verification import failures

SUMS = "SHA256SUMS"
# The metric of each core program in the table.
METRICS = {
    "pipes": "round_trip",
    "cv": "handoff",
    "tlbflush": "initiator",
    "timer": "lateness",
    "network": "send_to_read",
}
_CURE = "measure with 'sudo ./klat run --label NAME'"
_COMMANDS = ("load", "profile", "setup", "prefix", "restore", "options", "soak")
_LARGEST_SUMS = 1 << 24


def submittable(path: Path) -> Dataset:
    """The sessions below the path, as one side of klat compare. KlatError if a session is not of a real machine, was not
    measured with the usual options, or is damaged, and if no run of a metric in the table counts.
    """
    for session in map(read_session, find_sessions(path)):
        _check(session)
    labels, problems = read_datasets([path])
    if len(labels) > 1:
        names = ", ".join(dict.fromkeys(label.full_name for label in labels))
        raise KlatError(
            f"{path}: holds sessions that klat compare does not combine: {names}; name one label or session"
        )
    if not any(measurement(labels[0], name) for name in METRICS):
        reasons = [reason for s in labels[0].settings for _, reason, _ in s.grouped_reasons()]
        why = "; ".join(dict.fromkeys([*reasons, *problems])) or "none was recorded"
        raise KlatError(f"{path}: no run of a core program counts: {why}")
    return labels[0]


def _check(session: Session) -> None:
    where = printable(str(session.path))
    facts = read_run_json(session.path)
    if session.mode not in TIMED_MODES:
        raise KlatError(
            f"{where}: is in mode {session.mode}, so it has no times of a machine; {_CURE}"
        )
    if facts.get("lab"):
        raise KlatError(f"{where}: is of a guest that klat lab booted, not of a machine; {_CURE}")
    try:
        plan = from_csv(read_regular(session.path / PLAN, LARGEST_PLAN).decode())
    except (FileNotFoundError, UnicodeError):
        raise KlatError(f"{where}: has no {PLAN}, so klat run did not begin it; {_CURE}") from None
    if any(run.arguments for run in plan) or any(facts.get(name) for name in _COMMANDS):
        raise KlatError(
            f"{where}: was measured with options, a profile, a load or commands, so its figures are not"
            f" comparable with those of other machines; {_CURE}"
        )
    if faults := failures(session)[1]:
        raise KlatError(f"{faults[0]}; klat summary --verify lists all; measure again")


def measurement(label: Dataset, benchmark: str) -> tuple[Setting, Runs] | None:
    """The runs of the program's metric in the table. If the runs have different conditions: those of the conditions with
    the most runs. None if no run counts."""
    name = METRICS[benchmark]
    candidates = [
        (setting, setting.measurements[name])
        for setting in label.settings
        if setting.benchmark == benchmark and name in setting.measurements
    ]
    most = max(candidates, key=lambda pair: len(pair[1].runs), default=None)
    return most if most and most[1].runs else None


def read(file: Path, into: Path) -> Dataset:
    """The sessions in a file of klat submit, which is not trusted. Unpacks it into an empty directory. Raises
    KlatError."""
    try:
        received.unpack_file(file, into)
        _check_sums(into)
        return submittable(into)
    except received.Refused as error:
        raise KlatError(f"{file} {error}") from None
    except (KlatError, SessionError) as error:
        raise KlatError(f"{file}: {str(error).removeprefix(f'{into}/')}") from None
    except OSError as error:
        raise KlatError(f"{error.filename or file}: {error.strerror or error}") from None


def _check_sums(directory: Path) -> None:
    try:
        listed = read_regular(directory / SUMS, _LARGEST_SUMS).decode(errors="replace")
    except FileNotFoundError:
        raise KlatError(f"has no {SUMS}, so klat submit did not write it") from None
    if listed != "".join(sums(directory)):
        raise KlatError(f"its files do not match its {SUMS}: it was edited or damaged")


def sums(directory: Path) -> Iterator[str]:
    """The lines that sha256sum(1) checks."""
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        name = path.relative_to(directory)
        if str(name) != SUMS:
            with BufferedReader(open_to_read(path)) as file:
                yield f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {name}\n"
