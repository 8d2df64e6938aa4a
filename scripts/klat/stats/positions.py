"""Tests whether a sample's place in its run affects its length.

The event does not depend on the number of samples before it. So the order of a run's samples should
not matter: each of n places holds the longest sample with probability 1/n, and every rank of the
first sample is equally likely. If a place stands out over the runs of a session, something besides
the event happens there: work of the benchmark itself, or a start that the warm-up does not cover.

All levels are exact or conservative for samples of any distribution, with ties, and for runs of
different lengths.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Chances = npt.NDArray[np.float64]

# The chance of a false alarm is one in a million metrics of a session. A place that always holds
# the longest of 500 samples is found from four runs on.
LEVEL = 1e-6
# The least effect of a place, as a share of its run's median, on average over the runs. Example: a
# kernel refills a cache of objects for every 16th packet, at the same places in every run. That is
# 1.2 % of a sample in the lab, and a part of the event.
LEAST_EFFECT = 0.02


@dataclass(frozen=True)
class Order:
    """The order of one run's samples. Places count from 0."""

    n: int
    longest: tuple[int, ...]  # the places of the longest sample: more than one where several tie
    # How many samples are at least, and at most, as long as the first and as the last. Each counts
    # itself.
    first: tuple[int, int]
    last: tuple[int, int]
    # The longest, the first and the last sample over the median.
    longest_ratio: float
    first_ratio: float
    last_ratio: float

    @staticmethod
    def of(samples: npt.NDArray[np.uint64], series: int = 1) -> Order:
        """For at least one sample. With several series, one after the other, the value of a place
        is the longest sample of its iteration."""
        (order,) = Order.of_each(samples[np.newaxis], series)
        return order

    @staticmethod
    def of_each(runs: npt.NDArray[np.uint64], series: int = 1) -> list[Order]:
        """The same for several runs, a line for each."""
        values = runs.reshape(len(runs), series, -1).max(axis=1)
        medians = np.maximum(1.0, np.median(values, axis=1))
        longest = values.max(axis=1)
        are_longest = values == longest[:, np.newaxis]
        ranks = [
            np.count_nonzero(counted, axis=1).tolist()
            for place in (0, -1)
            for counted in (values >= values[:, [place]], values <= values[:, [place]])
        ]
        ratios = [(side / medians).tolist() for side in (longest, values[:, 0], values[:, -1])]
        return [
            Order(
                values.shape[1], tuple(np.flatnonzero(places).tolist()), rank[:2], rank[2:], *ratio
            )
            for places, rank, ratio in zip(are_longest, zip(*ranks), zip(*ratios))
        ]


@dataclass(frozen=True)
class Standout:
    """A place that stands out. It holds the longest sample in `runs` of `of` runs, where chance
    gives `expected`. Or, if `typical` is given, its sample is among that share of the longest, or
    shortest, samples of its run in half of the runs."""

    place: int  # from 0; from -1 backwards where runs differ in length
    runs: int
    of: int
    expected: float
    typical: float | None = None
    shorter: bool = False


def standouts(orders: Sequence[Order], level: float = LEVEL) -> list[Standout]:
    """The places that stand out, the clearest first: at most one that holds the longest sample, the
    first and the last.

    `level` is the probability of any false one. Half of it is for the longest sample at any place,
    and an eighth for each direction of the first and the last. A place whose effect is below
    LEAST_EFFECT is left out.
    """
    several = [order for order in orders if order.n > 1]
    if len(several) < 2:
        return []
    significant = _place_of_longest(several, level / 2)
    for place in (0, -1):
        ranks = [order.first if place == 0 else order.last for order in several]
        ratio = np.mean([o.first_ratio if place == 0 else o.last_ratio for o in several])
        if abs(ratio - 1) < LEAST_EFFECT:
            continue
        for direction in (0, 1):
            shares = np.array([rank[direction] / order.n for rank, order in zip(ranks, several)])
            if not _are_too_small(shares, level / 8) or any(
                place == other.place for other in significant
            ):
                continue
            typical = float(np.median(shares))
            significant.append(
                Standout(place, 0, len(several), 0.0, typical, shorter=direction == 1)
            )
    return significant


