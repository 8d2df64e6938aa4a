"""What every program costs besides what it times."""

import json
import statistics
import tempfile

from rows import BUILD, ROUNDS, Claim, Figure, output_of, program, programs, seconds

# The default round of an event loop takes 30 ms, a window of noise takes 20 ms.
SMALLEST = {"eventloop": ("--pairs", "1", "--writes", "1"), "noise": ("--window", "100")}


def fixed_cost() -> Figure:
    """Start to exit of a run of one small iteration, as a session makes them: recorded, the counter calibrated already."""
    worst = 0.0
    parts = []
    with tempfile.TemporaryDirectory(dir=BUILD) as scratch:
        for name in programs():
            words = program(
                name,
                *("--record", scratch, "--quiet", "--warmup", "0", "--iterations", "1"),
                *SMALLEST.get(name, ()),
            )
            output_of(*words)
            times = [seconds(*words) for _ in range(4 * ROUNDS)]
            cost = 1000 * statistics.median(times)
            worst = max(worst, cost)
            parts.append(f"{name} {cost:.1f}")
    return Figure(worst, f"{worst:.1f} ms ({', '.join(parts)})")


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


CLAIMS = [
    Claim("fixed cost of a run, at most 10 ms", 10, fixed_cost),
    Claim("memory beyond the samples, at most 8 MiB", 8, memory),
]
