"""What holds for signal alone; tests/cli/test_program_*.py hold it to what holds for every program."""

import os
import platform
import signal

import pytest
from harness import FAILED, UNTRUSTED, Running, assert_one_line, combined, json_of, refusing, run
from harness import try_again_unless, with_tries, works

pytestmark = pytest.mark.alone

RECEIVES = ("sigwaitinfo", "handler", "signalfd")
SENDS = ("tgkill", "kill", "sigqueue", "pidfd")


@pytest.mark.parametrize("send, receive, peer", combined(SENDS, RECEIVES, ["thread", "process"]))
@with_tries
def test_each_side_sleeps_once_for_each_signal(send, receive, peer, real_time):
    """Also where the call leaves the choice of the thread to the kernel."""
    options = ("--send", send, "--receive", receive, "--peer", peer, "--cpus", "1,1", "--json")
    evidence = json_of(works("signal", *options))["evidence"]
    slept = [worker["voluntary"] for worker in evidence["workers"]]
    assert (evidence["counts"]["mismatched"], evidence["counts"]["extra"]) == (0, 0)
    try_again_unless(slept == [evidence["counts"]["observed"]] * 2, slept)


@pytest.mark.parametrize("receive", RECEIVES)
def test_a_signal_of_another_process_is_found_out(receive, two_cpus, real_time):
    length = ("--iterations", "20000", "--inject", "20000")
    # The kernel gives the receiver's signal to the receiver, whoever sends it.
    with Running("signal", "--send", "kill", "--receive", receive, *length, "--json") as running:
        (measured,) = running.children
        os.kill(measured, signal.SIGRTMIN + 1)
        done = running.end()
    result = json_of(done)
    assert done.status == UNTRUSTED, str(done)
    assert result["evidence"]["counts"]["mismatched"] > 0
    assert "not those that the other side sent" in result["reason"]


def test_a_refused_wait_for_a_handler_is_an_error():
    """An ordinary policy: a receiver that takes the refusal for a signal never stops."""
    rt_sigsuspend = 130 if platform.machine() == "x86_64" else 133
    words = ("--receive", "handler", "--policy", "other")
    done = run("signal", *words, preexec_fn=refusing(rt_sigsuspend))
    assert_one_line(done, "signal", FAILED)
    assert "Operation not permitted" in done.err
