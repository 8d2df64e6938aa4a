"""A load that runs beside a whole session, and ends with it whatever ends it."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

from klat import directory
from klat.errors import KlatError
from klat.process import Process, Signals

_SHELL = "/bin/sh"
_SETTLE_SECONDS = 0.5
# Nobody holds the other end of its standard input but the runner: when that is gone, by SIGKILL
# too, the load is to go.
_WATCH = "trap '' HUP INT TERM; read -r _; kill -TERM -{0}; sleep 2; kill -KILL -{0}"


class Load:
    """Starts `command` by /bin/sh; what it says on standard error is in load.log."""

    def __init__(self, command: str, session: Path, signals: Signals) -> None:
        self._command = command
        self._signals = signals
        self._log, descriptor = directory.open_load_log(session)
        reader, self._lifeline = os.pipe()
        try:
            self._process = Process([_SHELL, "-c", command], stderr=descriptor)
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
            lines = self._log.read_text(errors="replace").splitlines()
        except OSError:
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
