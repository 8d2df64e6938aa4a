"""The share of samples above a limit, with exact one-sided bounds. Samples of one run are alike, and
so are those of one boot: they are clusters, which count as fewer independent samples. Also tests whether two
sides differ in that share, or in the probability of another rare event."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median, median_low

import numpy as np

from klat.base.grouping import neighbours
from klat.stats.distribution import Distribution
from klat.stats.means import mean

# Fewer samples above a limit do not show how such samples cluster.
ENOUGH = 20
# A single boot is cut into this number of consecutive parts.
STRETCHES = 20
# A lower bound below this is 0.
_LEAST = 1e-12
# No plan has more units than this.
_MOST = 1 << 40


@dataclass(frozen=True)
class Tail:
    """One run, or a part of one: `n` samples, `above` of them above the limit. `largest` has at least
    the `ENOUGH` largest samples, or all if there are fewer."""

    n: int
    above: int
    largest: Distribution

    @staticmethod
    def of(samples: Distribution, limit: float, scale: float = 1.0) -> Tail:
        """`samples` are in ticks; times `scale`, they are in the unit of the limit and of `largest`."""
        first = max(0, int(np.searchsorted(samples.ends, samples.n - ENOUGH, side="right")))
        largest = Distribution(samples.values[first:], samples.counts[first:]).times(scale)
        # The factor keeps a sample that is equal to the limit from counting, because the quotient is
        # rounded.
        return Tail(samples.n, samples.above(limit / scale * (1 + 1e-12)), largest)


Cluster = Sequence[Tail]


@dataclass(frozen=True)
class Grouping:
    """One way to divide the samples into clusters. `clusters` is their effective number: unequal clusters count as
    fewer of one size. `effect` is the design effect: the variance of the share, divided by that of the same number
    of independent samples. `seen_at` is the share at which the effect was computed; 1 if few samples are above the
    limit."""

    clusters: float
    effect: float
    seen_at: float

    def effective(self, n: float, share: float, alpha: float) -> float:
        """The number of independent samples that are as precise as these n, if `share` is the true
        share (Korn and Graubard, Survey Methodology 24, 1998).

        With few clusters, the effect is imprecise, so the squared ratio of two quantiles of Student's
        t reduces the number. If the shares of clusters differ by a constant factor, effect - 1 grows
        with the share. Below `seen_at` it stays the same, because samples above a limit can come in
        bursts.
        """
        from scipy.special import stdtrit

        alpha = min(alpha, 0.5 - 1e-6)  # at 1/2 both quantiles are 0, and the ratio has a limit
        few = float(stdtrit(n - 1, alpha)) / float(stdtrit(self.clusters - 1, alpha))
        effect = max(self.effect, 1 + (self.effect - 1) * share / self.seen_at)
        return max(1.0, min(n, n * few**2 / effect if effect > 0 else n))


@dataclass(frozen=True)
class Exceedance:
    """`above` of `n` samples are above the limit. `boots` is the number of clusters that boots form. The bounds are
    Clopper and Pearson's (Biometrika 26, 1934), computed for independent samples and for each grouping; the most
    cautious one counts."""

    above: float
    n: float
    groupings: tuple[Grouping, ...] = ()
    boots: int = 1

    @staticmethod
    def of(boots: Sequence[Cluster]) -> Exceedance:
        """From the runs of each boot, in the order taken. Neighbouring runs can be alike, so a single
        boot is also divided into groups of consecutive runs. A cluster shorter than half the median is joined
        with a neighbour, unless its share differs: it shows little of how clusters differ, but would count as one of few.
        """
        tails = [tail for runs in boots for tail in runs]
        above, n = sum(tail.above for tail in tails), sum(tail.n for tail in tails)
        threshold = None if above >= ENOUGH else _lower_threshold(tails)
        boots = _joined(boots, _least_size(boots, threshold))
        least = _least_size([[tail] for tail in tails], threshold)
        runs = [run for boot in boots for run in _joined([[tail] for tail in boot], least)]
        groups = [boots, runs]
        if len(boots) == 1 and len(runs) >= 2 * STRETCHES:
            cuts = [len(runs) * i // STRETCHES for i in range(STRETCHES + 1)]
            groups.append([sum(runs[first:last], []) for first, last in zip(cuts, cuts[1:])])
        seen_at = above / n if above >= ENOUGH else 1.0
        return Exceedance(
            above,
            n,
            tuple(
                Grouping(_equal_clusters(clusters), _effect(clusters, threshold), seen_at)
                for clusters in groups
                if len(clusters) > 1
            ),
            len(boots),
        )

    @property
    def share(self) -> float:
        return self.above / self.n

    def upper(self, alpha: float) -> float:
        """The one-sided upper bound of the true share, at confidence 1 - alpha."""
        low, high = self.share, 1.0
        while high - low > 1e-6 * high:
            middle = (low + high) / 2 if 4 * low >= high else high / 4
            low, high = (low, middle) if self._is_below(middle, alpha) else (middle, high)
        return high

    def lower(self, alpha: float) -> float:
        """The one-sided lower bound of the true share, at confidence 1 - alpha."""
        low, high = 0.0, self.share
        while high > _LEAST and high - low > 1e-6 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if self._is_above(middle, alpha) else (low, middle)
        return low

    def _is_below(self, share: float, alpha: float) -> bool:
        from scipy.special import betainc

        seen = self.share
        return seen < share < 1 and all(
            float(betainc(seen * n + 1, n - seen * n, share)) > 1 - alpha
            for n in self._effective(share, alpha)
        )

    def _is_above(self, share: float, alpha: float) -> bool:
        from scipy.special import betainc

        seen = self.share
        return seen > share and all(
            float(betainc(seen * n, n - seen * n + 1, share)) < alpha
            for n in self._effective(share, alpha)
        )

    def _effective(self, share: float, alpha: float) -> Iterator[float]:
        yield self.n
        for grouping in self.groupings:
            yield grouping.effective(self.n, share, alpha)

    def p_below(self, share: float) -> float:
        """The p value of the hypothesis that the true share is at least this."""
        return _smallest_alpha(lambda alpha: self._is_below(share, alpha))

    def p_above(self, share: float) -> float:
        """The p value of the hypothesis that the true share is at most this."""
        return _smallest_alpha(lambda alpha: self._is_above(share, alpha))

    def times(self, factor: float) -> Exceedance:
        """The same share in `factor` times as many samples and clusters."""
        grown = [replace(g, clusters=max(2.0, g.clusters * factor)) for g in self.groupings]
        return replace(self, above=self.above * factor, n=self.n * factor, groupings=tuple(grown))


def _smallest_alpha(shown: Callable[[float], bool]) -> float:
    """The smallest alpha at which `shown` is true, at least 1e-15; 1 if it is false at 1/2."""
    low, high = math.log(1e-15), math.log(0.5)
    if not shown(0.5):
        return 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if shown(math.exp(middle)) else (middle, high)
    return math.exp(high)


def _lower_threshold(tails: Sequence[Tail]) -> float | None:
    """The highest threshold with `ENOUGH` samples above it; None if there is none."""
    every = Distribution.merged(tail.largest for tail in tails)
    places = np.flatnonzero(every.n - every.ends >= ENOUGH)
    return float(every.values[places[-1]]) if len(places) else None


def _effect(clusters: Sequence[Cluster], threshold: float | None) -> float:
    """The larger of the design effects at the limit and at the threshold; 1 if there is neither."""
    sizes = list(map(_size, clusters))
    counted = _counts(clusters, threshold)
    effects = [e for counts in counted if (e := design_effect(counts, sizes)) is not None]
    return max(effects, default=1.0)


def _counts(clusters: Sequence[Cluster], threshold: float | None) -> list[list[int]]:
    """For each cluster, the samples above the limit; and those above the threshold, if there is one."""
    counts = [[sum(tail.above for tail in cluster) for cluster in clusters]]
    if threshold is not None:
        counts.append([sum(t.largest.above(threshold) for t in cluster) for cluster in clusters])
    return counts


def design_effect(counts: Sequence[int], sizes: Sequence[int]) -> float | None:
    """The variance of sum(counts) / sum(sizes) between clusters, by the jackknife (Cochran, Sampling
    Techniques, 1977, 6.17), divided by that of independent samples. A cluster with most of the samples
    pulls the share to itself, so its residual is too small: the factor 1 / (1 - size / n) corrects it. None
    with fewer than two clusters, or if none or all of the samples are above the limit."""
    x, n, clusters = sum(counts), sum(sizes), len(sizes)
    if clusters < 2 or x in (0, n):
        return None
    share = x / n
    residuals = math.fsum(((c - share * s) / (1 - s / n)) ** 2 for c, s in zip(counts, sizes))
    return (clusters - 1) / clusters * residuals / n**2 / (share * (1 - share) / n)


def _size(cluster: Cluster) -> int:
    return sum(tail.n for tail in cluster)


_DIFFERS = 0.05  # the largest p value at which a short cluster has another share than all


def _least_size(clusters: Sequence[Cluster], threshold: float | None) -> float:
    """Shorter clusters are joined with neighbours: half the median. 0 if half of more than two are short, or if a short
    one has another share: they show how clusters differ."""
    sizes = list(map(_size, clusters))
    least = (median if len(clusters) == 2 else median_low)(sizes) / 2
    for counts in _counts(clusters, threshold):
        share = sum(counts) / sum(sizes)
        if any(
            size < least and _p_of_share(count, size, share) < _DIFFERS
            for count, size in zip(counts, sizes)
        ):
            return 0
    return least


def _p_of_share(count: int, size: int, share: float) -> float:
    """Of the hypothesis that `count` of `size` independent samples have this share: twice the smaller binomial tail."""
    from scipy.special import bdtr, bdtrc

    at_least = float(bdtrc(count - 1, size, share)) if count else 1.0
    return 2 * min(float(bdtr(count, size, share)), at_least)


def _joined(clusters: Sequence[Cluster], least: float) -> list[list[Tail]]:
    """Joins neighbours until each cluster has at least `least` samples."""
    groups = neighbours(clusters, _size, least)
    return [[tail for cluster in group for tail in cluster] for group in groups]


def _equal_clusters(clusters: Sequence[Cluster]) -> float:
    """The effective number of clusters, (sum of sizes)^2 / sum of squares (Kish, Survey Sampling, 1965, 8.2), but
    at least two."""
    sizes = list(map(_size, clusters))
    return max(2.0, sum(sizes) ** 2 / sum(size * size for size in sizes))


def units_to_show(observed: Exceedance, units: int, share: float, alpha: float) -> int | None:
    """How many units like the observed `units` would show that the true share is below `share`; or
    above it, if the observed share is. None if no number would."""

    def shown(count: int) -> bool:
        grown = observed.times(count / units)
        if observed.share < share:
            return grown._is_below(share, alpha)
        return grown._is_above(share, alpha)

    count = units
    while not shown(count):
        count *= 2
        if count > _MOST:
            return None
    low = count // 2
    while count - low > 1:
        middle = (low + count) // 2
        low, count = (low, middle) if shown(middle) else (middle, count)
    return count


def fisher(x: int, n: int, y: int, m: int) -> float:
    """Two-sided p that x in n and y in m independent trials have the same probability. It is the
    share of all ways to deal x + y among both that are no likelier than this one (Fisher,
    Statistical Methods for Research Workers, 1934, section 21.02)."""
    every = x + y
    ways = {k: math.comb(n, k) * math.comb(m, every - k) for k in range(min(n, every) + 1)}
    return sum(way for way in ways.values() if way <= ways[x]) / math.comb(n + m, every)


Counts = tuple[int, int]  # of a run: samples above the limit, and all
Unit = Sequence[Counts]  # the runs of a boot or block


def share_of(unit: Unit) -> float:
    above, n = _total(unit)
    return above / n


def p_by_counts(base: Sequence[Unit], new: Sequence[Unit], pairs: bool) -> float:
    """The p value of the hypothesis that both sides have the same share. Given the number of samples
    above the limit on both sides together, the number on one side is binomial (Przyborowski and
    Wilenski, Biometrika 31, 1940). 1 if no sample is above, or if the shares of all samples and the
    means of the units' shares differ in opposite directions.

    A test of the units' means does not replace it: a side with few samples often has none above the
    limit, and then seems not to vary.
    """
    from scipy.special import betainc

    sides = [base, new]
    if mean([share_of(unit) for unit in base]) > mean([share_of(unit) for unit in new]):
        sides.reverse()
    (fewer, n), (more, m) = (_total([_total(unit) for unit in side]) for side in sides)
    # The variance of a count divided by its mean: at least that of independent samples.
    effect = max(1 - (fewer + more) / (n + m), _dispersion(sides, pairs))
    if not more or effect <= 0:
        return 1.0
    return min(1.0, 2 * float(betainc(more / effect, fewer / effect + 1, m / (n + m))))


def _total(unit: Unit) -> Counts:
    return sum(above for above, _ in unit), sum(n for _, n in unit)


def _dispersion(sides: Sequence[Sequence[Unit]], pairs: bool) -> float:
    """Pearson's index of dispersion of the counts of the runs in a unit. If every unit has one run: of
    the units of a side, but not of pairs, whose units vary together."""
    groups = [unit for side in sides for unit in side if len(unit) > 1]
    if not groups and not pairs:
        groups = [[_total(unit) for unit in side] for side in sides]
    squares, degrees = 0.0, 0
    for group in groups:
        above, every = _total(group)
        if above:
            expected = [above * n / every for _, n in group]
            squares += sum((x - mu) ** 2 / mu for (x, _), mu in zip(group, expected))
            degrees += len(group) - 1
    return squares / degrees if degrees else 0.0
