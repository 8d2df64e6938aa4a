"""How the sleepers of a run were woken is counted: by an interrupt, or by a flag to a CPU that polls."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import json_of, measured, until

pytestmark = pytest.mark.alone

STATES = Path("/sys/devices/system/cpu/cpu0/cpuidle")
ITERATIONS = 300
WARMUP = 50
# How often an iteration wakes somebody from another CPU.
SLEEPING = {
    ("pipes",): 2,
    ("cv",): 2,
    ("semaphore",): 1,
    ("messages", "--mode", "threads"): 2,
    ("transport", "--wait", "block"): 2,
}


def counts(program: str, *arguments: str) -> dict[str, int]:
    numbers = ("--iterations", str(ITERATIONS), "--warmup", str(WARMUP))
    found: dict[str, int] = json_of(measured(program, *numbers, *arguments, "--json"))["evidence"][
        "counts"
    ]
    return found


@pytest.mark.parametrize("command, wakeups", SLEEPING.items(), ids=lambda value: str(value))
def test_every_wakeup_from_another_cpu_is_counted(
    command: tuple[str, ...], wakeups: int, two_cpus: None
) -> None:
    found = counts(*command)
    expected = wakeups * (ITERATIONS + WARMUP)
    # `iterations` does not count the edges of a run or of semaphore's stretches.
    assert 0.98 * expected <= found["wakeups"] <= 1.12 * expected
    assert found["wake_interrupts"] >= 0


@pytest.mark.parametrize(
    "command", [("pipes", "--cpus", "1,1"), ("transport", "--wait", "spin")], ids=str
)
def test_a_run_without_such_wakeups_has_no_such_counts(
    command: tuple[str, ...], two_cpus: None
) -> None:
    assert not {"wakeups", "wake_interrupts"} & counts(*command).keys()


def polls() -> int:
    """How often idle CPUs have polled for work."""
    return sum(
        int((path.parent / "usage").read_text())
        for path in STATES.parent.parent.glob("cpu*/cpuidle/state*/name")
        if path.read_text().startswith("POLL")
    )


@pytest.mark.skipif(not (STATES / "state0").exists(), reason="the kernel has no cpuidle states")
def test_what_polled_got_no_interrupt(two_cpus: None) -> None:
    """By the kernel's own count of idle states, whether this machine lets CPUs poll now or not."""

    def attempt() -> str:
        before = polls()
        found = counts("pipes", "--dma-latency", "0")
        polled = polls() - before
        missing = found["wakeups"] - found["wake_interrupts"]
        if abs(missing - min(polled, found["wakeups"])) <= 0.1 * found["wakeups"]:
            return ""
        return f"{missing} of {found['wakeups']} without an interrupt, and {polled} polls"

    until(attempt)
