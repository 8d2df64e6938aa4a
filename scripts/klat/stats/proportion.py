"""The probability of a rare event."""

from __future__ import annotations

import math
from collections.abc import Sequence

from klat.stats.hierarchy import mean

Interval = tuple[float, float]


def clopper_pearson(x: float, n: float, confidence: float) -> Interval:
    """The interval for x in n independent trials. It covers at least as often as stated (Clopper
    and Pearson, Biometrika 26, 1934). x and n need not be whole numbers."""
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = 0.0 if x <= 0 else float(betaincinv(x, n - x + 1, tail))
    high = 1.0 if x >= n else float(betaincinv(x + 1, n - x, 1 - tail))
    return low, high


def clustered(counts: Sequence[int], sizes: Sequence[int], confidence: float) -> Interval:
    """The interval for sum(counts) in sum(sizes) trials that came in clusters of similar members.

    Clopper and Pearson's interval over the effective number of trials: as many independent trials
    as would have the variance seen between clusters (Korn and Graubard, Survey Methodology 24,
    1998), and never more than there are. With one cluster, or counts of none or all, no variance
    can be seen. The trials then count as independent.
    """
    from scipy.special import stdtrit

    x, n, clusters = sum(counts), sum(sizes), len(sizes)
    p = x / n
    if clusters < 2 or x in (0, n):
        return clopper_pearson(x, n, confidence)
    # The ratio estimator's variance by linearisation (Cochran, Sampling Techniques, 1977, 11.8).
    residuals = [count - p * size for count, size in zip(counts, sizes)]
    centre = mean(residuals)
    spread = math.fsum((residual - centre) ** 2 for residual in residuals)
    square = clusters / (clusters - 1) * spread / n**2
    effective = float(n)
    if square > 0:
        tail = (1 + confidence) / 2
        few = float(stdtrit(n - 1, tail)) / float(stdtrit(clusters - 1, tail))
        effective = min(float(n), p * (1 - p) / square * few**2)
    effective = max(effective, 1.0)
    return clopper_pearson(p * effective, effective, confidence)


def fisher(x: int, n: int, y: int, m: int) -> float:
    """Two-sided p that x in n and y in m independent trials have the same probability. It is the
    share of all ways to deal x + y among both that are no likelier than this one (Fisher,
    Statistical Methods for Research Workers, 1934, section 21.02)."""
    every = x + y
    ways = {k: math.comb(n, k) * math.comb(m, every - k) for k in range(min(n, every) + 1)}
    return sum(way for way in ways.values() if way <= ways[x]) / math.comb(n + m, every)
