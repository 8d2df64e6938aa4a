"""The figure of a history: a point for each boot, the levels between changes, or the drift."""

from __future__ import annotations

import math

import numpy as np

from klat.compare.label_history import History, HistorySeries, TrendKind
from klat.report.plot.axis import apart, linear_tics, whole_tics
from klat.report.plot.gnuplot import (
    BLUE,
    CIRCLE,
    GREY,
    VERMILLION,
    Figure,
    line,
    points,
    quoted,
    tics,
)
from klat.report.text.history_text import setting, total
from klat.report.plot.layout import LEFT, RIGHT, caption, head
from klat.report.html.page_figures import WIDTH, Captioned, page_axis

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
        top = head(figure, f"{series.key[3]}: {trend}", setting(series, history)) + 36
        caption(figure, top, f"{estimand} ({axis.unit})")
        bottom = 430 - 62
    else:
        left, right = 62.0, 428.0
    plot = _plot(figure, series, history, per, 6 if large else 4)
    figure.panel(left, right, top, bottom, plot)
    return Captioned(figure, "Boot by boot", note)


def _plot(
    figure: Figure, series: HistorySeries, history: History, per: float, dates: int
) -> list[str]:
    plotted = series.points
    count = len(plotted)
    x = np.arange(1, count + 1, dtype=np.float64)
    value, low, high = (
        np.array([getattr(p, key) for p in plotted]) * per for key in ("value", "low", "high")
    )
    floor, roof = apart(float(low.min()), float(high.max()))
    room = 0.08 * (roof - floor)
    floor, roof = max(0.0, floor - room), roof + room
    figure.add(f"set yrange [{floor:.10g}:{roof:.10g}]", f"set ytics {linear_tics(floor, roof, 6)}")
    figure.add(f"set xrange [0.4:{count + 0.6}]", f"set xtics {_dates(series, history, dates)}")
    figure.add(f"set xlabel {quoted('boots in order of time')}")
    block = figure.data(x, low, high)
    plot = [f"{block} using 1:2:(0):($3-$2) with vectors nohead {line(BLUE, 0.7)}"]
    size = 1.0 if count <= 60 else 0.6 if count <= 300 else 0.3
    plot.append(f"{figure.data(x, value)} using 1:2 with points {points(CIRCLE, size, BLUE)}")
    starts = [step.at for step in series.steps]
    for at in starts:
        edge = f"{at + 0.5:g}"
        figure.add(
            f"set arrow from {edge}, graph 0 to {edge}, graph 1 nohead {line(GREY, 1, '(4,4)')}"
        )
    if series.shape is TrendKind.CHANGED:
        ends = [0, *starts, count]
        levels = [series.steps[0].before, *(step.after for step in series.steps)]
        for a, b, level in zip(ends, ends[1:], levels):
            block = figure.data(np.array([a + 0.5, b + 0.5]), np.array([level, level]) * per)
            plot.append(f"{block} using 1:2 with lines {line(VERMILLION, 2)}")
    if series.shape is TrendKind.DRIFTS and series.drift:
        slope = series.drift.slope
        middle = float(np.median(np.log(value) - slope * x))
        block = figure.data(x, np.exp(middle + slope * x))
        plot.append(f"{block} using 1:2 with lines {line(VERMILLION, 2)}")
    return plot


def _dates(series: HistorySeries, history: History, most: int) -> str:
    """Each at its boot: the day, or the number of the boot if all are of one day."""
    days = [history.boots[point.boot].date[:10] for point in series.points]
    if len(set(days)) == 1:
        return whole_tics(1, len(days), most)
    return tics((i + 1.0, days[i]) for i in range(0, len(days), math.ceil(len(days) / most)))
