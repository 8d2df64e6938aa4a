"""What holds for inherit alone; tests/cli/test_program_*.py hold it to what holds for every program."""

from typing import Any

import pytest
from harness import json_of, try_again_unless, with_tries, works

pytestmark = pytest.mark.alone

NONE = ("--protocol", "none")


def result_of(*options: str) -> dict[str, Any]:
    return json_of(works("inherit", *options, "--json"))


def medians(*options: str) -> tuple[float, float]:
    acquire, release = result_of(*options)["metrics"]
    return acquire["p50_ns"], release["p50_ns"]


@pytest.mark.parametrize("protocol", ["inherit", "none"])
@pytest.mark.parametrize("depth", [1, 2, 30])
@with_tries
def test_each_thread_of_the_chain_sleeps_for_its_mutex(depth, protocol, real_time):
    evidence = result_of("--depth", str(depth), "--protocol", protocol)["evidence"]
    observed = evidence["counts"]["observed"]
    slept = [(worker["role"], worker["voluntary"]) for worker in evidence["workers"]]
    waiting = [("link", 2 * observed)] * (depth - 1)
    expected = [("highest", 2 * observed), ("spinner", observed), ("lowest", 0), *waiting]
    assert evidence["counts"]["unexpected"] == 0
    try_again_unless(slept == expected, slept)


def test_each_priority_is_above_those_below(real_time):
    workers = result_of("--depth", "3", "--policy", "fifo:60")["evidence"]["workers"]
    priorities = [worker["priority"] for worker in workers]
    assert priorities == [60, 22, 19, 20, 21]


@with_tries
def test_the_inversion_lasts_as_long_as_the_spinner(real_time):
    acquire, release = zip(*(medians(*NONE, "--spin", us) for us in ("500", "1000")))
    longer = (acquire[1] - acquire[0]) / 500_000
    inherited, _ = medians()
    right = 0.9 < longer < 1.1 and inherited < acquire[0] / 2 and max(release) < acquire[0] / 2
    try_again_unless(right, f"{acquire} {release} {inherited}")


@with_tries
def test_a_longer_chain_takes_longer(real_time):
    short, long = medians(), medians("--depth", "10")
    try_again_unless(all(a < b for a, b in zip(short, long)), f"{short} {long}")
