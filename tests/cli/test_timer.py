"""What holds for timer alone; tests/cli/test_program_*.py hold it to what holds for every program."""

import pytest
from harness import UNTRUSTED, json_of, run, works

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
