"""What holds for messages alone; tests/cli/test_program_*.py hold it to what holds for every program."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from harness import FAILED, MEASURED, SKIPPED, UNTRUSTED, USAGE, Session, assert_one_line, command
from harness import json_of, measured, refusing, run, try_again_unless, with_tries, works

pytestmark = pytest.mark.alone

ALONE = ("call", "pass-write", "pass-epoll")
URING = ("uring-futex", "uring-eventfd", "uring-message")
WAKES = ("eventfd-epoll", "eventfd-read", "futex", "cond", "pipe", "futex-waitv", *URING)
ONE_CPU = ("--cpus", "1,1")
QUICK = ("--iterations", "100", "--warmup", "10")
# With the warm-up and the tail.
MADE = 112


def result(*options: str | Path) -> dict[str, Any]:
    return json_of(works("messages", *options, "--json"))


def counts(*options: str | Path) -> dict[str, int]:
    return dict(result(*options)["evidence"]["counts"])


def hop(*options: str) -> float:
    (metric,) = result(*options)["metrics"]
    assert metric["name"] == "hop"
    return float(metric["p50_ns"])


# One thread


@pytest.mark.parametrize("mode", ALONE)
def test_a_thread_with_its_own_queue_never_sleeps(mode):
    done = json_of(measured("messages", "--mode", mode, *QUICK, "--json"))
    (loop,) = done["evidence"]["workers"]
    assert loop["voluntary"] == 0
    assert done["evidence"]["counts"]["messages"] == done["evidence"]["counts"]["observed"]
    assert done["evidence"]["counts"]["waits"] == (MADE if mode == "pass-epoll" else 0)


@with_tries
def test_each_mode_costs_more_than_the_one_before():
    hops = [hop("--mode", mode) for mode in ALONE]
    try_again_unless(hops == sorted(hops) and hops[1] > 1.5 * hops[0], hops)


@pytest.mark.parametrize("cost", [("--timer", "per-loop"), ("--alloc", "malloc")])
@with_tries
def test_each_hidden_cost_is_seen(cost):
    """In the mean, because the median is a multiple of the counter's quantum."""

    def least_mean(*options: str) -> float:
        return min(result("--mode", "call", *options)["metrics"][0]["mean_ns"] for _ in range(5))

    plain, with_cost = least_mean(), least_mean(*cost)
    try_again_unless(with_cost > plain, f"{with_cost} ns with it, {plain} without")


@pytest.mark.parametrize("mode", (*ALONE, "threads"))
def test_the_timer_is_armed_in_every_pass(mode):
    found = counts("--mode", mode, "--timer", "per-loop", *QUICK)
    passes = MADE if mode != "threads" else 2 * MADE
    assert passes <= found["timers_armed"] <= passes + passes // 2
    assert "timers_armed" not in counts("--mode", mode, *QUICK)


# Threads


@pytest.mark.parametrize("wake", WAKES)
def test_both_sides_sleep_for_each_message(wake, real_time):
    for cpus in ((), ONE_CPU):
        if not cpus and len(os.sched_getaffinity(0)) < 2:
            continue
        done = json_of(measured("messages", "--wake", wake, *cpus, "--json"))
        assert 900 <= done["evidence"]["counts"]["sleeps_per_1000_messages"] <= 1010
        assert done["evidence"]["counts"]["messages"] == 2 * done["evidence"]["counts"]["observed"]


@pytest.mark.parametrize("wake", URING)
def test_a_machine_without_io_uring_skips_the_run(wake):
    io_uring_setup = 425  # on every architecture
    done = run("messages", "--wake", wake, preexec_fn=refusing(io_uring_setup))
    assert_one_line(done, "messages", SKIPPED)
    assert "io_uring is missing, or forbidden" in done.err


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EPERM])
def test_a_kernel_without_futex_waitv_skips_the_run(error):
    """Some containers refuse a newer call by EPERM."""
    done = run("messages", "--wake", "futex-waitv", preexec_fn=refusing(449, error))
    assert_one_line(done, "messages", SKIPPED)
    assert "futex_waitv()" in done.err


