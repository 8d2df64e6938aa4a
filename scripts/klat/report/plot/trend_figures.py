"""A metric over kernels: a point for each kernel, joined where they follow each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from klat.compare.trend import Course, Trend
from klat.report.document import Captioned
from klat.report.plot.axis import padded_axis
from klat.report.plot.gnuplot import BLUE, CIRCLE, DASHES, SQUARE, VERMILLION, Figure
from klat.report.plot.gnuplot import line, points, tics
from klat.report.plot.page_figures import WIDTH

_HEIGHT, _LEFT, _RIGHT, _TOP, _BELOW = 250, 70.0, 428.0, 12.0, 62
_CHAINS = ((BLUE, CIRCLE, DASHES[0]), (VERMILLION, SQUARE, DASHES[1]))
_MOST_NAMES = 12


def course_figures(trend: Trend, names: list[str], labels: list[str]) -> Iterator[Captioned]:
    """One for each course of at least two kernels. `labels` are the kernels' short names."""
    for number, (course, name) in enumerate(zip(trend.courses, names)):
        if len(course.values) > 1:
            figure = Figure(f"course-{number}", WIDTH, _HEIGHT, font=9.5)
            _draw(figure, trend, course, labels)
            yield Captioned(figure, name, _note(trend, labels))


def _note(trend: Trend, labels: list[str]) -> str:
    unit = trend.comparison.against[0].base.unit
    if len(trend.chains) == 1:
        return f"median, {unit}"
    ends = (f"{labels[chain[0]]} to {labels[chain[-1]]}" for chain in trend.chains)
    kinds = ("circles", "squares, dashed")
    return f"median, {unit}; " + ", ".join(f"{k}: {e}" for k, e in zip(kinds, ends))


def _draw(figure: Figure, trend: Trend, course: Course, labels: list[str]) -> None:
    values = [*course.values.values()]
    padded_axis(figure, "y", min(values), max(values), 0.1, False, 5)
    longest = max(trend.chains, key=len)
    every = -(-len(longest) // _MOST_NAMES)
    places = [(float(i), labels[kernel]) for i, kernel in enumerate(longest)][::every]
    figure.axis("x", -0.4, len(longest) - 0.6, tics(places))
    figure.add("set xtics rotate by -35")
    for chain, (colour, shape, dash) in zip(trend.chains, _CHAINS):
        # A kernel of the shorter chain stands below the one of the same release, if there is one.
        names = [labels[kernel] for kernel in longest]
        plain = [labels[kernel].removesuffix("-rt") for kernel in chain]
        at = [names.index(name) if name in names else i for i, name in enumerate(plain)]
        x = np.array(at, dtype=np.float64)
        y = np.array([course.values.get(kernel, np.nan) for kernel in chain])
        figure.lines(x, y, line(colour, 1.5, dash))
        figure.points(x, y, points(shape, 0.8, colour))
    figure.panel(_LEFT, _RIGHT, _TOP, float(_HEIGHT - _BELOW))
    figure.add("set xtics norotate")
