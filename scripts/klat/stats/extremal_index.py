"""How samples above a threshold cluster (Ferro and Segers, J. R. Statist. Soc. B 65, 2003)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Clusters:
    """`index` is the extremal index: one over the mean number of samples in a cluster. `starts` are
    the positions, in the sequence of samples above the threshold, at which a cluster begins."""

    index: float
    starts: Places


def extremal_index(gaps: Places) -> float:
    """The intervals estimator. `gaps` are the distances between neighbouring samples above the
    threshold, in samples. 1 if there are none."""
    if not len(gaps):
        return 1.0
    times = gaps.astype(np.float64)
    if times.max() > 2:
        top = 2 * float((times - 1).sum()) ** 2
        bottom = len(times) * float(((times - 1) * (times - 2)).sum())
    else:
        top, bottom = 2 * float(times.sum()) ** 2, len(times) * float((times**2).sum())
    return min(1.0, top / bottom)


def clusters(places: Places, breaks: Places) -> Clusters:
    """The clusters of samples above a threshold. `places` are the positions of these samples among all
    samples, ascending. No "run length" is chosen: the extremal index gives the number of clusters,
    and the longest distances separate them. A cluster also begins at each index in `breaks`, for
    example the first sample of a run."""
    gaps = np.diff(places)
    index = extremal_index(gaps)
    wanted = min(len(gaps), math.floor(index * len(gaps)))
    separates = np.ones(len(gaps), dtype=bool)
    if wanted < len(gaps):
        # Only longer distances than the one of rank `wanted` + 1 separate, so equal ones count alike.
        separates = gaps > np.partition(gaps, len(gaps) - 1 - wanted)[len(gaps) - 1 - wanted]
    separates[breaks[breaks > 0] - 1] = True
    return Clusters(index, np.r_[0, np.flatnonzero(separates) + 1][: len(places)])
