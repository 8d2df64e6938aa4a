"""Sweeps as figures: the option along x, a line for each metric or combination."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from klat.report.plot.reduction import spread_out
from klat.compare.measurements import Label
from klat.report.plot.axis import Axis, linear_tics, logarithmic_tics
from klat.report.plot.choice_figures import draw_choices
from klat.report.plot.gnuplot import COLOURS, DASHES, Figure, line, points, quoted
from klat.report.plot.layout import EDGE, LEFT, LINE, RIGHT, caption, head
from klat.report.plot.series import curve_names, file_name, shortened
from klat.report.text.sweep_table import crossing_text, runs_text, title
from klat.report.text.columns import params_text
from klat.compare.sweeps import SweepLine, Sweep, crossings, sweeps
from klat.stats.descriptive import Values

_SHAPES = (7, 5, 9, 13, 11, 15)
_MARKS_A_POINT = 30
_MOST_LINES = 12
# An axis on which the largest value is this many times the smallest is logarithmic.
_DECADES = 30


def sweep_figures(labels: Sequence[Label], axis: Axis) -> list[Figure]:
    """A figure for each sweep; several where there are more lines than can be told apart. Labels
    are laid over each other."""
    figures: list[Figure] = []
    taken: set[str] = set()
    for sweep in sweeps(labels, curve_names(labels)):
        parts = [sweep.lines[i : i + _MOST_LINES] for i in range(0, len(sweep.lines), _MOST_LINES)]
        for lines in parts:
            figure = Figure(_free_name(sweep, taken))
            (draw_choices if sweep.choices else _draw)(figure, sweep, lines, axis)
            figures.append(figure)
    return figures


def _free_name(sweep: Sweep, taken: set[str]) -> str:
    name = file_name("-".join(p for p in (sweep.benchmark, sweep.name, "by", sweep.option) if p))
    unique, number = name, 2
    while unique in taken:
        unique, number = f"{name}-{number}", number + 1
    taken.add(unique)
    return unique


@dataclass(frozen=True)
class _Scale:
    """Where values of an axis go. On a logarithmic one, 0 stands left of the smallest value."""

    logarithmic: bool
    low: float  # of what is above 0, on a logarithmic axis
    high: float
    zero: float | None = None

    def place(self, values: Values) -> Values:
        return np.where(values <= 0, self.zero, values) if self.zero is not None else values

    def tics(self, most: int) -> str:
        if not self.logarithmic:
            return linear_tics(self.low, self.high, most)
        text = logarithmic_tics(self.low * 0.999, self.high * 1.001, most)
        return text if self.zero is None else f"{text[:-1]}, '0' {self.zero:.10g})"


def _scale_of(values: Values) -> _Scale:
    above = values[values > 0]
    if not len(above) or values.min() < 0 or above.max() < _DECADES * above.min():
        return _Scale(False, min(0.0, float(values.min())), max(float(values.max()), 1e-9))
    low, high = float(above.min()), float(above.max())
    zero = low / 10 ** max(0.3, 0.08 * math.log10(high / low)) if values.min() == 0 else None
    return _Scale(True, low, high, zero)


def _draw(figure: Figure, sweep: Sweep, lines: Sequence[SweepLine], axis: Axis) -> None:
    top = head(figure, title(sweep), params_text(sweep.params))
    scaled = [axis.scale(held.label) if sweep.is_time else 1.0 for held in lines]
    x_scale = _scale_of(np.array(sweep.values))
    y_scale = _scale_of(
        np.concatenate(
            [np.array([p.value for p in held.points]) * by for held, by in zip(lines, scaled)]
        )
    )
    plot = []
    for i, (held, by) in enumerate(zip(lines, scaled)):
        colour, dash = COLOURS[i % len(COLOURS)], DASHES[(i + i // len(COLOURS)) % len(DASHES)]
        shape = _SHAPES[(i + i // len(COLOURS)) % len(_SHAPES)]
        figure.swatch(EDGE, top, line(colour, 2, dash))
        figure.mark(EDGE + 14, top, points(shape, 1, colour))
        figure.text(f"{shortened(held.name, 80)}, {runs_text(held)}", EDGE + 38, top)
        top += LINE
        x, y = _runs(held)
        kept = y > 0 if y_scale.logarithmic else np.full(len(y), True)
        if kept.any():
            faint = points(7, 0.35, f"#B0{colour[1:]}")
            block = figure.data(x_scale.place(x[kept]), y[kept] * by)
            plot.append(f"{block} using 1:2 with points {faint}")
        at = x_scale.place(np.array([point.x for point in held.points]))
        values = y_scale.place(np.array([point.value for point in held.points]) * by)
        block = figure.data(at, values)
        plot.append(f"{block} using 1:2 with lines {line(colour, 2, dash)}")
        plot.append(f"{block} using 1:2 with points {points(shape, 1, colour)}")
        beside = [(x, (p.nanoseconds or 0.0) / 1e3) for x, p in held.published]
        if beside and axis.unit == "us":
            there = np.array(beside)
            block = figure.data(x_scale.place(there[:, 0]), there[:, 1])
            plot.append(f"{block} using 1:2 with points {points(4, 1.3, colour)}")
            figure.mark(EDGE + 14, top, points(4, 1.3, colour))
            figure.text("published, on another machine: context and no target", EDGE + 38, top)
            top += LINE
    for crossing in crossings(sweep):
        figure.text(crossing_text(sweep, crossing), EDGE, top)
        top += LINE
    top += 36
    what = axis.title(sweep.name or "time") if sweep.is_time else sweep.name
    note = "small points: medians of runs; large points: their mean" if sweep.is_time else ""
    caption(figure, top, what, note)
    _axes(figure, sweep, x_scale, y_scale)
    figure.panel(LEFT, RIGHT, top, top + 400, plot)
    figure.height = round(top + 460)


def _axes(figure: Figure, sweep: Sweep, x: _Scale, y: _Scale) -> None:
    if x.logarithmic:
        first = x.zero or x.low
        # A tic's label is centred below it, and the last one has to stay within the figure.
        beside = (x.high / first) ** 0.05
        figure.add("set logscale x", f"set xrange [{first / 1.2:g}:{x.high * beside:g}]")
    else:
        margin = 0.03 * (x.high - x.low)
        figure.add(f"set xrange [{x.low - margin:g}:{x.high + margin:g}]")
    if y.logarithmic:
        figure.add("set logscale y")
    else:
        figure.add("set yrange [0:*]" if y.low == 0 else "set yrange [*:*]")
    figure.add(f"set xtics {x.tics(12)}", f"set xlabel {quoted(sweep.option)}")


def _runs(held: SweepLine) -> tuple[Values, Values]:
    """Each run's figure at its value of the option."""
    x, y = [], []
    for point in held.points:
        runs = spread_out(point.runs, _MARKS_A_POINT)
        x.append(np.full(len(runs), point.x))
        y.append(runs)
    return np.concatenate(x), np.concatenate(y)
