"""What a sample costs."""

import statistics

from rows import BUILD, CPU, ROUNDS, Claim, Figure, no_slower, output_of, ratio


def bracket() -> list[list[float]]:
    lines = output_of(BUILD / "selfbench", str(CPU), str(ROUNDS)).splitlines()
    khz = float(lines[0])
    return [[float(word) * 1e6 / khz for word in line.split()] for line in lines[1:]]


def empty_bracket() -> Figure:
    rows = bracket()
    return ratio([row[0] for row in rows], [row[1] for row in rows], "ns")


def recording() -> Figure:
    value = statistics.median(row[2] - row[3] for row in bracket())
    return Figure(value, f"{value:.2f} ns")


CLAIMS = [
    no_slower("empty bracket / bare fenced rdtsc pair", empty_bracket),
    Claim("recording a sample, at most 5 ns", 5, recording),
]
