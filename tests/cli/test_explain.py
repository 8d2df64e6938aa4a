"""klat explain on this machine: its tracing instance, its record, and interruptions made on purpose."""

from __future__ import annotations

import csv
import platform
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import harness
import pytest

from klat.base.errors import KlatError
from klat.tracing import instance
from klat.tracing.kept_traces import SlowSample, parse_run
from klat.tracing.sample_split import split

KLAT = harness.ROOT / "klat"
INTERRUPTER = harness.ROOT / "build" / "interrupter"
LIMIT_SECONDS = 150


@pytest.fixture
def tracing(root: None) -> Path:
    """The directory of the tracing instances."""
    try:
        instance.clock()
        instances = instance.tracefs() / "instances"
    except KlatError as error:
        harness.lacking(str(error))
    return instances


def instances_of_klat(instances: Path) -> list[str]:
    return [entry.name for entry in instances.iterdir() if entry.name.startswith("klat-")]


def explain(*arguments: str | Path) -> harness.Done:
    return harness.command([KLAT, "explain", *arguments], limit=LIMIT_SECONDS)


def test_a_traced_run_says_so_in_its_params(tracing: Path, tmp_path: Path) -> None:
    keep = tmp_path / "kept"
    done = explain("pipes", "--above", "1us", "--runs", "1", "--iterations", "50", "--keep", keep)
    assert done.status == 0, done.err
    rows = list(csv.DictReader((keep / "session" / "runs.csv").open()))
    assert sorted("traced=1000" in row["params"].split(";") for row in rows) == [False, True]


def test_the_parts_of_kept_samples_add_up_to_what_the_record_holds(
    tracing: Path, tmp_path: Path
) -> None:
    keep = tmp_path / "kept"
    done = explain("pipes", "--above", "1us", "--runs", "1", "--iterations", "50", "--keep", keep)
    assert done.status == 0, done.err
    (kept,) = (keep / "traces").iterdir()
    rows = list(csv.DictReader((keep / "session" / "runs.csv").open()))
    (row,) = [row for row in rows if "traced" in row["params"]]
    recorded = (keep / "session" / "samples" / "pipes.u64").read_bytes()
    run = parse_run(0, kept.open())
    assert len(run.samples) + run.after_copy == run.slow == 50
    for sample in run.samples:
        at = 8 * (int(row["first_sample"]) + sample.index)
        assert sample.ticks == int.from_bytes(recorded[at : at + 8], "little")
        assert sum(part.ticks for part in split(sample, run.workers, 10**9)) == sample.ticks


def test_traces_are_copied_while_real_time_threads_spin_on_every_cpu(
    tracing: Path, two_cpus: None
) -> None:
    done = explain("network", "--cpus", "1,0", "--above", "1us", "--runs", "1")
    if done.status == harness.SKIPPED:
        harness.lacking(done.err)
    assert done.status == 0 and "network.wakeup: " in done.out, done


def test_an_instance_left_by_a_killed_klat_is_removed_by_the_next(
    tracing: Path, tmp_path: Path
) -> None:
    words = [KLAT, "explain", "pipes", "--above", "1s", "--runs", "10000"]
    killed = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        own = f"klat-{killed.pid}"
        deadline = time.monotonic() + 10
        while own not in instances_of_klat(tracing) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert own in instances_of_klat(tracing)
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.wait()

    def removed() -> str:
        # The program in flight has the instance open until it ends.
        done = explain("pipes", "--above", "1s", "--runs", "1", "--iterations", "10")
        left = instances_of_klat(tracing)
        return "" if done.status == 0 and own not in left else f"{done.err} {left}"

    harness.until(removed)


def test_a_user_who_may_not_trace_is_told_to_be_root(
    tracing: Path, as_nobody: Sequence[str | Path]
) -> None:
    if not harness.path_of("pipes").stat().st_mode & 0o001:
        harness.lacking("this test needs programs that every user may run")
    done = harness.command([*as_nobody, KLAT, "explain", "pipes", "--above", "1us"])
    assert done.status == 4 and "run as root" in done.err


@contextmanager
def interruptions(*words: str) -> Iterator[list[tuple[int, int]]]:
    """Interrupts a CPU meanwhile. The list holds begin and end of each interruption afterwards."""
    found: list[tuple[int, int]] = []
    process = subprocess.Popen([INTERRUPTER, *words], stdout=subprocess.PIPE, text=True)
    try:
        yield found
    finally:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=10)
        pairs = (line.split() for line in output.splitlines())
        found.extend((int(begin), int(end)) for begin, end in pairs)
    assert process.returncode == 0


def overlap(sample: SlowSample, log: Sequence[tuple[int, int]]) -> int:
    return sum(max(0, min(e, sample.end) - max(b, sample.begin)) for b, e in log)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the trace has no clock here")
@pytest.mark.parametrize(
    "words, cpus, above, cause",
    [
        (("task", "1", "200"), "1,1", "100us", "task interrupter"),
        (("packets", "1", "0"), "1,1", "50us", "softirq NET_RX"),
        (("task", "0", "2000"), "1,0", "500us", "task interrupter"),
    ],
    ids=["real-time task", "softirq burst", "held CPU of the other thread"],
)
def test_an_interruption_is_named_in_the_samples_that_it_hits(
    tracing: Path,
    two_cpus: None,
    tmp_path: Path,
    words: Sequence[str],
    cpus: str,
    above: str,
    cause: str,
) -> None:
    """In at least 95 % of the samples of which an interruption is more than half."""
    keep = tmp_path / "kept"
    with interruptions(*words) as log:
        arguments = ("--cpus", cpus, "--above", above, "--runs", "10", "--iterations", "5000")
        done = explain("pipes", *arguments, "--keep", keep)
    assert done.status == 0, done.err
    hit = named = 0
    for kept in (keep / "traces").iterdir():
        run = parse_run(0, kept.open())
        for sample in run.samples:
            if 2 * overlap(sample, log) <= sample.ticks:
                continue
            parts = split(sample, run.workers, 10**9)
            taken = sum(part.ticks for part in parts if part.cause.startswith(cause))
            hit += 1
            named += 2 * taken > overlap(sample, log)
    assert hit >= 20
    assert named >= 0.95 * hit, f"{named} of {hit}"
