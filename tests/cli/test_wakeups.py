"""How the sleepers of a run were woken is counted: by an interrupt, or by a flag to a CPU that polls."""


import pytest
from harness import json_of, measured, until, works

from klat.tracing.instance import tracing_instance

pytestmark = pytest.mark.alone

# The shorter a run, the less often the hypervisor stops a CPU in it.
ITERATIONS = 100
WARMUP = 20
# Of the edges of a run, or of semaphore's stretches, which `iterations` does not count.
EDGES = 25
# How often an iteration wakes somebody from another CPU.
SLEEPING = {
    ("pipes",): 2,
    ("cv",): 2,
    ("semaphore", "--consumer-burn", "10000"): 1,
    ("messages", "--mode", "threads"): 2,
    ("signal",): 2,
    ("transport", "--wait", "block"): 2,
    ("wakeup",): 2,
}


def counts(program: str, *arguments: str) -> dict[str, int]:
    numbers = ("--iterations", str(ITERATIONS), "--warmup", str(WARMUP))
    found: dict[str, int] = json_of(measured(program, *numbers, *arguments, "--json"))["evidence"][
        "counts"
    ]
    return found


@pytest.mark.parametrize("command, wakeups", SLEEPING.items(), ids=lambda value: str(value))
def test_every_wakeup_from_another_cpu_is_counted(command, wakeups, two_cpus):
    found = counts(*command)
    expected = wakeups * (ITERATIONS + WARMUP)
    assert 0.98 * expected <= found["wakeups"] <= expected + EDGES
    assert found["wake_interrupts"] >= 0


@pytest.mark.parametrize(
    "command", [("pipes", "--cpus", "1,1"), ("transport", "--wait", "spin")], ids=str
)
def test_a_run_without_such_wakeups_has_no_such_counts(command, two_cpus):
    assert not {"wakeups", "wake_interrupts"} & counts(*command).keys()


def test_what_polled_got_no_interrupt(tracing, two_cpus):
    """By the kernel's own event for a wakeup without an interrupt, whether this machine lets CPUs
    poll now or not. The event counts what happens before and after the iterations, too."""
    events = "events/sched/sched_wake_idle_without_ipi/enable"

    def attempt() -> str:
        with tracing_instance() as instance:
            (instance / events).write_text("1")
            # A traced run is invalid, and its counts hold.
            words = ("--iterations", str(ITERATIONS), "--warmup", str(WARMUP), "--json")
            done = works("pipes", "--dma-latency", "0", *words)
            found = json_of(done)["evidence"]["counts"]
            (instance / events).write_text("0")
            traced = (instance / "trace").read_text().count("sched_wake_idle_without_ipi:")
        missing = found["wakeups"] - found["wake_interrupts"]
        if traced and -0.02 <= (traced - missing) / found["wakeups"] <= 0.3:
            return ""
        return f"{missing} of {found['wakeups']} without an interrupt, and {traced} events"

    until(attempt)
