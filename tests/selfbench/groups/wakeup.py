"""A wakeup beside a hog, beside schbench. It is in no distribution: SCHBENCH names the program, built from its source."""

import json
import os
import subprocess
import sys

from rows import CPU, Claim, Figure, Unavailable, number_in, in_turns, output_of, peer, program
from rows import ratio

OTHER_CPU = min(os.sched_getaffinity(0))


def median_ns() -> float:
    cpus = f"{OTHER_CPU},{CPU}"
    options = ("--cpus", cpus, "--work", "0", "--iterations", "20000", "--json")
    (wake, _) = json.loads(output_of(*program("wakeup", *options)))["metrics"]
    return float(wake["p50_ns"])


def median_of_schbench(path: str) -> float:
    """A message thread and a worker that does nothing. It has no hogs."""
    cpus = ("-M", str(OTHER_CPU), "-W", str(CPU))
    with subprocess.Popen(
        ["taskset", "--cpu-list", str(CPU), sys.executable, "-c", "while True: pass"]
    ) as hog:
        try:
            words = (path, "-m", "1", "-t", "1", *cpus, "-n", "0", "-F", "1", "-r", "2")
            text = output_of("sh", "-c", '"$@" 2>&1', "sh", *words)
        finally:
            hog.kill()
    return 1000 * number_in(r"50\.0th: +(\d+) ", text)


def wakeup_against_schbench() -> Figure:
    path = str(peer("SCHBENCH", "schbench's program"))
    if OTHER_CPU == CPU:
        raise Unavailable("two CPUs are needed")
    return ratio(*in_turns(median_ns, lambda: median_of_schbench(path)), "ns")


CLAIMS = [
    Claim(
        "wakeup beside a hog / schbench beside the same, medians, at most 1.10",
        1.10,
        wakeup_against_schbench,
    )
]
