"""Makes a session of what a guest delivered: checks that it is whole, and puts beside it what only the
host knows."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klat import directory, plan, recording
from klat.errors import KlatError
from klat.lab import guest
from klat.lab.experiment import FAILED, IDLE, Experiment, PlannedBoot
from klat.lab.failures import BootFailure, ProgramsFailed, ResultsIncomplete
from klat.lab.guest import Delivery
from klat.recording import Settings
from klat.session import SessionError, read_session

HOST_FILES = "lab"  # the directory of a session with what the host adds
_PROGRAMS_LOG = "programs.log"
_RESULTS = "results.tar"


@dataclass(frozen=True)
class Evidence:
    """What the host has of one boot, for the record: files by name, and facts."""

    files: Mapping[str, bytes]
    machine: Mapping[str, Any]
    command: Sequence[str]  # of klat


def store(
    output: Path, experiment: Experiment, boot: PlannedBoot, delivery: Delivery, evidence: Evidence
) -> Path:
    """The new session. ProgramsFailed or ResultsIncomplete where what was delivered cannot be
    believed."""
    parent = output / boot.label
    draft = _draft(parent, boot)
    try:
        _add_files(draft, evidence)
        if delivery.tar:
            guest.unpack(delivery.tar, draft)
        _add_facts(draft, experiment, boot, evidence)
        _check(draft, experiment.plan(boot), delivery.state)
        session = directory.create(output, boot.label)
        draft.rename(session)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return session


def keep_failed(
    output: Path,
    experiment: Experiment,
    boot: PlannedBoot,
    delivery: Delivery | None,
    evidence: Evidence,
    failure: BootFailure,
) -> Path:
    """Where it can be looked at and is no session: below FAILED, with run.json telling of what it
    died. What cannot be unpacked is kept as it came."""
    parent = output / boot.label / FAILED
    directory.make_directories(parent)
    draft = _draft(parent, boot)
    try:
        _add_files(draft, evidence)
        if delivery and delivery.tar:
            try:
                guest.unpack(delivery.tar, draft)
            except ResultsIncomplete:
                draft = _draft(parent, boot)
                _add_files(draft, evidence)
                _write(draft / HOST_FILES / _RESULTS, delivery.tar)
        facts = {"failure": failure.kind, "reason": str(failure)}
        _add_facts(draft, experiment, boot, evidence, facts)
        final = directory.create(output / boot.label, FAILED)
        draft.rename(final)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return final


def _draft(parent: Path, boot: PlannedBoot) -> Path:
    directory.make_directories(parent)
    path = parent / f".boot-{boot.number}-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    directory.give(path)
    return path


def _add_files(draft: Path, evidence: Evidence) -> None:
    """What is the host's to write, before anything of the guest's, which can then not be in its
    place."""
    (draft / HOST_FILES).mkdir()
    directory.give(draft / HOST_FILES)
    machine = json.dumps(evidence.machine, indent=2).encode() + b"\n"
    for name, data in {**evidence.files, "machine.json": machine}.items():
        _write(draft / HOST_FILES / name, data)
    for name in (directory.PLAN, directory.FACTS):
        _write(draft / name, b"")


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    directory.give(path)


def _add_facts(
    draft: Path,
    experiment: Experiment,
    boot: PlannedBoot,
    evidence: Evidence,
    more: Mapping[str, Any] | None = None,
) -> None:
    load = None if boot.condition.load == IDLE else boot.condition.load
    settings = Settings(boot.label, boot.seed, load=load, time_limit_s=experiment.time_limit_s)
    facts = {
        "boot_id": _boot_id(draft),
        "lab": {
            "experiment": experiment.facts(),
            "boot": boot.number,
            "round": boot.round,
            **(more or {}),
        },
        **pairing(experiment, boot),
        **under_test(experiment, boot),
    }
    recording.write(draft, settings, experiment.plan(boot), evidence.command, facts)


def check_whole(session: Path, schedule: Sequence[plan.PlannedRun]) -> None:
    """KlatError where a session that was whole when it was stored is so no more."""
    why = ""
    try:
        record = read_session(session)
        missing = len({run.order for run in schedule} - record.completed_orders())
        if record.problems:
            why = record.problems[0]
        elif missing:
            why = f"{missing} of {len(schedule)} runs are missing"
    except SessionError as error:
        why = str(error)
    if why:
        raise KlatError(f"{session} was damaged since: {why}; remove it, and it is booted again")


def made_of(session: Path) -> tuple[str, str]:
    """The hash of what all guests of its kernel hold, and how that was started, as recorded; empty
    where that cannot be read."""
    try:
        kernel = json.loads((session / HOST_FILES / "machine.json").read_bytes())["kernel"]
        return str(kernel["initramfs_sha256"]), str(kernel["started_as"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "", ""


def pairing(experiment: Experiment, boot: PlannedBoot) -> dict[str, Any]:
    """By KVM, boots of one round were taken beside each other on one machine. Instructions are the
    same whenever they are counted."""
    if experiment.mode != "kvm":
        return {}
    return {"pairing": {"experiment": experiment.identity, "pair": str(boot.round)}}


def under_test(experiment: Experiment, boot: PlannedBoot) -> dict[str, Any]:
    """What the kernels of the experiment differ in on purpose, besides being what they are."""
    if not any(experiment.appends):
        return {}
    append = experiment.append_alone(boot.condition)
    return {"under_test": {"experiment": experiment.identity, "append": append}}


def _boot_id(session: Path) -> str:
    """The guest's; the host's own has nothing to do with the runs."""
    try:
        return str(json.loads((session / "session.json").read_bytes())["boot_id"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""


def _check(session: Path, schedule: Sequence[plan.PlannedRun], state: str) -> None:
    said = _said(session)
    try:
        record = read_session(session) if (session / "session.json").exists() else None
    except (SessionError, KlatError) as error:
        raise ResultsIncomplete(f"the results cannot be read: {error}") from None
    held = record.completed_orders() if record else set()
    if state == "programs":
        raise ProgramsFailed(
            f"the programs failed after {len(held)} of {len(schedule)} runs: {said or 'no message'}"
        )
    if record and record.problems:
        raise ResultsIncomplete(f"the results are damaged: {record.problems[0]}")
    missing = [run for run in schedule if run.order not in held]
    if missing and said:
        first = missing[0]
        raise ProgramsFailed(
            f"{len(missing)} of {len(schedule)} runs left no record, the first of them"
            f" {first.benchmark} (run {first.order}): {said}"
        )
    if missing:
        raise ResultsIncomplete(f"{len(missing)} of {len(schedule)} runs are missing")


def _said(session: Path) -> str:
    """The last message of a program that failed."""
    try:
        lines = (session / HOST_FILES / _PROGRAMS_LOG).read_text(errors="replace").splitlines()
    except OSError:
        return ""
    failed = [line.split(" ", 2)[2] for line in lines if line.count(" ") >= 2 and _failed(line)]
    return failed[-1] if failed else ""


def _failed(line: str) -> bool:
    return line.split(" ", 2)[1] not in ("0", "3", "4")
