"""Figures for each choice of an option: points beside their names, with intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from klat.report.plot.reduction import spread_out
from klat.report.plot.axis import Axis, linear_tics
from klat.report.text.columns import params_text
from klat.report.text.parameters import parameters
from klat.report.plot.gnuplot import COLOURS, SHAPES, faint, Figure, line, points, tics
from klat.report.plot.layout import EDGE, LINE, RIGHT, caption, head
from klat.report.plot.series import shortened
from klat.report.text.sweep_table import title
from klat.record.session import printable
from klat.compare.sweeps import SweepLine, Sweep
from klat.stats.descriptive import Values

_LEFT = 190
_NAME_LENGTH = 20
_MARKS = 30
_ROW = 22


def draw_choices(figure: Figure, sweep: Sweep, lines: Sequence[SweepLine], axis: Axis) -> None:
    """A panel for each metric; one for all lines where these are of one metric."""
    top = head(figure, title(sweep), params_text(parameters(sweep.benchmark, sweep.params)))
    if sweep.by:
        for i, held in enumerate(lines):
            figure.mark(EDGE + 14, top, points(_shape(i), 1, _colour(i)))
            figure.text(shortened(held.name, 80), EDGE + 38, top)
            top += LINE
        panels = [(sweep.name, list(lines))]
    else:
        panels = [(held.name, [held]) for held in lines]
    shown = [x for x in sweep.values if any(held.at(x) for held in lines)]
    tall = _ROW * len(shown) * max(1.0, 0.6 * len(panels[0][1])) + 12
    note = "small: medians of runs; large: their mean, with its 95 % interval"
    for name, together in panels:
        top += 36
        caption(figure, top, axis.figure_title(name, sweep.is_time), note if sweep.is_time else "")
        note = ""  # once is enough
        plot, highest = _plot(figure, sweep, together, shown, axis)
        names = (
            (float(-i), shortened(printable(sweep.text(x)), _NAME_LENGTH))
            for i, x in enumerate(shown)
        )
        figure.add(
            f"set yrange [{0.6 - len(shown):g}:0.6]",
            f"set ytics {tics(names)}",
            f"set xrange [0:{1.05 * highest:.10g}]",
            f"set xtics {linear_tics(0, 1.05 * highest, 8)}",
        )
        figure.panel(_LEFT, RIGHT, top, top + tall, plot)
        top += tall + 34
    figure.height = round(top + 12)


def _plot(
    figure: Figure, sweep: Sweep, lines: Sequence[SweepLine], shown: Sequence[float], axis: Axis
) -> tuple[list[str], float]:
    """The plot commands, and the largest value. Zero is the left end, so that lengths compare."""
    plot: list[str] = []
    highest = 0.0
    for i, held in enumerate(lines):
        colour = _colour(i)
        scale = axis.scale(held.label) if sweep.is_time else 1.0
        beside = (i - (len(lines) - 1) / 2) * 0.7 / len(lines)
        there = [(-rank - beside, point) for rank, x in enumerate(shown) if (point := held.at(x))]
        runs = [spread_out(point.runs, _MARKS) * scale for _, point in there]
        rows = np.concatenate([np.full(len(r), y) for r, (y, _) in zip(runs, there)])
        block = figure.data(np.concatenate(runs), rows)
        plot.append(f"{block} using 1:2 with points {faint(colour)}")
        y = np.array([y for y, _ in there])
        mean = np.array([point.value for _, point in there]) * scale
        ends = [held.interval(point) or (point.value, point.value) for _, point in there]
        low, high = (np.array([end[k] for end in ends]) * scale for k in (0, 1))
        block = figure.data(mean, y, low, high)
        plot.append(f"{block} using 3:2:($4-$3):(0) with vectors nohead {line(colour, 3)}")
        plot.append(f"{block} using 1:2 with points {points(_shape(i), 1, colour)}")
        highest = max(highest, _most(high), *(_most(r) for r in runs))
    return plot, highest or 1.0


def _most(values: Values) -> float:
    return float(values.max(initial=0.0))


def _colour(i: int) -> str:
    return COLOURS[i % len(COLOURS)]


def _shape(i: int) -> int:
    return SHAPES[(i + i // len(COLOURS)) % len(SHAPES)]
