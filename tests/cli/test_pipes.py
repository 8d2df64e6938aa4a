"""What holds for pipes alone; tests/cli/test_program_*.py hold it to what holds for every program."""

from __future__ import annotations

import pytest
from harness import json_of, until, works

pytestmark = pytest.mark.alone


def test_the_gap_before_a_one_way_message_is_no_sleep_for_it(real_time: None) -> None:
    """The writer sleeps in each gap, and again for the answer: only the latter is a wait of the pipe."""

    def attempt() -> str:
        result = json_of(works("pipes", "--mode", "one-way", "--cpus", "1,1", "--json"))
        slept = {worker["role"]: worker["voluntary"] for worker in result["evidence"]["workers"]}
        return "" if 0 < slept["writer"] <= 1.1 * slept["reader"] else str(slept)

    until(attempt)
