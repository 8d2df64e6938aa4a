"""Many tests at once: p values adjusted so that each can be compared with alpha itself.

`factor` maps a number of tests to the factor of p that keeps alpha in so many tests. By Bonferroni it is
that number. At an interim look it is another one: see klat.stats.interim_looks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Factor = Callable[[float], float]
PValues = npt.NDArray[Any]


def bonferroni(tests: float) -> float:
    return tests


def holm(p: npt.ArrayLike, factor: Factor = bonferroni) -> PValues:
    """The chance of any false rejection is at most alpha, however the tests depend on each other:
    Holm, "A simple sequentially rejective multiple test procedure", Scandinavian J. Statistics 6
    (1979). The tests of a family are along the last axis."""
    p = np.asarray(p, dtype=float)
    order = np.argsort(p, axis=-1, kind="stable")
    factors = [factor(tests) for tests in range(p.shape[-1], 0, -1)]
    raised = np.minimum(1.0, np.take_along_axis(p, order, axis=-1) * factors)
    return _in_order(np.maximum.accumulate(raised, axis=-1), order)


def benjamini_hochberg(p: npt.ArrayLike, factor: Factor = bonferroni) -> PValues:
    """The expected share of false ones among the rejections is at most alpha, where tests are
    independent or positively dependent: Benjamini and Hochberg, J. Royal Statistical Society B 57
    (1995). The tests of a family are along the last axis."""
    p = np.asarray(p, dtype=float)
    order = np.argsort(-p, axis=-1, kind="stable")
    count = p.shape[-1]
    factors = [factor(count / tests) for tests in range(count, 0, -1)]
    raised = np.minimum(1.0, np.take_along_axis(p, order, axis=-1) * factors)
    return _in_order(np.minimum.accumulate(raised, axis=-1), order)


def _in_order(values: PValues, order: PValues) -> PValues:
    """Undoes the sort."""
    unsorted = np.empty_like(values)
    np.put_along_axis(unsorted, order, values, axis=-1)
    return unsorted


CORRECTIONS: dict[str, Callable[[npt.ArrayLike, Factor], PValues]] = {
    "holm": holm,
    "bh": benjamini_hochberg,
}
