"""A metric over kernels: a point for each kernel, joined where they follow each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from klat.compare.trend import MetricSeries, Trend
from klat.report.document import Captioned
from klat.report.plot.axis import padded_axis
from klat.report.plot.gnuplot import BLUE, CIRCLE, DASHES, EDGE, SQUARE, VERMILLION, Figure
from klat.report.plot.gnuplot import line, points, tics
from klat.report.plot.page_figures import WIDTH
from klat.report.trend import architecture

_HEIGHT, _BELOW = 250, 62
_PANEL = (70.0, 428.0, 12.0, float(_HEIGHT - _BELOW))  # left, right, top, bottom
_CHAINS = ((BLUE, CIRCLE, DASHES[0]), (VERMILLION, SQUARE, DASHES[1]))
_MOST_NAMES = 12


def metric_figures(trend: Trend, names: list[str], labels: list[str]) -> Iterator[Captioned]:
    """One for each metric of at least two kernels. `labels` are the kernels' short names."""
    for number, (metric, name) in enumerate(zip(trend.series, names)):
        if len(metric.values) > 1:
            figure = Figure(f"metric-{number}", WIDTH, _HEIGHT, font=9.5)
            _draw(figure, trend, metric, labels, _PANEL)
            yield Captioned(figure, name, _note(trend, labels))


# Of the figure with all series.
_COLUMNS, _PITCH, _HIGH = 3, 325, 160


def overview(trend: Trend, names: list[str], labels: list[str]) -> Figure:
    """All series in one figure, which stands alone."""
    shown = [(c, name) for c, name in zip(trend.series, names) if len(c.values) > 1]
    figure = Figure("trend", font=9)
    ends = (f"{labels[chain[0]]} to {labels[chain[-1]]}" for chain in trend.chains)
    on = f" on {architecture(trend)}" if architecture(trend) else ""
    top = figure.head(f"Linux{on}, {'; '.join(ends)}", _note(trend, labels)) + 24
    for number, (metric, name) in enumerate(shown):
        row, column = divmod(number, _COLUMNS)
        left = EDGE + column * _PITCH
        above = top + row * (_HIGH + 80)
        figure.text(name, left, above - 10)
        _draw(figure, trend, metric, labels, (left + 46, left + _PITCH - 22, above, above + _HIGH))
    figure.height = round(top + -(-len(shown) // _COLUMNS) * (_HIGH + 80))
    return figure


def _note(trend: Trend, labels: list[str]) -> str:
    unit = trend.comparison.against[0].base.unit
    if len(trend.chains) == 1:
        return f"median, {unit}"
    ends = (f"{labels[chain[0]]} to {labels[chain[-1]]}" for chain in trend.chains)
    kinds = ("circles", "squares, dashed")
    return f"median, {unit}; " + ", ".join(f"{k}: {e}" for k, e in zip(kinds, ends))


def _draw(
    figure: Figure,
    trend: Trend,
    metric: MetricSeries,
    labels: list[str],
    panel: tuple[float, float, float, float],
) -> None:
    values = [*metric.values.values()]
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
        if chain == longest:
            plain = names
        at = [names.index(name) if name in names else i for i, name in enumerate(plain)]
        x = np.array(at, dtype=np.float64)
        y = np.array([metric.values.get(kernel, np.nan) for kernel in chain])
        figure.lines(x, y, line(colour, 1.5, dash))
        figure.points(x, y, points(shape, 0.8, colour))
    figure.panel(*panel)
    figure.add("set xtics norotate")
