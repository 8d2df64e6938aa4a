"""What of a run is compared: a quantile or the mean of its samples."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from klat.record.session import Row
from klat.stats.descriptive import P50, P90, P99, P999

_PERCENT = re.compile(r"p([0-9]{1,2}(?:\.[0-9]{1,4})?)", re.ASCII)


@dataclass(frozen=True)
class Estimand:
    """`q` is None for the mean; `column` is where runs.csv holds it, empty where it does not, so
    that samples have to be read."""

    name: str
    q: Fraction | None
    column: str = ""


MEDIAN = Estimand("median", P50, "p50")
MEAN = Estimand("mean", None, "mean")
TAIL = Estimand("p99", P99, "p99")
FAR_TAIL = Estimand("p99.9", P999)
SHOWN = (MEDIAN, MEAN, Estimand("p90", P90, "p90"), TAIL)

# What resolves more than a step of the counter.
FINER = (
    "judge the mean (--quantile mean) if the samples vary by more than a step, or time several"
    " operations at once where the program can (--batch)"
)


def tested_by_default(rows: Iterable[Row]) -> tuple[Estimand, ...]:
    """The median, and the tail where every run's samples support it."""
    return (MEDIAN, TAIL) if all(row.p99 is not None for row in rows) else (MEDIAN,)


def parse(text: str) -> Estimand:
    """`median`, `mean`, or a percentile for example p90 or p99.9. ValueError for anything else."""
    for known in SHOWN:
        if text == known.name:
            return known
    match = _PERCENT.fullmatch(text)
    q = Fraction(match[1]) / 100 if match else Fraction(0)
    if not match or not 0 < q < 1:
        if text == "max":
            raise ValueError(
                "max has no interval, because one rare event decides it; --limit judges the share"
                " of samples above a limit, and shows the maximum of each boot"
            )
        raise ValueError(f"{text!r} must be median, mean or a percentile, for example p90 or p99.9")
    recorded = [estimand for estimand in SHOWN if estimand.q == q]
    return recorded[0] if recorded else Estimand(f"p{match[1]}", q)