def test_memory_that_a_ring_may_not_lock_is_no_missing_call(published, as_nobody):
    """Some kernels count a ring as locked memory."""
    none = [*as_nobody, "prlimit", "--memlock=0:0", published / "messages", *QUICK]
    done = command([*none, "--wake", "uring-message"], cwd="/")
    if done.status == SKIPPED:
        assert_one_line(done, "messages", SKIPPED)
        assert "ulimit -l" in done.err, str(done)
    else:
        assert done.status in (MEASURED, UNTRUSTED), str(done)


@pytest.mark.parametrize("wake", URING)
def test_a_failure_of_both_threads_has_one_reason(wake):
    io_uring_enter = 426
    done = run("messages", "--wake", wake, preexec_fn=refusing(io_uring_enter))
    assert_one_line(done, "messages", FAILED)
    assert done.err.count("failed at") == 1, str(done)


def test_rings_are_for_two_threads():
    for wake in URING:
        done = run("messages", "--mode", "star", "--threads", "2", "--wake", wake)
        assert_one_line(done, "messages", USAGE)


@with_tries
def test_spinning_threads_never_sleep_and_beat_those_that_do(two_cpus, real_time):
    spinning = result("--wake", "spin")
    (metric,) = spinning["metrics"]
    slept = spinning["evidence"]["counts"]["sleeps_per_1000_messages"]
    sleeping = hop()
    right = slept < 50 and metric["p50_ns"] < sleeping / 2
    try_again_unless(right, f"{metric['p50_ns']} ns, slept {slept}, asleep {sleeping} ns")


@pytest.mark.parametrize("threads", [1, 10, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_star_handles_each_message_once(threads, two_cpus):
    for cpus in ((), ONE_CPU):
        options = ("--mode", "star", "--threads", str(threads), "--iterations", "30")
        done = result(*options, "--warmup", "3", *cpus)
        counts = done["evidence"]["counts"]
        assert counts["messages"] == 2 * counts["observed"] * threads
        (metric,) = done["metrics"]
        assert metric["n"] == 30 * threads
        assert len(done["evidence"]["workers"]) == threads + 1
        assert "out of order" not in done["reason"]


def test_rates_and_times_of_a_message_agree(two_cpus):
    for options in (("--mode", "call"), (), ("--mode", "star", "--threads", "50")):
        done = result(*options)
        found = done["evidence"]["counts"]
        ticks = done["tsc_khz"] * 1e3 / found["messages_per_second"]
        assert found["message_ticks"] == pytest.approx(ticks, rel=0.03, abs=1)


@with_tries
def test_the_time_of_a_message_between_two_threads_is_about_a_hop(two_cpus, real_time):
    """One message, always under way: each direction is counted where it is handled, and once."""
    done = result("--iterations", "2000")
    (metric,) = done["metrics"]
    ratio = done["evidence"]["counts"]["message_ticks"] / metric["mean"]
    try_again_unless(0.95 < ratio < 1.2, f"ratio {ratio}")


def test_a_recorded_star_is_a_sample_for_each_bounce(tmp_path):
    options = ("--mode", "star", "--threads", "7", *ONE_CPU, *QUICK, "--inject", "20000")
    works("messages", *options, "--record", tmp_path, "--quiet")
    (row,) = Session(tmp_path).rows
    samples = Session(tmp_path).samples(row)
    assert len(samples) == 700 and all(0 < sample < 10**12 for sample in samples)
    assert row["voluntary"].startswith("hub=") and ";thread=" in row["voluntary"]


def test_a_lost_wake_up_would_hang_and_none_does(two_cpus):
    """Many short rounds of every kind, in which a wake-up could fall between look and sleep."""
    for wake in WAKES:
        threads = 1 if wake in URING else 3
        star = ("--mode", "star", "--threads", str(threads))
        counted = counts(*star, "--iterations", "3000", "--wake", wake)
        assert counted["messages"] == 2 * threads * counted["observed"]


# What is refused


def test_too_many_spinning_threads_for_the_cpus_are_skipped():
    done = run("messages", "--mode", "star", "--threads", "9000", "--wake", "spin")
    assert_one_line(done, "messages", SKIPPED)


def test_the_limit_of_threads_is_told(published, as_nobody):
    words = ["prlimit", "--nproc=60", *as_nobody, published / "messages"]
    done = command([*words, "--mode", "star", "--threads", "500"], cwd="/")
    assert done.status == SKIPPED, str(done)
    last = done.err.splitlines()[-1]
    assert "needs 501 threads" in last and "ulimit -u" in last
    assert done.out == ""
