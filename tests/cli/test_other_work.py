"""Work of others on the CPUs of a run is counted, and the run's own is not."""

import os
import subprocess
import sys

import pytest
from harness import json_of, works

pytestmark = pytest.mark.alone

CPU = max(os.sched_getaffinity(0))


def counts(program: str, *arguments: str) -> dict[str, int]:
    found: dict[str, int] = json_of(works(program, "--cpus", str(CPU), *arguments, "--json"))[
        "evidence"
    ]["counts"]
    return found


def test_a_process_that_spins_beside_a_sleeper_is_other_work(real_time):
    script = f"import os; os.sched_setaffinity(0, {{{CPU}}}); print(flush=True)\nwhile True: pass"
    words = [sys.executable, "-c", script]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as hog:
        try:
            assert hog.stdout and hog.stdout.readline()
            found = counts("timer", "--method", "nanosleep", "--iterations", "600")
        finally:
            hog.kill()
    assert found["other_busy_us"] > 0.5 * found["cpu_us"]


def test_a_spinner_of_the_run_is_not(real_time):
    found = counts("timer", "--iterations", "600")
    assert found["other_busy_us"] < 0.5 * found["cpu_us"] + 4 * found["other_busy_error_us"]
