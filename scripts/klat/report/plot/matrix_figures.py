"""Matrices of pairs of CPUs as heat maps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from klat.base.errors import unique_file_name
from klat.compare.dataset import Dataset
from klat.compare.matrices import Matrix, matrices
from klat.report.sweeps import cpu_name, matrix_title
from klat.report.plot.axis import Axis, apart
from klat.report.plot.gnuplot import EDGE, GREY, INK, LINE, Figure, line, tics
from klat.report.plot.series import curve_names
from klat.report.text.columns import params_text
from klat.report.text.numbers import plural
from klat.report.text.parameters import parameters

# Lightness rises steadily, so that the map is read without colours, too: five colours of viridis.
_PALETTE = "0 '#440154', 1 '#3b528b', 2 '#21918c', 3 '#5ec962', 4 '#fde725'"
_LEFT, _SIDE = 110, 560
_MOST_TICS = 32
_MOST_PLACEMENTS = 12


def matrix_figures(labels: Sequence[Dataset], axis: Axis) -> list[Figure]:
    """One for each matrix of each label."""
    figures = []
    taken: set[str] = set()
    for label, name in zip(labels, curve_names(labels)):
        for matrix in matrices(label):
            stem = f"{matrix.benchmark}-{matrix.metric}-matrix"
            figure = Figure(unique_file_name(stem, taken))
            shown = params_text(parameters(matrix.benchmark, matrix.params))
            title = " ".join([matrix_title(matrix), *([name] if len(labels) > 1 else [])])
            top = _placements(figure, matrix, axis, axis.scale(label), figure.head(title, shown))
            draw_matrix(figure, label, matrix, axis, top)
            figures.append(figure)
    return figures


def draw_matrix(figure: Figure, label: Dataset, matrix: Matrix, axis: Axis, top: float) -> None:
    """Rows are the CPUs of the first role, from the top. Thick lines separate nodes, thin ones caches."""
    scale = axis.scale(label)
    top += 36
    note = "thick lines: nodes; thin lines: caches" if any(matrix.starts) else ""
    figure.caption(top, axis.title(matrix.metric), note)
    place = {cpu: i for i, cpu in enumerate(matrix.cpus)}
    count = len(matrix.cpus)
    x = np.array([float(place[b]) for _, b in matrix.pairs])
    y = np.array([-float(place[a]) for a, _ in matrix.pairs])
    values = np.array([pair.value for pair in matrix.pairs.values()]) * scale
    low, high = apart(float(values.min()), float(values.max()))
    block = figure.data(x, y, values)
    filled = "fillstyle solid 1 noborder linecolor palette"
    figure.curve("boxxyerror", filled, block, "1:2:(0.5):(0.5):3")
    names = [(float(i), cpu_name(matrix, cpu)) for cpu, i in place.items()]
    names = names[:: -(-count // _MOST_TICS)]
    rotated = bool(matrix.types) or count > 16
    figure.axis("x", -0.5, count - 0.5, tics(names))
    figure.axis("y", 0.5 - count, 0.5, tics((-at, text) for at, text in names))
    figure.add(
        f"set palette defined ({_PALETTE})",
        f"set cbrange [{low:.10g}:{high:.10g}]",
        f"set colorbox user origin screen {_LEFT + _SIDE + 30}/W, screen 1-{top + _SIDE:g}/H"
        f" size screen 18/W, screen {_SIDE}/H",
        f"set xtics {'rotate by -45' if rotated else 'norotate'}",
        f"set xlabel 'CPU of the second role' offset 0,{-0.5 if rotated else 0}",
    )
    for width, starts in ((4, matrix.starts[0]), (1, matrix.starts[1] - matrix.starts[0])):
        for cpu in sorted(starts, key=place.__getitem__):
            style = f"front {line('#FFFFFF', width)}"
            figure.upright(place[cpu] - 0.5, style)
            figure.level(0.5 - place[cpu], style)
    figure.panel(_LEFT, _LEFT + _SIDE, top, top + _SIDE)
    figure.add("set xtics norotate")
    figure.height = round(top + _SIDE + (95 if rotated else 75))


def _placements(figure: Figure, matrix: Matrix, axis: Axis, scale: float, top: float) -> float:
    """A line for each placement. Returns the place of the next line."""
    placements = matrix.by_placement()
    for placement, figures in placements[:_MOST_PLACEMENTS]:
        values = sorted(pair.value * scale for pair in figures)
        low, high = axis.figure(values[0]), axis.figure(values[-1])
        text = low if low == high else f"{low} to {high}"
        figure.text(
            f"{placement}: {text} {axis.unit}, {plural(len(values), 'pair')}", EDGE, top, colour=INK
        )
        top += LINE
    if len(placements) > _MOST_PLACEMENTS:
        figure.text(
            f"and {len(placements) - _MOST_PLACEMENTS} more placements", EDGE, top, colour=GREY
        )
        top += LINE
    return top
