"""Completes a session: starts the programs of its plan, and counts how they ended.

The programs write the record. It is read before the first run if the session is resumed, and at the end to
report the runs.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from klat.base import files, owners, process, programs
from klat.base.errors import FAILED, INVALID, KlatError, MEASURED, SKIPPED, USAGE
from klat.base.process import Signals
from klat.running.changed_machine import changes
from klat.running.loads import Load
from klat.running.progress import say_messages, say_reasons
from klat.record import plan_csv, session_directory
from klat.record.environment import changed
from klat.record.evidence import other_work
from klat.record.plan_csv import PlannedRun
from klat.record.session import STATUSES, Session, printable, read_session
from klat.report.text.columns import wrapped

# After so many runs of one program that fail in the same way, the next would fail too.
_FAILURES_ALIKE = 3
_ROWS = "runs.csv"


@dataclass(frozen=True)
class Settings:
    """The settings of a session, which also hold when it is resumed. Commands: `setup` runs before each turn,
    `prefix` goes before each program, `restore` runs at the end. None where there is none."""

    label: str
    seed: int
    load: str | None = None
    profile: str | None = None
    pause_ms: int = 0
    time_limit_s: int = 120
    setup: str | None = None
    prefix: str | None = None
    restore: str | None = None

    @staticmethod
    def of(facts: Mapping[str, Any]) -> Settings:
        known = Settings.__dataclass_fields__
        return Settings(**{name: value for name, value in facts.items() if name in known})


@dataclass
class ProgramMessages:
    """What the programs wrote to standard error, with counts: of runs that failed, and of others."""

    warnings: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)


def write(
    session: Path,
    settings: Settings,
    schedule: Sequence[PlannedRun],
    command: Sequence[str],
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write plan.csv and run.json of a new session directory, before the first run."""
    facts: dict[str, Any] = session_directory.new_facts(command) | asdict(settings)
    facts |= {**(more or {}), "resumed": []}
    session_directory.write_plan(session, plan_csv.to_csv(schedule), facts)


@dataclass(frozen=True)
class Outcome:
    """What is recorded of a session. `statuses` counts its runs, `reasons` counts those that are not ok by
    (status, benchmark, reason)."""

    statuses: Counter[str]
    reasons: Counter[tuple[str, str, str]]
    planned: int
    problems: tuple[str, ...]
    disturbance: str = ""  # a warning of other work on the CPUs under test

    @property
    def recorded(self) -> int:
        return sum(self.statuses.values())

    @property
    def missing(self) -> int:
        return self.planned - self.recorded


