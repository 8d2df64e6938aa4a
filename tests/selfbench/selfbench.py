"""klat's own speed against its claims: ratios taken in turns, in one go. Prints; asserts nothing.

`make selfbench`, as root and with nothing else on the machine; ROUNDS=n for more or fewer turns.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = int(os.environ.get("ROUNDS") or 7)
CPU = max(os.sched_getaffinity(0))
# Real-time tasks that never sleep for longer than a second altogether are throttled; so is what comes after them.
REST_SECONDS = 0.2


class Unavailable(Exception):
    """A figure that this machine cannot give, and why."""


@dataclass(frozen=True)
class Figure:
    value: float
    text: str


def output_of(*words: str | Path) -> str:
    """Standard output; status 3 is a figure too, if a doubtful one."""
    time.sleep(REST_SECONDS)
    name = str(words[0])
    if not shutil.which(name) and not Path(name).exists():
        raise Unavailable(f"there is no {name}")
    done = subprocess.run(
        [str(word) for word in words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=600,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 3):
        raise Unavailable(
            (done.stderr.strip() or f"{name} ended with {done.returncode}").splitlines()[-1]
        )
    return done.stdout


def program(name: str, *words: str | Path) -> list[str | Path]:
    return [ROOT / name / name, *words]


def programs() -> list[str]:
    listed = re.search(r"^PROGRAMS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return listed[1].split() if listed else []


def mean_ns(metric: str, *words: str | Path) -> float:
    for each in json.loads(output_of(*words, "--json"))["metrics"]:
        if each["name"] == metric:
            return float(each["mean_ns"])
    raise Unavailable(f"no metric {metric}")


def found(pattern: str, text: str) -> float:
    match = re.search(pattern, text)
    if not match:
        raise Unavailable(f"no {pattern!r} in {text[:80]!r}")
    return float(match[1])


def in_turns(
    ours: Callable[[], float], theirs: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """ABBA, so that a drift of the machine falls on both."""
    a: list[float] = []
    b: list[float] = []
    for number in range(ROUNDS):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            if which == 0:
                a.append(ours())
            else:
                b.append(theirs())
    return a, b


def ratio(ours: Sequence[float], theirs: Sequence[float], unit: str) -> Figure:
    """Of medians; then what each turn gave."""
    value = statistics.median(ours) / statistics.median(theirs)
    single = sorted(a / b for a, b in zip(ours, theirs))
    return Figure(
        value,
        f"{value:.3f} ({statistics.median(ours):.4g} against {statistics.median(theirs):.4g} {unit}; "
        f"turns {single[0]:.2f} to {single[-1]:.2f})",
    )


def bracket() -> list[list[float]]:
    lines = output_of(ROOT / "build" / "selfbench", str(CPU), str(ROUNDS)).splitlines()
    khz = float(lines[0])
    return [[float(word) * 1e6 / khz for word in line.split()] for line in lines[1:]]


def empty_bracket() -> Figure:
    rows = bracket()
    return ratio([row[0] for row in rows], [row[1] for row in rows], "ns")


def recording() -> Figure:
    value = statistics.median(row[2] - row[3] for row in bracket())
    return Figure(value, f"{value:.2f} ns")


def pipe_against_perf() -> Figure:
    count, warmup = 20000, 500
    cpus = f"{CPU},{CPU}"
    klat = program("pipes", "--cpus", cpus, "--iterations", str(count), "--warmup", str(warmup))
    held = ["chrt", "--fifo", "50", "taskset", "--cpu-list", str(CPU)]
    perf = [*held, "perf", "bench", "sched", "pipe", "-T", "-l", str(count)]
    ours, theirs = in_turns(
        lambda: mean_ns("round_trip", *klat),
        lambda: 1000 * found(r"([\d.]+) usecs/op", output_of(*perf)),
    )
    return ratio(ours, theirs, "ns")


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


def seconds(*words: str | Path) -> float:
    begun = time.monotonic()
    subprocess.run(
        [str(word) for word in words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return time.monotonic() - begun


def fixed_cost() -> Figure:
    """Start to exit of a run of one iteration, as a session makes them: recorded, the counter calibrated already."""
    worst = 0.0
    parts = []
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as scratch:
        for name in programs():
            words = program(
                name, "--record", scratch, "--quiet", "--warmup", "0", "--iterations", "1"
            )
            output_of(*words)
            times = [seconds(*words) for _ in range(4 * ROUNDS)]
            cost = 1000 * statistics.median(times)
            worst = max(worst, cost)
            parts.append(f"{name} {cost:.1f}")
    return Figure(worst, f"{worst:.1f} ms ({', '.join(parts)})")


def session_seconds(names: Sequence[str], runs: int, output: str) -> float:
    return seconds(ROOT / "klat", "run", *names, "--runs", str(runs), "--output", output)


# Runs klat as the launcher does, with a stopwatch around each program; prints the seconds in them and in all.
RUNNER = """
import sys, time
sys.path.insert(0, sys.argv.pop(1))
from klat import process
from klat.cli import main
begun, inside, run = time.monotonic(), 0.0, process.run
def timed(*args, **more):
    global inside
    start = time.monotonic()
    try:
        return run(*args, **more)
    finally:
        inside += time.monotonic() - start
