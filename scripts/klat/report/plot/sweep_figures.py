"""Sweeps as figures: the option along x, a line for each metric or combination."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from klat.base.errors import unique_file_name
from klat.compare.dataset import Dataset
from klat.compare.sweeps import Sweep, SweepLine, sweeps
from klat.record.session import printable
from klat.report.plot.axis import Axis, linear_tics, logarithmic_tics, whole_tics
from klat.report.plot.gnuplot import (
    COLOURS,
    DASHES,
    INK,
    SHAPES,
    Figure,
    faint,
    line,
    points,
    quoted,
    tics,
)
from klat.report.plot.layout import EDGE, LEFT, LINE, RIGHT, caption, head
from klat.report.plot.reduction import spread_out
from klat.report.plot.series import curve_names, shortened
from klat.report.text.columns import params_text
from klat.report.text.parameters import parameters
from klat.report.sweeps import crossing_sentences, runs_text, title
from klat.stats.descriptive import Values


_MARKS_A_POINT = 30
_MOST_LINES = len(COLOURS)
_MOST_SENTENCES = 3
# An axis on which the largest value is this many times the smallest is logarithmic.
_DECADES = 30
_UNITS = {
    "bytes": "bytes",
    "consumer-burn": "ns",
    "dma-latency": "us",
    "gap": "us",
    "guest-halt-poll": "ns",
    "idle": "ns",
    "period": "us",
    "rate": "messages per second",
    "spin-before-sleep": "ns",
}
_PUBLISHED = "published, measured on another machine"


def sweep_figures(labels: Sequence[Dataset], axis: Axis) -> list[Figure]:
    """A figure for each sweep; several if there are too many lines for one. Labels
    are laid over each other."""
    figures: list[Figure] = []
    taken: set[str] = set()
    for sweep in sweeps(labels, curve_names(labels)):
        if sweep.choices and len({p.value for line in sweep.lines for p in line.points}) < 2:
            continue  # a figure of equal dots shows nothing that the summary does not say
        parts = [sweep.lines[i : i + _MOST_LINES] for i in range(0, len(sweep.lines), _MOST_LINES)]
        for lines in parts:
            figure = Figure(unique_file_name(_stem(sweep), taken))
            (draw_choices if sweep.choices else _draw)(figure, sweep, lines, axis)
            figures.append(figure)
    return figures


def _stem(sweep: Sweep) -> str:
    return "-".join(p for p in (sweep.benchmark, sweep.name, "by", sweep.option) if p)


@dataclass(frozen=True)
class _Scale:
    """The places of values on an axis. On a logarithmic axis, 0 is left of the smallest value."""

    logarithmic: bool
    whole: bool  # only whole numbers
    low: float  # the smallest value above 0, on a logarithmic axis
    high: float
    zero: float | None = None

    def place(self, values: Values) -> Values:
        return np.where(values <= 0, self.zero, values) if self.zero is not None else values

    def tics(self, most: int) -> str:
        if not self.logarithmic:
            return (whole_tics if self.whole else linear_tics)(self.low, self.high, most)
        text = logarithmic_tics(self.low * 0.999, self.high * 1.001, most)
        return text if self.zero is None else f"{text[:-1]}, '0' {self.zero:.10g})"


def _scale_of(values: Values) -> _Scale:
    whole = bool(np.all(values == np.round(values)))
    above = values[values > 0]
    if not len(above) or values.min() < 0 or above.max() < _DECADES * above.min():
        return _Scale(False, whole, min(0.0, float(values.min())), max(float(values.max()), 1e-9))
    low, high = float(above.min()), float(above.max())
    zero = low / 10 ** max(0.3, 0.08 * math.log10(high / low)) if values.min() == 0 else None
    return _Scale(True, whole, low, high, zero)


@dataclass(frozen=True)
class _Style:
    """How a line is drawn: no two lines of a figure have one colour."""

    colour: str
    line: str
    mark: str

    @classmethod
    def of(cls, i: int) -> _Style:
        colour = COLOURS[i % len(COLOURS)]
        dash, shape = DASHES[i % len(DASHES)], SHAPES[i % len(SHAPES)]
        return cls(colour, line(colour, 2, dash), points(shape, 1, colour))


def _published(line: SweepLine, axis: Axis) -> list[tuple[float, float]]:
    if axis.unit != "us":
        return []
    return [(x, (p.nanoseconds or 0.0) / 1e3) for x, p in line.published]


def _legend(
    figure: Figure, lines: Sequence[SweepLine], styles: Sequence[_Style], axis: Axis, top: float
) -> float:
    """As many columns as the names leave room for. Returns the place of the next line."""
    names = [f"{shortened(line.name, 80)}, {runs_text(line)}" for line in lines]
    longest = max(map(len, names))
    columns = 3 if longest <= 32 else 2 if longest <= 52 else 1
    wide = (RIGHT - EDGE) / columns
    for i, (name, style) in enumerate(zip(names, styles)):
        x, y = EDGE + i % columns * wide, top + i // columns * LINE
        figure.swatch(x, y, style.line)
        figure.mark(x + 14, y, style.mark)
        figure.text(name, x + 38, y)
    top += math.ceil(len(names) / columns) * LINE
    if any(_published(line, axis) for line in lines):
        figure.mark(EDGE + 14, top, points(4, 1.3, INK))
        figure.text(_PUBLISHED, EDGE + 38, top)
        top += LINE
    return top


def _draw(figure: Figure, sweep: Sweep, lines: Sequence[SweepLine], axis: Axis) -> None:
    top = head(figure, title(sweep), params_text(parameters(sweep.benchmark, sweep.params)))
    scaled = [axis.scale(line.label) if sweep.is_time else 1.0 for line in lines]
    x_scale = _scale_of(np.array(sweep.values))
    y_scale = _scale_of(
        np.concatenate(
            [values for line, by in zip(lines, scaled) for values in _heights(line, by, axis)]
        )
    )
    styles = [_Style.of(i) for i in range(len(lines))]
    top = _legend(figure, lines, styles, axis, top)
    plot = []
    for style, line, by in zip(styles, lines, scaled):
        x, y = _runs(line)
        kept = y > 0 if y_scale.logarithmic else np.full(len(y), True)
        if kept.any():
            block = figure.data(x_scale.place(x[kept]), y[kept] * by)
            plot.append(f"{block} using 1:2 with points {faint(style.colour)}")
        at = x_scale.place(np.array([point.x for point in line.points]))
        values = y_scale.place(np.array([point.value for point in line.points]) * by)
        block = figure.data(at, values)
        plot.append(f"{block} using 1:2 with lines {style.line}")
        plot.append(f"{block} using 1:2 with points {style.mark}")
        if beside := _published(line, axis):
            there = np.array(beside)
            block = figure.data(x_scale.place(there[:, 0]), there[:, 1])
            plot.append(f"{block} using 1:2 with points {points(4, 1.3, style.colour)}")
    top = _crossings(figure, sweep, top)
    top += 36
    note = "small points: medians of runs; large points: their mean" if sweep.is_time else ""
    caption(figure, top, axis.figure_title(sweep.name, sweep.is_time), note)
    _axes(figure, sweep, x_scale, y_scale)
    figure.panel(LEFT, RIGHT, top, top + 400, plot)
    figure.height = round(top + 460)


def _heights(line: SweepLine, by: float, axis: Axis) -> list[Values]:
    """All values on the y axis."""
    beside = np.array([value for _, value in _published(line, axis)])
    return [beside, *(point.runs * by for point in line.points)]


def _crossings(figure: Figure, sweep: Sweep, top: float) -> float:
    """The sentences, if they are few: klat summary prints them all."""
    sentences = crossing_sentences(sweep)
    lines = [line for text in sentences for line in textwrap.wrap(text, 112)]
    for text in lines if len(lines) <= _MOST_SENTENCES else ():
        figure.text(text, EDGE, top)
        top += LINE
    return top


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
        room = (y.high / (y.zero or y.low)) ** 0.04
        low, high = (y.zero or y.low) / room, y.high * room
        figure.add("set logscale y", f"set yrange [{low:g}:{high:g}]")
        figure.add(f"set ytics {y.tics(9)}")
    else:
        high = y.high * 1.05
        figure.add(f"set yrange [{y.low:.10g}:{high:.10g}]")
        figure.add(f"set ytics {linear_tics(y.low, high, 8)}")
    unit = _UNITS.get(sweep.option, "")
    title = f"{sweep.option} ({unit})" if unit not in ("", sweep.option) else sweep.option
    figure.add(f"set xtics {x.tics(12)}", f"set xlabel {quoted(title)}")


def _runs(line: SweepLine) -> tuple[Values, Values]:
    """Each run's figure at its value of the option."""
    x, y = [], []
    for point in line.points:
        runs = spread_out(point.runs, _MARKS_A_POINT)
        x.append(np.full(len(runs), point.x))
        y.append(runs)
    return np.concatenate(x), np.concatenate(y)


