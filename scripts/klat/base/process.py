"""Starts a program, waits for it without using the CPU, and ends it together with its children.

While a program measures, the runner sleeps in sigtimedwait(). That returns when the program ends, when the
user asks to stop, or when the time limit is over. subprocess.wait(timeout) would poll, and add up to 50 ms
to a run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from klat.base.errors import KlatError

_GRACE_SECONDS = 5.0
_ONE_REQUEST_SECONDS = 0.5
_POLL_SECONDS = 0.02  # only for processes that are not children of klat
# Python ignores some of these, and an ancestor may ignore others. A program gets the default actions.
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
    """A context that blocks SIGCHLD and the signals that stop klat. Its methods wait for them."""

    def __init__(self) -> None:
        self._stop: set[int] = set()
        self._waited: set[int] = set()
        self._before: Iterable[int] = ()

    def __enter__(self) -> Signals:
        endings = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        # A signal that is ignored stays ignored: nohup and `klat run &` in a script rely on it.
        self._stop = {int(s) for s in endings if signal.getsignal(s) != signal.SIG_IGN}
        self._waited = self._stop | {int(signal.SIGCHLD)}
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, self._waited)
        return self

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def wait(self, seconds: float) -> bool:
        """Sleep until a child changes state (True) or the time is over (False). Raises Stopped."""
        arrived = signal.sigtimedwait(self._waited, max(0.0, seconds))
        if arrived and arrived.si_signo in self._stop:
            raise Stopped(arrived.si_signo)
        return arrived is not None

    def check(self) -> None:
        """Raise Stopped if a signal to stop has arrived."""
        arrived = signal.sigtimedwait(self._stop, 0) if self._stop else None
        if arrived:
            raise Stopped(arrived.si_signo)

    def sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.wait(left)


def _set_ordinary_policy() -> None:
    """Put klat under SCHED_OTHER. What it starts inherits the policy: under SCHED_IDLE, a load would not get the CPU
    while a program runs. KlatError if that is refused."""
    policy = os.sched_getscheduler(0)
    ordinary = os.SCHED_OTHER | policy & os.SCHED_RESET_ON_FORK
    if policy == ordinary:  # a seccomp filter may refuse a call that changes nothing, too
        return
    try:
        os.sched_setscheduler(0, ordinary, os.sched_param(0))
    except OSError as error:
        raise KlatError(
            f"cannot change the inherited scheduling policy to SCHED_OTHER: {error.strerror}; start klat under it"
        ) from error


class Process:
    """A child in its own process group, so that klat can end its children as well. It starts under SCHED_OTHER."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        stdin: int | None = None,
        stderr: int | None = None,
        inherit: Sequence[int] = (),
    ) -> None:
        """Standard input and standard error are /dev/null unless a descriptor is given. Standard
        output is always /dev/null."""
        _set_ordinary_policy()
        try:
            null = os.open(os.devnull, os.O_RDWR)
        except OSError as error:
            raise KlatError(
                f"{os.devnull} cannot be opened: {error.strerror}; programs need it as standard output: make"
                f" it again by mknod -m 666 {os.devnull} c 1 3"
            ) from error
        given = ((0, stdin), (1, None), (2, stderr), *((fd, fd) for fd in inherit))
        try:
            self.pid = os.posix_spawn(
                arguments[0],
                list(arguments),
                os.environ,
                # dup2() of a descriptor onto itself removes its close-on-exec flag.
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, null if fd is None else fd, target)
                    for target, fd in given
                ],
                setpgroup=0,
                setsigmask=[],
                setsigdef=_DEFAULTS,
            )
        finally:
            os.close(null)
        self.status: int | None = None

    def ended(self) -> bool:
        """Whether the process has ended. It is not reaped, so no other process gets its pid."""
        if self.status is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def stopped(self) -> bool:
        """Whether a signal stopped the process since the last call, even if it runs again. False if it has ended."""
        states = os.WSTOPPED | os.WCONTINUED | os.WNOHANG
        with suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.pid, states) is not None
        return False

    def reap(self) -> int:
        """The exit status of the ended process, or minus the signal that killed it."""
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status

    def signal_group(self, number: int) -> bool:
        """Send a signal to the group. False if it has no process left that klat may signal."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            # Only processes of another user are left, for example if a load calls sudo.
            return False
        return True

    def _gone(self) -> bool:
        """Whether no process of the group runs any more."""
        if self.status is None and self.ended():
            self.reap()
        # The kernel does not reuse the number of a group that still has a process.
        return self.status is not None and not (self.signal_group(0) and _group_runs(self.pid))

    def end(
        self, signals: Signals, number: int = signal.SIGTERM, seconds: float = _GRACE_SECONDS
    ) -> int:
        """Signal the group; kill it after so many seconds, or when the user asks again. Returns the
        exit status."""
        self.signal_group(number)
        self.signal_group(signal.SIGCONT)
        begun = time.monotonic()
        while not self._gone() and time.monotonic() - begun < seconds:
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
    """Whether a process of the group runs. A zombie does not; it may stay until init reaps it."""
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
    check: Callable[[], None] | None = None,
) -> int | None:
    """Run a program to its end. Returns its exit status, minus a signal that killed it, or None after
    `seconds`. Stopped if the user asked to stop. Calls `check` when a child of klat changes state, and raises its
    KlatError. After both errors the program has ended. OSError if it cannot be started."""
    process = Process(arguments, stderr=stderr, inherit=inherit)
    deadline = time.monotonic() + seconds
    try:
        while not process.ended():
            left = deadline - time.monotonic()
            if left <= 0:
                process.end(signals)
                return None
            signals.wait(left)
            if check:
                check()
    except (Stopped, KlatError) as error:
        process.end(signals, error.number if isinstance(error, Stopped) else signal.SIGTERM)
        raise
    status = process.reap()
    if status < 0:  # killed: its children may still run
        process.signal_group(signal.SIGKILL)
    return status


def take_lines(descriptor: int) -> list[str]:
    """The lines that a program wrote to a file in memory. Empties the file."""
    size = os.fstat(descriptor).st_size
    if not size:
        return []
    text = os.pread(descriptor, min(size, 1 << 20), 0)
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return [line for line in text.decode(errors="replace").splitlines() if line.strip()]


def answer(
    words: Sequence[str | Path], seconds: float | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program that needs no input, with these options of subprocess.run(). Returns its status and what it
    printed. Raises OSError, and subprocess.TimeoutExpired after `seconds`."""
    return subprocess.run(
        words,
        input="",  # and not /dev/null, which a container may lack
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
        **options,
    )


def ending(status: int, lines: Sequence[str]) -> str:
    """How a command ended, with the last line that it wrote to standard error."""
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return f"{how}: {lines[-1]}" if lines else how
