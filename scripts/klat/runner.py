"""Follows a plan: one program after the other, until all is recorded or something has to be said.

The programs record; the runner only starts them and counts. It reads the record once before the
first run, when it resumes, and once at the end, to tell what became of the runs.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from klat import __version__, directory, plan, process, programs
from klat.background import Load
from klat.errors import KlatError
from klat.plan import PlannedRun
from klat.process import Signals, Stopped
from klat.progress import Progress, TimeLeft
from klat.session import STATUSES, Session, printable, read_session

MEASURED, FAILED, USAGE, INVALID, SKIPPED = range(5)

# After so many runs of one program that fail alike, the next would too.
_FAILURES_ALIKE = 3
_LINES_SHOWN = 8
_DISK_FULL = ("No space left on device", "Disk quota exceeded")


@dataclass(frozen=True)
class Settings:
    """What a session is told once and keeps when it is resumed."""

    label: str
    seed: int
    load: str | None = None
    pause_ms: int = 0
    time_limit_s: int = 120

    def facts(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "seed": self.seed,
            "load": self.load,
            "pause_ms": self.pause_ms,
            "time_limit_s": self.time_limit_s,
        }

    @staticmethod
    def of(facts: Mapping[str, Any]) -> Settings:
        return Settings(
            facts["label"],
            facts["seed"],
            facts["load"],
            facts["pause_ms"],
            facts["time_limit_s"],
        )


@dataclass
class Tally:
    """What the programs said with their exit statuses and on standard error."""

    warnings: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)


def begin(
    output: Path, settings: Settings, schedule: Sequence[PlannedRun], command: Sequence[str]
) -> Path:
    """Make the session directory with its plan, before the first run."""
    session = directory.create(output, settings.label)
    facts = {
        "schema": directory.SCHEMA,
        "klat_version": __version__,
        "command": list(command),
        "created": directory.iso(directory.now()),
        "boot_id": directory.boot_id(),
        **settings.facts(),
        "runner": os.getpid(),
        "resumed": [],
    }
    directory.write_plan(session, plan.to_csv(schedule), facts)
    return session


class Runner:
    """One attempt to complete a session."""

    def __init__(self, session: Path, stderr: TextIO | None = None) -> None:
        self._session = session
        self._stderr = sys.stderr if stderr is None else stderr
        self._facts = directory.read_facts(session)
        self._settings = Settings.of(self._facts)
        self._schedule = plan.from_csv(directory.read_plan(session, self._facts))
        self._paths = {n: programs.require(n) for n in {r.benchmark for r in self._schedule}}
        self._tally = Tally()
        # The last failure of a program, and of one of its parameter sets, and how often in
        # succession.
        self._failing: dict[tuple[str, ...], tuple[tuple[int | None, str], int]] = {}

    def run(self, resumed: bool = False) -> int:
        """Complete the session and say how it went. The exit status of `klat run`."""
        with Signals() as signals:
            lock = directory.Lock(self._session)
            try:
                self._take(lock, signals)
                remaining = self._remaining(resumed)
                return self._follow(remaining, lock, signals)
            except Stopped as stopped:
                return stopped.status
            finally:
                lock.close()

    def _take(self, lock: directory.Lock, signals: Signals) -> None:
        """Wait for a run that a killed runner left behind; refuse where a runner is at work."""
        if lock.try_take():
            return
        runner = self._facts["runner"]
        if _alive(runner):
            raise KlatError(f"{self._session}: another klat run is at work in it (pid {runner})")
        self._say("waiting for the run that is still in flight to be recorded")
        deadline = time.monotonic() + self._settings.time_limit_s
        while not lock.try_take():
            if time.monotonic() > deadline:
                raise KlatError(f"{self._session}: a program that records into it does not end")
            signals.sleep(0.1)

    def _remaining(self, resumed: bool) -> list[PlannedRun]:
        if not resumed:
            return list(self._schedule)
        if self._facts["boot_id"] != directory.boot_id():
            raise KlatError(
                f"{self._session}: begun before this machine was booted, and a session is one boot;"
                " begin a new session"
            )
        completed: set[int] = set()
        if not directory.is_empty(self._session):
            record = read_session(self._session)
            completed = self._completed(record)
            changed = directory.changed_programs(record.info, self._paths.items())
            if changed:
                raise KlatError(
                    f"{self._session}: {', '.join(sorted(changed))} was built anew since; a session"
                    " is of one build, begin a new session"
                )
        self._facts["runner"] = os.getpid()
        self._facts["resumed"] = [*self._facts["resumed"], directory.iso(directory.now())]
        directory.write_facts(self._session, self._facts)
        return [run for run in self._schedule if run.order not in completed]

    def _completed(self, record: Session) -> set[int]:
        for row in record.rows:
            if not row.order:
                continue
            planned = self._schedule[row.order - 1] if row.order <= len(self._schedule) else None
            if planned is None or (planned.benchmark, planned.run) != (row.benchmark, row.run):
                raise KlatError(
                    f"{self._session}: run {row.order} of runs.csv is not that of plan.csv; begin a"
                    " new session"
                )
        return record.completed_orders()

    def _follow(
        self, remaining: Sequence[PlannedRun], lock: directory.Lock, signals: Signals
    ) -> int:
        done = len(self._schedule) - len(remaining)
        progress = Progress(len(self._schedule), done, self._stderr)
        load = None
        stopped: Stopped | KlatError | None = None
        try:
            if self._settings.load and remaining:
                load = Load(self._settings.load, self._session, signals)
                load.settle()
            self._loop(remaining, lock, signals, progress, load)
        except (Stopped, KlatError) as error:
            stopped = error
        finally:
            progress.clear()
            if load:
                load.end()
        return self._conclude(stopped)

    def _loop(
        self,
        remaining: Sequence[PlannedRun],
        lock: directory.Lock,
        signals: Signals,
        progress: Progress,
        load: Load | None,
    ) -> None:
        done = len(self._schedule) - len(remaining)
        left = TimeLeft(Counter(run.benchmark for run in remaining))
        pause = self._settings.pause_ms / 1000
        common = [
            f"--record={self._session}",
            f"--label={self._settings.label}",
            f"--seed={self._settings.seed}",
            "--quiet",
        ]
        # In memory, as a pipe would have to be emptied while the program measures.
        stderr = os.memfd_create("stderr", os.MFD_CLOEXEC)
        try:
            for run in remaining:
                signals.check()
                progress.before(done, run.benchmark, left.seconds())
                begun = time.monotonic()
                status = self._start(run, common, stderr, lock, signals)
                done += 1
                self._count(run, status, _take_lines(stderr))
                if load:
                    load.check()
                if pause:
                    signals.sleep(pause)
                left.ran(run.benchmark, time.monotonic() - begun)
        finally:
            os.close(stderr)

    def _start(
        self,
        run: PlannedRun,
        common: Sequence[str],
        stderr: int,
        lock: directory.Lock,
        signals: Signals,
    ) -> int | None:
        own = (f"--run={run.run}", f"--order={run.order}")
        try:
            return process.run(
                [str(self._paths[run.benchmark]), *run.arguments, *common, *own],
                signals,
                seconds=self._settings.time_limit_s,
                stderr=stderr,
                inherit=(lock.descriptor,),
            )
        except OSError as error:
            raise KlatError(
                f"{self._paths[run.benchmark]} cannot be started: {error.strerror}", status=FAILED
            ) from error

    def _count(self, run: PlannedRun, status: int | None, lines: Sequence[str]) -> None:
        # Both, as the order is random: a parameter set that cannot work is among others that do.
        keys = {(run.benchmark,), (run.benchmark, *run.arguments)}
        if status in (MEASURED, INVALID, SKIPPED):
            for key in keys:
                self._failing.pop(key, None)
            self._tally.warnings.update(lines)
            return
        if status is None:
            message = (
                f"{run.benchmark}: ended after {self._settings.time_limit_s} s without a result"
            )
        elif status < 0:
            message = f"{run.benchmark}: killed by signal {-status}"
        else:
            message = lines[-1] if lines else f"{run.benchmark}: status {status}, without a message"
        self._tally.failures[message] += 1
        self._tally.warnings.update(lines[:-1])
        # Neither another run nor --resume would fare better.
        if status == USAGE or any(text in message for text in _DISK_FULL):
            raise KlatError(message, status=USAGE)
        for key in keys:
            before, times = self._failing.get(key, (None, 0))
            times = times + 1 if before == (status, message) else 1
            self._failing[key] = ((status, message), times)
            if times == _FAILURES_ALIKE:
                raise KlatError(
                    f"{times} runs in succession failed alike: {message}", status=FAILED
                )

    def _conclude(self, stopped: Stopped | KlatError | None) -> int:
        """Say what was recorded and what to do next; the exit status."""
        nothing = directory.is_empty(self._session)
        if nothing and isinstance(stopped, KlatError):
            self._tell_warnings([str(stopped)])
            directory.remove_unused(self._session)
            raise stopped
        record = None if nothing else read_session(self._session)
        statuses, reasons = _outcomes(record)
        recorded = sum(statuses.values())
        missing = len(self._schedule) - recorded
        for problem in record.problems if record else ():
            self._say(printable(problem))
        counts = ", ".join(f"{statuses[s]} {s}" for s in STATUSES if statuses[s])
        self._say(f"{recorded} of {len(self._schedule)} runs recorded: {counts or 'none'}")
        self._tell_counted(
            Counter({f"{status}: {name}: {why}": n for (status, name, why), n in reasons.items()})
        )
        self._tell_warnings([why for _, _, why in reasons] + [str(stopped or "")])
        print(self._session, flush=True)
        if stopped:
            self._say(f"stopped: {stopped}")
        if missing:
            self._say(f"to complete it: {_sudo()}{self._command('run', '--resume')}")
        if recorded:
            self._say(f"next: {self._command('summary')}")
            self._say(f"      {self._command('plot')} -o plots")
        return stopped.status if stopped else _status(statuses, missing)

    def _tell_warnings(self, told: Iterable[str]) -> None:
        """What the programs said, without what the reasons have said already."""
        said = [text for text in told if text]
        unsaid = Counter(
            {
                line: n
                for line, n in (self._tally.failures + self._tally.warnings).items()
                if not any(text in line or line in text for text in said)
            }
        )
        self._tell_counted(unsaid)

    def _tell_counted(self, lines: Counter[str]) -> None:
        """Each line once with its count, those that differ only in numbers together."""
        alike: dict[str, list[str]] = {}
        for line in lines:
            alike.setdefault(re.sub(r"[0-9]+(\.[0-9]+)?", "#", line), []).append(line)
        counts = {group[0]: sum(lines[line] for line in group) for group in alike.values()}
        several = {group[0] for group in alike.values() if len(group) > 1}
        shown = sorted(counts, key=lambda line: -counts[line])
        for line in shown[:_LINES_SHOWN]:
            like = " (and the like)" if line in several else ""
            self._say(f"  {counts[line]} x {printable(line)}{like}")
        if len(shown) > _LINES_SHOWN:
            self._say(f"  and {len(shown) - _LINES_SHOWN} other lines")

    def _command(self, *words: str) -> str:
        path = str(self._session)
        return shlex.join([_own_name(), *words, f"./{path}" if path.startswith("-") else path])

    def _say(self, line: str) -> None:
        try:
            print(line, file=self._stderr, flush=True)
        except (OSError, ValueError):
            pass


def _take_lines(descriptor: int) -> list[str]:
    """What a program wrote to it, which is then empty again."""
    size = os.fstat(descriptor).st_size
    if not size:
        return []
    text = os.pread(descriptor, min(size, 1 << 20), 0)
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return [line for line in text.decode(errors="replace").splitlines() if line.strip()]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _outcomes(record: Session | None) -> tuple[Counter[str], Counter[tuple[str, str, str]]]:
    """Runs of the plan by status, and by (status, benchmark, reason) where not ok."""
    statuses: Counter[str] = Counter()
    reasons: Counter[tuple[str, str, str]] = Counter()
    for rows in record.runs() if record else ():
        if not rows[0].order:
            continue
        worst = max(rows, key=lambda row: STATUSES.index(row.status))
        statuses[worst.status] += 1
        if worst.status != "ok":
            reasons[worst.status, worst.benchmark, worst.reason] += 1
    return statuses, reasons


def _status(statuses: Mapping[str, int], missing: int) -> int:
    if missing or statuses.get("error"):
        return FAILED
    if statuses.get("invalid"):
        return INVALID
    if statuses.get("skipped") and not statuses.get("ok") and not statuses.get("disturbed"):
        return SKIPPED
    return MEASURED


def _own_name() -> str:
    """How the user called klat."""
    called = sys.argv[0]
    name = os.path.basename(called)
    return name if shutil.which(name) == called else called


def _sudo() -> str:
    return "sudo " if os.geteuid() == 0 and os.environ.get("SUDO_UID") else ""
