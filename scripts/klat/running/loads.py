"""klat's own background loads, and the commands that `--load` may name. Stops the load of a session and runs its
restore command, however the session ends."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from klat.base import files, owners, programs
from klat.base.bounded_read import open_to_read
from klat.base.errors import KlatError, SessionError, did_you_mean
from klat.base.process import Process, Signals, Stopped, answer, ending
from klat.machine import kernel_files
from klat.record import session_directory

IDLE = "none"  # the name of no load

_SHELL = "/bin/sh"
_LIST_SECONDS = 5
_WORD = re.compile(r"[a-z][a-z0-9_-]*")


def program() -> Path | None:
    """The program that makes klat's own loads. None if it is not built."""
    directory = programs.directory()
    for path in (directory / "load" / "load", directory / "load-load"):
        if path.is_file() and os.access(path, os.X_OK):
            return path
    return None


def names() -> list[str]:
    """The names of klat's loads; none if load/load is not built."""
    load_program = program()
    if load_program is None:
        return []
    try:
        output = answer([load_program, "--list"], _LIST_SECONDS).stdout
    except OSError as error:
        programs.check_start(load_program, error)
        return []
    except subprocess.TimeoutExpired:
        return []
    return [line.split()[0] for line in output.splitlines() if line.strip()]


def names_text() -> str:
    """The names of klat's loads, or why there are none."""
    return ", ".join(names()) or f"none: load/load is not built; {programs.build_cure()}"


def check(load: str) -> None:
    """KlatError if `load` is one word that is neither a load nor a command."""
    if not _WORD.fullmatch(load) or load in names() or shutil.which(load):
        return
    raise KlatError(
        f"--load {load}: is neither a load nor a command{did_you_mean(load, names())}; the loads are"
        f" {names_text()}"
    )


def words(load: str) -> list[str]:
    """The words that start the load: klat's own by its name, a command by the shell."""
    load_program = program()
    if load_program is not None and load in names():
        return [str(load_program), load]
    return [_SHELL, "-c", load]


_SETTLE_SECONDS = 0.5
_LOOK_SECONDS = 0.4  # the shortest time between two readings of the load's CPU time
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE_TICKS = 2  # fewer: the load did nothing
_BUSY_SHARE = 0.1  # of a CPU
_PERIODIC = 3  # from so many changes between idle and busy on, pauses belong to the load
_SHORT = 0.1  # of the time: the client of a daemon or of another machine works only at its start
_LOG_TAIL = 1000  # bytes of load.log, whose size the load decides
_WATCH = "trap '' HUP INT TERM; read -r _; kill -TERM -{0}; sleep 2; kill -KILL -{0}"


class Guard:
    """Ends a process group when the runner has ended, also by SIGKILL."""

    def __init__(self, group: int) -> None:
        # Only the runner holds the other end of the watcher's standard input.
        reader, self._lifeline = os.pipe()
        try:
            self._watcher = Process([_SHELL, "-c", _WATCH.format(group)], stdin=reader)
        finally:
            os.close(reader)

    def release(self) -> None:
        """Leave the group alone from now on."""
        self._watcher.signal_group(signal.SIGKILL)
        self._watcher.reap()
        os.close(self._lifeline)


_BEGIN = 'read -r _ && exec "$@" </dev/null'  # starts the load after reset_scheduling()
_PR_SET_TIMERSLACK, _TIMER_SLACK_NS = 29, 50_000  # the kernel's default


def reset_scheduling(pid: int) -> None:
    """Give a process nice 0, and all CPUs of its cpuset that are not isolated, whatever klat has. KlatError if that is
    refused."""
    isolated = kernel_files.cpu_list(kernel_files.text(Path("/sys/devices/system/cpu/isolated")))
    try:
        if os.getpriority(os.PRIO_PROCESS, pid):
            os.setpriority(os.PRIO_PROCESS, pid, 0)
        os.sched_setaffinity(pid, range(kernel_files.MOST_CPUS))
        if cpus := os.sched_getaffinity(pid).difference(isolated):
            os.sched_setaffinity(pid, cpus)
    except OSError as error:
        raise KlatError(
            f"cannot give a load nice 0 and all CPUs: {error.strerror}; start klat with nice 0"
        ) from error


def _cpu_ticks(pid: int) -> int:
    """The CPU time of a process, of its descendants, and of those that they have waited for. 0 if unknown."""
    ticks, pids = 0, [str(pid)]
    while pids:
        process = Path("/proc", pids.pop())
        with suppress(OSError):  # it has ended
            fields = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
            pids += " ".join(p.read_text() for p in process.glob("task/*/children")).split()
    return ticks


