"""How a soak ends and what it leaves on disk, and what is refused. This holds beside other work on the machine, too."""

import fcntl
import os
import re
import signal
import struct
import time
from pathlib import Path

import pytest
from harness import FAILED, MEASURED, PROGRAMS, ROOT, UNTRUSTED, USAGE, Running, Session
from harness import assert_one_line, command, path_of, run, shown_on_two
from test_program_soak import CYCLIC, evidence, soak

SOAKING = (
    "timer",
    "pipes",
    "cv",
    "network",
    "tlbflush",
    "fault",
    "inherit",
    "messages",
    "noise",
    "signal",
    "spawn",
    "transport",
    "wakeup",
)
OPTIONS = {"transport": ("--wait", "block"), "wakeup": ("--cpus", "1,1")}
# Of the measured process and of the one that supervises it, each.
MOST_MEMORY_KIB = 32 * 1024


def pairs(session: Session, program: str) -> list[tuple[int, int]]:
    data = (session.path / "samples" / f"{program}.histogram").read_bytes()
    return list(struct.iter_unpack("<2Q", data))


@pytest.mark.parametrize("program", shown_on_two(SOAKING))
def test_the_pairs_of_a_segment_are_its_samples(program, tmp_path, two_cpus, real_time):
    seconds = 3 if program == "pipes" else 1  # one segment of the others
    session = soak(program, tmp_path, seconds, "--segment", "1", *OPTIONS.get(program, ()))
    recorded = pairs(session, program)
    for row in session.rows:
        at, left = int(row["first_sample"]), int(row["n"])
        values, total = [], 0
        while left > 0:
            value, count = recorded[at]
            values.append(value)
            total += value * count
            left -= count
            at += 1
        assert left == 0 and values == sorted(set(values))
        assert (values[0], values[-1]) == (int(row["min"]), int(row["max"]))
        assert f"{1000 * total // int(row['n']) / 1000:.3f}" == row["mean"]


def test_without_locked_memory_the_timed_part_has_no_page_fault(
    published, as_nobody, open_directory
):
    words = ("--soak=3", "--segment=1", "--policy=other", "--record", open_directory / "session")
    done = command([*as_nobody, published / "timer", *CYCLIC, *words], cwd="/")
    assert "memory cannot be locked" in done.err, str(done)
    faults = [row["minor_faults"] for row in Session(open_directory / "session").rows]
    assert faults and set(faults) == {"waiter=0"}, faults


@pytest.mark.slow
def test_memory_does_not_grow(tmp_path, two_cpus, real_time):
    with Running("pipes", "--soak", "20", "--segment", "1", "--record", tmp_path) as soaking:
        time.sleep(4)
        for pid in {soaking.process.pid} | soaking.children:
            status = Path(f"/proc/{pid}/status").read_text()
            peak = re.search(r"VmHWM:\s+(\d+) kB", status)
            assert peak and int(peak[1]) <= MOST_MEMORY_KIB, status


def test_a_killed_soak_loses_one_segment_at_most(tmp_path, real_time):
    with Running("timer", *CYCLIC, "--soak", "60", "--segment", "1", "--record", tmp_path) as r:
        time.sleep(3.5)
        os.kill(r.process.pid, signal.SIGKILL)
    session = Session(tmp_path)
    assert [int(row["run"]) for row in session.rows] in ([1, 2], [1, 2, 3])
    counted = sum(count for _, count in pairs(session, "timer"))
    assert sum(int(row["n"]) for row in session.rows) == counted


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_soak_with_all_of_its_samples(number, tmp_path, real_time):
    with Running("timer", *CYCLIC, "--soak", "60", "--record", tmp_path) as soaking:
        time.sleep(2)
        # Ctrl-C reaches the whole group, and timeout(1) signals the process once more.
        os.killpg(soaking.process.pid, number)
        time.sleep(0.001)
        soaking.process.send_signal(number)
        done = soaking.end()
    assert done.status in (MEASURED, UNTRUSTED), str(done)
    (row,) = Session(tmp_path).rows
    assert int(row["n"]) >= 1500


def test_a_signal_while_a_segment_is_recorded_loses_nothing(tmp_path, real_time):
    record = os.open(tmp_path, os.O_RDONLY)
    with Running(
        "timer", *CYCLIC, "--soak", "60", "--segment", "1", "--record", tmp_path
    ) as soaking:
        fcntl.flock(record, fcntl.LOCK_EX)  # the first segment waits for it
        time.sleep(2)
        soaking.process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        os.close(record)
        done = soaking.end()
    assert done.status in (MEASURED, UNTRUSTED), str(done)
    assert int(Session(tmp_path).rows[0]["n"]) >= 500


@pytest.mark.slow
def test_stop_above_ends_at_the_first(tmp_path, real_time):
    begun = time.monotonic()
    options = (*CYCLIC, "--limit", "400000", "--stop-above", "--inject", "500000")
    session = soak("timer", tmp_path, 20, *options)
    assert time.monotonic() - begun < 10
    assert evidence(session.rows[-1])["above_limit"] == 1


@pytest.mark.parametrize("program", sorted({*PROGRAMS} - {*SOAKING}))
def test_a_program_that_cannot_soak_names_those_that_can(program, tmp_path):
    done = command([path_of(program), "--soak", "5", "--record", "x"], cwd=tmp_path)
    assert_one_line(done, program, USAGE)
    found = re.search(r"cannot soak; these can: ([a-z, ]+)", done.err)
    assert found and tuple(re.findall(r"[a-z]+", found[1].replace(" and ", ", "))) == SOAKING


def test_a_limit_below_the_floor_is_refused_at_once(tmp_path):
    done = run("timer", "--soak", "60", "--record", tmp_path, "--limit", "1", *CYCLIC)
    assert_one_line(done, "timer", FAILED)
    assert "--limit: 1 ns must be above the floor" in done.err
    assert done.seconds < 20


def test_a_segment_whose_longest_samples_cannot_be_written_keeps_its_figures(tmp_path, real_time):
    """They need most of the space of a disk that becomes full."""
    (tmp_path / "samples" / "longest.csv").mkdir(parents=True)
    words = ("--soak", "60", "--segment", "1", "--limit", "100", "--record", tmp_path)
    done = run("timer", *CYCLIC, *words, "--under-load")  # interrupts of other work are allowed
    assert done.status == FAILED, str(done)
    assert done.err.count("\n") == 1 and "longest.csv: Is a directory" in done.err
    (row,) = Session(tmp_path).rows
    assert (
        row["status"] in ("ok", "disturbed") and evidence(row)["above_limit"] == int(row["n"]) > 500
    )
    (tmp_path / "samples" / "longest.csv").rmdir()
    verified = command([ROOT / "klat", "summary", "--verify", tmp_path])
    assert verified.status == MEASURED, str(verified)
