"""Runs klat's programs as a user would type them, and knows what differs from program to program."""

from __future__ import annotations

import atexit
import csv
import ctypes
import errno
import functools
import io
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
LIMIT_SECONDS = 30
RETRIES = 8

MEASURED, FAILED, USAGE, UNTRUSTED, SKIPPED = range(5)


def makefile_list(name: str) -> list[str]:
    """A variable of the Makefile that is a list of words."""
    found = re.search(rf"^{name} := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found, name
    return found[1].split()


# The folder of each program, below the tree or a build of it.
FOLDERS = {
    path.stem: path.parent.relative_to(ROOT)
    for path in (*ROOT.glob("*/*.c"), *ROOT.glob("bench/*/*.c"))
    if path.stem == path.parent.name != "load"
}
PROGRAMS = sorted(FOLDERS)
# One on two CPUs, one on one.
SHOWN = ("pipes", "switch")
# For a promise that the library keeps for every program in the same code.
on_two = pytest.mark.parametrize("program", SHOWN)


def shown_on_two(programs: Sequence[str]) -> list[Any]:
    """Values for `parametrize`."""
    return [p if p in SHOWN else pytest.param(p, marks=pytest.mark.slow) for p in programs]


def combined(*axes: Sequence[Any]) -> list[Any]:
    """Values for `parametrize`: `make test` tries every value of each axis, `make test-slow` every pair of values."""
    rows = [tuple(axis[n % len(axis)] for axis in axes) for n in range(max(map(len, axes)))]
    fast = len(rows)

    def pairs(row: tuple[Any, ...]) -> set[Any]:
        return set(itertools.combinations(enumerate(row), 2))

    every = list(itertools.product(*axes))
    left = set().union(*map(pairs, every)) - set().union(*map(pairs, rows))
    while left:
        rows.append(max(every, key=lambda row: len(pairs(row) & left)))
        left -= pairs(rows[-1])
    return [
        pytest.param(*row, marks=[pytest.mark.slow] if number >= fast else [], id=name_of(row))
        for number, row in enumerate(rows)
    ]


def name_of(row: tuple[Any, ...]) -> str:
    def name(value: Any) -> str:
        if isinstance(value, tuple):
            return " ".join(filter(None, map(name, value)))
        return getattr(value, "__name__", str(value))

    return "-".join(map(name, row))


@dataclass(frozen=True)
class Traits:
    """What a test must know of one program."""

    # Timed iterations by default.
    iterations: int = 500
    # Options for iterations far shorter than by default, where a test wants hundreds of them.
    short: tuple[str, ...] = ()
    # Held to one CPU without --cpus.
    on_one_cpu: tuple[int, ...] = (SKIPPED,)
    # Without privilege.
    unprivileged: tuple[int, ...] = (MEASURED,)
    # Measures under SCHED_OTHER, too.
    ordinary: bool = True
    # SCHED_OTHER without --policy.
    ordinary_by_default: bool = False
    # Options for the steadiest figures, in which an injected spin shows best.
    steady: tuple[str, ...] = ()
    steady_iterations: int = 20000
    # How many times the injected spin is in a sample of the metric, where not once; 0 where it is not.
    injected: Mapping[str, float] = field(default_factory=dict)
    # The system calls that iterations are made of; None: nothing is written down.
    calls: frozenset[str] | None = None
    traced_iterations: int = 300
    # Iterations that share one of these calls.
    iterations_per_call: int = 1
    # Reasons for which this program's own planted faults are found out.
    faults: Mapping[str, str] = field(default_factory=dict)
    # Ends a run whose other options let it wait for something outside.
    bounded: tuple[str, ...] = ()
    # Under ThreadSanitizer, which handles signals late and maps memory as it goes.
    tsan: tuple[str, ...] = ()


TRAITS: dict[str, Traits] = {
    "pipes": Traits(steady=("--cpus", "1,1"), calls=frozenset({"read", "write"})),
    "cv": Traits(
        steady=("--cpus", "1,1"),
        injected={"round_trip": 2},
        calls=frozenset({"futex"}),
        faults={"stale": "belonged to different hand-offs", "late": "was woken before it slept"},
    ),
    "tlbflush": Traits(
        steady=("--responders", "0", "--cpus", "1"),
        injected={"interruption": 0},
        calls=frozenset({"mmap", "munmap", "getrusage", "clock_nanosleep"}),
        faults={
            "sleep": "a responder slept during",
            "apart": "overlapped in only",
            "stale": "its TLB was not flushed",
        },
    ),
    "eventloop": Traits(
        iterations=20,
        short=("--pairs", "20", "--active", "4", "--writes", "40"),
        on_one_cpu=(MEASURED,),
        steady=("--pairs", "2", "--active", "1", "--writes", "2"),
        injected={"registration": 0, "teardown": 0},
        calls=frozenset({"read", "write", "epoll_wait", "epoll_ctl"}),
        faults={"lost": "bytes were read, not", "stray": "at the wrong descriptor"},
    ),
    "fault": Traits(
        on_one_cpu=(MEASURED,),
        calls=frozenset({"madvise", "getrusage", "clock_nanosleep"}),
        iterations_per_call=124,
        traced_iterations=1240,
        faults={
            "present": "touches caused no page fault",
            "extra": "page faults more than",
            "small": "page faults more than",
        },
    ),
    "inherit": Traits(
        on_one_cpu=(MEASURED,),
        unprivileged=(SKIPPED,),
        ordinary=False,
        calls=frozenset({"futex"}),
        faults={
            "free": "the lock was free",
            "unopposed": "the spinner was not runnable",
            "plain": "the spinner ran before the highest",
        },
    ),
    "timer": Traits(
        on_one_cpu=(MEASURED,),
        steady=("--period", "100"),
        calls=frozenset({"timer_settime", "rt_sigprocmask", "rt_sigreturn", "clock_nanosleep"}),
        faults={
            "yield": "slept",
            "early": "before its deadline",
            "uncounted": "unaccounted",
            "overrun": "more CPU time than its runtime",
        },
        tsan=("--method", "nanosleep"),
    ),
    "spawn": Traits(
        on_one_cpu=(MEASURED,),
        steady=("--what", "vfork"),
        calls=frozenset(
            {"clone", "wait4", "gettid", "set_robust_list", "exit_group", "clock_nanosleep"}
        ),
        faults={
            "call": "had no new process",
            "unreaped": "children were not waited for",
            "status": "ended with another status",
        },
    ),
    "switch": Traits(
        on_one_cpu=(MEASURED,),
        calls=frozenset({"sched_yield", "futex", "clock_nanosleep"}),
        faults={"alone": "switched away from one side"},
    ),
    "syscall": Traits(
        on_one_cpu=(MEASURED,),
        calls=frozenset({"getppid", "clock_nanosleep"}),
        faults={"cached": "reached the kernel in the control", "refused": "another result"},
    ),
    "network": Traits(
        unprivileged=(MEASURED, SKIPPED),
        steady_iterations=30000,
        calls=frozenset({"read", "sendto", "clock_nanosleep", "getrusage"}),
        traced_iterations=60,
        faults={"yield": ""},
        bounded=("--wait-for", "1"),
    ),
    "messages": Traits(
        steady=("--cpus", "1,1"),
        calls=frozenset({"read", "write", "epoll_wait", "clock_nanosleep"}),
        faults={"poll": "the thread was woken before it slept"},
    ),
    "noise": Traits(
        iterations=50,
        short=("--window", "500"),
        on_one_cpu=(MEASURED,),
        steady=("--window", "500"),
        injected={"lost": 0},
        steady_iterations=2000,
        calls=frozenset(),
        faults={"blind": "differs from the windows", "sleep": "slept although it must not"},
    ),
    "semaphore": Traits(
        steady=("--cpus", "1,1", "--consumer-burn", "1000", "--idle", "1000"),
        injected={"bare": 0},
        calls=frozenset({"futex", "clock_gettime", "clock_nanosleep"}),
        faults={
            "awake": "the consumer was woken before it slept",
            "free": "the consumer was woken before it slept",
        },
    ),
    "signal": Traits(
        steady=("--cpus", "1,1"),
        calls=frozenset({"tgkill", "rt_sigtimedwait"}),
        faults={
            "call": "were not those that the other side sent",
            "twice": "a signal too many",
            "late": "the receiver was woken before it slept",
        },
    ),
    "wakeup": Traits(
        ordinary_by_default=True,
        # An ordinary thread preempts the waker or not, depending on how long the waker has run.
        steady=("--hogs", "0", "--cpus", "1,1", "--policy", "batch"),
        calls=frozenset({"futex", "pread64"}),
        faults={
            "awake": "the woken thread was woken before it slept",
            "idle": "a hog ran for only",
            "behind": "the rate was not kept",
        },
    ),
    "transport": Traits(
        steady=("--transport", "pipe", "--wait", "block", "--cpus", "1,1"),
        injected={"half": 0.5},
        calls=frozenset({"read", "write"}),
        faults={"corrupt": "damaged", "sleep": "slept"},
        bounded=("--wait-for", "1"),
    ),
}


def traits(program: str) -> Traits:
    """Without an entry, those of a program that `make new` has just made."""
    return TRAITS.get(program, Traits(on_one_cpu=(MEASURED, SKIPPED), steady=("--cpus", "one")))


def lacking(reason: str) -> None:
    """This machine cannot show what the test is about: a skip, or a failure where it should be able to."""
    if os.environ.get("KLAT_REQUIRE") == "1":
        pytest.fail(f"KLAT_REQUIRE is set, and {reason}")
    pytest.skip(reason)


def path_of(program: str, variant: str = "") -> Path:
    """`variant` is a directory below build/, empty for the tree's own programs."""
    folder = FOLDERS.get(program, Path(program))  # load is no benchmark
    path = (ROOT / "build" / variant if variant else ROOT) / folder / program
    if not path.exists():
        pytest.fail(f"{path} is not built: run the tests by 'make test'")
    return path


@dataclass(frozen=True)
class Done:
    words: Sequence[str]
    status: int
    out: str
    err: str
    seconds: float

    def __str__(self) -> str:
        return (
            f"{shlex.join(map(str, self.words))}\nstatus {self.status} after {self.seconds:.3f} s\n"
            f"--- stdout\n{self.out}--- stderr\n{self.err}"
        )


def command(words: Sequence[str | Path], **options: Any) -> Done:
    """Runs it to its end, or fails the test; nothing that it started is left behind."""
    limit = options.pop("limit", LIMIT_SECONDS)
    texts = [str(word) for word in words]
    begun = time.monotonic()
    with subprocess.Popen(
        texts,
        stdin=subprocess.DEVNULL,
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        start_new_session=True,
        **options,
    ) as process:
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            pytest.fail(f"{shlex.join(texts)} did not end in {limit} s\n{err!r}")
    return Done(
        texts,
        process.returncode,
        (out or b"").decode(errors="backslashreplace"),
        err.decode(errors="backslashreplace"),
        time.monotonic() - begun,
    )


@functools.cache
def shared_session() -> Path:
    path = Path(tempfile.mkdtemp(prefix="klat-test-session-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def joining(arguments: Sequence[str | Path], options: Mapping[str, Any]) -> list[str | Path]:
    """
    Words that let a run without a session of its own join the tests' session. It takes the calibration of the
    counter from there, which saves 0.2 s. A run that inherits another state or runs under a load could not join.
    """
    alone = any(str(word).startswith(("--record", "--label", "--under-load")) for word in arguments)
    return [] if alone or options.keys() & {"preexec_fn", "env"} else ["--record", shared_session()]


def run(program: str, *arguments: str | Path, **options: Any) -> Done:
    return command([path_of(program), *arguments, *joining(arguments, options)], **options)


def works(program: str, *arguments: str | Path, **options: Any) -> Done:
    """A run that ends with a result, whatever other work on the machine did to it."""
    done = run(program, *arguments, **options)
    if done.status == SKIPPED:
        lacking(done.err.strip())
    assert done.status in (MEASURED, UNTRUSTED), str(done)
    return done


def measured(program: str, *arguments: str | Path, **options: Any) -> Done:
    """A run that ends with status 0; a noisy machine gets several tries at it."""
    for number in range(RETRIES):
        time.sleep(0.5 * number)
        done = works(program, *arguments, **options)
        if done.status == MEASURED:
            break
    assert done.status == MEASURED, str(done)
    return done


def refusing(number: int, error: int = errno.EPERM) -> Callable[[], None]:
    """For a child before it begins: a seccomp filter that refuses this system call."""
    load_number, equal, give = 0x20, 0x15, 0x06
    refuse, allow = 0x00050000 | error, 0x7FFF0000
    code = [
        (load_number, 0, 0, 0),
        (equal, 0, 1, number),
        (give, 0, 0, refuse),
        (give, 0, 0, allow),
    ]
    instructions = b"".join(struct.pack("=HBBI", *each) for each in code)
    held = ctypes.create_string_buffer(instructions, len(instructions))
    program = struct.pack("@HP", len(code), ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)

    def install() -> None:
        no_new_privileges, seccomp, filter_mode = 38, 22, 2
        libc.prctl(no_new_privileges, 1, 0, 0, 0)
        assert libc.prctl(seccomp, filter_mode, program, 0, 0) == 0 and held

    return install


def until(attempt: Callable[[], str], tries: int = RETRIES) -> None:
    """Passes once `attempt` finds nothing wrong; other work on the machine is given time to end."""
    wrong = ""
    for number in range(tries):
        wrong = attempt()
        if not wrong:
            return
        time.sleep(0.3 * number)
    pytest.fail(f"in each of {tries} tries, at last: {wrong}")


class TryAgain(Exception):
    """A test found something wrong that other work on the machine can have caused."""


def try_again_unless(right: object, shown: object) -> None:
    """For a test `with_tries`. What must hold in every try is asserted."""
    if not right:
        raise TryAgain(str(shown))


def with_tries(test: Callable[..., None]) -> Callable[..., None]:
    """A test that is repeated as long as it says so, several times at most."""

    @functools.wraps(test)
    def repeat(*arguments: Any, **fixtures: Any) -> None:
        def attempt() -> str:
            try:
                test(*arguments, **fixtures)
            except TryAgain as wrong:
                return str(wrong) or "wrong"
            return ""

        until(attempt)

    return repeat


def assert_one_line(done: Done, program: str, status: int) -> None:
    """One clear line on stderr, nothing on stdout, and the status."""
    lines = done.err.splitlines()
    assert done.status == status, str(done)
    assert len(lines) == 1 and done.err.endswith("\n"), str(done)
    assert lines[0].startswith(f"{program}: "), str(done)
    assert len(lines[0]) > len(program) + 12 and lines[0].isprintable(), str(done)
    assert done.out == "", str(done)


def help_options(program: str) -> dict[str, str]:
    """Option names of --help, each with its description."""
    text = run(program, "--help").out
    found = re.findall(r"^  --([a-z-]+)(.*(?:\n {10,}.*)*)", text, re.MULTILINE)
    # A long list of words is broken after a '|'.
    return {name: " ".join(rest.split()).replace("| ", "|") for name, rest in found}


def faults(program: str) -> list[str]:
    """What --plant offers."""
    return help_options(program)["plant"].split(" ")[0].split("|")


def json_of(done: Done) -> dict[str, Any]:
    result = json.loads(done.out)
    assert isinstance(result, dict)
    return result


def rows_of(text: str) -> list[dict[str, str]]:
    rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    assert all(
        None not in row and None not in row.values() for row in rows
    ), "rows of unequal width"
    return rows


@dataclass(frozen=True)
class Session:
    """A session read by the letter of docs/record.md, with none of klat's code."""

    path: Path

    @property
    def info(self) -> dict[str, Any]:
        return dict(json.loads((self.path / "session.json").read_text()))

    @property
    def rows(self) -> list[dict[str, str]]:
        return rows_of((self.path / "runs.csv").read_text())

    def samples(self, row: Mapping[str, str]) -> list[int]:
        data = (self.path / "samples" / f"{row['benchmark']}.u64").read_bytes()
        first, n = int(row["first_sample"]), int(row["n"])
        return list(struct.unpack_from(f"<{n}Q", data, 8 * first))


def next_session(directory: Path) -> Session:
    """A session without a file, for a test that records again where the machine was noisy."""
    return Session(directory / str(len(list(directory.iterdir()))))


def injected(iteration: int) -> bool:
    """Whether `--inject` has it spin."""
    return iteration.bit_count() % 2 == 1


def injected_gap(samples: Sequence[float]) -> float:
    """
    Median of the samples with an injected spin less that of the others, in the quarter of the stretches in which those
    others are the fastest: other work on the machine lengthens the spin as well.
    """
    length = min(512, len(samples))
    stretches = []
    for at in range(0, len(samples) - length + 1, length):
        spun = statistics.median(samples[i] for i in range(at, at + length) if injected(i))
        others = statistics.median(samples[i] for i in range(at, at + length) if not injected(i))
        stretches.append((others, spun - others))
    quietest = sorted(stretches)[: max(1, len(stretches) // 4)]
    return statistics.median(gap for _, gap in quietest)


def children(pid: int) -> set[int]:
    """Of every thread of the process. A thread that has ended has none."""
    processes: set[int] = set()
    with suppress(FileNotFoundError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                listed = Path(f"/proc/{pid}/task/{thread}/children").read_text()
                processes.update(map(int, listed.split()))
    return processes


def descendants(pid: int) -> set[int]:
    found = children(pid)
    return found.union(*map(descendants, found))


def gone(pids: set[int], limit: float = 5) -> set[int]:
    """Waits for the processes to end. Returns the ones that did not. A zombie has ended."""
    deadline = time.monotonic() + limit
    left = pids
    while left and time.monotonic() < deadline:
        left = {pid for pid in left if _lives(pid)}
        time.sleep(0.01)
    return left


def _lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


class Running:
    """A run far longer than its test, killed at the end whatever happens."""

    def __init__(self, program: str, *arguments: str | Path, **options: Any) -> None:
        self.program = program
        words = [path_of(program), *arguments]
        if not {"--soak", "--iterations"} & set(arguments):
            words += ["--iterations", "2000000"]
        if "executable" not in options:
            words += joining(arguments, options)
        self.process = subprocess.Popen(
            list(map(str, words)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            **options,
        )
        self.children: set[int] = set()

    def __enter__(self) -> Running:
        try:
            self.wait_measuring()
        except BaseException:
            self.__exit__()  # or real-time threads would stay
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for pid in {self.process.pid} | self.children:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.communicate()

    def wait_measuring(self, limit: float = 10) -> None:
        """Until the measured process is there and has done some work."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline and self.process.poll() is None:
            self.children = descendants(self.process.pid)
            # Workers are threads, or processes beside the measured one.
            if len(self.children) > 1 or any(_threads(pid) > 1 for pid in self.children):
                time.sleep(0.1)
                self.children = descendants(self.process.pid)
                return
            time.sleep(0.01)
        out, err = self.process.communicate() if self.process.poll() is not None else (b"", b"")
        pytest.fail(f"did not start to measure: {out!r} {err!r}")

    def end(self, limit: float = 10) -> Done:
        out, err = self.process.communicate(timeout=limit)
        return Done([self.program], self.process.returncode, out.decode(), err.decode(), 0)


@contextmanager
def interruptions(*words: str) -> Iterator[list[tuple[int, int]]]:
    """Interrupts a CPU during the `with` block. Afterwards the list has begin and end of each interruption,
    without those that the host stretched because it stopped a CPU meanwhile."""
    log: list[tuple[int, int]] = []
    process = subprocess.Popen(
        [ROOT / "build" / "interrupter", *words], stdout=subprocess.PIPE, text=True
    )
    try:
        yield log
    finally:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=10)
        pairs = (line.split() for line in output.splitlines())
        all_of_them = [(int(begin), int(end)) for begin, end in pairs]
        usual = statistics.median(end - begin for begin, end in all_of_them)
        log.extend((begin, end) for begin, end in all_of_them if end - begin < 3 * usual)
    assert process.returncode == 0


def _threads(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0
