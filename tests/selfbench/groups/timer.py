"""The timer's lateness beside cyclictest and cyclicdeadline."""

import csv
import json
import os
import re
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rows import CPU, Claim, Figure, number_in, in_turns, mean_ns, output_of, program, ratio
from rows import no_slower

TURNS = 20
SECONDS = 3


def timer_against_cyclictest() -> Figure:
    """Both hold the CPU out of idle states (cyclictest does so by default), at priority 80, every millisecond."""
    count, period = "2000", "1000"
    mode = ["--method", "nanosleep", "--mode", "periodic", "--period", period, "--dma-latency", "0"]
    klat = program("timer", *mode, "--policy", "fifo:80", "--cpus", str(CPU), "--iterations", count)
    cyclic = ["cyclictest", "--quiet", "--nsecs", "--mlockall", "--threads=1", f"--affinity={CPU}"]
    cyclic += ["--priority=80", "--policy=fifo", f"--interval={period}", f"--loops={count}"]
    ours, theirs = in_turns(
        lambda: mean_ns("lateness", *klat), lambda: number_in(r"Avg: *(\d+)", output_of(*cyclic))
    )
    return ratio(ours, theirs, "ns")


def soaked() -> tuple[float, float]:
    """Mean and maximum in us, over the CPUs, of one soak on each CPU at the same time."""
    cpus = sorted(os.sched_getaffinity(0))
    together = ["--together", str(len(cpus))] if len(cpus) > 1 else []
    words = ["--method", "nanosleep", "--mode", "periodic", "--dma-latency", "0", *together]
    words += ["--quiet", "--soak", str(SECONDS), "--segment", str(SECONDS)]
    with tempfile.TemporaryDirectory() as record:
        running = [
            subprocess.Popen(
                program("timer", *words, "--cpus", str(cpu), "--record", record),
                stderr=subprocess.DEVNULL,
            )
            for cpu in cpus
        ]
        for each in running:
            each.wait(timeout=60)
        khz = json.loads((Path(record) / "session.json").read_text())["tsc"]["khz"]
        with (Path(record) / "runs.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
    means = [float(row["mean"]) * 1e3 / khz for row in rows]
    return statistics.mean(means), max(int(row["max"]) for row in rows) * 1e3 / khz


def cyclic_on_all() -> tuple[float, float]:
    # Without --nsecs it rounds each latency, and their mean, down to a microsecond.
    words = ("cyclictest", "-q", "-m", "-S", "-p", "98", "-i", "1000", "-D", str(SECONDS))
    text = output_of(*words, "--nsecs")
    means, maxima = (
        [float(n) / 1e3 for n in re.findall(rf"{name}: *(\d+)", text)] for name in ("Avg", "Max")
    )
    return statistics.mean(means), max(maxima)


def soak_against_cyclictest() -> Figure:
    """Both on every CPU at once, at fifo:98, every millisecond, out of idle states."""
    most: dict[str, list[float]] = {"klat": [], "cyclictest": []}

    def mean_of(name: str, measure: Callable[[], tuple[float, float]]) -> float:
        mean, longest = measure()
        most[name].append(longest)
        return mean

    ours, theirs = in_turns(
        lambda: mean_of("klat", soaked), lambda: mean_of("cyclictest", cyclic_on_all), TURNS
    )
    maxima = ratio(most["klat"], most["cyclictest"], "us")
    return replace(ratio(ours, theirs, "us"), beside=(f"longest: {maxima.text}",))


def deadline_against_cyclicdeadline() -> Figure:
    """Both every 4 ms, with the 60 % of it that cyclicdeadline takes as runtime. cyclicdeadline counts from its own first
    wakeup, so only what the mean is above the minimum is alike. The rest of the difference: cyclicdeadline waits in
    sched_yield(), and runs on any CPU, because with --affinity it moves all tasks of the machine to another cpuset.
    """
    words = ["--policy", "deadline:2400us:4ms", "--mode", "periodic", "--iterations", "500"]
    klat = program("timer", *words, "--cpus", str(CPU), "--json")
    cyclic = ["cyclicdeadline", "-q", "-i", "4000", "-t", "1", "-D", "2", "--json=/dev/stdout"]

    def ours() -> float:
        (lateness,) = json.loads(output_of(*klat))["metrics"]
        return float(lateness["mean_ns"] - lateness["min_ns"]) / 1e3

    def theirs() -> float:
        text = output_of(*cyclic)
        return number_in(r'"avg": *([\d.]+)', text) - number_in(r'"min": *(\d+)', text)

    return ratio(*in_turns(ours, theirs, TURNS), "us")


CLAIMS = [
    no_slower("timer --method nanosleep / cyclictest", timer_against_cyclictest),
    Claim(
        "timer --policy deadline / cyclicdeadline, mean above the minimum, at most 1.5",
        1.5,
        deadline_against_cyclicdeadline,
    ),
    no_slower("timer --soak on every CPU / cyclictest -S, mean", soak_against_cyclictest),
]
