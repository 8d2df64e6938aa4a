"""What holds for transport alone; tests/cli/test_program_*.py hold it to what holds for every program."""

from __future__ import annotations

import os
import platform
import statistics
from pathlib import Path
from typing import Any

import harness
import pytest
from harness import (
    UNTRUSTED,
    USAGE,
    Session,
    assert_one_line,
    command,
    json_of,
    path_of,
    run,
    until,
    works,
)

pytestmark = pytest.mark.usefixtures("two_cpus")

LOCAL = ["thread-pointer", "shm-zero-copy", "shm-copy", "pipe", "unix"]
# Between the blocks, chunks and buffers that messages are cut into.
ODD_SIZES = [32, 33, 47, 4099, 16385, 65537, 1000003]


def result(*options: str) -> dict[str, Any]:
    return json_of(works("transport", *options, "--json"))


def counts(*options: str) -> dict[str, int]:
    found = result(*options)["evidence"]["counts"]
    assert isinstance(found, dict)
    return found


def p50(metric: str, *options: str) -> float:
    return {m["name"]: float(m["p50"]) for m in result(*options)["metrics"]}[metric]


def slept(*options: str) -> list[int]:
    return [worker["voluntary"] for worker in result(*options)["evidence"]["workers"]]


def peers_of(transport: str) -> list[str]:
    return ["thread"] if transport == "thread-pointer" else ["thread", "process"]


@pytest.mark.parametrize("wait", ["spin", "block"])
@pytest.mark.parametrize("transport", LOCAL)
def test_what_is_sent_is_received(transport: str, wait: str) -> None:
    for peer in peers_of(transport):
        found = counts("--transport", transport, "--wait", wait, "--peer", peer)
        assert (found["sent"], found["received"], found["damaged"]) == (1000, 1000, 0)
        assert found["bytes_sent"] == found["bytes_received"] == 1000 * 100


@pytest.mark.parametrize("size", ODD_SIZES)
@pytest.mark.parametrize("transport", LOCAL)
def test_every_byte_of_any_size_arrives(transport: str, size: int) -> None:
    for wait in ("spin", "block"):
        words = ("--transport", transport, "--wait", wait, "--bytes", str(size))
        found = counts(*words, "--touch", "write", "--iterations", "20", "--warmup", "2")
        assert (found["received"], found["damaged"]) == (40, 0)
        assert found["bytes_received"] == 40 * size


@pytest.mark.parametrize("touch", ["none", "read", "write"])
@pytest.mark.parametrize("transport", LOCAL)
def test_a_damaged_message_is_caught(transport: str, touch: str) -> None:
    options = ("--transport", transport, "--touch", touch, "--bytes", "5000")

    def attempt() -> str:
        done = run("transport", *options, "--plant", "corrupt", "--json")
        if done.status == UNTRUSTED and "damaged" in json_of(done)["reason"]:
            return ""
        return str(done)

    until(attempt)


@pytest.mark.parametrize("transport", LOCAL)
def test_spinners_never_sleep_and_blockers_do_for_every_message(transport: str) -> None:
    def attempt() -> str:
        spun = slept("--transport", transport, "--wait", "spin")
        blocked = slept("--transport", transport, "--wait", "block")
        return "" if max(spun) <= 5 and min(blocked) >= 495 else f"{spun} {blocked}"

    until(attempt)


def test_the_size_of_what_nobody_touches_does_not_matter() -> None:
    zero_copy = ("--transport", "shm-zero-copy", "--iterations", "100", "--bytes")

    def attempt() -> str:
        small, large = p50("half", *zero_copy, "100"), p50("half", *zero_copy, "10000000")
        read = p50("half", *zero_copy, "10000000", "--touch", "read")
        # The copy of 10 MB takes thousands of times as long as the hand-off.
        return "" if large < 4 * small and read > 20 * large else f"{small} {large} {read}"

    until(attempt)


