"""What holds for fault alone; tests/cli/test_program_*.py hold it to what holds for every program."""

import platform
from typing import Any

import pytest
from harness import SKIPPED, UNTRUSTED, USAGE, assert_one_line, command, json_of, measured, path_of
from harness import refusing, run, try_again_unless, with_tries, works

pytestmark = pytest.mark.alone

KINDS = ("anonymous", "file", "shared", "copy-on-write", "huge", "userfaultfd")


def result_of(*options: str) -> dict[str, Any]:
    return json_of(works("fault", *options, "--json"))


def median(*options: str) -> float:
    (metric,) = result_of(*options)["metrics"]
    return float(metric["p50"])


@pytest.mark.parametrize("order", ["sequential", "random"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_kernel_counts_one_fault_for_each_touch(kind, order, two_cpus):
    result = json_of(measured("fault", "--kind", kind, "--page-order", order, "--json"))
    counts = result["evidence"]["counts"]
    assert counts["faults"] == counts["touches"] >= 550
    if kind == "userfaultfd":
        toucher, handler = result["evidence"]["workers"]
        # Who waits first and last may do so outside.
        assert min(toucher["voluntary"], handler["voluntary"]) >= 0.99 * counts["observed"]
    elif kind != "copy-on-write":
        # Without the reads before the writes, nothing faults besides the touches.
        (toucher,) = result["evidence"]["workers"]
        assert toucher["minor_faults"] == counts["observed"]


@pytest.mark.parametrize("kind", KINDS)
def test_pages_that_are_present_are_no_faults(kind, two_cpus):
    done = run("fault", "--kind", kind, "--plant", "present", "--json")
    if kind == "userfaultfd":
        # Its handler would wait for ever.
        assert done.status == USAGE, str(done)
        return
    assert done.status == UNTRUSTED, str(done)
    assert json_of(done)["evidence"]["counts"]["faults"] == 0


def test_a_fault_maps_the_whole_window_of_a_file():
    """It maps less where fault_around_bytes in debugfs is smaller."""
    done = run("fault", "--kind", "file", "--plant", "small", "--json")
    assert done.status == UNTRUSTED, str(done)
    assert "kind=file" in json_of(done)["parameters"]
    counts = json_of(done)["evidence"]["counts"]
    assert counts["faults"] == 2 * counts["touches"]


@with_tries
def test_larger_faults_take_longer():
    small, around, huge = (median("--kind", kind) for kind in ("anonymous", "file", "huge"))
    try_again_unless(small < huge and around < huge, f"{small} {around} {huge}")


def test_threads_fault_at_the_same_time(two_cpus, real_time):
    counts = json_of(measured("fault", "--threads", "2", "--json"))["evidence"]["counts"]
    assert counts["least_met"] >= 495
    assert counts["faults"] == counts["touches"] == 2 * 552


def test_the_mapper_maps(two_cpus, real_time):
    counts = json_of(measured("fault", "--mapper", "--json"))["evidence"]["counts"]
    assert counts["mapped"] > 10


def test_userfaultfd_that_is_refused_is_a_skip(two_cpus):
    userfaultfd = 323 if platform.machine() == "x86_64" else 282
    done = command([path_of("fault"), "--kind", "userfaultfd"], preexec_fn=refusing(userfaultfd))
    assert_one_line(done, "fault", SKIPPED)
    assert "vm.unprivileged_userfaultfd=1" in done.err
