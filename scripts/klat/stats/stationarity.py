"""Whether the peaks of a tail are of one kind: over boots, over runs and over time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

_DRAWS = 999
_FEWEST = 5  # values of a group that is compared with others
_PARTS = 4


@dataclass(frozen=True)
class TailChange:
    """`what` is a clause: "the peaks come more often in some runs than in others"."""

    what: str
    p: float


@dataclass(frozen=True)
class PeakGroups:
    """`numbers` are the peaks' groups. `shares` are the shares of all samples that the groups have."""

    noun: str
    numbers: Counts
    shares: Values


def changes_of_peaks(
    sizes: Values, times: Values, boots: PeakGroups, runs: PeakGroups, seed: int
) -> list[TailChange]:
    """One for each test, the most informative first. `sizes` are the peaks' excesses, `times` their
    places in the whole measurement, from 0 to 1."""
    from scipy.stats import kstest

    draw = np.random.default_rng(seed)
    p = float(kstest(times, "uniform").pvalue)
    return [
        *_over_groups(sizes, boots, draw),
        TailChange("peaks come more often at some times than at others", p),
        _drift("peaks", sizes, times),
        *_over_groups(sizes, runs, draw),
    ]


def _over_groups(
    sizes: Values, groups: PeakGroups, draw: np.random.Generator
) -> Iterator[TailChange]:
    if len(groups.shares) > 1:
        counts = np.bincount(groups.numbers, minlength=len(groups.shares))
        p = rate_p(counts, groups.shares, draw)
        yield TailChange(f"peaks come more often in some {groups.noun} than in others", p)
        yield from _heights("peaks", groups.noun, sizes, groups.numbers)


def changes_of_maxima(maxima: Values, boots: Counts) -> list[TailChange]:
    """One for each test. The maxima are of segments of equal length, in the order taken. If neighbouring
    maxima are correlated, they are not independent blocks."""
    n = len(maxima)
    p = _correlation_p(maxima[:-1], maxima[1:])
    return [
        *_heights("maxima", "boots", maxima, boots),
        _drift("maxima", maxima, np.arange(n, dtype=np.float64)),
        *_heights("maxima", "parts of the measurement", maxima, np.arange(n) * _PARTS // n),
        TailChange("maxima of neighbouring segments are alike", p),
    ]


def first_change(found: list[TailChange], level: float) -> TailChange | None:
    """The first of the changes at this level over all tests (Bonferroni), if there is one."""
    return next((change for change in found if change.p * len(found) < level), None)


def _drift(noun: str, sizes: Values, times: Values) -> TailChange:
    return TailChange(f"{noun} grow or shrink over the measurement", _correlation_p(times, sizes))


def _correlation_p(x: Values, y: Values) -> float:
    """Spearman's, by ranks. 1 if all values of one side are equal."""
    from scipy.stats import spearmanr

    if x.min() == x.max() or y.min() == y.max():
        return 1.0
    return float(spearmanr(x, y).pvalue)


def _heights(noun: str, name: str, sizes: Values, numbers: Counts) -> Iterator[TailChange]:
    """Whether the sizes of some groups are larger than those of others (Kruskal and Wallis). Nothing if
    fewer than two groups have `_FEWEST`."""
    from scipy.stats import kruskal

    members = [sizes[numbers == number] for number in np.unique(numbers)]
    members = [held for held in members if len(held) >= _FEWEST]
    if len(members) > 1:
        p = float(kruskal(*members).pvalue)
        yield TailChange(f"{noun} are higher in some {name} than in others", p)


def rate_p(counts: Counts, shares: Values, draw: np.random.Generator) -> float:
    """The p value of Pearson's statistic for counts in proportion to `shares`.

    By simulation, because a group may expect less than one peak."""
    expected = counts.sum() * shares
    drawn = draw.multinomial(counts.sum(), shares, size=_DRAWS)
    statistics = ((drawn - expected) ** 2 / expected).sum(axis=1)
    own = float(((counts - expected) ** 2 / expected).sum())
    return (1 + int(np.count_nonzero(statistics >= own * (1 - 1e-12)))) / (_DRAWS + 1)