def _place_of_longest(orders: Sequence[Order], level: float) -> list[Standout]:
    """The place that holds the longest sample too often, if there is one.

    In run r, a given place holds it with probability m_r / n_r, where m_r samples tie. So the
    number of runs in which it does follows the Poisson binomial distribution. Bonferroni's
    correction is over the places. If runs differ in length, places are counted from both ends.
    """
    orders = sorted(orders, key=lambda order: -order.n)  # those long enough for a place come first
    lengths = np.array([order.n for order in orders])
    counts = Counter(place for order in orders for place in order.longest)
    tests = int(lengths[0])
    if lengths[-1] != lengths[0]:
        counts.update(place - order.n for order in orders for place in order.longest)
        tests *= 2
    chances = np.array([len(order.longest) / order.n for order in orders])
    best, significant = level / tests, list[Standout]()
    most = max(counts.values())
    probabilities: dict[int, Chances] = {}  # by the number of runs that are long enough
    for place, count in counts.items():
        needed = place + 1 if place >= 0 else -place
        able = int(np.count_nonzero(lengths >= needed))
        expected = float(chances[:able].sum())
        if count <= expected + 1 or _effect(orders[:able], place) < LEAST_EFFECT:
            continue
        if able not in probabilities:
            probabilities[able] = _at_least(chances[:able], most)
        probability = float(probabilities[able][count])
        if probability <= best:
            last = place == int(lengths[0]) - 1 == int(lengths[-1]) - 1
            best = probability
            significant = [Standout(-1 if last else place, count, able, expected)]
    return significant


def _effect(orders: Sequence[Order], place: int) -> float:
    """How much longer the place's sample is than its run's median where it is the longest sample,
    as a mean over all runs."""
    added = (o.longest_ratio - 1 for o in orders if place % o.n in o.longest)
    return sum(added) / len(orders)


def _at_least(chances: Chances, most: int) -> Chances:
    """The probabilities that at least 0, 1 ... `most` of independent events happen. Sums of positive terms, the
    smallest first, so small results are as exact as large ones."""
    # By the number of events that happened; the last is for all larger numbers.
    distribution = np.zeros(most + 1)
    distribution[0] = 1.0
    for chance in chances:
        stays = distribution * (1 - chance)
        stays[-1] = distribution[-1]
        stays[1:] += distribution[:-1] * chance
        distribution = stays
    sums: Chances = np.cumsum(distribution[::-1])[::-1]
    return sums


def _are_too_small(shares: npt.NDArray[np.float64], level: float) -> bool:
    """Whether the shares are too small for what is uniform on (0, 1), or larger.

    Fisher's combination (Statistical Methods for Research Workers, 1925, 21.1): minus the sum of
    their logarithms then has a gamma distribution whose shape is their number."""
    from scipy.special import gammaincc

    return float(gammaincc(len(shares), -float(np.log(shares).sum()))) <= level


@dataclass(frozen=True)
class Coincidence:
    """One series has `events` events; `together` of them have an event of the other series within the
    window. If the series are independent, `expected` is the mean of `together`, and `p` the
    probability of at least as many."""

    events: int
    together: int
    expected: float
    p: float


def coincidence(
    first: Sequence[int], second: Sequence[int], window: int, span: int
) -> Coincidence | None:
    """For the times of two series in one unit, observed for `span`. None if one series is empty.

    Times closer than the window are one event, because one delay makes several samples long. The
    events of the second series are taken as a Poisson process, so an event of the first series has
    one of them within the window with probability 1 - exp(-2 rate window).
    """
    from scipy.stats import binom

    a, b = _events(first, window), _events(second, window)
    if not len(a) or not len(b) or span <= 0:
        return None
    after = np.searchsorted(b, a - window, side="left")
    before = np.searchsorted(b, a + window, side="right")
    together = int(np.count_nonzero(before > after))
    chance = -math.expm1(-2 * len(b) / span * window)
    p = float(binom.sf(together - 1, len(a), chance))
    return Coincidence(len(a), together, len(a) * chance, p)


def _events(times: Sequence[int], window: int) -> npt.NDArray[np.int64]:
    """The first time of each group. Neighbours in a group are at most `window` apart."""
    ordered = np.sort(np.asarray(times, dtype=np.int64))
    return ordered[np.diff(ordered, prepend=ordered[:1] - window - 1) > window]
