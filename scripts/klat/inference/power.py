"""How likely a verdict is, and how many boots and runs make it likely enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from klat.inference.critical import critical_shifts, enumerated

# Beyond so many boots a side nobody goes.
MOST_UNITS = 1_000
MOST_RUNS = 10_000


@dataclass(frozen=True)
class Design:
    """`units` on each side, with variances of their means; `pairs` where each has its partner and
    `variance_a` is that of the pairs' differences. `resolution` is held against every claim,
    whatever the number of units: see klat.inference.means.Difference."""

    units: int
    variance_a: float
    variance_b: float = 0.0
    pairs: bool = False
    resolution: float = 0.0

    def error(self) -> float:
        return math.sqrt((self.variance_a + self.variance_b) / self.units)

    def freedom(self) -> float:
        if self.pairs:
            return self.units - 1
        total = self.variance_a + self.variance_b
        if not total:
            return 2 * (self.units - 1)
        shares = (self.variance_a / total) ** 2 + (self.variance_b / total) ** 2
        return (self.units - 1) / shares


def power_of_difference(design: Design, effect: float, alpha: float) -> float:
    """The chance that a two-sided test at alpha sees the effect in its direction, by the noncentral
    t distribution (Johnson and Welch, Biometrika 31, 1940)."""
    from scipy.special import nctdtr, stdtrit

    error, freedom = design.error(), design.freedom()
    effect = max(0.0, abs(effect) - design.resolution)
    if not effect:
        return 0.0
    if not error:
        return 1.0
    critical = float(stdtrit(freedom, 1 - alpha / 2))
    beyond = effect / error
    if beyond > critical + 30:  # where the series of the distribution function fails
        return 1.0
    return 1 - float(nctdtr(freedom, beyond, critical))


def power_of_verdict(design: Design, effect: float, alpha: float) -> float:
    """The same of the verdict's rule, Student's t and the permutation test. Of more units than can
    be arranged in every way the tests agree well enough."""
    student = power_of_difference(design, effect, alpha)
    if not enumerated(design.units, design.pairs) or student == 0 or not design.error():
        return student
    import numpy as np

    spread = (design.variance_a + design.variance_b) / (1 if design.pairs else 2)
    shift = (abs(effect) - design.resolution) / math.sqrt(spread)
    critical = critical_shifts(design.units, design.pairs, alpha)
    return min(student, int(np.searchsorted(critical, shift, "right")) / len(critical))


def fewest_units(
    design: Design, effect: float, alpha: float, power: float, low: int, high: int
) -> int | None:
    """From low to high, that the verdict's rule sees the effect with that power; None where even the
    highest does not."""

    def likely(units: int) -> bool:
        return power_of_difference(replace(design, units=units), effect, alpha) >= power

    units = smallest(likely, low, high)
    if units is None:
        return None
    # One by one: 6 pairs can see less than 5, as an arrangement among few is a large step of p.
    while units < high and power_of_verdict(replace(design, units=units), effect, alpha) < power:
        units += 1
    return units


def power_of_equivalence(design: Design, effect: float, margin: float, alpha: float) -> float:
    """The chance that both one-sided tests at alpha show |effect| < margin, by the central-t
    approximation (Diletti, Hauschke and Steinijans, Int. J. Clinical Pharmacology 29, 1991)."""
    from scipy.special import stdtr, stdtrit

    error, freedom = design.error(), design.freedom()
    margin -= design.resolution
    if not error:
        return 1.0 if abs(effect) < margin else 0.0
    critical = float(stdtrit(freedom, 1 - alpha))
    upper = float(stdtr(freedom, (margin - effect) / error - critical))
    lower = float(stdtr(freedom, (margin + effect) / error - critical))
    return max(0.0, upper + lower - 1)


def smallest(likely: Callable[[int], bool], low: int, high: int) -> int | None:
    """The smallest count from low to high that is likely enough, where more never is less so; None
    where even the highest is not."""
    if not likely(high):
        return None
    reach = low
    while reach < high and not likely(reach):
        low, reach = reach + 1, min(high, reach * 2)
    while low < reach:
        middle = (low + reach) // 2
        if likely(middle):
            reach = middle
        else:
            low = middle + 1
    return reach
