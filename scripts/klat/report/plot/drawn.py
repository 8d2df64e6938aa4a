"""The samples of one curve, for histograms and tails."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from klat.stats.distribution import Distribution

_BODY = 0.995
# In interquartile ranges.
_REACH = 4


@dataclass(frozen=True)
class Drawn:
    """Samples as recorded, at least `quantum` apart. `scale` converts them to the unit of the axis.
    `boots` has those of each boot."""

    ordered: Distribution
    quantum: int
    scale: float
    colour: str
    dash: str
    boots: tuple[Distribution, ...] = ()

    def at(self, share: float) -> float:
        index = min(self.ordered.n - 1, math.floor(share * self.ordered.n))
        return self.ordered.at(index) * self.scale

    @property
    def body(self) -> tuple[float, float]:
        """The range of nearly all samples, so that a few long ones do not squeeze the others into
        one bin. At most 5 % are beyond either end."""
        low, high = self.at(0.25), self.at(0.75)
        reach = _REACH * max(high - low, self.quantum * self.scale)
        return (
            max(self.at(0), min(low - reach, self.at(0.05))),
            min(self.at(_BODY), max(high + reach, self.at(0.95))),
        )

    def outside(self, low: float, high: float) -> float:
        """The share of samples that are not between two places of the axis."""
        values = self.ordered.times(self.scale).values
        outside = (values < low * 0.999999) | (values > high * 1.000001)
        return float(np.sum(self.ordered.counts[outside]) / self.ordered.n)

    @property
    def smallest_positive(self) -> float:
        first = min(int(self.ordered.below(1)), self.ordered.n - 1)
        return max(1.0, self.ordered.at(first)) * self.scale

    @property
    def largest(self) -> float:
        return float(self.ordered.values[-1]) * self.scale
