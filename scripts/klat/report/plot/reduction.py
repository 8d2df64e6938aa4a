"""Reduces samples to as many as a figure can show. Keeps the smallest and the largest. Pure
functions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from klat.stats.descriptive import Values
from klat.stats.distribution import Distribution

# More points than this cannot be distinguished on a figure of 1000 pixels.
_POINTS = 600
# Of the floating-point numbers that fit into 64 bits.
_LARGEST = 2.0**64 - 2048


@dataclass(frozen=True)
class Cumulative:
    """Points of the empirical distribution, by increasing value.

    `nines` is -log10 of the share of samples at or above the value: 0 at the smallest sample, 1
    where a tenth is left, 2 where a hundredth is, log10(n) at the largest.
    """

    values: Values
    nines: Values


def cumulative(ordered: Distribution, points: int = _POINTS) -> Cumulative:
    """The distribution of samples: evenly spaced points of it, both in share and in
    nines, so that the largest samples are all among them."""
    n = ordered.n
    by_share = np.linspace(0, n - 1, points)
    by_nines = n * (1 - np.logspace(0, -math.log10(n), points)) if n > 1 else np.zeros(1)
    chosen = np.unique(np.concatenate([by_share, by_nines]).astype(np.int64))
    chosen = chosen[(chosen >= 0) & (chosen < n)]
    values = ordered.take(chosen)
    # All samples equal to a value are at or above it, so the share is that of the first of them.
    first = ordered.below(values)
    return Cumulative(values.astype(np.float64), -np.log10(1 - first / n))


def granularity(ordered: Distribution) -> int:
    """The step of the samples: nearly all of them differ by multiples of it. Bins of another width
    would look like a comb. The rarest 2 % are left out, because a single sample off the grid would
    hide the step."""
    by_frequency = np.argsort(-ordered.counts, kind="stable")
    counts = np.cumsum(ordered.counts[by_frequency])
    enough = int(np.searchsorted(counts, 0.98 * ordered.n)) + 1
    common = np.sort(ordered.values[by_frequency[:enough]])
    return max(1, int(np.gcd.reduce(np.diff(common)))) if len(common) > 1 else 1


def edges(low: float, high: float, step: int, logarithmic: bool, bins: int = 120) -> Values:
    """Edges of at most `bins` bins from low to high, half a step beside the values samples can
    take."""
    # Floating point cannot represent smaller steps at that height.
    step = max(step, math.ceil(2 * math.ulp(high)))
    if high <= low:
        low, high = low - step, high + step
    if not logarithmic:
        width = step * max(1, math.ceil((high - low) / step / bins))
        count = math.floor((high - low) / width) + 1
        return np.asarray(low - step / 2 + width * np.arange(count + 1), dtype=np.float64)
    step = max(1, min(step, int(low)))  # so that the first edge is above 0
    raw = np.geomspace(max(low, 1), high, bins + 1)
    offsets = np.unique(np.round((raw - low) / step))
    snapped = low + offsets * step - step / 2
    snapped[-1] += step
    return np.asarray(snapped if len(snapped) > 1 else [low - step / 2, low + step / 2])


def shares(ordered: Distribution, bounds: Values, logarithmic: bool) -> Values:
    """Share of all the samples in each bin. With a logarithmic axis, bins are not equally wide
    on it, and each share is scaled to the bin of average width."""
    whole = np.ceil(bounds).clip(0, _LARGEST).astype(np.uint64)
    below = np.where(bounds > _LARGEST, ordered.n, ordered.below(whole))
    counts = np.diff(below)
    result = counts / max(1, ordered.n)
    if logarithmic:
        widths = np.diff(np.log(bounds))
        result = result * (widths.mean() / widths)
    return np.asarray(result, dtype=np.float64)


@dataclass(frozen=True)
class Band:
    """Runs in order, as the lines that enclose them."""

    position: Values
    low: Values
    middle: Values
    high: Values

    def pieces(self) -> list[Band]:
        """Split where positions are missing."""
        if not len(self.position):
            return []
        cuts = np.flatnonzero(np.diff(self.position) > 1) + 1
        columns = (self.position, self.low, self.middle, self.high)
        return [Band(*piece) for piece in zip(*(np.split(column, cuts) for column in columns))]


def stepped(band: Band, of: int, points: int = 1000) -> Values:
    """Four rows: position, low, middle and high. Each run is a step that is one position wide, and a
    column of NaN ends the line. The band is a part of a longer one of `of` runs, which has about
    `points` points in all."""
    first, last = band.position[0] - 0.5, band.position[-1] + 0.5
    thin = thinned(band, math.ceil(points * len(band.position) / of))
    edges = [first, *(thin.position[1:] + thin.position[:-1]) / 2, last]
    levels = (np.repeat(column, 2) for column in (thin.low, thin.middle, thin.high))
    rows = np.array([np.repeat(edges, 2)[1:-1], *levels])
    return np.hstack([rows, np.full((4, 1), np.nan)])


def thinned(band: Band, points: int = 1000) -> Band:
    """At most about `points` of the runs: neighbours become one, with the lowest low and the
    highest high."""
    n = len(band.position)
    if n <= points:
        return band
    starts = np.arange(0, n, math.ceil(n / points))
    ends = np.append(starts[1:], n)
    return Band(
        position=np.array([band.position[a:b].mean() for a, b in zip(starts, ends)]),
        low=np.minimum.reduceat(band.low, starts),
        middle=np.array([np.median(band.middle[a:b]) for a, b in zip(starts, ends)]),
        high=np.maximum.reduceat(band.high, starts),
    )


def spread_out(values: Values, points: int) -> Values:
    """At most `points` of the values, evenly by rank, the smallest and the largest among them."""
    ordered = np.sort(values)
    if len(ordered) <= points:
        return ordered
    chosen = np.unique(np.linspace(0, len(ordered) - 1, points).round().astype(np.int64))
    return np.asarray(ordered[chosen], dtype=np.float64)
