"""No sample is long or short because of its place in the run: not the first, not the last, no other.

By the tests of klat.inference.positions over many short runs, each command with a false alarm in a
million. The fault "edges" puts klat's work back where it once was: to the beginning of the timed
part, and right behind its last stamp.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from harness import MEASURED, UNTRUSTED, Session, run

from klat.inference.positions import Order, standouts

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
    ("pipes",),
    SPINNING,
    ("messages", "--wake", "spin"),
    ("tlbflush",),
    ("syscall",),
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


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_place_stands_out(
    command: tuple[str, ...], tmp_path: Path, two_cpus: None, real_time: None
) -> None:
    assert places(tmp_path, *command) == set()


@pytest.mark.parametrize(
    "command, edges",
    [
        (("pipes", *ONE_CPU), {0, -1}),
        (("cv", *ONE_CPU), {0, -1}),
        (SPINNING, {0}),
        (("syscall",), {0}),
    ],
    ids=str,
)
def test_work_at_the_edges_is_seen(
    command: tuple[str, ...], edges: set[int], tmp_path: Path, two_cpus: None, real_time: None
) -> None:
    """Of the two edges of one CPU, either may hide the other: the longest sample is one."""
    assert places(tmp_path, *command, "--plant", "edges") & edges
