"""What of a run is compared: a quantile or the mean of its samples."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from klat.session import Row
from klat.statistics import P50, P90, P99

_PERCENT = re.compile(r"p([0-9]{1,2}(?:\.[0-9]{1,4})?)", re.ASCII)
_ROWS = {P50: "p50", P90: "p90", P99: "p99"}


@dataclass(frozen=True)
class Estimand:
    """`q` is None for the mean."""

    name: str
    q: Fraction | None

    @property
    def in_rows(self) -> bool:
        """Whether runs.csv holds it, so that samples need not be read."""
        return self.q is None or self.q in _ROWS

    def of_row(self, row: Row) -> float | None:
        """What the row says, in ticks; None where its n does not support it."""
        found = row.mean if self.q is None else getattr(row, _ROWS[self.q])
        return None if found is None else float(found)


MEDIAN = Estimand("median", P50)
MEAN = Estimand("mean", None)
SHOWN = (MEDIAN, MEAN, Estimand("p90", P90), Estimand("p99", P99))


def parse(text: str) -> Estimand:
    """`median`, `mean`, or a percentile such as p90 or p99.9. ValueError for anything else."""
    for known in SHOWN:
        if text == known.name:
            return known
    match = _PERCENT.fullmatch(text)
    q = Fraction(match[1]) / 100 if match else Fraction(0)
    if not match or not 0 < q < 1:
        raise ValueError(f"{text!r} is not median, mean or a percentile such as p90 or p99.9")
    return MEDIAN if q == P50 else Estimand(f"p{match[1]}", q)
