"""What holds for tlbflush alone; tests/cli/test_program_*.py hold it to what holds for every program."""

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness import MEASURED, SKIPPED, UNTRUSTED, USAGE, Session, assert_one_line, command, json_of
from harness import path_of, run, try_again_unless, with_tries, works

from klat.record.session import read_session
from klat.record.evidence import state_of

pytestmark = pytest.mark.alone

OPERATIONS = ("munmap", "mprotect", "madvise")


def result_of(*options: str) -> dict[str, Any]:
    return json_of(works("tlbflush", *options, "--json"))


def metric(result: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (each for each in result["metrics"] if each["name"] == name)
    return dict(found)


@pytest.mark.parametrize("operation", OPERATIONS)
@with_tries
def test_initiators_are_at_work_at_once(operation, two_cpus):
    result = result_of("--initiators", "2", "--operation", operation)
    counts = result["evidence"]["counts"]
    assert counts["operations"] == 2 * 552
    assert metric(result, "initiator")["n"] == 2 * metric(result, "together")["n"] == 1000
    try_again_unless(counts["least_met"] >= 495, counts)


@with_tries
def test_membarrier_interrupts_each_responder_once(two_cpus):
    options = ("--responders", "1", "--operation", "membarrier")
    counts = result_of(*options)["evidence"]["counts"]
    right = counts["expected"] == 552 and 547 <= counts["least_delivered"] <= 579
    try_again_unless(right and counts["responders_reached"] == 1, counts)


def test_membarrier_does_not_reach_responders_that_sleep(two_cpus):
    options = ("--responders", "1", "--operation", "membarrier", "--responder-state", "sleeping")
    done = run("tlbflush", *options, "--json")
    assert done.status == UNTRUSTED
    assert "not delivered: 0 of 1 responders" in done.err
    # The wakeups of the sleepers are function calls, too, and so are those of other processes.
    counts = json_of(done)["evidence"]["counts"]
    assert counts["least_delivered"] < counts["expected"]


def test_more_cpus_than_it_has_room_for_are_refused():
    done = run("tlbflush", "--check-for", "virtual:8192")
    assert_one_line(done, "tlbflush", USAGE)
    assert run("tlbflush", "--check-for", "virtual:4096").status == MEASURED


def test_the_negative_control_of_the_help_needs_interrupts_on_each_isa(two_cpus):
    """Only membarrier interrupts the responders on each."""
    (example,) = re.findall(r"tlbflush (.*)\n.*negative control", works("tlbflush", "--help").out)
    assert "--operation membarrier" in example
    assert run("tlbflush", *example.split()).status == UNTRUSTED


@pytest.mark.parametrize("operation, flushes", [("munmap", 1), ("mprotect", 2), ("madvise", 1)])
@with_tries
def test_every_flush_of_an_iteration_is_asked_for(operation, flushes, two_cpus):
    """mprotect flushes when it makes the pages read-only and when it makes them writable."""
    done = works("tlbflush", "--responders", "1", "--operation", operation, "--json")
    counts = json_of(done)["evidence"]["counts"]
    due = counts["expected"]
    delivered = counts.get("least_delivered", due)  # not on arm64: it broadcasts
    right = due >= flushes * 550 and 0.99 * due <= delivered <= 1.05 * due
    try_again_unless(right, counts)


# The kernel can broadcast from so many CPUs on, or never; and shows so many percent of the interrupts.
CAN, CANNOT = "4:", "0:"
DELIVERIES = [
    (CAN + "100", (), "", "interrupt"),
    (CAN + "0", (), "", "broadcast"),
    (CAN + "0", ("--operation", "mprotect"), "", "broadcast"),
    (CAN + "0", ("--operation", "madvise", "--pages", "100"), "", "broadcast"),
    (CAN + "50", (), "", "mixed"),
    (CANNOT + "100", (), "", "interrupt"),
    (CANNOT + "0", (), "not delivered: 0 of 1 responders", ""),
    (CANNOT + "50", (), "not delivered: 0 of 1 responders", ""),
    (CAN + "0", ("--plant", "stale"), "its TLB was not flushed", "broadcast"),
    (CAN + "0", ("--plant", "stale", "--operation", "mprotect"), "not flushed", "broadcast"),
    (CAN + "0", ("--plant", "stale", "--operation", "madvise"), "not flushed", "broadcast"),
    (CAN + "0", ("--responder-state", "sleeping"), "not delivered: 0 of 1 responders", ""),
    (CAN + "0", ("--operation", "membarrier"), "not delivered: 0 of 1 responders", ""),
]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="no TLB row")
@pytest.mark.parametrize("planted, options, reason, delivery", DELIVERIES)
@with_tries
def test_a_flush_is_proved_however_it_is_delivered(
    planted, options, reason, delivery, two_cpus, tmp_path
):
    program = path_of("tlbflush", "planted")
    words = (program, "--responders", "1", *options, "--record", tmp_path, "--quiet")
    environment = {**os.environ, "KLAT_TEST_FLUSHES": planted}

    state = delivery and f"delivery={delivery}"
    done = command(words, env=environment)
    row = read_session(tmp_path).rows[-1]
    right = row.status == "invalid" if reason else row.status in ("ok", "disturbed")
    try_again_unless(right and reason in row.reason and state_of(row) == state, done)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="no TLB row")
