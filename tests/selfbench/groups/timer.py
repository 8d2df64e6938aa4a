"""The timer's lateness beside cyclictest."""

from __future__ import annotations

from rows import CPU, Claim, Figure, found, in_turns, mean_ns, output_of, program, ratio


def timer_against_cyclictest() -> Figure:
    """Both hold the CPU out of idle states (cyclictest does so by default), at priority 80, every millisecond."""
    count, period = "2000", "1000"
    mode = ["--method", "nanosleep", "--mode", "periodic", "--period", period, "--dma-latency", "0"]
    klat = program("timer", *mode, "--policy", "fifo:80", "--cpus", str(CPU), "--iterations", count)
    cyclic = ["cyclictest", "--quiet", "--nsecs", "--mlockall", "--threads=1", f"--affinity={CPU}"]
    cyclic += ["--priority=80", "--policy=fifo", f"--interval={period}", f"--loops={count}"]
    ours, theirs = in_turns(
        lambda: mean_ns("lateness", *klat),
        lambda: found(r"Avg: *(\d+)", output_of(*cyclic)),
    )
    return ratio(ours, theirs, "ns")


CLAIMS = [
    Claim(
        "timer --method nanosleep / cyclictest, at most 1.00",
        1.005,
        timer_against_cyclictest,
    ),
]
