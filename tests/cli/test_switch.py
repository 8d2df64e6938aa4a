"""What holds for switch alone; tests/cli/test_program_*.py hold it to what holds for every program."""

import itertools
from typing import Any

import pytest
from harness import UNTRUSTED, Session, json_of, measured, run, try_again_unless, until, with_tries
from harness import works

pytestmark = pytest.mark.alone

PEERS = ("thread", "process")
WAYS = ("yield", "futex")


def result_of(*options: str) -> dict[str, Any]:
    return json_of(works("switch", *options, "--json"))


def median(*options: str) -> float:
    (metric,) = result_of(*options)["metrics"]
    return float(metric["p50"])


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("by", WAYS)
@with_tries
def test_the_kernel_counts_a_switch_for_each_sample(by, peer, real_time):
    result = json_of(measured("switch", "--by", by, "--peer", peer, "--json"))
    counted = "involuntary" if by == "yield" else "voluntary"
    each = [worker[counted] for worker in result["evidence"]["workers"]]
    half = result["evidence"]["counts"]["observed"] // 2
    try_again_unless(each == [half, half], f"{each} {result['status']} {result['reason']}")


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("by", WAYS)
def test_runs_of_any_length_end_with_all_samples(by, peer, tmp_path):
    """Whichever side begins, and whichever is left."""
    session = Session(tmp_path)
    lengths = list(itertools.product((0, 1, 2), (1, 2, 3)))
    for warmup, iterations in lengths:
        options = ("--warmup", str(warmup), "--iterations", str(iterations), "--quiet")
        works("switch", "--by", by, "--peer", peer, *options, "--record", tmp_path)
    assert [int(row["n"]) for row in session.rows] == [iterations for _, iterations in lengths]
    assert all(min(session.samples(row)) > int(row["floor"]) for row in session.rows)


@pytest.mark.parametrize("by", WAYS)
@with_tries
def test_an_address_space_costs_something(by, real_time):
    thread, process = (median("--by", by, "--peer", peer) for peer in PEERS)
    try_again_unless(process > thread, f"{process} between processes, {thread} between threads")


@pytest.mark.parametrize("by", WAYS)
@with_tries
def test_leaving_for_nobody_is_no_switch(by, real_time):
    done = run("switch", "--by", by, "--plant", "alone", "--json")
    assert done.status == UNTRUSTED, str(done)
    alone = json_of(done)
    assert alone["evidence"]["counts"]["switches"] == 0
    with_peer, nobody = median("--by", by), alone["metrics"][0]["p50"]
    try_again_unless(with_peer > nobody, f"{with_peer} for a switch, {nobody} for none")


def test_a_long_run_rests_and_goes_on_alternating(real_time):
    """Rests keep it from being throttled, and are in no sample."""

    def attempt() -> str:
        result = result_of("--iterations", "300000")
        counts = result["evidence"]["counts"]
        if counts["unanswered"] > 300 or "throttling" in result["reason"]:
            return f"{counts} {result['reason']}"
        (metric,) = result["metrics"]
        return "" if metric["p99"] < 4 * metric["p50"] else str(metric)

    until(attempt)
