"""How much of a difference the granularity of a counter can hide."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from klat.stats.descriptive import Samples
from klat.stats.distribution import Distribution
from klat.stats.means import mean

# Of normal noise with a deviation of 0.7 steps or more, this share of values lies outside the two
# fullest neighbouring steps. Rounding then changes the mean by less than 0.0001 of a step.
_SCATTERED = 0.2
# The most empty steps between values that one noise spreads.
_GAP = 3


def hidden(values: Sequence[float], step: float) -> float:
    """How far, as a log, steps of this size may have rounded all the values together.

    Noise that carries values across steps makes their mean resolve more than a step. One stray run
    does not, nor do two states with a gap between them.
    """
    if not values or not step:
        return 0.0
    return as_log(rounding(values, step) / mean(values))


def rounding(values: Sequence[float], step: float) -> float:
    """How far steps of this size may have rounded all the values together, in their unit: at most half a
    step."""
    return _stuck_share(values, step) * step / 2 if values and step else 0.0


def rounding_of_slope(x: Sequence[float], rounded: Sequence[float]) -> float:
    """How far the slope of a line by least squares moves at most, if each y moves by at most
    `rounded`: the slope is a sum of all y, with the weights (x - mean) / sum of (x - mean)^2."""
    centre = mean(x)
    spread = math.fsum((a - centre) ** 2 for a in x)
    return math.fsum(abs(a - centre) * r for a, r in zip(x, rounded)) / spread if spread else 0.0


def rounded_alike(samples: Distribution, step: float) -> float:
    """The share of the samples that steps of this size may all have rounded in the same direction.

    If samples begin and end anywhere within a step, they are rounded at random, and their mean is
    right: those of one length are then in two neighbouring steps. But all of a run may begin at a
    step, or end there. Then those of one length are all in one step, and their mean says no more than
    one of them. So a step counts if it has a twentieth of all samples, and neither neighbour has a
    ninth of its own. Samples that are few in a step are at many lengths, so they do not count.
    """
    places = np.rint((samples.values - samples.values[0]) / step)
    starts = np.flatnonzero(np.r_[True, places[1:] != places[:-1]])
    counts = np.add.reduceat(samples.counts, starts)
    full = np.flatnonzero(20 * counts >= samples.n)
    if not len(full):
        return 0.0
    count_at = dict(zip(places[starts].tolist(), counts.tolist()))
    alike = sum(
        count_at[place]
        for place in places[starts][full].tolist()
        if 9 * max(count_at.get(place - 1, 0), count_at.get(place + 1, 0)) < count_at[place]
    )
    return float(alike) / samples.n


def short_runs_rounded_alike(runs: Samples, step: float) -> list[float]:
    """rounded_alike() of runs with equal numbers of samples, a run in each line. First counts the samples in each step,
    in a table where distant steps share a place. If no place of a run has a twentieth of its samples, no step has,
    and the share is 0. The other runs are computed one by one."""
    count, n = runs.shape
    width = 1 << (2 * n).bit_length()
    steps = (runs - runs.min(axis=1, keepdims=True)) / step
    np.minimum(np.rint(steps, out=steps), 2.0**62, out=steps)
    places = steps.astype(np.int64)
    places &= width - 1
    places += width * np.arange(count)[:, np.newaxis]
    counts = np.bincount(places.ravel(), minlength=count * width).reshape(count, width)
    return [
        rounded_alike(Distribution.of(samples), step) if 20 * fullest >= n else 0.0
        for samples, fullest in zip(runs, counts.max(axis=1).tolist())
    ]


def as_log(rounded: float) -> float:
    """A relative rounding, at most 0.5, downwards: a step is relatively larger there."""
    return -math.log1p(-min(0.5, rounded))


def _stuck_share(values: Sequence[float], step: float) -> float:
    """The share of values in groups that no noise spreads over several steps. A single value counts
    as spread, unless it is the only group."""
    if len(values) == 1:
        return 1.0
    low = min(values)
    by_place = Counter([round((value - low) / step) for value in values])
    places = sorted(by_place)
    stuck = size = fullest = 0
    for place, following in zip(places, [*places[1:], math.inf]):
        size += by_place[place]
        fullest = max(fullest, by_place[place] + by_place.get(place + 1, 0))
        if following - place > _GAP + 1:
            # A group that no wide gap divides.
            if size > 1 and size - fullest <= _SCATTERED * size:
                stuck += size
            size = fullest = 0
    return stuck / len(values)
