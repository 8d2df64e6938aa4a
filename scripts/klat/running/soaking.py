"""Runs the programs of a soak under all its loads, until its time is over or something ends it.

The programs record, and show the progress. klat sleeps meanwhile.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from klat.base.errors import FAILED, KlatError, worst
from klat.base.process import Process, Signals, Stopped
from klat.record import session_directory
from klat.record.json_files import read_run_json
from klat.running.changed_machine import noting_changes
from klat.running.loads import Guard, Load, at_work
from klat.running.traced_runs import soak_traces

# After the time of the soak: for calibration, warm-up and the end.
_MARGIN_SECONDS = 120
_LOOK_SECONDS = 10  # between two looks for other sessions beside a load
# A program records its last segment when it is asked to end.
_RECORDING_SECONDS = 60


@dataclass(frozen=True)
class SoakSettings:
    """`commands` has the words that start each program, without --record and --label."""

    label: str
    commands: Sequence[Sequence[str]]
    loads: Sequence[str]
    seconds: int
    segment_s: int
    limit_ns: int | None
    stop_above: bool
    profile: str | None = None
    explain: bool = False  # trace the sample that ends the soak

    @property
    def load(self) -> str | None:
        """As run.json has it, and reports show it."""
        return " + ".join(self.loads) or None


@dataclass(frozen=True)
class SoakEnd:
    """How a soak ended: the worst exit status of its programs, and what ended it early."""

    status: int
    stopped: Stopped | None = None
    failures: tuple[str, ...] = ()


def begin_soak(session: Path, settings: SoakSettings, command: Sequence[str]) -> None:
    """Write run.json of a new session directory."""
    facts = {
        **session_directory.new_facts(command),
        "label": settings.label,
        "load": settings.load,
        "profile": settings.profile,
        "soak": {
            "seconds": settings.seconds,
            "segment_s": settings.segment_s,
            "limit_ns": settings.limit_ns,
            "stop_above": settings.stop_above,
        },
    }
    session_directory.write_facts(session, facts)


def soak(session: Path, settings: SoakSettings) -> SoakEnd:
    """Run a soak to its end. SIGINT, SIGTERM and SIGHUP end it early, and so does a load that ends."""
    # The programs are in process groups of their own. With `stty tostop`, the kernel would stop
    # them when they write to the terminal.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    loads: list[Load] = []
    facts = read_run_json(session)
    with Signals() as signals, noting_changes(session, facts, loads), at_work():
        try:
            signals.check()
            for load in settings.loads:
                loads.append(Load(load, session, signals))
            for other_load in loads:
                other_load.settle()
            if not settings.explain:
                return _follow(session, settings, loads, signals)
            with soak_traces(settings.limit_ns or 0) as traces:
                commands = [[*words, *traces.words()] for words in settings.commands]
                end = _follow(session, replace(settings, commands=commands), loads, signals)
                traces.keep(session)
                return end
        except Stopped as stopped:
            return SoakEnd(stopped.status, stopped)
        except KlatError as error:
            return SoakEnd(FAILED, failures=(str(error),))
        finally:
            for other_load in loads:
                other_load.end()


def _follow(
    session: Path, settings: SoakSettings, loads: Sequence[Load], signals: Signals
) -> SoakEnd:
    programs: list[Process] = []
    guards: list[Guard] = []
    failures: list[str] = []
    stopped: Stopped | None = None
    try:
        for words in settings.commands:
            programs.append(_start(words, session, settings, quiet=bool(programs)))
            guards.append(Guard(programs[-1].pid))
        _wait(programs, loads, settings, signals)
    except Stopped as error:
        stopped = error
    except KlatError as error:
        failures.append(str(error))
    number = stopped.number if stopped else signal.SIGTERM
    statuses = [program.end(signals, number, _RECORDING_SECONDS) for program in programs]
    for guard in guards:
        guard.release()
    failures += [
        f"{Path(words[0]).name}: was killed by signal {-status}; the segments before that are recorded"
        for words, status in zip(settings.commands, statuses)
        if status < 0
    ]
    return SoakEnd(worst([FAILED if s < 0 else s for s in statuses]), stopped, tuple(failures))


def _start(words: Sequence[str], session: Path, settings: SoakSettings, quiet: bool) -> Process:
    """`quiet`: another program shows the progress."""
    options = [f"--record={session}", f"--label={settings.label}"]
    options += (["--quiet"] if quiet else []) + (["--under-load"] if settings.loads else [])
    try:
        return Process(
            [*words, *options], stderr=sys.__stderr__.fileno() if sys.__stderr__ else None
        )
    except OSError as error:
        raise KlatError(f"{words[0]} cannot be started: {error.strerror}", FAILED) from error


def _wait(
    programs: Sequence[Process], loads: Sequence[Load], settings: SoakSettings, signals: Signals
) -> None:
    """Wait until all programs have ended, or one has failed, or one has ended at a sample above the limit.
    Raises Stopped at a signal, and KlatError if a load has ended or the programs do not end in time.
    """
    seconds = settings.seconds + _MARGIN_SECONDS
    deadline = time.monotonic() + seconds
    while not all(program.ended() for program in programs):
        for load in loads:
            load.check()
        if any(ran.ended() and (ran.reap() or settings.stop_above) for ran in programs):
            return
        left = deadline - time.monotonic()
        if left <= 0:
            raise KlatError(f"the soak did not end within {seconds} s", FAILED)
        signals.wait(min(left, _LOOK_SECONDS) if loads else left)
