"""What holds for noise alone; tests/cli/test_program_*.py hold it to what holds for every program."""

import os
from typing import Any

import harness
import pytest

pytestmark = pytest.mark.alone
CPU = max(os.sched_getaffinity(0))


def result_of(*options: str) -> dict[str, Any]:
    return harness.json_of(harness.works("noise", "--cpus", str(CPU), *options, "--json"))


@pytest.mark.slow
def test_interruptions_of_a_known_number_and_length_are_what_is_counted(real_time):
    """By a task of higher priority, 300 us at a time, which logs them. They do not disturb the run."""

    def attempt() -> str:
        with harness.interruptions("task", str(CPU), "300") as log:
            result = result_of("--window", "1000", "--iterations", "2000")
        begins = [begin for begin, _ in log]
        every_ms = (begins[-1] - begins[0]) / (len(begins) - 1) / result["tsc_khz"]
        expected, counted = 2000 / every_ms, result["evidence"]["counts"]["from_100_us"]
        gap, lost = result["metrics"]
        if result["status"] != "ok" or not 0.8 < counted / expected < 1.2:
            return f"{result['reason']}: {counted} of {expected}"
        # Others take time, too.
        share = lost["mean_ns"] * every_ms / 300e3
        return "" if share > 0.8 and gap["max_ns"] >= 300e3 else f"{share} {gap}"

    harness.until(attempt)


def test_lost_time_is_that_of_the_gaps_from_the_threshold_on():
    """An injected gap of 50 us is in half of the windows."""
    sums = {
        threshold: result_of(
            "--inject", "50000", "--threshold", str(threshold), "--window", "1000"
        )["metrics"][1]
        for threshold in (10_000, 10_000_000)
    }
    assert sums[10_000]["mean_ns"] > 25_000 and sums[10_000_000]["p50"] == 0, sums


def test_a_threshold_shorter_than_the_steps_of_the_loop_makes_the_run_invalid():
    result = result_of("--threshold", "1")
    assert "most steps of the loop" in result["reason"], result


def test_each_cpu_has_its_series(two_cpus):
    done = harness.works("noise", "--cpus", "0,1", "--iterations", "50", "--json")
    assert [metric["n"] for metric in harness.json_of(done)["metrics"]] == [100, 100]


def test_a_cpu_cannot_have_two_spinners():
    done = harness.run("noise", "--cpus", f"{CPU},{CPU}")
    harness.assert_one_line(done, "noise", harness.USAGE)


def test_a_soak_is_of_one_cpu(two_cpus, tmp_path):
    """The faster of two spinners would write over samples that klat has not read."""
    done = harness.run("noise", "--cpus", "0,1", "--soak", "1", "--record", tmp_path)
    harness.assert_one_line(done, "noise", harness.USAGE)
    assert "--threads all" in done.err
