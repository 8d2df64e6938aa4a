"""The distribution of a metric's samples: histogram and tail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from klat.report.plot import reduction as reduce
from klat.report.plot.axis import Axis, sample_axis
from klat.report.plot.drawn import Drawn
from klat.report.plot.gnuplot import COLOURS, DASHES, INK, Figure, line, points, quoted, tics
from klat.report.plot.layout import EDGE, LEFT, LINE, RIGHT, caption, head
from klat.report.plot.series import Curve, Overlay, describe
from klat.report.text.numbers import one_in, plural
from klat.stats.descriptive import Values
from klat.stats.distribution import Distribution


# As many characters as fit into a line, with a gap to spare.
_SIDE_BY_SIDE = 112


def distribution(overlay: Overlay, axis: Axis, limit: LimitLine | None = None) -> Figure | None:
    """Histogram of the body above the tail of everything. None without a usable run."""
    drawn: list[Drawn] = []
    shown: list[Curve] = []
    for curve in overlay.curves:
        boots = curve.measurement.by_boot()
        ordered = Distribution.merged(boots)
        if ordered.n:
            place = len(drawn) % len(COLOURS)
            scale = axis.scale(curve.label)
            style = COLOURS[place], DASHES[place]
            drawn.append(Drawn(ordered, curve.label.step, scale, *style, boots))
            shown.append(curve)
    if not drawn:
        return None
    figure = Figure(f"{overlay.slug}-distribution")
    top = head(figure, f"{overlay.title}: distribution", overlay.subtitle)
    for side, curve in zip(drawn, shown):
        figure.swatch(EDGE, top, line(side.colour, 2.5, side.dash))
        name = describe(curve, len(curve.measurement.runs))
        figures = _key_figures(side, curve, axis)
        figure.text(name, EDGE + 38, top)
        if len(name) + len(figures) > _SIDE_BY_SIDE:
            top += LINE
        figure.text(figures, RIGHT, top, align="right")
        top += LINE
    top += 36
    plot, note = histogram(figure, drawn, axis)
    caption(figure, top, "% of samples, by bin", note)
    figure.panel(LEFT, RIGHT, top, top + 200, plot)
    plot, note = tail(figure, drawn, axis, limit=limit)
    caption(figure, top + 294, "share of samples that are at least as long", note)
    figure.panel(LEFT, RIGHT, top + 294, top + 548, plot)
    figure.height = round(top + 606)
    return figure


def _key_figures(side: Drawn, curve: Curve, axis: Axis) -> str:
    s = curve.measurement.statistics
    quantiles = [("median", s.median), ("p99", s.p99), ("max", s.max)]
    shown = [f"{name} {axis.figure(v * side.scale)}" for name, v in quantiles if v is not None]
    return f"{plural(side.ordered.n, 'sample')}: {', '.join(shown)} {axis.unit}"


def histogram(
    figure: Figure, drawn: Sequence[Drawn], axis: Axis, most: int = 9
) -> tuple[list[str], str]:
    """The histogram of the body, for a panel that the caller places: the plot commands, and the
    share of samples outside. At most about `most` tics."""
    low = min(side.body[0] for side in drawn)
    high = max(side.body[1] for side in drawn)
    logarithmic = low > 0 and high > 3 * LONG * low
    plot, ends = [], [low, high]
    for side in drawn:
        step = max(side.quantum, reduce.granularity(side.ordered))
        bounds = reduce.edges(low / side.scale, high / side.scale, step, logarithmic)
        share = 100 * reduce.shares(side.ordered, bounds, logarithmic)
        ends += [float(bounds[0]) * side.scale, float(bounds[-1]) * side.scale]
        # As an outline: if every step were filled alone, the seams between transparent bins would
        # show.
        x = np.repeat(bounds, 2) * side.scale
        block = figure.data(x, np.concatenate([[0.0], np.repeat(share, 2), [0.0]]))
        if len(drawn) <= 3:
            fill = f"fillstyle transparent solid {0.35 if len(drawn) == 1 else 0.2} noborder"
            plot.append(
                f"{block} using 1:2 with filledcurves y1=0 {fill} linecolor rgb '{side.colour}'"
            )
        plot.append(f"{block} using 1:2 with lines {line(side.colour, 1.5, side.dash)}")
    # All of each bin: a bin may be wider than the body.
    sample_axis(figure, axis, min(ends), max(ends), logarithmic, most)
    outside = max(100 * side.outside(low, high) for side in drawn)
    upto = "up to " if len(drawn) > 1 else ""
    note = f"{upto}{outside:.2g} % of the samples are outside" if outside else "all samples"
    figure.add("set yrange [0:*]")
    return plot, note


# A tail longer than this many medians needs a logarithmic axis to be seen beside them.
LONG = 4.0
# The lines of all boots together have about this many points.
_POINTS = 6000
_MOST, _FEWEST = 200, 24
LIMIT = line(INK, 1.2, "(6,4)")


@dataclass(frozen=True)
class LimitLine:
    """`value` in the unit of the axis."""

    text: str
    value: float


def tail(
    figure: Figure,
    drawn: Sequence[Drawn],
    axis: Axis,
    most: int = 9,
    limit: LimitLine | None = None,
) -> tuple[list[str], str]:
    """The share of samples at or above each value, both on a logarithmic scale, with a thin line for
    each boot: the plot commands, and a note. At most about `most` tics."""
    low = min(side.smallest_positive for side in drawn)
    high = max(side.largest for side in drawn)
    reached = max(high, limit.value) if limit else high
    logarithmic = reached > LONG * min(side.at(0.5) for side in drawn)
    reach = math.log10(max(side.ordered.n for side in drawn))
    bottom = -max(1.0, reach) * 1.05
    boots = [_thin(figure, side, bottom) for side in drawn]
    plot = [command for commands in boots for command in commands]
    for side in drawn:
        curve = reduce.cumulative(side.ordered)
        x, y = curve.values * side.scale, -curve.nines
        plot.append(_curve(figure, x, y, bottom, line(side.colour, 2, side.dash)))
        last = figure.data(x[-1:], y[-1:])
        plot.append(f"{last} using 1:2 with points {points(7, 0.7, side.colour)}")
    first = low if logarithmic else min(side.at(0) for side in drawn)
    if limit:
        first = min(first, limit.value)
        _draw_limit(figure, limit, beyond_middle=limit.value > math.sqrt(first * reached))
    sample_axis(figure, axis, first, reached, logarithmic, most)
    places = ((float(-power), one_in(power)) for power in range(math.floor(reach) + 1))
    figure.add(f"set yrange [{bottom:.6g}:0]", f"set ytics {tics(places)}")
    zeros = sum(int(side.ordered.below(1)) for side in drawn) if logarithmic else 0
    note = f"without {plural(zeros, 'sample')} of 0" if zeros else "all samples"
    return plot, f"{note}, to the maximum{'; thin: each boot' if any(boots) else ''}"


def _curve(figure: Figure, x: Values, y: Values, bottom: float, style: str) -> str:
    # No sample is above the largest one: a share that lies infinitely far down.
    block = figure.data(np.append(x, x[-1]), np.append(y, bottom))
    return f"{block} using 1:2 with fsteps {style}"


def _thin(figure: Figure, side: Drawn, bottom: float) -> list[str]:
    if len(side.boots) < 2:
        return []
    most = max(_FEWEST, min(_MOST, _POINTS // len(side.boots)))
    curves = (reduce.cumulative(boot, most) for boot in side.boots)
    return [
        _curve(figure, curve.values * side.scale, -curve.nines, bottom, line(side.colour, 0.4))
        for curve in curves
    ]


def _draw_limit(figure: Figure, limit: LimitLine, beyond_middle: bool) -> None:
    x = f"first {limit.value:.10g}"
    figure.add(f"set arrow from {x}, graph 0 to {x}, graph 1 nohead {LIMIT}")
    side, shift = ("right", "-0.6") if beyond_middle else ("left", "0.6")
    text = quoted(f"limit {limit.text}")
    figure.add(f"set label {text} at {x}, graph 0.95 {side} offset character {shift}, 0")
