"""Compares what two kernels measured. Pure functions: no files, no printing.

For now the comparison is two summaries and the ratios between them; a ratio is no verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Benchmark, params, placement, metric: what has to be the same on both sides.
Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Figures:
    """Of one metric on one side, all in the same unit. None where there are too few runs or
    samples."""

    runs: int
    average: float | None
    stdev: float | None
    median: float | None
    p99: float | None
    max: float | None


@dataclass(frozen=True)
class Pair:
    """One metric on both sides, with B over A."""

    key: Key
    a: Figures
    b: Figures
    ratio_of_medians: float | None
    ratio_of_averages: float | None


@dataclass(frozen=True)
class Comparison:
    """What both sides measured, and what only one did."""

    pairs: list[Pair]
    only_a: list[Key]
    only_b: list[Key]


def obstacles(a: Mapping[str, object], b: Mapping[str, object]) -> list[str]:
    """Why two sides can't be compared at all, one sentence each; `a` and `b` are their
    session.json."""
    reasons = {
        "unit": "figures in different units have no ratio",
        "mode": "the counter means another thing in each",
    }
    return [
        f"{key} is {a.get(key)} in A and {b.get(key)} in B: {reason}"
        for key, reason in reasons.items()
        if a.get(key) != b.get(key)
    ]


def ratio(a: float | None, b: float | None) -> float | None:
    """b over a; None where either is missing or a is 0."""
    return b / a if a and b is not None else None


def compare(
    a: Mapping[Key, Figures], b: Mapping[Key, Figures], tick_of_b: float = 1.0
) -> Comparison:
    """Pair what both sides have. `tick_of_b` is how long a tick of B is in ticks of A, so that
    the ratios are those of times where the counters' frequencies differ."""
    pairs = []
    for key, one in a.items():
        if key not in b:
            continue
        two = b[key]
        medians, averages = ratio(one.median, two.median), ratio(one.average, two.average)
        pairs.append(
            Pair(
                key,
                one,
                two,
                None if medians is None else medians * tick_of_b,
                None if averages is None else averages * tick_of_b,
            )
        )
    only_a = [key for key in a if key not in b]
    only_b = [key for key in b if key not in a]
    return Comparison(pairs, only_a, only_b)
