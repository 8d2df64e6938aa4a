"""What holds for spawn alone; tests/cli/test_program_*.py hold it to what holds for every program."""

import os
from typing import Any

import pytest
from harness import UNTRUSTED, assert_one_line, command, json_of, path_of, run, until, works
from harness import SKIPPED, Running, children, gone, measured

pytestmark = pytest.mark.alone

WAYS = ("fork", "vfork", "clone", "thread", "posix_spawn", "exec")
SHORT = ("--iterations", "100", "--warmup", "10")


def result_of(*options: str) -> dict[str, Any]:
    return json_of(works("spawn", *options, "--json"))


def median(metric: str, *options: str) -> float:
    return next(float(m["p50"]) for m in result_of(*options)["metrics"] if m["name"] == metric)


@pytest.mark.parametrize("way", WAYS)
def test_each_iteration_has_a_child_that_starts_before_it_is_reaped(way):
    result = json_of(measured("spawn", "--what", way, *SHORT, "--json"))
    counts = result["evidence"]["counts"]
    assert counts["children"] == 110 <= counts["started"]
    # Of a thread, or of a process in the parent's memory, nothing is copied.
    assert (counts["parent_faults"] >= 104) == (way in ("fork", "exec"))
    start, reaped = (metric["p50"] for metric in result["metrics"])
    assert result["floor"] < start < reaped


@pytest.mark.parametrize("huge", ["no", "yes"])
def test_the_parent_has_the_memory_that_was_asked_for(huge):
    counts = result_of("--resident", "16", "--huge", huge, *SHORT)["evidence"]["counts"]
    assert counts["resident_kib"] >= 16 << 10
    assert counts["huge_kib"] == (16 << 10 if huge == "yes" else 0)


def test_a_fork_copies_page_tables_and_no_other_start_does():
    def attempt() -> str:
        small, large = (median("start", "--resident", size, *SHORT) for size in ("1", "256"))
        huge = median("start", "--resident", "256", "--huge", "yes", *SHORT)
        if not small < large or not huge < large:
            return f"fork: {small} {large} {huge}"
        small, large = (
            median("start", "--what", "vfork", "--resident", size, *SHORT) for size in ("1", "256")
        )
        return "" if large < 1.5 * small else f"vfork: {small} {large}"

    until(attempt)


def test_tasks_of_equal_priority_that_take_the_cpu_of_the_children_make_a_run_invalid():
    """The kernel counts no waits of children that have ended."""
    with Running("spawn", "--cpus", "1", "--iterations", "1000000"):

        def attempt() -> str:
            result = json_of(run("spawn", "--cpus", "1", *SHORT, "--json"))
            wanted = (
                result["status"] == "invalid" and "kept the parent from CPU 1" in result["reason"]
            )
            return "" if wanted else f"{result['status']}: {result['reason']}"

        until(attempt)


def test_an_executed_program_has_no_variables_of_the_caller(tmp_path):
    """With LD_DEBUG, each program that the dynamic linker starts would write a file."""
    variables = {"LD_DEBUG": "statistics", "LD_DEBUG_OUTPUT": str(tmp_path / "linker")}
    works("spawn", "--what", "posix_spawn", *SHORT, env=os.environ | variables)
    assert len([*tmp_path.glob("linker.*")]) <= 2


def test_the_limit_on_stacks_does_not_reach_the_threads():
    limited = ("prlimit", "--stack=67108864:67108864")
    done = command([*limited, path_of("spawn"), "--what", "thread", *SHORT, "--json"])
    assert done.status in (0, 3) and "page faults" not in json_of(done)["reason"], str(done)


def test_more_memory_than_there_is_is_a_skip():
    done = run("spawn", "--resident", str(1 << 20))
    assert_one_line(done, "spawn", SKIPPED)
    assert "MiB are available" in done.err


def test_a_child_of_the_wrong_kind_is_found_out():
    for way in WAYS:
        done = run("spawn", "--what", way, "--plant", "call", *SHORT)
        assert done.status == UNTRUSTED and "had no new process" in done.err, str(done)


def test_the_hidden_start_of_a_child_needs_its_name():
    """As a child is executed, but under the program's own name: these are words like others."""
    assert_one_line(command([path_of("spawn"), "3", "7"]), "spawn", 2)


def test_no_child_outlives_a_killed_run():
    with Running("spawn") as running:
        (measured_process,) = children(running.process.pid)
        family = {measured_process} | children(measured_process)
        running.process.kill()
        running.process.wait()
        assert not gone(family)