@pytest.mark.parametrize("options", [("--responders", "1"), ("--initiators", "2")])
@with_tries
def test_a_kernel_that_can_broadcast_is_given_time_to_begin(options, two_cpus):
    """It looks for this now and then while the process flushes. These flushes are not counted."""

    def shootdowns() -> int:
        (row,) = re.findall(r"^ *TLB:(.*) TLB", Path("/proc/interrupts").read_text(), re.MULTILINE)
        return sum(map(int, row.split()))

    environment = {**os.environ, "KLAT_TEST_FLUSHES": "2:100"}
    before = shootdowns()
    done = command((path_of("tlbflush", "planted"), *options, "--json"), env=environment)
    counts = json_of(done)["evidence"]["counts"]
    flushes = counts["flushes"]
    right = flushes in (552, 1104) and 0.9 * flushes <= counts["flush_interrupts"] <= flushes
    try_again_unless(right and shootdowns() - before > 3 * flushes, done)


def samples_of(path: Path, *options: str) -> tuple[list[list[int]], list[int], int]:
    """The samples of each of two initiators, of `together`, and the bound of the counters' offset."""
    works("tlbflush", "--initiators", "2", *options, "--quiet", "--record", path)
    session = Session(path)
    calls, together = (session.samples(row) for row in session.rows)
    counts = dict(pair.split("=") for pair in session.rows[0]["evidence"].split(";"))
    return [calls[:500], calls[500:]], together, int(counts["offset_bound"])


def test_together_is_at_least_the_longest_call(two_cpus, tmp_path):
    (first, second), together, offset = samples_of(tmp_path)
    assert all(t + offset >= max(a, b) for a, b, t in zip(first, second, together))


def test_taking_turns_is_caught_and_takes_the_sum(two_cpus, tmp_path):
    """The negative control: what the overlap is told from."""
    done = run("tlbflush", "--initiators", "2", "--plant", "apart", "--json")
    assert done.status == UNTRUSTED, str(done)
    result = json_of(done)
    assert "overlapped in only" in result["reason"]
    assert result["evidence"]["counts"]["least_met"] == 0
    (first, second), together, offset = samples_of(tmp_path, "--plant", "apart")
    assert all(t + offset >= a + b for a, b, t in zip(first, second, together))


@pytest.mark.slow
def test_other_work_on_a_responders_cpu_is_no_missing_delivery(two_cpus):
    """The kernel sends no shootdown to the CPU of a responder that does not run."""
    initiator, responder = map(str, sorted(os.sched_getaffinity(0))[:2])
    words = ("--policy", "other", "--cpus", f"{initiator},{responder}", "--json")
    loop = ["taskset", "-c", responder, "timeout", "60", "sh", "-c", "while :; do :; done"]
    with subprocess.Popen(loop) as process:
        try:
            results = [json_of(run("tlbflush", *words)) for _ in range(8)]
        finally:
            process.terminate()
    assert all(result["status"] != "ok" for result in results)
    assert not any("not delivered" in result["reason"] for result in results)


def test_one_initiator_meets_nobody_and_flushes_nothing(tmp_path):
    works("tlbflush", "--initiators", "1", "--quiet", "--record", tmp_path)
    session = Session(tmp_path)
    call, together = (session.samples(row) for row in session.rows)
    assert call == together
    assert session.rows[0]["placement"] == "one-cpu"
    assert "met" not in session.rows[0]["evidence"]


@with_tries
def test_meeting_another_costs_more_than_being_alone(two_cpus):
    alone, met = (metric(result_of("--initiators", n), "initiator")["p50"] for n in "12")
    try_again_unless(met > alone, f"{met} when two meet, {alone} alone")


def test_more_initiators_than_cpus_is_a_skip():
    count = len(os.sched_getaffinity(0)) + 1
    assert_one_line(run("tlbflush", "--initiators", str(count)), "tlbflush", SKIPPED)
