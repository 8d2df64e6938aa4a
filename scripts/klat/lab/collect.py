"""Makes a session from the results of a guest: checks that they are complete, and adds what only
the host knows."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klat.base import files
from klat.base.errors import KlatError, printable
from klat.base.grouping import grouped
from klat.lab import guest
from klat.lab.experiment import Experiment, PlannedBoot
from klat.lab.guest import BootFailure, Delivery, ProgramsFailed, ResultsIncomplete
from klat.record import json_files, plan_csv, session_directory
from klat.record.json_files import read_machine_json, read_session_json
from klat.record.session import Row, SessionError, read_session
from klat.record.session_directory import SET_ASIDE
from klat.running import recording
from klat.running.loads import IDLE
from klat.running.recording import Settings

HOST_FILES = "lab"  # the directory of a session with what the host adds
_PROGRAMS_LOG = "programs.log"
_RESULTS = "results.tar"
_MESSAGE = 1000  # characters of a program's last words that are kept


@dataclass(frozen=True)
class Evidence:
    """What the host adds to the record of a boot: files by name, and the machine."""

    files: Mapping[str, bytes]
    machine: Mapping[str, Any]
    command: Sequence[str]  # of klat


def store(
    output: Path, experiment: Experiment, boot: PlannedBoot, delivery: Delivery, evidence: Evidence
) -> Path:
    """The new session. ProgramsFailed or ResultsIncomplete if the delivery is no valid record."""
    with _draft(output / boot.label) as draft:
        _add_files(draft, evidence)
        if delivery.tar:
            guest.unpack(delivery.tar, draft)
        schedule = experiment.plan(boot)
        left_out = _check(draft, schedule, delivery.state, boot.label)
        _add_facts(draft, experiment, boot, evidence, left_out=left_out)
        session = session_directory.create(output, boot.label)
        files.rename(draft, session)
    return session


def keep_failed(
    output: Path,
    experiment: Experiment,
    boot: PlannedBoot,
    delivery: Delivery | None,
    evidence: Evidence,
    failure: BootFailure,
) -> Path:
    """A directory below SET_ASIDE with the results of the boot. It is not a session. Its run.json
    holds the reason. Results that cannot be unpacked are kept as a tar."""
    with _draft(output / boot.label / SET_ASIDE) as draft:
        _add_files(draft, evidence)
        if delivery and delivery.tar:
            try:
                guest.unpack(delivery.tar, draft)
            except ResultsIncomplete:
                files.remove_tree(draft)
                _make(draft)
                _add_files(draft, evidence)
                files.create(draft / HOST_FILES / _RESULTS, delivery.tar)
        facts = {"failure": failure.kind, "reason": str(failure)}
        _add_facts(draft, experiment, boot, evidence, facts)
        final = session_directory.create(output / boot.label, SET_ASIDE)
        files.rename(draft, final)
    return final


@contextmanager
def _draft(parent: Path) -> Iterator[Path]:
    """A new directory that a rename turns into a session. Removes it after an error."""
    draft = parent / f".boot-{secrets.token_hex(8)}"
    _make(draft)
    try:
        yield draft
    except BaseException:
        files.remove_tree(draft)
        raise


def _make(draft: Path) -> None:
    with files.directory(draft.parent, make=True) as descriptor:
        files.make_directory(descriptor, draft.name, 0o755)


def _add_files(draft: Path, evidence: Evidence) -> None:
    """Write the host's files. They come first, so that no file of the guest can take their place."""
    files.make_directories(draft / HOST_FILES)
    machine = json.dumps(evidence.machine, indent=2).encode() + b"\n"
    for name, data in {**evidence.files, "machine.json": machine}.items():
        files.create(draft / HOST_FILES / name, data)
    for name in (session_directory.PLAN, session_directory.FACTS):
        files.create(draft / name, b"")


def _add_facts(
    draft: Path,
    experiment: Experiment,
    boot: PlannedBoot,
    evidence: Evidence,
    more: Mapping[str, Any] | None = None,
    left_out: Sequence[Mapping[str, Any]] = (),
) -> None:
    load = None if boot.condition.load == IDLE else boot.condition.load
    profile, limit_s = experiment.profile or None, experiment.time_limit_s
    settings = Settings(boot.label, boot.seed, load=load, profile=profile, time_limit_s=limit_s)
    planned = {"experiment": experiment.facts(), "boot": boot.number, "round": boot.round}
    facts: dict[str, Any] = {
        "boot_id": _boot_id(draft),
        "lab": planned | dict(more or {}),
        **pairing(experiment, boot),
        **under_test(experiment, boot),
        **({"unrecorded": left_out} if left_out else {}),
    }
    recording.write(draft, settings, experiment.plan(boot), evidence.command, facts)


def check_whole(session: Path, schedule: Sequence[plan_csv.PlannedRun]) -> None:
    """KlatError if a stored session is no longer complete."""
    why = ""
    try:
        record = read_session(session)
        known = {order for left in json_files.unrecorded(session) for order in left.orders}
        missing = len({run.order for run in schedule} - record.completed_orders() - known)
        if record.problems:
            why = record.problems[0]
        elif missing:
            why = f"{missing} of {len(schedule)} runs are missing"
        why = why or _cut_off(session, record.rows)
    except SessionError as error:
        why = str(error)
    if why:
        raise KlatError(f"{session} was damaged since: {why}; remove it, and klat boots it again")


