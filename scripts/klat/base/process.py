"""Starts a program, waits for it without using the CPU, and ends it with all that it started.

While a program measures, the runner sleeps in one system call, sigtimedwait(), which returns when
the program ends, when the user asks to stop, or when the time limit is over.
subprocess.wait(timeout) would poll, and lose up to 50 ms a run.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType

_GRACE_SECONDS = 5.0
_ONE_REQUEST_SECONDS = 0.5
_POLL_SECONDS = 0.02  # only for what is not a child of ours
# What Python ignores, or what an ancestor may have had ignored, is as usual again in a program.
_DEFAULTS = (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)


class Stopped(Exception):
    """The user or the system asked klat to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def status(self) -> int:
        return 128 + self.number


class Signals:
    """Within it, the signals that end klat or tell of children are waited for, not handled."""

    def __init__(self) -> None:
        self._stop: set[int] = set()
        self._waited: set[int] = set()
        self._before: Iterable[int] = ()

    def __enter__(self) -> Signals:
        endings = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        # Ignored ones stay ignored: that is how nohup and `klat run &` in a script work.
        self._stop = {int(s) for s in endings if signal.getsignal(s) != signal.SIG_IGN}
        self._waited = self._stop | {int(signal.SIGCHLD)}
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, self._waited)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def wait(self, seconds: float) -> bool:
        """Sleep until a child changes (True) or the time is over (False). Raises Stopped."""
        arrived = signal.sigtimedwait(self._waited, max(0.0, seconds))
        if arrived and arrived.si_signo in self._stop:
            raise Stopped(arrived.si_signo)
        return arrived is not None

    def check(self) -> None:
        """Raise Stopped if that was asked for since."""
        arrived = signal.sigtimedwait(self._stop, 0) if self._stop else None
        if arrived:
            raise Stopped(arrived.si_signo)

    def sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.wait(left)


class Process:
    """A child in a process group of its own, so that all it starts can be ended with it."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        stdin: int | None = None,
        stderr: int | None = None,
        inherit: Sequence[int] = (),
    ) -> None:
        """Standard streams are /dev/null where no descriptor is given, output always."""
        actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = []
        for target, given in ((0, stdin), (1, None), (2, stderr)):
            if given is None:
                actions.append((os.POSIX_SPAWN_OPEN, target, os.devnull, os.O_RDWR, 0))
            else:
                actions.append((os.POSIX_SPAWN_DUP2, given, target))
        # Onto itself: that takes the close-on-exec mark away.
        actions.extend((os.POSIX_SPAWN_DUP2, fd, fd) for fd in inherit)
        self.pid = os.posix_spawn(
            arguments[0],
            list(arguments),
            os.environ,
            file_actions=actions,
            setpgroup=0,
            setsigmask=[],
            setsigdef=_DEFAULTS,
        )
        self.status: int | None = None

    def ended(self) -> bool:
        """Whether it has ended. Not reaped, its group's number cannot be another's."""
        if self.status is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def reap(self) -> int:
        """Its exit status once ended, or minus the signal that killed it."""
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status

    def signal_group(self, number: int) -> bool:
        """False where nothing of the group is left."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            # All that is left of it has become another user's, by its own doing (a load that
            # calls sudo).
            return False
        return True

    def _gone(self) -> bool:
        """Whether nothing of the whole group runs any more."""
        if self.status is None and self.ended():
            self.reap()
        # A group keeps its number while a member is left, so this cannot reach a stranger.
        return self.status is not None and not (self.signal_group(0) and _group_runs(self.pid))

    def end(self, signals: Signals, number: int = signal.SIGTERM) -> int:
        """Ask the whole group to end; insist after five seconds, or when the user does."""
        self.signal_group(number)
        self.signal_group(signal.SIGCONT)
        begun = time.monotonic()
        while not self._gone() and time.monotonic() - begun < _GRACE_SECONDS:
            try:
                signals.wait(_POLL_SECONDS)
            except Stopped:
                # One request can arrive twice: timeout(1) sends it to the process and to its group.
                if time.monotonic() - begun > _ONE_REQUEST_SECONDS:
                    break
        if not self._gone():
            self.signal_group(signal.SIGKILL)
        return self.reap()


def _group_runs(group: int) -> bool:
    """Whether a member is more than a zombie, which an idle init may keep for long."""
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] not in b"ZX":
            return True
    return False


def run(
    arguments: Sequence[str],
    signals: Signals,
    *,
    seconds: float,
    stderr: int,
    inherit: Sequence[int],
) -> int | None:
    """Run a program to its end: its exit status, minus a signal, None if `seconds` were over.

    Raises Stopped after the program has been ended, OSError where it cannot be started.
    """
    process = Process(arguments, stderr=stderr, inherit=inherit)
    deadline = time.monotonic() + seconds
    try:
        while not process.ended():
            left = deadline - time.monotonic()
            if left <= 0:
                process.end(signals)
                return None
            signals.wait(left)
    except Stopped as stopped:
        process.end(signals, stopped.number)
        raise
    status = process.reap()
    if status < 0:  # killed: what it started may still be there
        process.signal_group(signal.SIGKILL)
    return status


def ending(status: int, lines: Sequence[str]) -> str:
    """How a command ended, with the last line that it wrote to standard error."""
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return f"{how}: {lines[-1]}" if lines else how
