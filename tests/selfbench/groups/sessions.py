"""What a session costs besides its runs, and all of `make bench`."""

import sys
import tempfile
from collections.abc import Sequence

from rows import BUILD, ROOT, ROUNDS, Claim, Figure, output_of, seconds


def session_seconds(names: Sequence[str], runs: int, output: str) -> float:
    return seconds(ROOT / "klat", "run", *names, "--runs", str(runs), "--output", output)


# Runs klat as the launcher does, with a stopwatch around each program; prints the seconds in them and in all.
RUNNER = """
import sys, time
sys.path.insert(0, sys.argv.pop(1))
from klat.base import process
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
    with tempfile.TemporaryDirectory(dir=BUILD) as scratch:
        words = ["run", "pipes", "--runs", str(runs), "--output", scratch]
        said = output_of(sys.executable, "-c", RUNNER, ROOT / "scripts", *words)
    inside, whole = map(float, said.splitlines()[-1].split())
    share = 100 * (1 - inside / whole)
    return Figure(share, f"{share:.1f} % ({whole:.2f} s for {runs} runs of pipes)")


def bench_minutes() -> Figure:
    """500 runs of the five from the slope over 5 and 25, and one time each of summary and plot of the longer session."""
    names = ["pipes", "cv", "tlbflush", "timer", "network"]
    with tempfile.TemporaryDirectory(dir=BUILD) as scratch:
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


CLAIMS = [
    Claim("runner's share of the wall time, at most 3 %", 3, runner_share),
    Claim("all of make bench once installed, at most 3 min", 3, bench_minutes),
]
