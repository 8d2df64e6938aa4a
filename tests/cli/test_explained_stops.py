"""klat explain names real stops of the measured threads: by signals, by the freezer, and by a CPU quota."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import harness
import pytest
from test_inherited import made

from klat.tracing.kept_traces import parse_run
from klat.tracing.sample_split import split

STOP_SECONDS, PAUSE_SECONDS = 0.003, 0.02
LIMIT_SECONDS = 150
# Joins the cgroup first.
JOIN = ("sh", "-c", 'echo $$ > "$0" && exec "$@"')


def send(number: int, pids: set[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def stop_by(process: subprocess.Popen[bytes], freezer: Path) -> None:
    """Stops the process's programs again and again, or freezes its cgroup, until the process ends."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(PAUSE_SECONDS)
        programs = set() if freezer.exists() else harness.descendants(process.pid)
        try:
            send(signal.SIGSTOP, programs)
            if freezer.exists():
                freezer.write_text("1")
            time.sleep(STOP_SECONDS)
        finally:
            send(signal.SIGCONT, programs)
            if freezer.exists():
                freezer.write_text("0")


@contextmanager
def group_with(file: str) -> Iterator[Path]:
    """A new cgroup with this file."""
    mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for point in (point for point, kind in mounts if kind in ("cgroup", "cgroup2")):
        with made(group := Path(point) / "klat-test-stops"):
            if (group / file).exists():
                yield group
                return
    harness.lacking(f"no cgroup has {file}")


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize(
    "file, value, above, words, causes",
    [
        ("cgroup.freeze", "", "2ms", (), ("stopped",)),
        ("cgroup.freeze", "0", "2ms", (), ("asleep until woken by ",)),
        (
            "cpu.cfs_quota_us",
            "20000",
            "20ms",
            ("--option", "pipes.policy=other"),
            ("throttled", "CPU quota or task"),
        ),
    ],
    ids=["signals", "freezer", "quota"],
)
def test_a_stop_of_the_thread_is_the_cause_of_its_slow_samples(
    tracing, two_cpus, tmp_path, file, value, above, words, causes
):
    keep = tmp_path / "kept"
    with group_with(file) as group:
        if value:
            (group / file).write_text(value)
        options = ("--runs", "1", "--iterations", "12000", "--keep", keep, *words)
        explain = (harness.ROOT / "klat", "explain", "pipes", "--above", above, *options)
        process = subprocess.Popen([*JOIN, group / "cgroup.procs", *explain])
        try:
            if file != "cpu.cfs_quota_us":
                stop_by(process, group / file if value else tmp_path / "none")
            process.wait(LIMIT_SECONDS)
        finally:
            programs = harness.descendants(process.pid)
            process.kill()
            process.wait()
            harness.gone(programs)
    total = named = 0
    for kept in (keep / "session" / "traces").iterdir():
        run = parse_run(0, kept.open())
        for sample in run.samples:
            total += sample.ticks
            parts = split(sample, run.workers, 10**9)
            named += sum(part.ticks for part in parts if part.cause.startswith(causes))
    assert total and named >= 0.5 * total, f"{named} of {total}"
