"""What holds for wakeup alone; tests/cli/test_program_*.py hold it to what holds for every program."""

import os
from typing import Any

import harness
import pytest
from harness import SKIPPED, UNTRUSTED, Running, json_of, measured, run, until, works

pytestmark = pytest.mark.alone

ONE_CPU = ("--cpus", "1,1")
FEW = ("--iterations", "100")
KINDS = ("user", "syscall", "fault")


def result_of(*options: str) -> dict[str, Any]:
    return json_of(measured("wakeup", *FEW, *options, "--json"))


def metric(result: dict[str, Any], name: str) -> dict[str, float]:
    (metric,) = [metric for metric in result["metrics"] if metric["name"] == name]
    return dict(metric)


def policies(result: dict[str, Any]) -> dict[str, str]:
    return {worker["role"]: worker["policy"] for worker in result["evidence"]["workers"]}


@pytest.mark.parametrize("cpus", [(), ONE_CPU], ids=["two CPUs", "one CPU"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_hogs_have_the_rest_of_the_cpu(kind, cpus, two_cpus):
    done = works("wakeup", *FEW, "--hog-kind", kind, "--hogs", "2", *cpus, "--json")
    counts = json_of(done)["evidence"]["counts"]
    # The hogs also run before and after the observed part.
    assert counts["hog_us"] < 1000 * (counts["hog_ms"] + 1)
    # On one CPU the waker and the woken thread may use all of so short a run.
    assert counts["hog_ms"] > 0 if cpus else counts["hog_us"] > 0


def test_hogs_end_with_the_run(two_cpus):
    with Running("wakeup", "--hogs", "3") as running:
        pids = running.children
        running.process.terminate()
        running.end()
        assert harness.gone(pids) == set()


def test_ordinary_is_the_default_and_a_policy_can_be_given(two_cpus, real_time):
    assert set(policies(result_of()).values()) == {"other"}
    for policy in ("batch", "fifo"):
        result = json_of(works("wakeup", *FEW, "--policy", policy, "--json"))
        assert set(policies(result).values()) == {policy}


def waits_longer(option: str, *values: str) -> None:
    """With the second value it takes more than twice as long to wake as with the first."""

    def attempt() -> str:
        means = [
            metric(json_of(works("wakeup", option, value, "--json")), "wake")["mean_ns"]
            for value in values
        ]
        return "" if means[1] > 2 * means[0] else str(means)

    until(attempt)


def test_a_thread_of_batch_waits_where_an_ordinary_one_preempts(two_cpus):
    waits_longer("--policy", "other", "batch")


def test_a_lower_weight_waits_for_longer(two_cpus, root):
    waits_longer("--nice", "-10", "15")


def test_a_nice_value_that_is_refused_is_an_error(as_nobody, published, two_cpus):
    done = harness.command([*as_nobody, published / "wakeup", "--nice", "-5"], cwd="/")
    assert done.status == harness.FAILED, str(done)
    assert "nice value -5" in done.err and "RLIMIT_NICE" in done.err, str(done)


def test_a_time_slice_is_taken_or_the_run_is_skipped(two_cpus):
    """The library reads the slice back: another value is not obtained silently."""
    done = run("wakeup", "--slice", "500", *FEW, "--json")
    release = tuple(map(int, os.uname().release.split(".")[:2]))
    if release < (6, 12):
        assert done.status == SKIPPED and "ignores the time slice" in done.err, str(done)
    else:
        assert done.status in (harness.MEASURED, UNTRUSTED), str(done)
        assert "slice=500" in json_of(done)["parameters"]


def test_a_request_of_an_open_loop_counts_from_its_due_time(two_cpus):
    """A rate that cannot be kept: the requests of a closed loop hide it, and these grow."""
    closed = metric(json_of(works("wakeup", *FEW, "--work", "500", "--json")), "request")
    options = ("--work", "500", "--rate", "5000")
    done = run("wakeup", *FEW, *options, "--json")
    result = json_of(done)
    assert done.status == UNTRUSTED and "the rate was not kept" in result["reason"], str(done)
    # The last of 100 requests is due 30 ms before it is sent.
    assert metric(result, "request")["max_ns"] > 10 * closed["p50_ns"]
    assert result["evidence"]["counts"]["late"] >= 90


def test_a_rate_that_is_kept_takes_its_time(two_cpus):
    def attempt() -> str:
        counts = result_of("--rate", "200")["evidence"]["counts"]
        return "" if counts["late"] < 10 and counts["hog_us"] > 250000 else str(counts)

    until(attempt)
