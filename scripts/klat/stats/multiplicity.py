"""Many tests at once: p values adjusted so that each can be compared with alpha itself.

`factor` maps a number of tests to the factor of p that keeps alpha in so many tests. By Bonferroni it is
that number. At an interim look it is another one: see klat.stats.interim_looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


Factor = Callable[[float], float]


def bonferroni(tests: float) -> float:
    return tests


def holm(p: Sequence[float], factor: Factor = bonferroni) -> list[float]:
    """The chance of any false rejection is at most alpha, however the tests depend on each other:
    Holm, "A simple sequentially rejective multiple test procedure", Scandinavian J. Statistics 6
    (1979)."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    adjusted = [0.0] * len(p)
    highest = 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, factor(len(p) - rank) * p[i]))
        adjusted[i] = highest
    return adjusted


def benjamini_hochberg(p: Sequence[float], factor: Factor = bonferroni) -> list[float]:
    """The expected share of false ones among the rejections is at most alpha, where tests are
    independent or positively dependent: Benjamini and Hochberg, J. Royal Statistical Society B 57
    (1995)."""
    order = sorted(range(len(p)), key=lambda i: -p[i])
    adjusted = [0.0] * len(p)
    lowest = 1.0
    for passed, i in enumerate(order):
        lowest = min(lowest, p[i] * factor(len(p) / (len(p) - passed)))
        adjusted[i] = lowest
    return adjusted


CORRECTIONS: dict[str, Callable[..., list[float]]] = {
    "holm": holm,
    "bh": benjamini_hochberg,
}
