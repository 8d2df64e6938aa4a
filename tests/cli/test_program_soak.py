"""Programs that measure for a time: every period is counted, in segments that are complete on disk."""

import csv
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import MEASURED, UNTRUSTED, Session, run

pytestmark = pytest.mark.alone

CYCLIC = ("--method", "nanosleep", "--mode", "periodic")
PERIOD_NS = 1_000_000
ONE_CPU = ("--cpus", "1,1")


def soak(program: str, path: Path, seconds: int, *options: str) -> Session:
    words = ("--soak", str(seconds), "--record", path, *options)
    done = run(program, *words, limit=seconds + 20)
    assert done.status in (MEASURED, UNTRUSTED), str(done)
    return Session(path)


def longest(session: Session) -> list[dict[str, str]]:
    with (session.path / "samples" / "longest.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def ticks_to_ns(session: Session, ticks: float) -> float:
    return float(ticks * 1e6 / session.info["tsc"]["khz"])


def evidence(row: dict[str, str]) -> dict[str, int]:
    return {name: int(n) for name, n in re.findall(r"(\w+)=(-?\d+)", row["evidence"])}


def test_every_period_is_a_sample(tmp_path, real_time):
    session = soak("timer", tmp_path, 2, *CYCLIC, "--segment", "1")
    assert [int(row["run"]) for row in session.rows] == [1, 2]
    assert all("soak=1" in row["params"].split(";") for row in session.rows)
    for row in session.rows:
        assert abs(int(row["n"]) - int(row["elapsed_ns"]) / PERIOD_NS) <= 2, row
        assert abs(evidence(row)["periods"] - int(row["n"])) <= 2, row
    total = sum(int(row["elapsed_ns"]) for row in session.rows)
    assert 2e9 <= total < 3e9


# A lap has LAP_BYTES of sample buffers: see lib/run/soak.c.
LAP = (4 << 20) // 8 // 2
# By program: seconds for more than a lap, and the role whose counts are those of the iterations.
WITNESSES = {
    "pipes": (5, "voluntary", "reader"),
    "cv": (8, "voluntary", "high"),
    "network": (12, "voluntary", "high"),
    "messages": (5, "voluntary", "thread"),
    "transport": (5, "voluntary", "responder"),
    "tlbflush": (5, "minor_faults", "initiator"),
    "fault": (5, "minor_faults", "toucher"),
}


@pytest.mark.parametrize(
    "words",
    [
        ("pipes", *ONE_CPU),
        pytest.param(("cv", "--primitive", "mutex", *ONE_CPU), marks=pytest.mark.slow),
        pytest.param(("network",), marks=pytest.mark.slow),
        pytest.param(("messages", "--wake", "futex", *ONE_CPU), marks=pytest.mark.slow),
        pytest.param(("transport", *ONE_CPU), marks=pytest.mark.slow),
        pytest.param(("tlbflush", "--responders", "0"), marks=pytest.mark.slow),
        pytest.param(("fault",), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_laps_neither_lose_nor_repeat_an_iteration(words, tmp_path, two_cpus, real_time):
    """Compares with the kernel's count of sleeps or page faults."""
    program, *options = words
    seconds, column, role = WITNESSES[program]
    session = soak(program, tmp_path, seconds, *options, "--segment", "1")
    rows = [row for row in session.rows if row["metric"] == session.rows[0]["metric"]]
    total = sum(int(row["n"]) for row in rows)
    assert total > LAP, "no lap ended"
    assert total == sum(evidence(row)["observed"] for row in rows)
    counts = [int(re.findall(rf"\b{role}=(\d+)", row[column])[0]) for row in rows]
    assert sum(counts) == pytest.approx(total, rel=0.005)
    assert all(row["status"] in ("ok", "disturbed") for row in rows), [r["reason"] for r in rows]


@pytest.mark.parametrize(
    "program, metric, options",
    [
        ("tlbflush", "initiator", ()),
        ("messages", "hop", ("--wake", "futex")),
        ("transport", "round_trip", ("--wait", "block")),
        ("spawn", "reaped", ("--what", "thread")),
        ("wakeup", "wake", ("--hogs", "0", *ONE_CPU)),
    ],
)
def test_injected_delays_are_in_the_iterations_that_have_them(
    program, metric, options, tmp_path, two_cpus, real_time
):
    limit_ns = 150_000
    session = soak(program, tmp_path, 1, *options, "--inject", "200000", "--limit", str(limit_ns))
    (row,) = [row for row in session.rows if row["metric"] == metric]
    above = {
        int(kept["index"])
        for kept in longest(session)
        if kept["metric"] == metric and ticks_to_ns(session, int(kept["value"])) > limit_ns
    }
    # klat_inject() delays the iterations with an odd number of ones in binary.
    injected = [index for index in above if index.bit_count() % 2]
    assert len(injected) == pytest.approx(int(row["n"]) / 2, rel=0.01)
    assert len(above) - len(injected) < int(row["n"]) / 50


# On other ISAs a munmap causes no interrupt.
OPERATIONS = ("munmap", "membarrier") if platform.machine() == "x86_64" else ("membarrier",)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_call_of_an_initiator_interrupts_its_responder(
    operation, tmp_path, two_cpus, real_time
):
    options = ("--operation", operation, "--cpus", "1,0", "--segment", "1")
    session = soak("tlbflush", tmp_path, 2, *options)
    for row in session.rows:
        seen = evidence(row)
        assert row["status"] in ("ok", "disturbed"), row["reason"]
        assert seen["least_delivered"] == pytest.approx(int(row["n"]), rel=0.05)
        assert seen["least_gaps"] == pytest.approx(int(row["n"]), rel=0.01)
    cpus = {(kept["metric"], kept["cpu"]) for kept in longest(session)}
    assert cpus == {("initiator", "1"), ("interruption", "0")}


@pytest.mark.slow
def test_late_periods_are_counted_from_when_they_were_due(tmp_path, real_time):
    """A spin of 1.5 periods in every other iteration, on average: each period is late."""
    session = soak("timer", tmp_path, 3, *CYCLIC, "--inject", "1500000")
    (row,) = session.rows
    # The spins take 0.75 periods of each period.
    assert int(row["n"]) == pytest.approx(int(row["elapsed_ns"]) / PERIOD_NS, rel=0.01)
    # A long delay does not refute the segment that it is in.
    assert row["status"] == "disturbed" and "earlier periods" in row["reason"]
    # Half of the samples end a spin.
    assert ticks_to_ns(session, int(row["p50"])) > 500_000


@contextmanager
def interrupting(cpu: int, spin_ns: int, rest_ns: int) -> Iterator[list[tuple[int, int]]]:
    """A real-time task of the highest priority that spins on the CPU at random times. Afterwards: when
    it spun, on CLOCK_REALTIME."""
    script = f"""
import os, random, select, sys, time
os.sched_setaffinity(0, {{{cpu}}})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))
clock, spins = time.time_ns, []
print("ready", flush=True)
while True:
    time.sleep(random.expovariate(1e9 / {rest_ns}))
    begin = end = clock()
    while end - begin < {spin_ns}:
        end = clock()
    spins.append((begin, end))
    if select.select([sys.stdin], [], [], 0)[0]:
        break
print(*(f"{{a}},{{b}}" for a, b in spins))
"""
    found: list[tuple[int, int]] = []
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        try:
            yield found
            out, _ = process.communicate("stop\n", timeout=10)
            found += [(int(a), int(b)) for a, b in re.findall(r"(\d+),(\d+)", out)]
        finally:
            process.kill()


def test_every_injected_interruption_is_kept_with_its_time(tmp_path, two_cpus, real_time, root):
    limit_ns, slack_ns = 300_000, 100_000
    options = (*CYCLIC, "--cpus", "1", "--limit", str(limit_ns))
    with interrupting(1, 1_500_000, 50_000_000) as spins:
        session = soak("timer", tmp_path, 2, *options)
    kept = {int(row["index"]): row for row in longest(session) if int(row["time_ns"])}
    late = {i: row for i, row in kept.items() if ticks_to_ns(session, int(row["value"])) > limit_ns}
    assert sum(evidence(row)["above_limit"] for row in session.rows) == len(late)
    assert all(row["cpu"] == "1" for row in kept.values())
    # The deadlines, from any sample: the end of its wait less its lateness.
    index, row = next(iter(kept.items()))
    first = int(row["time_ns"]) - ticks_to_ns(session, int(row["value"])) - index * PERIOD_NS
    begun = int(session.rows[0]["start_ns"])
    ended = begun + int(session.rows[0]["elapsed_ns"])
    due = 0
    for begin, end in spins:
        # A deadline that fell far enough into the spin waits for its end.
        at = -int(-(begin + slack_ns - first) // PERIOD_NS)
        while begun < begin < end < ended and first + at * PERIOD_NS < end - limit_ns - slack_ns:
            due += 1
            assert at in late, (at, begin, end)
            waited = end - (first + at * PERIOD_NS)
            assert ticks_to_ns(session, int(late[at]["value"])) > waited - slack_ns
            assert int(late[at]["time_ns"]) > end - slack_ns
            at += 1
    assert due > 20
