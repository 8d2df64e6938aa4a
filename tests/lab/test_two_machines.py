"""transport between two machines: two kernels that share nothing but a network."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness
import pytest
from machines import Machine, joined

pytestmark = pytest.mark.long

Pair = tuple[Machine, Machine]
TRANSPORTS = ("tcp", "udp", "multicast")
PORT = 7718
ITERATIONS = 300
LIMIT_SECONDS = 120
WAIT_FOR_SECONDS = 5
# In which a run has begun, its warm-up at least, in an emulator of a busy host as well.
BEGUN_SECONDS = 8
ENDLESS = ("--iterations=10000000", "--bytes=20000", f"--wait-for={WAIT_FOR_SECONDS}")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, qemu: str, busybox: Path) -> Iterator[Pair]:
    with joined(tmp_path_factory.mktemp("machines"), busybox) as machines:
        yield machines


def start(pair: Pair, *options: str, prefix: str = "") -> None:
    listener, connector = pair
    listener.start("transport", f"--listen={PORT}", *options)
    connector.start(prefix, "transport", f"--connect={listener.address}:{PORT}", *options)


def both(pair: Pair, *options: str) -> list[dict[str, int]]:
    """What the listener and the connector counted in a run of which both tell all that they should."""
    start(pair, "--json", f"--iterations={ITERATIONS}", "--wait-for=20", *options)
    counted = []
    for machine, metrics in zip(pair, (["turnaround"], ["round_trip", "half"])):
        done = machine.finish(LIMIT_SECONDS)
        # A wait that came after its message is told of as well, and is no loss.
        assert done.status in (harness.MEASURED, harness.UNTRUSTED), str(done)
        found: dict[str, Any] = harness.json_of(done)
        assert [metric["name"] for metric in found["metrics"]] == metrics
        assert {metric["n"] for metric in found["metrics"]} == {0}, "an emulator tells no time"
        counts = found["evidence"]["counts"]
        # Lead and tail are sent as well.
        assert counts["sent"] == counts["received"] == counts["observed"] > ITERATIONS, str(done)
        assert counts["damaged"] == 0, str(done)
        assert counts["bytes_received"] == counts["bytes_sent"], str(done)
        counted.append(counts)
    return counted


@pytest.mark.parametrize("wait", ["block", "spin"])
@pytest.mark.parametrize("size", ["100", "100000"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_messages_between_two_kernels_arrive_once_and_whole(
    pair: Pair, transport: str, size: str, wait: str
) -> None:
    """The larger ones in 69 packets each way."""
    options = (f"--transport={transport}", f"--bytes={size}", f"--wait={wait}", "--touch=write")

    def attempt() -> str:
        counted = both(pair, *options)
        late = [side.get("lost", 0) + side.get("repaired", 0) for side in counted]
        # What spins on the only CPU keeps datagrams waiting, and some are sent again.
        return str(counted) if any(late) and wait == "block" else ""

    harness.until(attempt)


@pytest.mark.parametrize("size", ["100", "100000"])
def test_what_is_dropped_between_two_kernels_is_sent_again_by_udp(pair: Pair, size: str) -> None:
    options = (f"--bytes={size}", "--wait=block", "--touch=write", "--drop-every=20")

    def attempt() -> str:
        listener, connector = both(pair, "--transport=udp", *options)
        dropped = listener["dropped"] + connector["dropped"]
        assert listener["dropped"] >= 5 and connector["dropped"] >= 5
        # One attempt of a message of two datagrams may have lost both.
        expected = range(dropped, dropped + 1) if size == "100" else range(1, dropped + 1)
        return "" if connector["lost"] in expected else str((listener, connector))

    harness.until(attempt)


@pytest.mark.parametrize("size", ["100", "100000"])
def test_what_is_dropped_between_two_kernels_is_repaired_by_multicast(
    pair: Pair, size: str
) -> None:
    options = (f"--bytes={size}", "--wait=block", "--touch=write", "--drop-every=20")

    def attempt() -> str:
        listener, connector = both(pair, "--transport=multicast", *options)
        assert listener["dropped_parts"] >= 5 and connector["dropped_parts"] >= 5
        repaired = (listener["repaired"], connector["repaired"])
        dropped = (connector["dropped_parts"], listener["dropped_parts"])
        return "" if repaired == dropped else str((listener, connector))

    harness.until(attempt)


# The end of a machine in mid-run -----------------------------------------------------------------


def assert_told(done: harness.Done, about: str) -> None:
    harness.assert_one_line(done, "transport", harness.FAILED)
    assert about in done.err, str(done)
    assert re.search(r"at iteration -?\d|of a message", done.err), f"the run had not begun\n{done}"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_program_that_is_killed_is_missed_at_once(pair: Pair, transport: str) -> None:
    start(
        pair,
        *ENDLESS,
        f"--transport={transport}",
        "--wait=block",
        prefix=f"busybox timeout -s KILL {BEGUN_SECONDS}",
    )
    listener, connector = pair
    assert connector.finish(LIMIT_SECONDS).status == 128 + signal.SIGKILL
    done = listener.finish(WAIT_FOR_SECONDS)
    assert_told(done, "is gone")


@pytest.mark.parametrize("wait", ["block", "spin"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_machine_that_falls_silent_is_given_up(pair: Pair, transport: str, wait: str) -> None:
    """And ends its own run once it is back."""
    listener, connector = pair
    start(pair, *ENDLESS, f"--transport={transport}", f"--wait={wait}")
    time.sleep(BEGUN_SECONDS)
    with connector.stopped():
        done = listener.finish(3 * WAIT_FOR_SECONDS)
    assert_told(done, f"timed out after {WAIT_FOR_SECONDS} s waiting for a ")
    harness.assert_one_line(connector.finish(3 * WAIT_FOR_SECONDS), "transport", harness.FAILED)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_machine_that_is_no_more_is_given_up(
    tmp_path: Path, qemu: str, busybox: Path, transport: str
) -> None:
    with joined(tmp_path, busybox) as (listener, connector):
        start((listener, connector), *ENDLESS, f"--transport={transport}", "--wait=block")
        time.sleep(BEGUN_SECONDS)
        connector.end()
        done = listener.finish(3 * WAIT_FOR_SECONDS)
    assert_told(done, f"timed out after {WAIT_FOR_SECONDS} s waiting for a ")