process.run = timed
status = main(sys.argv[1:])
print(inside, time.monotonic() - begun)
sys.exit(status)
"""


def runner_share() -> Figure:
    """Of a session of pipes, the wall time that is not between starting a program and its end."""
    runs = 20 * ROUNDS
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as scratch:
        words = ["run", "pipes", "--runs", str(runs), "--output", scratch]
        said = output_of(sys.executable, "-c", RUNNER, ROOT / "scripts", *words)
    inside, whole = map(float, said.splitlines()[-1].split())
    share = 100 * (1 - inside / whole)
    return Figure(share, f"{share:.1f} % ({whole:.2f} s for {runs} runs of pipes)")


def bench_minutes() -> Figure:
    """500 runs of the five from the slope over 5 and 25, and one time each of summary and plot of the longer session."""
    names = ["pipes", "cv", "tlbflush", "timer", "network"]
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as scratch:
        output_of(ROOT / "klat", "run", "pipes", "--runs", "1", "--output", scratch)
        short = session_seconds(names, 5, f"{scratch}/short")
        long = session_seconds(names, 25, f"{scratch}/long")
        reports = seconds(ROOT / "klat", "summary", f"{scratch}/long")
        reports += seconds(ROOT / "klat", "plot", f"{scratch}/long", "-o", f"{scratch}/plots")
    value = (long + (long - short) / 20 * 475 + reports) / 60
    return Figure(
        value,
        f"{value:.1f} min (extrapolated from 25 runs each; {reports:.1f} s for table and plots)",
    )


def memory() -> Figure:
    worst = 0.0
    parts = []
    for name in programs():
        evidence = json.loads(output_of(*program(name, "--json")))["evidence"]
        if "memory_bytes" not in evidence:
            continue
        excess = (evidence["memory_bytes"] - evidence["sample_bytes"]) / 2**20
        worst = max(worst, excess)
        parts.append(f"{name} {excess:.1f}")
    return Figure(worst, f"{worst:.1f} MiB ({', '.join(parts)})")


CLAIMS: list[tuple[str, float, Callable[[], Figure]]] = [
    ("empty bracket / bare fenced rdtsc pair, at most 1.00", 1.005, empty_bracket),
    ("recording a sample, at most 5 ns", 5, recording),
    ("pipes on one CPU / perf bench sched pipe -T, at most 1.00", 1.005, pipe_against_perf),
    ("timer --method nanosleep / cyclictest, at most 1.00", 1.005, timer_against_cyclictest),
    ("fixed cost of a run, at most 10 ms", 10, fixed_cost),
    ("runner's share of the wall time, at most 3 %", 3, runner_share),
    ("all of make bench once installed, at most 3 min", 3, bench_minutes),
    ("memory beyond the samples, at most 8 MiB", 8, memory),
]


def main() -> int:
    if os.geteuid() != 0:
        print(
            "selfbench: as an ordinary user, most of these have no real-time priority: run it by sudo",
            file=sys.stderr,
        )
    wanted = sys.argv[1:]
    for claim, limit, measure in CLAIMS:
        if wanted and not any(word in claim for word in wanted):
            continue
        try:
            figure = measure()
        except (Unavailable, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
            print(f"{'n/a':6}{claim}\n      {error}", flush=True)
            continue
        print(
            f"{'pass' if figure.value <= limit else 'short':6}{claim}\n      {figure.text}",
            flush=True,
        )
    print("no system call, fault or lock in the timed part: shown by counts, in make test")
    return 0


if __name__ == "__main__":
    sys.exit(main())