_LEFT = 190
_NAME_LENGTH = 20
_MARKS = 30
_ROW = 22


def draw_choices(figure: Figure, sweep: Sweep, lines: Sequence[SweepLine], axis: Axis) -> None:
    """A panel for each metric; one for all lines where these are of one metric."""
    top = head(figure, title(sweep), params_text(parameters(sweep.benchmark, sweep.params)))
    if sweep.by:
        for i, line in enumerate(lines):
            figure.mark(EDGE + 14, top, points(_shape(i), 1, _colour(i)))
            figure.text(shortened(line.name, 80), EDGE + 38, top)
            top += LINE
        panels = [(sweep.name, list(lines))]
    else:
        panels = [(line.name, [line]) for line in lines]
    shown = [x for x in sweep.values if any(line.at(x) for line in lines)]
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
    for i, sweep_line in enumerate(lines):
        colour = _colour(i)
        scale = axis.scale(sweep_line.label) if sweep.is_time else 1.0
        beside = (i - (len(lines) - 1) / 2) * 0.7 / len(lines)
        there = [
            (-rank - beside, point) for rank, x in enumerate(shown) if (point := sweep_line.at(x))
        ]
        runs = [spread_out(point.runs, _MARKS) * scale for _, point in there]
        rows = np.concatenate([np.full(len(r), y) for r, (y, _) in zip(runs, there)])
        block = figure.data(np.concatenate(runs), rows)
        plot.append(f"{block} using 1:2 with points {faint(colour)}")
        y = np.array([y for y, _ in there])
        mean = np.array([point.value for _, point in there]) * scale
        ends = [sweep_line.interval(point) or (point.value, point.value) for _, point in there]
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
