"""The shootdown's cost over its responders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from klat.report.plot.reduction import spread_out
from klat.compare.dataset import Dataset
from klat.report.plot.axis import Axis, whole_tics
from klat.report.plot.gnuplot import COLOURS, DASHES, SHAPES, faint, Figure, line, points
from klat.report.plot.layout import EDGE, LEFT, LINE, RIGHT, caption, head
from klat.report.plot.series import curve_names, shortened
from klat.report.text.columns import params_text
from klat.report.text.parameters import parameters
from klat.compare.sweep_shapes import BENCHMARK, Shootdown, shootdowns
from klat.stats.descriptive import Values

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
        _draw(figure, dict(params), sweeps, axis)
        figures.append(figure)
    return figures


def _draw(
    figure: Figure,
    params: dict[str, str],
    sweeps: Sequence[tuple[str, Dataset, Shootdown]],
    axis: Axis,
) -> None:
    metric = sweeps[0][2].metric
    shown = params_text(parameters(BENCHMARK, params))
    top = head(figure, f"{BENCHMARK} {metric}: scaling with responders", shown)
    plot = []
    furthest = max(int(sweep.points[-1].x) for _, _, sweep in sweeps)
    for i, (name, label, sweep) in enumerate(sweeps):
        colour, shape = COLOURS[i % len(COLOURS)], SHAPES[i % len(SHAPES)]
        scale = axis.scale(label)
        figure.swatch(EDGE, top, line(colour, 2, DASHES[i % len(DASHES)]))
        figure.mark(EDGE + 14, top, points(shape, 1, colour))
        about = f"{name}: Linux {shortened(label.kernel, 36)}, {_slope(sweep, axis, scale)}"
        figure.text(about, EDGE + 38, top)
        top += LINE
        x, y = _runs(sweep, furthest)
        plot.append(f"{figure.data(x, y * scale)} using 1:2 with points {faint(colour)}")
        if sweep.fit:
            ends = np.array([sweep.points[0].x, sweep.points[-1].x])
            fitted = (sweep.fit.intercept + sweep.fit.slope * ends) * scale
            block = figure.data(ends, fitted)
            plot.append(f"{block} using 1:2 with lines {line(colour, 2, DASHES[i % len(DASHES)])}")
        at = np.array([point.x for point in sweep.points])
        times = np.array([point.value for point in sweep.points])
        block = figure.data(at, times * scale)
        plot.append(f"{block} using 1:2 with points {points(shape, 1, colour)}")
    top += 36
    note = "small points: medians of runs; large points: their mean, T(k); line: fit"
    caption(figure, top, axis.title("T(k)"), note)
    margin = max(0.3, 0.02 * furthest)
    figure.add(
        f"set xrange [{-margin:g}:{furthest + margin:g}]",
        "set yrange [0:*]",
        "set xlabel 'responders'",
    )
    figure.add(f"set xtics {whole_tics(-margin, furthest + margin, 12)}")
    figure.panel(LEFT, RIGHT, top, top + 400, plot)
    figure.height = round(top + 460)


def _slope(sweep: Shootdown, axis: Axis, scale: float) -> str:
    if sweep.fit is None:
        return "one count of responders only"
    text = f"slope {axis.figure(sweep.fit.slope * scale)} {axis.unit} per responder"
    if sweep.fit.interval is None:
        return text
    low, high = (axis.figure(end * scale) for end in sweep.fit.interval)
    return f"{text} (95 %: {low} to {high})"


def _runs(sweep: Shootdown, furthest: int) -> tuple[Values, Values]:
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
