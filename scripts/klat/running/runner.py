"""Follows the plan of a session, or the plans of two that take turns: one program after the other."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from klat.base import files, process, streams
from klat.base.errors import FAILED, KlatError, SessionError
from klat.base.process import Signals, Stopped
from klat.record import session_directory
from klat.record.plan_csv import PlannedRun
from klat.running.changed_machine import noting_changes
from klat.running.loads import Load, Restore, at_work
from klat.running.progress import Progress, TimeLeft
from klat.running.recording import Outcome, Recording, status_of
from klat.running.traced_runs import EXPLAINED, SessionTraces, explain_session


@dataclass(frozen=True)
class Portion:
    """Adjacent runs of one session. Its set-up command runs before them."""

    recording: Recording
    runs: Sequence[PlannedRun]


class Runner:
    """One attempt to complete a session."""

    command = "run"  # of klat, that resumes it

    def __init__(
        self,
        sessions: Sequence[Path],
        trust: bool = False,
        earlier: Sequence[Path] = (),
        last: bool = True,
    ) -> None:
        """`trust` accepts sessions that another user may have written. The commands to type next also take the
        `earlier` sessions. klat prints these commands after the `last` session, or if it was stopped.
        """
        self._trust = trust
        self._earlier = earlier
        self._last = last
        self._recordings = [Recording(session, trust) for session in sessions]
        self._planned = sum(len(recording.schedule) for recording in self._recordings)

    def run(self, resumed: bool = False) -> int:
        """Complete the session and report it. The exit status of the command."""
        with Signals() as signals:
            try:
                for recording in self._recordings:
                    recording.take(signals, self.say)
                portions = self.portions([r.remaining(resumed) for r in self._recordings])
                return self._follow([portion for portion in portions if portion.runs], signals)
            except Stopped as stopped:
                return stopped.status
            finally:
                for recording in self._recordings:
                    recording.close()

    def portions(self, remaining: Sequence[Sequence[PlannedRun]]) -> list[Portion]:
        """The missing runs of each session, in the order to run them."""
        return [Portion(*both) for both in zip(self._recordings, remaining)]

    def _follow(self, portions: Sequence[Portion], signals: Signals) -> int:
        done = self._planned - sum(len(portion.runs) for portion in portions)
        progress = Progress(self._planned, done, sys.stderr)
        settings = self._recordings[0].settings
        load: Load | None = None
        restore: Restore | None = None
        stopped: Stopped | KlatError | None = None
        failure = ""
        try:
            if settings.restore and portions:
                locks = [recording.lock for recording in self._recordings]
                restore = Restore(settings.restore, locks)
            if settings.load and portions:
                load = Load(settings.load, self._recordings[0].path, signals)
                load.settle()
                for portion in portions:
                    portion.recording.load = load
            with SessionTraces() as traces, at_work():
                self._loop(portions, done, signals, progress, load, restore, traces)
        except (Stopped, KlatError) as error:
            stopped = error
        finally:
            progress.clear()
            if load:
                load.end()
            if restore:
                failure = restore.end(signals, settings.time_limit_s)
        return self._conclude(stopped, failure)

    def _loop(
        self,
        portions: Sequence[Portion],
        done: int,
        signals: Signals,
        progress: Progress,
        load: Load | None,
        restore: Restore | None,
        traces: SessionTraces,
    ) -> None:
        left = TimeLeft(Counter(run.benchmark for portion in portions for run in portion.runs))
        inherit = (restore.lifeline,) if restore else ()
        # In memory: a pipe would have to be emptied while the program measures.
        stderr = os.memfd_create("stderr", os.MFD_CLOEXEC)
        try:
            for portion in portions:
                begun = time.monotonic()
                signals.check()
                _set_up(portion.recording, stderr, signals)
                pause = portion.recording.settings.pause_ms / 1000
                facts, loads = portion.recording.facts, [load] if load else []
                with noting_changes(portion.recording.path, facts, loads):
                    for run in portion.runs:
                        signals.check()
                        progress.before(done, run.benchmark, left.seconds())
                        session = portion.recording.path
                        completed = traces.complete(run, session)
                        portion.recording.run(completed, stderr, signals, inherit)
                        traces.keep(run, session)
                        done += 1
                        if load:
                            load.check()
                        if pause:
                            signals.sleep(pause)
                        left.ran(run.benchmark, time.monotonic() - begun)
                        begun = time.monotonic()
        finally:
            os.close(stderr)

    def _conclude(self, stopped: Stopped | KlatError | None, failure: str) -> int:
        """Report what was recorded and what to do next. The exit status."""
        if stopped and all(r.empty for r in self._recordings):
            for recording in self._recordings:
                recording.report_messages([str(stopped)], self.say)
                session_directory.remove_unused(recording.path)
            if failure:
                self.say(failure)
            if isinstance(stopped, KlatError):
                raise stopped
            self.say(f"stopped: {stopped}; nothing was recorded")
            return stopped.status
        outcomes = []
        for recording in self._recordings:
            outcomes.append(recording.outcome())
            if len(self._recordings) > 1:
                self.say(f"{recording.settings.label}:")
            recording.report(outcomes[-1], str(stopped or ""), self.say)
        if stopped:
            self.say(f"stopped: {stopped}")
        if failure:
            self.say(failure)
        for recording in self._recordings:
            self._explain(recording)
        streams.announce([recording.path for recording in self._recordings], self.say)
        if any(outcome.missing for outcome in outcomes):
            trust = ["--trust"] if self._trust else []
            again = command_line(self.command, *trust, "--resume", self._recordings[0].path)
            self.say(f"to complete it: {_sudo()}{again}")
        if self._last or stopped:
            self._advise(outcomes)
        if stopped:
            return stopped.status
        return FAILED if failure else status_of(outcomes)

    def _explain(self, recording: Recording) -> None:
        """Explain the slow samples of the traced runs. Writes the report to a file of the session, too."""
        try:
            explained = explain_session(recording.path, recording.schedule)
            lines = [line for program in explained for line in ("", *program.lines())]
            if lines:
                file = recording.path / EXPLAINED
                files.write_whole(file, "\n".join([*lines[1:], ""]).encode())
                lines += ["", f"the explanation is also in {file}"]
        except (KlatError, SessionError) as error:
            lines = [str(error)]
        for line in lines:
            self.say(line)

    def _advise(self, outcomes: Sequence[Outcome]) -> None:
        paths = [r.path for r, outcome in zip(self._recordings, outcomes) if outcome.recorded]
        if not paths and not self._earlier:
            return
        lines = self.advice([*self._earlier, *paths])
        for start, line in zip(("next:", *[" " * 5] * len(lines)), lines):
            self.say(f"{start} {line}")

    def advice(self, recorded: Sequence[Path]) -> list[str]:
        """Commands to type next, for the sessions that hold runs."""
        lines = [command_line("summary", *recorded)]
        if shutil.which("gnuplot"):
            lines.append(f"{command_line('plot', *recorded)} -o plots")
        return lines

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


def _set_up(recording: Recording, stderr: int, signals: Signals) -> None:
    """Run a session's set-up command. KlatError if it fails."""
    command = recording.settings.setup
    if command is None:
        return
    words, limit_s = ["/bin/sh", "-c", command], recording.settings.time_limit_s
    status = process.run(words, signals, seconds=limit_s, stderr=stderr, inherit=())
    lines = process.take_lines(stderr)
    what = f"the set-up of {recording.settings.label}, {shlex.quote(command)},"
    if status:
        raise KlatError(f"{what} {process.ending(status, lines)}", status=FAILED)
    if status is None:
        seconds = recording.settings.time_limit_s
        raise KlatError(f"{what} did not end within {seconds} s", status=FAILED)
    recording.messages.warnings.update(f"set-up: {line}" for line in lines)


def command_line(*words: str | Path) -> str:
    """A command of klat, as the user called klat. A path that begins with a hyphen gets `./`."""
    texts = [f"./{w}" if isinstance(w, Path) and str(w).startswith("-") else str(w) for w in words]
    return shlex.join([_own_name(), *texts])


def _own_name() -> str:
    """How the user called klat."""
    called = sys.argv[0]
    name = os.path.basename(called)
    return name if shutil.which(name) == called else called


def _sudo() -> str:
    return "sudo " if os.geteuid() == 0 and os.environ.get("SUDO_UID") else ""
