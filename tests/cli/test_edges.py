"""No sample is long or short because of its place in the run: not the first, not the last, no other.

By the tests of klat.stats.positions over many short runs, each command with a false alarm in a
million. The fault "edges" puts klat's work back where it once was: to the beginning of the timed
part, and right behind its last stamp.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import MEASURED, UNTRUSTED, Session, run

from klat.stats.positions import Order, standouts

pytestmark = pytest.mark.alone

RUNS, ITERATIONS = 24, 150
ONE_CPU = ("--cpus", "1,1")
SPINNING = ("transport", "--wait", "spin")
# One for each way in which one side's end could disturb the other: threads or processes that sleep
# for each other on one CPU, sides of two priorities, sides that yield, sides that spin. One is
# alone, and has but a beginning.
COMMANDS = [
    ("pipes", *ONE_CPU),
    ("pipes", "--peer", "process", *ONE_CPU),
    ("cv", *ONE_CPU),
    ("messages", *ONE_CPU),
    ("semaphore", *ONE_CPU),
    ("transport", "--wait", "block", *ONE_CPU),
    ("switch",),
    ("signal", *ONE_CPU),
    ("inherit",),
    ("pipes",),
    SPINNING,
    ("messages", "--wake", "spin"),
    ("tlbflush",),
    ("syscall",),
]

TIMERS = ("signal", "itimer", "timerfd", "nanosleep", "signal-below")
SLEEPERS = ("pipe", "unix", "tcp", "udp", "multicast")
RECEIVES = ("sigwaitinfo", "handler", "signalfd")
WAKES = ("eventfd-epoll", "eventfd-read", "futex", "cond", "pipe")
LOOP = ("eventloop", "--pairs", "20", "--writes", "100")
# Every other mode of every program, and each placement that makes another event of it.
EVERY_OTHER = [
    ("pipes", "--pairs", "2", "--cpus", "0,0,1,1"),
    ("pipes", "--peer", "process"),
    *[("pipes", "--wait", "epoll", *where) for where in ((), ONE_CPU)],
    *[("pipes", "--mode", "one-way", "--higher", higher) for higher in ("none", "reader")],
    ("pipes", "--mode", "one-way", "--higher", "reader", *ONE_CPU),
    ("cv",),
    *[
        ("cv", "--primitive", primitive, *where)
        for primitive in ("futex", "mutex", "pi-mutex", "semaphore")
        for where in ((), ONE_CPU)
    ],
    ("cv", "--primitive", "mutex", "--contention", "none"),
    ("cv", "--signal", "released"),
    *[("tlbflush", "--operation", name) for name in ("mprotect", "madvise", "membarrier")],
    ("tlbflush", "--page-table", "freed"),
    *[("timer", "--method", name) for name in TIMERS],
    *[("timer", "--method", name, "--mode", "periodic") for name in TIMERS],
    *[("timer", "--wait", name) for name in ("read", "epoll")],
    *[("network", *where) for where in ((), ONE_CPU)],
    *[("wakeup", "--hogs", "0", *where) for where in ((), ONE_CPU)],
    ("wakeup", "--policy", "fifo"),
    ("syscall", "--batch", "100"),
    *[("syscall", "--call", name) for name in ("write-null", "futex-wake-none", "open-close")],
    ("syscall", "--caller", "process"),
    *[("inherit", *how) for how in (("--depth", "5"), ("--protocol", "none"))],
    *[("signal", "--receive", receive, *where) for receive in RECEIVES for where in ((), ONE_CPU)],
    *[("switch", *how) for how in (("--by", "futex"), ("--peer", "process"))],
    *[
        ("semaphore", "--primitive", primitive)
        for primitive in ("posix", "sysv", "futex", "cond", "eventfd", "pipe")
    ],
    *[("messages", "--mode", mode) for mode in ("call", "pass-write", "pass-epoll", "star")],
    *[("messages", "--wake", wake, *where) for wake in WAKES for where in ((), ONE_CPU)],
    *[(*LOOP, "--backend", name) for name in ("epoll", "poll", "select", "none")],
    *[("transport", "--transport", name, "--wait", "block") for name in SLEEPERS],
    *[
        ("transport", "--transport", name, "--wait", "spin")
        for name in ("thread-pointer", "shm-zero-copy", "shm-copy", *SLEEPERS)
    ],
    ("transport", "--transport", "udp", "--peer", "netns"),
]


def places(path: Path, program: str, *options: str) -> set[int]:
    """That stand out over the runs of a session, of any metric."""
    for number in range(RUNS):
        words = ("--quiet", "--iterations", str(ITERATIONS), "--run", str(number + 1))
        done = run(program, *options, *words, "--record", path)
        assert done.status in (MEASURED, UNTRUSTED), str(done)
    session = Session(path)
    orders: dict[str, list[Order]] = {}
    for row in session.rows:
        samples = np.array(session.samples(row), dtype=np.uint64)
        orders.setdefault(row["metric"], []).append(Order.of(samples, len(samples) // ITERATIONS))
    return {found.place for metric in orders.values() for found in standouts(metric)}


def first_of(commands: Iterable[tuple[str, ...]]) -> list[Any]:
    """Values for `parametrize`: `make test` tries the first command, `make test-slow` the others."""
    first, *others = (pytest.param(command, id=" ".join(command)) for command in commands)
    return [first, *(pytest.param(*o.values, id=o.id, marks=pytest.mark.slow) for o in others)]


@pytest.mark.parametrize("command", first_of(COMMANDS))
def test_no_place_stands_out(command, tmp_path, two_cpus, real_time):
    assert places(tmp_path, *command) == set()


@pytest.mark.long
@pytest.mark.parametrize("command", EVERY_OTHER, ids=" ".join)
def test_no_place_stands_out_in_any_mode(command, tmp_path, two_cpus, real_time):
    assert places(tmp_path, *command) == set()


EDGES = {("pipes", *ONE_CPU): {0, -1}, ("cv", *ONE_CPU): {0, -1}, SPINNING: {0}, ("syscall",): {0}}


@pytest.mark.parametrize("command", first_of(EDGES))
def test_work_at_the_edges_is_seen(command, tmp_path, two_cpus, real_time):
    """Of the two edges of one CPU, either may hide the other: the longest sample is one."""
    assert places(tmp_path, *command, "--plant", "edges") & EDGES[command]
