"""Whether the events of two series come together more often than by chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


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