class Activity:
    """When a load worked, by its CPU time."""

    def __init__(self) -> None:
        self._was_busy: bool | None = None
        self._changes = 0
        self._seconds = {True: 0.0, False: 0.0}  # busy, idle

    def add(self, seconds: float, ticks: int) -> None:
        """The CPU time in the last `seconds`, in clock ticks. It is negative if a process ended and nobody waited for it."""
        is_busy = ticks > _BUSY_SHARE * _CLOCK_TICKS * seconds
        if not is_busy and not 0 <= ticks < _IDLE_TICKS:
            return
        self._changes += self._was_busy not in (None, is_busy)
        self._was_busy = is_busy
        self._seconds[is_busy] += seconds

    @property
    def paused(self) -> bool:
        """Whether the load was idle for a time and busy for a time: it began late, or stopped working. False for a load
        that pauses again and again, because it is the same for all runs."""
        is_short = min(self._seconds.values()) < _SHORT * sum(self._seconds.values())
        return 0 < self._changes < _PERIODIC and not is_short


class Load:
    """A background load: one of klat's by its name, or a command for /bin/sh. Its standard error goes to load.log.
    It starts under SCHED_OTHER with nice 0, the default timer slack and all CPUs: no record has the values of klat itself.
    """

    def __init__(self, command: str, session: Path, signals: Signals) -> None:
        self._command = command
        self._signals = signals
        self._log = session / session_directory.LOAD_LOG
        self.beside_others = False  # whether check() has found another session of klat at work
        self._looked, self._ticks = time.monotonic(), 0
        self.activity = Activity()
        descriptor = files.append(self._log)
        reader, writer = os.pipe()
        try:
            shell_command = [_SHELL, "-c", _BEGIN, "sh", *words(command)]
            ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _TIMER_SLACK_NS)
            self._process = Process(shell_command, stdin=reader, stderr=descriptor)
            reset_scheduling(self._process.pid)
            self._guard = Guard(self._process.pid)
            os.write(writer, b"\n")
        finally:
            for end in (descriptor, reader, writer):
                os.close(end)

    def settle(self) -> None:
        """Wait until the load is at work. KlatError if it has ended."""
        self._signals.sleep(_SETTLE_SECONDS)
        self.check()

    def check(self) -> None:
        """KlatError if the load has ended, or if something stopped it since the last check. The session would name a
        load that did not run."""
        self.beside_others |= has_others(self._process.pid)
        self._look()
        if self._process.ended():
            how = self._ending()
        elif self._process.stopped():
            how = "was stopped by a signal"
        else:
            return
        raise KlatError(f"the load {shlex.quote(self._command)} {how}", status=1)

    def _look(self) -> None:
        elapsed = time.monotonic() - self._looked
        if elapsed < _LOOK_SECONDS:
            return
        ticks = _cpu_ticks(self._process.pid)
        self.activity.add(elapsed, ticks - self._ticks)
        self._looked, self._ticks = self._looked + elapsed, ticks

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
        return f"{how} (a load must stay in the foreground)" if status == 0 else how

    def end(self) -> None:
        """End the load with everything in its process group."""
        self._look()
        self._guard.release()
        self._process.end(self._signals)


# Its standard input ends when the runner and the program in flight have ended.
_AWAIT = "trap '' HUP INT TERM; read -r _; trap - HUP INT TERM; exec /bin/sh -c \"$1\""
_ONE_REQUEST_SECONDS = 0.5


class Restore:
    """Runs `command` after the session: in end(), or, if the runner is killed before, in a process that waits
    for this. That process runs it after the run in flight, which inherits `lifeline`. It holds the session's
    `locks`, so that nobody resumes the session while the command runs. If the runner is killed in end(), the
    command runs twice."""

    def __init__(self, command: str, locks: Sequence[int]) -> None:
        self._command = command
        reader, self.lifeline = os.pipe()
        try:
            words = [_SHELL, "-c", _AWAIT, "sh", command]
            self._watcher = Process(words, stdin=reader, inherit=locks)
        finally:
            os.close(reader)

    def end(self, signals: Signals, seconds: float) -> str:
        """Run the command. Returns what went wrong, or an empty text. A new request to stop ends the command;
        Stopped is not raised."""
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


@contextmanager
def at_work() -> Iterator[None]:
    """Show other sessions that this one is at work. Each session holds a shared lock on /proc, which all users can open."""
    descriptor = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # without the lock, nobody sees this session
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def has_others(load: int) -> bool:
    """Whether another session is at work. Ignores the process group `load`. Does not see sessions in other
    containers."""
    descriptor = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        others = {*owners.lock_holders(descriptor)} - {0, os.getpid()}
    finally:
        os.close(descriptor)
    return any(_is_klat(pid) and _group(pid) != load for pid in others)


def _is_klat(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except PermissionError:  # of another user, with hidepid
        return True
    except OSError:
        return False
    return any(os.path.basename(word) == b"klat" for word in words)


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None