class Recording:
    """One session while klat completes it."""

    def __init__(self, session: Path, trust: bool = False) -> None:
        """`trust` accepts a session that another user may have written."""
        self.path = session
        self.facts = session_directory.read_facts(session, trust)
        self.settings = Settings.of(self.facts)
        self.schedule = plan_csv.from_csv(session_directory.read_plan(session, self.facts))
        self._paths = {n: programs.require(n) for n in {r.benchmark for r in self.schedule}}
        self._prefix = prefix_words(self.settings.prefix)
        self._lock: session_directory.Lock | None = None
        self.load: Load | None = None  # runs beside the programs
        self.messages = ProgramMessages()
        # The last failure of each program and of each of its parameter sets, and how often in succession.
        self._failing: dict[tuple[str, ...], tuple[tuple[int | None, str], int]] = {}

    @property
    def lock(self) -> int:
        """The descriptor that the programs inherit."""
        assert self._lock
        return self._lock.descriptor

    def take(self, signals: Signals, say: Callable[[str], None]) -> None:
        """Take the lock. Waits for the run of a runner that was killed. KlatError if a runner is at work."""
        self._lock = session_directory.Lock(self.path)
        if self._lock.try_take():
            return
        # A run in flight inherited the lock from its runner; that runner has ended.
        holder = self._lock.holder()
        at_work = self.facts["runner"] if holder is None else holder
        if _alive(at_work):
            raise KlatError(
                f"{self.path}: another klat run is at work in it, or a program holds its lock:"
                f" {owners.process_name(at_work)}; wait until it ends, or end it"
            )
        say("waiting for the run that is still in flight to be recorded")
        limit = self.settings.time_limit_s
        deadline = time.monotonic() + limit
        while not self._lock.try_take():
            if time.monotonic() > deadline:
                raise KlatError(
                    f"{self.path}: timed out after {limit} s waiting for its lock, which"
                    f" {owners.process_name(holder)} holds; end that process"
                )
            signals.sleep(0.1)

    def close(self) -> None:
        if self._lock:
            self._lock.close()

    def remaining(self, resumed: bool) -> list[PlannedRun]:
        """The runs that are missing. If `resumed`, adds the time to run.json."""
        if not resumed:
            return list(self.schedule)
        if self.facts["boot_id"] != session_directory.boot_id():
            raise KlatError(
                f"{self.path}: began before this machine was booted, and a session is one boot;"
                " start a new session"
            )
        completed: set[int] = set()
        if not session_directory.is_empty(self.path):
            record = read_session(self.path)
            completed = self._completed(record)
            changed = session_directory.changed_programs(record.info, self._paths.items())
            if changed:
                raise KlatError(
                    f"{self.path}: {', '.join(sorted(changed))} was rebuilt since the session"
                    " began; start a new session"
                )
            # A set-up changes the machine before each turn, and a prefix can change it for its program alone.
            if not self.settings.setup and not self.settings.prefix:
                self._check_machine()
        self.facts["runner"] = os.getpid()
        now = session_directory.iso(session_directory.now())
        self.facts["resumed"] = [*self.facts["resumed"], now]
        session_directory.write_facts(self.path, self.facts)
        return [run for run in self.schedule if run.order not in completed]

    def _check_machine(self) -> None:
        """KlatError if the machine is not as when the session began."""
        changed = changes(self.path / "environment", Path("/"))
        if changed:
            raise KlatError(
                f"{self.path}: the machine is not as when the session began:"
                f" {'; '.join(change.sentence() for change in changed[:3])}; set it back, or start a new session"
            )

    def _completed(self, record: Session) -> set[int]:
        for row in record.rows:
            if not row.order:
                continue
            planned = self.schedule[row.order - 1] if row.order <= len(self.schedule) else None
            if planned is None or (planned.benchmark, planned.run) != (row.benchmark, row.run):
                raise KlatError(
                    f"{self.path}: run {row.order} of runs.csv is not the one of plan.csv; start a"
                    " new session"
                )
        return record.completed_orders()

    def run(
        self, run: PlannedRun, stderr: int, signals: Signals, inherit: Sequence[int] = ()
    ) -> None:
        """One run, to its end. `stderr` is a file in memory, empty before and after. KlatError if the load ends or is
        stopped meanwhile: the run is then not recorded."""
        before = self._recorded_bytes()
        try:
            status = self._start(run, stderr, signals, inherit)
        except KlatError:
            # The program can have ended before klat sees that the load has.
            drop_rows_after(self.path, before)
            raise
        silent = bool(self._prefix) and self._recorded_bytes() == before
        self._count(run, status, process.take_lines(stderr), silent)

    def _start(
        self, run: PlannedRun, stderr: int, signals: Signals, inherit: Sequence[int]
    ) -> int | None:
        path = self._paths[run.benchmark]
        first = [*self._prefix, str(path)]
        record_options = (
            f"--record={self.path}",
            f"--label={self.settings.label}",
            f"--seed={self.settings.seed}",
            "--quiet",
            f"--run={run.run}",
            f"--order={run.order}",
            *(["--under-load"] if self.settings.load else []),
        )
        try:
            return process.run(
                [*first, *run.arguments, *record_options],
                signals,
                seconds=self.settings.time_limit_s,
                stderr=stderr,
                inherit=(self.lock, *inherit),
                check=self.load.check if self.load else None,
            )
        except OSError as error:
            raise KlatError(
                f"{first[0]} cannot be started: {error.strerror}", status=FAILED
            ) from error

    def _recorded_bytes(self) -> int:
        try:
            return (self.path / _ROWS).lstat().st_size
        except OSError:
            return 0

    def _count(
        self, run: PlannedRun, status: int | None, lines: Sequence[str], silent: bool
    ) -> None:
        # Both: the order is random, so a parameter set that always fails runs among others that do not.
        keys = {(run.benchmark,), (run.benchmark, *run.arguments)}
        measured = status in (MEASURED, INVALID, SKIPPED)
        if measured and not silent:
            for key in keys:
                self._failing.pop(key, None)
            self.messages.warnings.update(lines)
            return
        if measured:
            message = (
                f"{run.benchmark}: nothing was recorded, although"
                f" {shlex.quote(self.settings.prefix or '')} ended with status {status}: does it"
                " run what follows it?"
            )
        elif status is None:
            message = (
                f"{run.benchmark}: ended after {self.settings.time_limit_s} s without a result"
            )
        elif status < 0:
            message = f"{run.benchmark}: killed by signal {-status}"
        else:
            message = lines[-1] if lines else f"{run.benchmark}: status {status}, without a message"
        self.messages.failures[message] += 1
        self.messages.warnings.update(lines[:-1])
        # Another run would fail too, and so would --resume.
        if status == USAGE:
            raise KlatError(message, status=USAGE)
        for key in keys:
            before, times = self._failing.get(key, (None, 0))
            times = times + 1 if before == (status, message) else 1
            self._failing[key] = ((status, message), times)
            if times == _FAILURES_ALIKE:
                raise KlatError(
                    f"{times} runs in succession failed in the same way: {message}", status=FAILED
                )

    @property
    def empty(self) -> bool:
        return session_directory.is_empty(self.path)

    def outcome(self) -> Outcome:
        """Read back from the record."""
        record = None if self.empty else read_session(self.path)
        statuses, reasons = count_statuses([record] if record else ())
        problems = [printable(problem) for problem in record.problems] if record else []
        problems += changed({self.path: self.facts})
        disturbance = other_work([record]) if record else ""
        return Outcome(statuses, reasons, len(self.schedule), tuple(problems), disturbance)

    def report(self, outcome: Outcome, stopped: str, say: Callable[[str], None]) -> None:
        """Say what was recorded, and why the other runs failed."""
        for problem in outcome.problems:
            say(problem)
        counts = ", ".join(f"{outcome.statuses[s]} {s}" for s in STATUSES if outcome.statuses[s])
        say(f"{outcome.recorded} of {outcome.planned} runs recorded: {counts or 'none'}")
        say_reasons(outcome.reasons, say)
        if outcome.disturbance:
            say("\n".join(wrapped(f"warning: {outcome.disturbance}", "", "  ")))
        self.report_messages([why for _, _, why in outcome.reasons] + [stopped], say)

    def report_messages(self, reported: Iterable[str], say: Callable[[str], None]) -> None:
        """Say what the programs wrote, without the texts that were reported before."""
        said = [text for text in reported if text]
        unsaid = Counter(
            {
                line: n
                for line, n in (self.messages.failures + self.messages.warnings).items()
                if not any(text in line or line in text for text in said)
            }
        )
        say_messages(unsaid, say)


