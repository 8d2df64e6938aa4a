"""Where two lines of a sweep change places."""

from __future__ import annotations

import math
from dataclasses import dataclass

from klat.compare.sweeps import Sweep, SweepLine, SweepPoint
from klat.stats.means import welch

# Level of the test whether two lines differ at one value.
_CHANCE = 0.05


@dataclass(frozen=True)
class Crossing:
    """`low` has the lower figures up to one value of the option, `high` from another on."""

    low: SweepLine
    until: float
    high: SweepLine
    since: float


def crossings(sweep: Sweep) -> list[Crossing]:
    """Pairs of lines that change places once: one is lower at first and the other in the end, each
    beyond chance."""
    crossed = []
    for i, line in enumerate(sweep.lines):
        for other in sweep.lines[i + 1 :]:
            signs = [(x, s) for x in sweep.values if (s := _sign(line.at(x), other.at(x)))]
            changes = [(a, b) for a, b in zip(signs, signs[1:]) if a[1] != b[1]]
            if len(changes) == 1 and sweep.by and not sweep.choices:
                (until, sign), (since, _) = changes[0]
                low, high = (line, other) if sign < 0 else (other, line)
                crossed.append(Crossing(low, until, high, since))
    return crossed


def _sign(point: SweepPoint | None, other: SweepPoint | None) -> int:
    """The sign of the difference, or 0 if Welch's test finds none. Runs of one boot are not
    compared with several boots."""
    if point is None or other is None or (len(set(point.boots)) > 1) != (len(set(other.boots)) > 1):
        return 0
    difference = welch(other.units, point.units, other.resolution + point.resolution)
    if difference is None or difference.p_changed(0.0) > _CHANCE:
        return 0
    return int(math.copysign(1, difference.value))