def test_half_is_half(tmp_path: Path) -> None:
    works("transport", "--record", tmp_path)
    session = Session(tmp_path)
    rows = {row["metric"]: session.samples(row) for row in session.rows}
    assert [sample // 2 for sample in rows["round_trip"]] == rows["half"]


def test_large_messages_are_fewer_unless_a_number_is_given() -> None:
    options = ("--transport", "unix", "--bytes", "2000000")
    assert result(*options)["metrics"][0]["n"] == 50
    assert result(*options, "--iterations", "70")["metrics"][0]["n"] == 70
    assert counts(*options, "--iterations", "500", "--warmup", "1")["received"] == 1000


def test_response_counts_from_when_a_message_was_due(tmp_path: Path) -> None:
    """Every odd answer takes longer than an interval, so that each even message leaves late."""

    def attempt() -> str:
        session = Session(tmp_path / str(len(list(tmp_path.iterdir()))))
        options = ("--rate", "6000", "--inject", "200000", "--iterations", "1000")
        works("transport", *options, "--record", session.path, "--quiet")
        rows = {row["metric"]: session.samples(row) for row in session.rows}
        waited = [a - b for a, b in zip(rows["response"], rows["round_trip"])]
        per_us = session.info["tsc"]["khz"] / 1e3
        even = statistics.median(waited[0::2]) / per_us
        odd = statistics.median(waited[1::2]) / per_us
        # 200 us less the interval of 166.7.
        return "" if even > 25 and odd < 25 else f"even {even:.1f}, odd {odd:.1f} us late"

    until(attempt)


def test_a_rate_that_is_not_kept_is_said() -> None:
    done = run("transport", "--rate", "1000000", "--inject", "20000", "--json")
    assert done.status == UNTRUSTED, str(done)
    assert "--rate 1000000 was not kept" in json_of(done)["reason"]


def test_a_rate_that_is_kept_is_believed() -> None:
    def attempt() -> str:
        done = works("transport", "--rate", "1000", "--iterations", "200", "--json")
        return str(done) if "not kept" in json_of(done)["reason"] else ""

    until(attempt)


@pytest.mark.parametrize(
    "words",
    [
        ["--peer", "process"],
        ["--wait", "spin", "--cpus", "0,0"],
        ["--rate", "49"],
        ["--wait", "block", "--plant", "sleep"],
        ["--bytes", "31"],
        ["--bytes", "16777217"],
        ["--cpus", "0"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_is_one_line_and_status_2(words: list[str]) -> None:
    assert_one_line(run("transport", *words), "transport", USAGE)


def test_a_peer_that_vanishes_ends_the_run() -> None:
    for transport in ("shm-copy", "pipe", "unix"):
        options = ("--transport", transport, "--bytes", "1000000", "--wait", "block")
        with harness.Running("transport", *options) as running:
            (measured,) = harness.children(running.process.pid)
            (peer,) = harness.children(measured)
            os.kill(peer, 9)
            assert_one_line(running.end(), "transport", harness.FAILED)
            assert not harness.gone(running.children)


@pytest.mark.parametrize("wait", ["spin", "block"])
@pytest.mark.parametrize("transport", ["thread-pointer", "shm-zero-copy", "shm-copy"])
def test_the_ring_is_clean_under_thread_sanitizer(transport: str, wait: str) -> None:
    """Between threads, which is where the sanitizer sees both sides; with blocks read and written."""
    for size in ("100", "3000000"):
        words = [
            *("setarch", platform.machine(), "--addr-no-randomize"),
            *(path_of("transport", "tsan"), "--transport", transport, "--peer", "thread"),
            *("--wait", wait, "--touch", "write", "--bytes", size),
            *("--iterations", "100" if size == "100" else "10", "--warmup", "5"),
        ]
        done = command(words, env=os.environ | {"TSAN_OPTIONS": "halt_on_error=1"}, limit=60)
        assert done.status in (harness.MEASURED, UNTRUSTED), str(done)
        assert "Sanitizer" not in done.err, str(done)