def drop_rows_after(session: Path, size: int) -> None:
    """Cut runs.csv to this size; 0 removes it. KlatError if it is a link."""
    with files.directory(session) as directory, suppress(FileNotFoundError):
        if not size:
            os.unlink(_ROWS, dir_fd=directory)
            return
        rows = files.open_regular(directory, _ROWS, os.O_WRONLY)
        try:
            os.ftruncate(rows, size)
        finally:
            os.close(rows)


def count_statuses(
    records: Iterable[Session],
) -> tuple[Counter[str], Counter[tuple[str, str, str]]]:
    """How many planned runs of the records have each status. How many runs that are not ok have each (status,
    benchmark, reason)."""
    rows = [row for record in records for row in record.worst_rows() if row.order]
    others = (row for row in rows if row.status != "ok")
    reasons = Counter((row.status, row.benchmark, row.reason) for row in others)
    return Counter(row.status for row in rows), reasons


def prefix_words(prefix: str | None) -> list[str]:
    """The words of the command that goes before a program; the first is a path. KlatError if it is no
    command."""
    if prefix is None:
        return []
    try:
        words = shlex.split(prefix)
    except ValueError as error:
        raise KlatError(f"the prefix {prefix!r} cannot be split: {error}") from None
    if not words:
        raise KlatError("a prefix cannot be empty")
    path = shutil.which(words[0])
    if path is None:
        raise KlatError(f"the prefix {prefix!r}: there is no command {words[0]!r}")
    return [path, *words[1:]]


def status_of(outcomes: Sequence[Outcome]) -> int:
    """The exit status of the worst outcome."""
    statuses = sum((outcome.statuses for outcome in outcomes), Counter[str]())
    if any(outcome.missing for outcome in outcomes) or statuses["error"]:
        return FAILED
    if statuses["invalid"]:
        return INVALID
    if statuses["skipped"] and not statuses["ok"] and not statuses["disturbed"]:
        return SKIPPED
    return MEASURED


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
