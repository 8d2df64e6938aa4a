"""What a session's end brings with it, whatever ends it: a load's end, and the machine as it was."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from klat.base import files
from klat.record import session_directory
from klat.running import loads
from klat.base.errors import KlatError, SessionError
from klat.base.process import Process, Signals, Stopped, ending
from klat.base.bounded_read import open_to_read

_SHELL = "/bin/sh"
_SETTLE_SECONDS = 0.5
_LOG_TAIL = 1000  # bytes of load.log, whose size the load decides
# Nobody holds the other end of its standard input but the runner: when that is gone, by SIGKILL
# too, the load is to go.
_WATCH = "trap '' HUP INT TERM; read -r _; kill -TERM -{0}; sleep 2; kill -KILL -{0}"


class Load:
    """Starts one of klat's loads by its name, or a command by /bin/sh; what it says on standard error is in load.log."""

    def __init__(self, command: str, session: Path, signals: Signals) -> None:
        self._command = command
        self._signals = signals
        self._log = session / session_directory.LOAD_LOG
        descriptor = files.append(self._log)
        reader, self._lifeline = os.pipe()
        try:
            self._process = Process(loads.words(command), stderr=descriptor)
            watch = _WATCH.format(self._process.pid)
            self._watcher = Process([_SHELL, "-c", watch], stdin=reader)
        finally:
            os.close(descriptor)
            os.close(reader)

    def settle(self) -> None:
        """Let the load come up to its strength. KlatError where it has ended instead."""
        self._signals.sleep(_SETTLE_SECONDS)
        self.check()

    def check(self) -> None:
        """KlatError where the load has ended: what is measured now is not what the session says."""
        if self._process.ended():
            raise KlatError(f"the load {shlex.quote(self._command)} {self._ending()}", status=1)

    def _ending(self) -> str:
        status = self._process.reap()
        if status < 0:
            how = f"was killed by signal {-status}"
        else:
            how = f"ended by itself with status {status}"
        try:
            with open_to_read(self._log) as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_TAIL))
                lines = log.read(_LOG_TAIL).decode(errors="replace").splitlines()
        except (OSError, SessionError):
            lines = []
        if lines:
            return f"{how}: {lines[-1]}"
        return f"{how} (it has to stay in the foreground)" if status == 0 else how

    def end(self) -> None:
        """End the load with everything in its process group."""
        self._watcher.signal_group(signal.SIGKILL)
        self._watcher.reap()
        os.close(self._lifeline)
        self._process.end(self._signals)


# The end of its standard input comes when runner and program in flight are both gone.
_AWAIT = "trap '' HUP INT TERM; read -r _; trap - HUP INT TERM; exec /bin/sh -c \"$1\""
_ONE_REQUEST_SECONDS = 0.5


class Restore:
    """Runs `command` once the session is over. `end` does, and where the runner was killed before
    it could, a process that waits for that: after the run in flight, which inherits `lifeline`, and
    with the session's `locks` held, so that who resumes it does not meet the command at work.

    The command can run twice, where the runner is killed within it.
    """

    def __init__(self, command: str, locks: Sequence[int]) -> None:
        self._command = command
        reader, self.lifeline = os.pipe()
        try:
            words = [_SHELL, "-c", _AWAIT, "sh", command]
            self._watcher = Process(words, stdin=reader, inherit=locks)
        finally:
            os.close(reader)

    def end(self, signals: Signals, seconds: float) -> str:
        """Run it; what went wrong, or nothing. Stopped is not raised, but a request to stop ends
        the command if it is not the one that ended the session."""
        stderr = os.memfd_create("stderr", os.MFD_CLOEXEC)
        try:
            restored = Process([_SHELL, "-c", self._command], stderr=stderr)
            begun = time.monotonic()
            problem = ""
            while not restored.ended() and not problem:
                try:
                    if not signals.wait(begun + seconds - time.monotonic()):
                        problem = f"did not end within {seconds:g} s"
                except Stopped as stopped:
                    if time.monotonic() - begun > _ONE_REQUEST_SECONDS:
                        problem = f"was ended by {stopped}"
            if problem:
                restored.end(signals)
            elif status := restored.reap():
                text = os.pread(stderr, 1 << 16, 0).decode(errors="replace")
                problem = ending(status, [line for line in text.splitlines() if line.strip()])
        finally:
            os.close(stderr)
            self._watcher.signal_group(signal.SIGKILL)
            self._watcher.reap()
            os.close(self.lifeline)
        if not problem:
            return ""
        return f"the machine may not be as it was: --restore {shlex.quote(self._command)} {problem}"