def check_all(experiment: Experiment, sessions: Mapping[int, Path]) -> None:
    """check_whole() for the sessions of an experiment, by the number of the boot."""
    for boot in experiment.schedule():
        if boot.number in sessions:
            check_whole(sessions[boot.number], experiment.plan(boot))


def _cut_off(session: Path, rows: Iterable[Row]) -> str:
    """Which file of samples is too short for the rows; empty if none is."""
    ends: Counter[str] = Counter()
    for row in rows:
        if row.first_sample is not None and not row.soak:
            ends[row.benchmark] = max(ends[row.benchmark], row.first_sample + (row.n or 0))
    for benchmark, end in ends.items():
        file = session / "samples" / f"{benchmark}.u64"
        size = file.stat().st_size if file.is_file() else 0
        if size < 8 * end:
            return f"{file.name} has {size:,} bytes, not {8 * end:,}"
    return ""


def made_of(session: Path) -> tuple[str, str]:
    """The recorded hash of the guests' common files, and how the kernel was started; empty if it cannot be
    read."""
    try:
        kernel = read_machine_json(session).get("kernel") or {}
    except SessionError:
        return "", ""
    return kernel.get("initramfs_sha256", ""), kernel.get("started_as", "")


def clock_was_stopped(session: Path) -> bool:
    """Whether QEMU's time of day was stopped. False if it cannot be read."""
    try:
        return bool(read_machine_json(session).get("stopped_clock"))
    except SessionError:
        return False


def pairing(experiment: Experiment, boot: PlannedBoot) -> dict[str, Any]:
    """With KVM, the boots of one round are a pair: they ran one after the other on one machine. Counts of
    instructions do not depend on the time."""
    if experiment.mode != "kvm":
        return {}
    return {"pairing": {"experiment": experiment.identity, "pair": str(boot.round)}}


def under_test(experiment: Experiment, boot: PlannedBoot) -> dict[str, Any]:
    """The words on the command line of this kernel alone, which compare takes as under test."""
    if not any(experiment.appends) and not experiment.study:
        return {}
    append = experiment.append_alone(boot.condition)
    return {"under_test": {"experiment": experiment.study or experiment.identity, "append": append}}


def _boot_id(session: Path) -> str:
    """The boot id of the guest; empty if it is not recorded."""
    try:
        return str(read_session_json(session)["boot_id"])
    except SessionError:
        return ""


@guest.delivered()
def _check(
    session: Path, schedule: Sequence[plan_csv.PlannedRun], state: str, label: str
) -> list[Mapping[str, Any]]:
    """The entries of run.json for runs without a record. ProgramsFailed if the guest ended early or no run
    measured; ResultsIncomplete if a run is missing and no program failed."""
    said = _said(session)
    last = list(said.values())[-1] if said else ""
    try:
        record = read_session(session) if (session / "session.json").exists() else None
    except (SessionError, KlatError, OSError) as error:
        raise ResultsIncomplete(f"the results cannot be read: {error}") from None
    completed = record.completed_orders() if record else set()
    if state == "programs":
        raise ProgramsFailed(
            f"the programs failed after {len(completed)} of {len(schedule)} runs: {last or 'no message'}"
        )
    if record and record.problems:
        raise ResultsIncomplete(f"the results are damaged: {record.problems[0]}")
    if record and record.label != label:
        raise ResultsIncomplete(f"the results are of label {printable(record.label)}, not {label}")
    if said and not (record and any(row.status != "error" for row in record.rows)):
        raise ProgramsFailed(f"every run failed: {last}")
    return _unrecorded(schedule, completed, said)


def _unrecorded(
    schedule: Sequence[plan_csv.PlannedRun], completed: Collection[int], said: Mapping[int, str]
) -> list[Mapping[str, Any]]:
    """By benchmark and arguments: the runs without a record, and the last message of one that
    failed."""
    entries: list[Mapping[str, Any]] = []
    sets = grouped(schedule, lambda run: (run.benchmark, run.arguments))
    for (benchmark, arguments), runs in sets.items():
        missing = [run.order for run in runs if run.order not in completed]
        reasons = [said[run.order] for run in runs if run.order in said]
        if missing and not reasons:
            raise ResultsIncomplete(
                f"{len(missing)} of {len(schedule)} runs are missing, the first of them"
                f" {benchmark} (run {missing[0]})"
            )
        if missing:
            lost = {"benchmark": benchmark, "arguments": " ".join(arguments)}
            entries.append(lost | {"orders": missing, "reason": reasons[-1]})
    return entries


def _said(session: Path) -> dict[int, str]:
    """The last message of each run whose program failed, by the run's order."""
    try:
        lines = (session / HOST_FILES / _PROGRAMS_LOG).read_text(errors="replace").splitlines()
    except OSError:
        return {}
    messages = {}
    for line in lines:
        order, status, *message = line.split(" ", 2)
        if message and order.isdecimal() and status not in ("0", "3", "4"):
            messages[int(order)] = message[0][:_MESSAGE]
    return messages
