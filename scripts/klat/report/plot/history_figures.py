"""The figure of a history: a point for each boot, the levels between changes, or the drift."""

from __future__ import annotations

import math

import numpy as np

from klat.compare.label_history import History, HistorySeries, TrendKind
from klat.report.document import Captioned
from klat.report.plot.page_figures import WIDTH, page_axis
from klat.report.plot.axis import padded_axis, whole_tics
from klat.report.plot.gnuplot import BLUE, CIRCLE, GREY, LEFT, RIGHT, VERMILLION
from klat.report.plot.gnuplot import Figure, line, points, quoted, tics
from klat.report.history import setting, total

_HEIGHT = 270


def series_figure(
    name: str, series: HistorySeries, history: History, large: bool
) -> Captioned | None:
    """`large`: to stand alone, with its title within; else for a page."""
    if not series.points:
        return None
    axis = page_axis(series.unit)
    per = 1e-3 if axis.unit != series.unit else 1.0
    trend = f"{series.shape.value} {total(series)}".strip()
    estimand = history.options.estimand.name
    note = f"{estimand} in {axis.unit}; {trend}; lines span the runs of a boot"
    figure = Figure(name, 1000, 430) if large else Figure(name, WIDTH, _HEIGHT, font=9.5)
    left, right, top, bottom = float(LEFT), float(RIGHT), 12.0, _HEIGHT - 52.0
    if large:
        top = figure.head(f"{series.key[3]}: {trend}", setting(series, history)) + 36
        figure.caption(top, f"{estimand} ({axis.unit})")
        bottom = 430 - 62
    else:
        left, right = 62.0, 428.0
    _plot(figure, series, history, per, 6 if large else 4)
    figure.panel(left, right, top, bottom)
    return Captioned(figure, "Boot by boot", note)


def _plot(figure: Figure, series: HistorySeries, history: History, per: float, dates: int) -> None:
    plotted = series.points
    count = len(plotted)
    x = np.arange(1, count + 1, dtype=np.float64)
    value, low, high = (
        np.array([getattr(p, key) for p in plotted]) * per for key in ("value", "low", "high")
    )
    padded_axis(figure, "y", float(low.min()), float(high.max()), 0.08, False, 6)
    figure.axis("x", 0.4, count + 0.6, _dates(series, history, dates))
    figure.add(f"set xlabel {quoted('boots in order of time')}")
    figure.segments(x, low, high, line(BLUE, 0.7))
    size = 1.0 if count <= 60 else 0.6 if count <= 300 else 0.3
    figure.points(x, value, points(CIRCLE, size, BLUE))
    starts = [step.at for step in series.steps]
    for at in starts:
        figure.upright(at + 0.5, line(GREY, 1, "(4,4)"))
    if series.shape is TrendKind.CHANGED:
        ends = [0, *starts, count]
        levels = [series.steps[0].before, *(step.after for step in series.steps)]
        for a, b, level in zip(ends, ends[1:], levels):
            both = np.array([level, level]) * per
            figure.lines(np.array([a + 0.5, b + 0.5]), both, line(VERMILLION, 2))
    if series.shape is TrendKind.DRIFTS and series.drift:
        slope = series.drift.slope
        middle = float(np.median(np.log(value) - slope * x))
        figure.lines(x, np.exp(middle + slope * x), line(VERMILLION, 2))


def _dates(series: HistorySeries, history: History, most: int) -> str:
    """Each at its boot: the day, or the number of the boot if all are of one day."""
    days = [history.boots[point.boot].date[:10] for point in series.points]
    if len(set(days)) == 1:
        return whole_tics(1, len(days), most)
    return tics((i + 1.0, days[i]) for i in range(0, len(days), math.ceil(len(days) / most)))
