"""Tests whether a sample's place in its run affects its length.

The event does not depend on the number of samples before it. So if a run's samples were drawn
in another order, no place would stand out: each of n places holds the longest sample with
probability 1/n, and the rank of the first is as likely to be any as any other. Where a place stands
out over the runs of a session, something besides the event happens there: work of the benchmark itself, or
a start that the warm-up does not cover.

All levels are exact or conservative for samples of any distribution, with ties, and for runs of
different lengths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# A false alarm in a million metrics of a session. One place that always holds the longest of 500
# samples is found from four runs on.
LEVEL = 1e-6
# What a place has to add to its run's median, on average over the runs. A kernel that refills a cache
# of objects for every 16th packet does so at the same places in every run: 1.2 % of a sample in the
# lab, exactly there each time, and a part of the event.
LEAST_EFFECT = 0.02


@dataclass(frozen=True)
class Order:
    """What the order of one run's samples shows. Places count from 0."""

    n: int
    longest: tuple[int, ...]  # the places of the longest sample: more than one where several tie
    # How many samples, itself among them, are at least, and at most, as long as the first and as
    # the last.
    first: tuple[int, int]
    last: tuple[int, int]
    # The longest, the first and the last sample over the median.
    longest_ratio: float
    first_ratio: float
    last_ratio: float

    @staticmethod
    def of(samples: npt.NDArray[np.uint64], series: int = 1) -> Order:
        """Of a run's samples, at least one. Where they are several series, one after the other, a
        place holds the longest of those that the iteration took."""
        each = samples.reshape(series, -1).max(axis=0)
        median = max(1.0, float(np.median(each)))
        return Order(
            len(each),
            tuple(int(place) for place in np.flatnonzero(each == each.max())),
            _rank(each, each[0]),
            _rank(each, each[-1]),
            float(each.max()) / median,
            float(each[0]) / median,
            float(each[-1]) / median,
        )


def _rank(samples: npt.NDArray[np.uint64], sample: np.uint64) -> tuple[int, int]:
    return int(np.count_nonzero(samples >= sample)), int(np.count_nonzero(samples <= sample))


@dataclass(frozen=True)
class Standout:
    """A place that stands out: it holds the longest sample in `runs` of `of` runs, by chance in
    `expected`; or, where `typical` is given, its sample is among the longest, or shortest, that
    share of its run in half of the runs."""

    place: int  # from 0; from -1 backwards where runs differ in length
    runs: int
    of: int
    expected: float
    typical: float | None = None
    shorter: bool = False


def standouts(orders: Sequence[Order], level: float = LEVEL) -> list[Standout]:
    """The places that stand out, the plainest first: at most one that holds the longest sample, the
    first and the last. `level` is the probability that there is any by chance, half of it for the
    longest sample at whatever place, and an eighth for each direction of the first and the last. A
    place whose effect is below LEAST_EFFECT is left out."""
    several = [order for order in orders if order.n > 1]
    if len(several) < 2:
        return []
    found = _longest(several, level / 2)
    for place in (0, -1):
        ranks = [order.first if place == 0 else order.last for order in several]
        ratio = np.mean([o.first_ratio if place == 0 else o.last_ratio for o in several])
        if abs(ratio - 1) < LEAST_EFFECT:
            continue
        for direction in (0, 1):
            shares = np.array([rank[direction] / order.n for rank, order in zip(ranks, several)])
            if not _small(shares, level / 8) or any(place == other.place for other in found):
                continue
            typical = float(np.median(shares))
            found.append(Standout(place, 0, len(several), 0.0, typical, shorter=direction == 1))
    return found


def _longest(orders: Sequence[Order], level: float) -> list[Standout]:
    """The place that holds the longest sample too often, if there is one.

    That of run r is at a given place with probability m_r / n_r, where m_r samples tie: how many
    runs it is in follows the Poisson binomial distribution. By Bonferroni over the places, which
    are counted from both ends where runs differ in length."""
    orders = sorted(orders, key=lambda order: -order.n)  # those long enough for a place come first
    lengths = np.array([order.n for order in orders])
    counts = Counter(place for order in orders for place in order.longest)
    tests = int(lengths[0])
    if lengths[-1] != lengths[0]:
        counts.update(place - order.n for order in orders for place in order.longest)
        tests *= 2
    chances = np.array([len(order.longest) / order.n for order in orders])
    best, found = level / tests, list[Standout]()
    for place, count in counts.items():
        needed = place + 1 if place >= 0 else -place
        able = int(np.count_nonzero(lengths >= needed))
        expected = float(chances[:able].sum())
        if count <= expected + 1 or _effect(orders[:able], place) < LEAST_EFFECT:
            continue
        probability = _at_least(chances[:able], count)
        if probability <= best:
            last = place == int(lengths[0]) - 1 == int(lengths[-1]) - 1
            best = probability
            found = [Standout(-1 if last else place, count, able, expected)]
    return found


def _effect(orders: Sequence[Order], place: int) -> float:
    """What the place adds to its run's median where it holds the longest sample, over all runs."""
    added = (o.longest_ratio - 1 for o in orders if place % o.n in o.longest)
    return sum(added) / len(orders)


def _at_least(chances: npt.NDArray[np.float64], count: int) -> float:
    """The probability that at least `count` of independent events happen. A sum of positive terms,
    so that small ones are as exact as large ones."""
    distribution = np.zeros(count + 1)  # of how many happened, the last for all from there on
    distribution[0] = 1.0
    for chance in chances:
        stays = distribution * (1 - chance)
        stays[-1] = distribution[-1]
        stays[1:] += distribution[:-1] * chance
        distribution = stays
    return float(distribution[-1])


def _small(shares: npt.NDArray[np.float64], level: float) -> bool:
    """Whether the shares are too small for what is uniform on (0, 1), or larger.

    Fisher's combination (Statistical Methods for Research Workers, 1925, 21.1): minus the sum of
    their logarithms then has a gamma distribution whose shape is their number."""
    from scipy.special import gammaincc

    return float(gammaincc(len(shares), -float(np.log(shares).sum()))) <= level
