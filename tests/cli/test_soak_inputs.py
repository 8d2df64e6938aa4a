"""What happens to a machine in the middle of a soak: delays, suspensions, CPUs that are taken away."""

import csv
import os
import re
import signal
import time
from collections.abc import Iterable
from contextlib import suppress

import pytest
from harness import FAILED, MEASURED, UNTRUSTED, Running, Session, path_of, run

pytestmark = pytest.mark.alone

CYCLIC = ("--method", "nanosleep", "--mode", "periodic", "--segment", "1")
PERIOD_NS = 1_000_000
VALID = ("ok", "disturbed")


def send(number: int, pids: Iterable[int]) -> None:
    for pid in pids:
        os.kill(pid, number)


def count(row: dict[str, str], name: str) -> int:
    found = re.search(rf"\b{name}=(-?\d+)", row["evidence"])
    return int(found[1]) if found else 0


def test_a_thread_that_is_behind_at_the_end_of_a_segment_refutes_no_segment(tmp_path, real_time):
    """The longest samples would be lost. The spins take 1.1 periods of each period."""
    words = ("--soak", "2", "--inject", "2200000", "--record", tmp_path)
    done = run("timer", *CYCLIC, *words, limit=20)
    assert done.status == MEASURED, str(done)
    rows = Session(tmp_path).rows
    assert [row["status"] for row in rows] == ["disturbed"] * 2, rows
    for row in rows:
        assert int(row["n"]) < 0.97 * int(row["elapsed_ns"]) / PERIOD_NS
        assert abs(count(row, "periods") - int(row["n"])) <= 2


def test_stops_that_go_on_delay_no_end(tmp_path, real_time):
    """As cpulimit and monitors make them."""
    begun = time.monotonic()
    with Running("timer", *CYCLIC, "--soak", "2", "--record", tmp_path) as soaking:
        time.sleep(0.5)
        while soaking.process.poll() is None and time.monotonic() < begun + 20:
            with suppress(ProcessLookupError):  # it has ended
                send(signal.SIGSTOP, soaking.children)
                time.sleep(0.02)
                send(signal.SIGCONT, soaking.children)
                time.sleep(0.05)
    assert soaking.process.poll() == MEASURED and time.monotonic() < begun + 5


@pytest.mark.slow
def test_late_samples_after_a_suspension_are_of_the_segment_that_it_refutes(tmp_path, real_time):
    """The supervisor runs again before the worker, at a time when its segment should end."""
    suspended, record = tmp_path / "suspended", tmp_path / "record"
    suspended.write_text("0\n")
    words = ("--soak", "9", "--limit", "900000000", "--record", record)
    told = {"KLAT_TEST_SUSPENDED": str(suspended)}
    planted = str(path_of("timer", "planted"))
    with Running("timer", *CYCLIC, *words, executable=planted, env=os.environ | told) as soaking:
        time.sleep(0.5)
        send(signal.SIGSTOP, (soaking.process.pid, *soaking.children))
        suspended.write_text("3\n")
        time.sleep(1)
        send(signal.SIGCONT, [soaking.process.pid])
        time.sleep(0.3)
        send(signal.SIGCONT, soaking.children)
        done = soaking.end()
    assert done.status == UNTRUSTED, str(done)
    rows = Session(record).rows
    assert rows[0]["status"] == "invalid"
    assert rows[0]["reason"].endswith("the machine was suspended for 3000 ms")
    assert count(rows[0], "above_limit") > 100
    assert rows[1:] and all(row["status"] in VALID for row in rows[1:]), rows
    assert not any(count(row, "above_limit") for row in rows[1:])
    assert "above 900000 us: 0," in done.out


def test_a_worker_that_loses_its_cpu_ends_the_soak(tmp_path, two_cpus, real_time):
    """It would never come back, as from a CPU that went offline."""
    words = (*CYCLIC, "--cpus", "1", "--soak", "60", "--record", tmp_path)
    with Running("timer", *words) as soaking:
        time.sleep(1.5)
        for pid in soaking.children:
            for task in os.listdir(f"/proc/{pid}/task"):
                os.sched_setaffinity(int(task), {0})
        done = soaking.end()
    assert done.status == FAILED, str(done)
    assert done.err.count("\n") == 1 and "no longer held to CPU 1" in done.err
    rows = Session(tmp_path).rows
    assert [row["status"] in VALID for row in rows] == [True, False, False]
    assert rows[1]["status"] == "invalid" and "was not held to CPU 1" in rows[1]["reason"]
    assert rows[2]["status"] == "error" and rows[2]["reason"] in done.err
    with (tmp_path / "samples/longest.csv").open(newline="") as file:
        assert {row["run"] for row in csv.DictReader(file)} == {"1", "2"}
