"""Which of two kernels a figure is like, and when that cannot be said."""

from __future__ import annotations

import pytest

from klat.errors import KlatError
from klat.lab.bisect import BAD, GOOD, Figures, verdict


def figures(*values: float, params: str = "cpus=0,0", unit: str = "instructions") -> Figures:
    return Figures(values, unit, params)


@pytest.mark.parametrize(
    ("good", "bad", "figure", "found"),
    [
        ((100, 101), (200, 202), 100, GOOD),
        ((100, 101), (200, 202), 190, BAD),
        ((100, 101), (200, 202), 90, GOOD),
        ((100, 101), (200, 202), 300, BAD),
        ((100,), (400,), 199, GOOD),
        ((100,), (400,), 201, BAD),
        ((200,), (100,), 190, GOOD),
        ((200,), (100,), 110, BAD),
    ],
)
def test_a_figure_is_like_the_one_that_it_is_nearer_to_as_a_ratio(
    good: tuple[float, ...], bad: tuple[float, ...], figure: float, found: int
) -> None:
    assert verdict(figures(*good), figures(*bad), figure) == found


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (figures(100), figures(100)),
        (figures(100, 150), figures(140, 200)),
        (figures(0), figures(100)),
        (figures(100), figures(200, params="cpus=0,1")),
        (figures(100), figures(200, unit="ticks")),
    ],
)
def test_nothing_is_like_one_of_two_that_cannot_be_told_apart(good: Figures, bad: Figures) -> None:
    with pytest.raises(KlatError):
        verdict(good, bad, 100)
