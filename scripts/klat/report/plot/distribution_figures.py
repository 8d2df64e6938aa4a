"""The distribution of a metric's samples: histogram and tail."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from klat.report.plot import reduction as reduce
from klat.report.plot.axis import Axis, sample_axis
from klat.report.plot.drawn import Drawn
from klat.report.plot.gnuplot import COLOURS, DASHES, Figure, line
from klat.report.plot.layout import EDGE, LEFT, LINE, RIGHT, caption, head
from klat.report.text.numbers import plural
from klat.report.plot.series import Curve, Overlay, describe
from klat.report.plot.tail_figures import LONG, LimitLine, tail
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
    for one, curve in zip(drawn, shown):
        figure.swatch(EDGE, top, line(one.colour, 2.5, one.dash))
        name = describe(curve, len(curve.measurement.runs))
        figures = _key_figures(one, curve, axis)
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


def _key_figures(one: Drawn, curve: Curve, axis: Axis) -> str:
    s = curve.measurement.statistics
    quantiles = [("median", s.median), ("p99", s.p99), ("max", s.max)]
    shown = [f"{name} {axis.figure(v * one.scale)}" for name, v in quantiles if v is not None]
    return f"{plural(one.ordered.n, 'sample')}: {', '.join(shown)} {axis.unit}"


def histogram(
    figure: Figure, drawn: Sequence[Drawn], axis: Axis, most: int = 9
) -> tuple[list[str], str]:
    """The histogram of the body, for a panel that the caller places: the plot commands, and the
    share of samples outside. At most about `most` tics."""
    low = min(one.body[0] for one in drawn)
    high = max(one.body[1] for one in drawn)
    logarithmic = low > 0 and high > 3 * LONG * low
    plot, ends = [], [low, high]
    for one in drawn:
        step = max(one.quantum, reduce.granularity(one.ordered))
        bounds = reduce.edges(low / one.scale, high / one.scale, step, logarithmic)
        share = 100 * reduce.shares(one.ordered, bounds, logarithmic)
        ends += [float(bounds[0]) * one.scale, float(bounds[-1]) * one.scale]
        # As an outline: if every step were filled alone, the seams between transparent bins would
        # show.
        x = np.repeat(bounds, 2) * one.scale
        block = figure.data(x, np.concatenate([[0.0], np.repeat(share, 2), [0.0]]))
        if len(drawn) <= 3:
            fill = f"fillstyle transparent solid {0.35 if len(drawn) == 1 else 0.2} noborder"
            plot.append(
                f"{block} using 1:2 with filledcurves y1=0 {fill} linecolor rgb '{one.colour}'"
            )
        plot.append(f"{block} using 1:2 with lines {line(one.colour, 1.5, one.dash)}")
    # All of each bin: a bin may be wider than the body.
    sample_axis(figure, axis, min(ends), max(ends), logarithmic, most)
    outside = max(100 * one.outside(low, high) for one in drawn)
    upto = "up to " if len(drawn) > 1 else ""
    note = f"{upto}{outside:.2g} % of the samples are outside" if outside else "all samples"
    figure.add("set yrange [0:*]")
    return plot, note
