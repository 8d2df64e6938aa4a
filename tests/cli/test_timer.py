"""What holds for timer alone; tests/cli/test_program_*.py hold it to what holds for every program."""

import ctypes
import os
import struct
import subprocess

import pytest
from harness import FAILED, UNTRUSTED, Session, command, json_of, lacking, measured, run
from harness import try_again_unless, with_tries, works

pytestmark = pytest.mark.alone

# Each second sample takes one and a half periods. Half a period then remains to sleep, which has to
# be longer than what a busy host adds to a wakeup.
LATE = ("--mode", "periodic", "--period", "1000", "--inject", "1500000", "--json")


@pytest.mark.parametrize("method", ["nanosleep", "timerfd"])
def test_missed_periods_do_not_excuse_a_wait_that_does_not_sleep(method, real_time):
    done = run("timer", "--method", method, *LATE, "--plant", "yield")
    result = json_of(done)
    assert result["evidence"]["counts"]["missed"] > 0
    assert done.status == UNTRUSTED and "before it slept" in result["reason"], str(done)


def test_a_wait_that_misses_periods_sleeps_for_the_others(real_time):
    result = json_of(works("timer", "--method", "nanosleep", *LATE))
    assert result["evidence"]["counts"]["missed"] > 0
    assert "before it slept" not in result["reason"], result["reason"]


# The 200th timer is set 205 ms too late, as if the machine stalled.
STALL = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int timer_settime(timer_t timer, int flags, const struct itimerspec *wanted, struct itimerspec *old)
{
	static int calls;
	int (*set)(timer_t, int, const struct itimerspec *, struct itimerspec *) =
		dlsym(RTLD_NEXT, "timer_settime");
	struct itimerspec late = *wanted;
	if (++calls == 200)
		late.it_value.tv_nsec += 205000000;
	late.it_value.tv_sec += late.it_value.tv_nsec / 1000000000;
	late.it_value.tv_nsec %= 1000000000;
	return set(timer, flags, &late, old);
}
"""


def test_a_signal_that_is_late_once_is_a_sample(tmp_path, real_time):
    build = ["cc", "-shared", "-fPIC", "-o", tmp_path / "stall.so", "-x", "c", "-"]
    subprocess.run(build, input=STALL, text=True, check=True)
    preloaded = os.environ | {"LD_PRELOAD": str(tmp_path / "stall.so")}
    result = json_of(run("timer", "--method", "signal", "--json", env=preloaded))
    (lateness,) = (metric for metric in result["metrics"] if metric["name"] == "lateness")
    assert lateness["n"] == 500, result["reason"]
    assert lateness["max"] > 0.2 * 1000 * result["tsc_khz"]


DEADLINE = ("--policy", "deadline:200us:1ms", "--json")


@with_tries
def test_a_deadline_thread_measures_on_its_cpu_and_records_its_times(tmp_path, real_time):
    result = json_of(measured("timer", *DEADLINE, "--record", tmp_path))
    counts, (worker,) = result["evidence"]["counts"], result["evidence"]["workers"]
    # A hypervisor that takes the CPU away adds to the runtime that the thread uses.
    try_again_unless(counts["overruns"] == counts["throttled"] == 0, counts)
    assert (worker["policy"], worker["runtime_ns"], worker["period_ns"]) == ("deadline", 2e5, 1e6)
    assert worker["pinned"] and worker["migrations"] in (0, None)
    assert Session(tmp_path).rows[-1]["policy"] == "waiter=deadline:200us:1ms"


@pytest.mark.parametrize("mode", ["one-shot", "periodic"])
def test_a_thread_that_spins_beyond_its_runtime_is_stopped(mode, real_time):
    """A tick must find the overrun while the thread runs, so the spin is longer than two ticks."""
    counts = json_of(run("timer", *DEADLINE, "--mode", mode, "--plant", "overrun"))["evidence"][
        "counts"
    ]
    assert counts["overruns"] >= 500 // 16
    assert counts["throttled"] >= 500 // 16


def test_a_deadline_is_refused_without_privilege_or_bandwidth(published, as_nobody, real_time):
    done = command([*as_nobody, published / "timer", *DEADLINE], cwd="/")
    assert done.status == FAILED and "run as root" in done.err
    done = run("timer", "--policy", "deadline:100us:5s")
    assert done.status == FAILED and "sched_deadline_period" in done.err


ADJ_TICK, TICK_AT, TIMEX_SIZE = 0x4000, 88, 208  # of struct timex, with longs of 8 bytes


def set_adjtimex_tick(us: int) -> int:
    """Sets timex.tick, and returns the previous value."""
    timex = ctypes.create_string_buffer(TIMEX_SIZE)
    adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    adjtimex(timex)
    (before,) = struct.unpack_from("=q", timex, TICK_AT)
    struct.pack_into("=i", timex, 0, ADJ_TICK)
    struct.pack_into("=q", timex, TICK_AT, us)
    if adjtimex(timex) < 0:
        lacking(f"the clock cannot be corrected: {os.strerror(ctypes.get_errno())}")
    return int(before)


@pytest.mark.slow
@pytest.mark.parametrize("tick", [10833, 9167])
def test_a_clock_that_a_program_corrects_makes_a_run_invalid(tick, real_time):
    """chrony corrects by up to this much. From Linux 7.1 on, the timer device of most x86 machines follows the clock."""
    words = "--method nanosleep --period 1000 --json".split()
    before = set_adjtimex_tick(tick)
    try:
        result = json_of(run("timer", *words))
    finally:
        set_adjtimex_tick(before)
    ppm = result["evidence"]["counts"]["clock_ppm"]
    assert ppm == pytest.approx(100 * (tick - 10000), rel=0.02)
    if tuple(map(int, os.uname().release.split(".")[:2])) < (7, 1):
        assert result["status"] == "invalid" and "corrects the clock" in result["reason"]
    after = json_of(run("timer", *words))
    assert abs(after["evidence"]["counts"]["clock_ppm"]) < 1000
