"""Sweeps as figures: the option along x, a line for each metric or combination; and a shootdown's cost over its
responders."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from klat.base.errors import unique_file_name
from klat.compare.dataset import Dataset
from klat.compare.sweep_shapes import BENCHMARK, Shootdown, knee, shootdowns
from klat.compare.sweeps import Sweep, SweepLine, sweeps
from klat.record.session import printable
from klat.report.plot.axis import Axis, linear_tics, logarithmic_tics, padded, whole_tics
from klat.report.plot.gnuplot import COLOURS, DASHES, EDGE, INK, LEFT, LINE, RIGHT, SHAPES
from klat.report.plot.gnuplot import Figure, faint, line, points, quoted, tics
from klat.report.plot.reduction import spread_out
from klat.report.plot.series import curve_names, shortened
from klat.report.text.columns import params_text
from klat.report.text.parameters import parameters
from klat.report.sweeps import runs_text, sentences, title
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


def _entry(figure: Figure, x: float, y: float, style: _Style, text: str) -> None:
    """A line of a legend."""
    figure.swatch(x, y, style.line)
    figure.mark(x + 14, y, style.mark)
    figure.text(text, x + 38, y)


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
        _entry(figure, x, y, style, name)
    top += math.ceil(len(names) / columns) * LINE
    if any(_published(line, axis) for line in lines):
        figure.mark(EDGE + 14, top, points(4, 1.3, INK))
        figure.text(_PUBLISHED, EDGE + 38, top)
        top += LINE
    return top


def _draw(figure: Figure, sweep: Sweep, lines: Sequence[SweepLine], axis: Axis) -> None:
    top = figure.head(title(sweep), params_text(parameters(sweep.benchmark, sweep.params)))
    scaled = [axis.scale(line.label) if sweep.is_time else 1.0 for line in lines]
    x_scale = _scale_of(np.array(sweep.values))
    heights = (_heights(line, by, axis) for line, by in zip(lines, scaled))
    y_scale = _scale_of(np.concatenate([values for of_line in heights for values in of_line]))
    styles = [_Style.of(i) for i in range(len(lines))]
    top = _legend(figure, lines, styles, axis, top)
    for style, line, by in zip(styles, lines, scaled):
        x, y = _runs(line)
        kept = y > 0 if y_scale.logarithmic else np.full(len(y), True)
        if kept.any():
            figure.points(x_scale.place(x[kept]), y[kept] * by, faint(style.colour))
        at = x_scale.place(np.array([point.x for point in line.points]))
        values = y_scale.place(np.array([point.value for point in line.points]) * by)
        block = figure.data(at, values)
        figure.curve("lines", style.line, block)
        figure.curve("points", style.mark, block)
        if beside := _published(line, axis):
            there = np.array(beside)
            mark = points(4, 1.3, style.colour)
            figure.points(x_scale.place(there[:, 0]), there[:, 1], mark)
        if last := knee(sweep, line):
            figure.upright(float(x_scale.place(np.array(last))), style.line)
    top = _sentences(figure, sweep, top) + 36
    note = f"small points: medians of runs{sweep.without_median}; large points: their mean"
    note = note if sweep.is_time else ""
    figure.caption(top, axis.figure_title(sweep.name, sweep.is_time), note)
    _axes(figure, sweep, x_scale, y_scale)
    figure.panel(LEFT, RIGHT, top, top + 400)
    figure.height = round(top + 460)


def _heights(line: SweepLine, by: float, axis: Axis) -> list[Values]:
    """All values on the y axis."""
    beside = np.array([value for _, value in _published(line, axis)])
    return [beside, *(point.runs * by for point in line.points)]


def _sentences(figure: Figure, sweep: Sweep, top: float) -> float:
    """The sentences, if they are few: klat summary prints them all."""
    lines = [line for text in sentences(sweep) for line in textwrap.wrap(text, 112)]
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
        low, high = padded(y.zero or y.low, y.high, 0.04, True)
        figure.axis("y", low, high, y.tics(9), True)
    else:
        high = y.high * 1.05
        figure.axis("y", y.low, high, linear_tics(y.low, high, 8))
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
    top = figure.head(title(sweep), params_text(parameters(sweep.benchmark, sweep.params)))
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
        figure.caption(top, axis.figure_title(name, sweep.is_time), note if sweep.is_time else "")
        note = ""  # once is enough
        high = 1.05 * _plot(figure, sweep, together, shown, axis)
        names = (shortened(printable(sweep.text(x)), _NAME_LENGTH) for x in shown)
        figure.axis("y", 0.6 - len(shown), 0.6, tics((float(-i), n) for i, n in enumerate(names)))
        figure.axis("x", 0, high, linear_tics(0, high, 8))
        figure.panel(_LEFT, RIGHT, top, top + tall)
        top += tall + 34
    figure.height = round(top + 12)


def _plot(
    figure: Figure, sweep: Sweep, lines: Sequence[SweepLine], shown: Sequence[float], axis: Axis
) -> float:
    """Returns the largest value. Zero is the left end, so that lengths compare."""
    highest = 0.0
    for i, sweep_line in enumerate(lines):
        colour = _colour(i)
        scale = axis.scale(sweep_line.label) if sweep.is_time else 1.0
        beside = (i - (len(lines) - 1) / 2) * 0.7 / len(lines)
        placed = [(-r - beside, point) for r, x in enumerate(shown) if (point := sweep_line.at(x))]
        runs = [spread_out(point.runs, _MARKS) * scale for _, point in placed]
        rows = np.concatenate([np.full(len(r), y) for r, (y, _) in zip(runs, placed)])
        figure.points(np.concatenate(runs), rows, faint(colour))
        y = np.array([y for y, _ in placed])
        mean = np.array([point.value for _, point in placed]) * scale
        ends = [sweep_line.interval(point) or (point.value, point.value) for _, point in placed]
        low, high = (np.array([end[k] for end in ends]) * scale for k in (0, 1))
        block = figure.data(mean, y, low, high)
        figure.curve("vectors nohead", line(colour, 3), block, "3:2:($4-$3):(0)")
        figure.curve("points", points(_shape(i), 1, colour), block)
        highest = max(highest, _most(high), *(_most(r) for r in runs))
    return highest or 1.0


def _most(values: Values) -> float:
    return float(values.max(initial=0.0))


def _colour(i: int) -> str:
    return COLOURS[i % len(COLOURS)]


def _shape(i: int) -> int:
    return SHAPES[(i + i // len(COLOURS)) % len(SHAPES)]


_MARKS_A_COUNT = 60


def scaling(labels: Sequence[Dataset], axis: Axis) -> list[Figure]:
    """One figure for each metric and set of parameters swept; labels are laid over each other."""
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[str, Dataset, Shootdown]]] = {}
    for label, name in zip(labels, curve_names(labels)):
        for sweep in shootdowns(label.settings):
            key = (sweep.metric, tuple(sweep.params.items()))
            groups.setdefault(key, []).append((name, label, sweep))
    metrics = [metric for metric, _ in groups]
    figures: list[Figure] = []
    for (metric, params), sweeps in groups.items():
        number = sum(figure.name.startswith(f"{BENCHMARK}-{metric}") for figure in figures)
        several = f"-{number + 1}" if metrics.count(metric) > 1 else ""
        figure = Figure(f"{BENCHMARK}-{metric}{several}-scaling")
        _draw_scaling(figure, dict(params), sweeps, axis)
        figures.append(figure)
    return figures


def _draw_scaling(
    figure: Figure,
    params: dict[str, str],
    sweeps: Sequence[tuple[str, Dataset, Shootdown]],
    axis: Axis,
) -> None:
    metric = sweeps[0][2].metric
    shown = params_text(parameters(BENCHMARK, params))
    top = figure.head(f"{BENCHMARK} {metric}: scaling with responders", shown)
    furthest = max(int(sweep.points[-1].x) for _, _, sweep in sweeps)
    for i, (name, label, sweep) in enumerate(sweeps):
        style, scale = _Style.of(i), axis.scale(label)
        slope = _slope(sweep, axis, scale)
        _entry(figure, EDGE, top, style, f"{name}: Linux {shortened(label.kernel, 36)}, {slope}")
        top += LINE
        x, y = _spread_runs(sweep, furthest)
        figure.points(x, y * scale, faint(style.colour))
        if sweep.fit:
            ends = np.array([sweep.points[0].x, sweep.points[-1].x])
            fitted = (sweep.fit.intercept + sweep.fit.slope * ends) * scale
            figure.lines(ends, fitted, style.line)
        at = np.array([point.x for point in sweep.points])
        times = np.array([point.value for point in sweep.points])
        figure.points(at, times * scale, style.mark)
    top += 36
    note = "small points: medians of runs; large points: their mean, T(k); line: fit"
    figure.caption(top, axis.title("T(k)"), note)
    margin = max(0.3, 0.02 * furthest)
    low, high = -margin, furthest + margin
    figure.axis("x", low, high, whole_tics(low, high, 12))
    figure.add("set yrange [0:*]", "set xlabel 'responders'")
    figure.panel(LEFT, RIGHT, top, top + 400)
    figure.height = round(top + 460)


def _slope(sweep: Shootdown, axis: Axis, scale: float) -> str:
    if sweep.fit is None:
        return "one count of responders only"
    text = f"slope {axis.figure(sweep.fit.slope * scale)} {axis.unit} per responder"
    if sweep.fit.interval is None:
        return text
    low, high = (axis.figure(end * scale) for end in sweep.fit.interval)
    return f"{text} (95 %: {low} to {high})"


def _spread_runs(sweep: Shootdown, furthest: int) -> tuple[Values, Values]:
    """Each run's median beside its count of responders, spread a little so that they do not hide
    each other."""
    x, y = [], []
    for point in sweep.points:
        medians = spread_out(point.runs, _MARKS_A_COUNT)
        # The same figure every time: the spread is not random.
        beside = ((np.arange(len(medians)) * 0.6180339887) % 1 - 0.5) * 0.02 * max(0.6, furthest)
        x.append(point.x + beside)
        y.append(medians)
    return np.concatenate(x), np.concatenate(y)
