"""The distribution of a metric's samples: histogram and cumulative distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from klat.report.plot import reduction as reduce
from klat.report.plot.axis import Axis, apart, linear_tics, logarithmic_tics
from klat.report.plot.gnuplot import (
    COLOURS,
    DASHES,
    Figure,
    line,
    points,
    quoted,
    tics,
)
from klat.report.plot.layout import EDGE, LEFT, LINE, RIGHT, caption, head
from klat.report.text.numbers import plural
from klat.report.plot.series import Curve, Overlay, describe
from klat.stats.histogram import CountedValues

# A tail longer than this many medians needs a logarithmic axis to be seen beside them.
_TAIL = 4.0
_BODY = 0.995
# In interquartile ranges.
_REACH = 4
# As many characters as fit into a line, with a gap to spare.
_SIDE_BY_SIDE = 112


@dataclass(frozen=True)
class Drawn:
    """Samples as recorded, at least `quantum` apart. `scale` converts them to the unit of the axis."""

    ordered: CountedValues
    quantum: int
    scale: float
    colour: str
    dash: str

    def at(self, share: float) -> float:
        index = min(len(self.ordered) - 1, math.floor(share * len(self.ordered)))
        return self.ordered.at(index) * self.scale

    @property
    def body(self) -> tuple[float, float]:
        """The range of nearly all samples, so that a few long ones do not squeeze the others into
        one bin. At most 5 % are beyond either end."""
        low, high = self.at(0.25), self.at(0.75)
        reach = _REACH * max(high - low, self.quantum * self.scale)
        return (
            max(self.at(0), min(low - reach, self.at(0.05))),
            min(self.at(_BODY), max(high + reach, self.at(0.95))),
        )

    def outside(self, low: float, high: float) -> float:
        """The share of samples that are not between two places of the axis."""
        values = self.ordered.times(self.scale).values
        outside = (values < low * 0.999999) | (values > high * 1.000001)
        return float(np.sum(self.ordered.counts[outside]) / len(self.ordered))

    @property
    def smallest_positive(self) -> float:
        first = min(int(self.ordered.below(1)), len(self.ordered) - 1)
        return max(1.0, self.ordered.at(first)) * self.scale

    @property
    def largest(self) -> float:
        return float(self.ordered.values[-1]) * self.scale


def distribution(overlay: Overlay, axis: Axis) -> Figure | None:
    """Histogram of the body above the cumulative distribution of everything. None without a
    usable run."""
    drawn: list[Drawn] = []
    shown: list[Curve] = []
    for curve in overlay.curves:
        ordered = curve.measurement.counted_values()
        if len(ordered):
            place = len(drawn) % len(COLOURS)
            scale = axis.scale(curve.label)
            drawn.append(Drawn(ordered, curve.label.step, scale, COLOURS[place], DASHES[place]))
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
    plot, note = tail(figure, drawn, axis)
    caption(figure, top + 294, "% of samples that are shorter", note)
    figure.panel(LEFT, RIGHT, top + 294, top + 548, plot)
    figure.height = round(top + 606)
    return figure


def _key_figures(one: Drawn, curve: Curve, axis: Axis) -> str:
    s = curve.measurement.statistics
    quantiles = [("median", s.median), ("p99", s.p99), ("max", s.max)]
    shown = [f"{name} {axis.figure(v * one.scale)}" for name, v in quantiles if v is not None]
    return f"{plural(len(one.ordered), 'sample')}: {', '.join(shown)} {axis.unit}"


def histogram(
    figure: Figure, drawn: Sequence[Drawn], axis: Axis, most: int = 9
) -> tuple[list[str], str]:
    """The histogram of the body, for a panel that the caller places: the plot commands, and the
    share of samples outside. At most about `most` tics."""
    low = min(one.body[0] for one in drawn)
    high = max(one.body[1] for one in drawn)
    logarithmic = low > 0 and high > 3 * _TAIL * low
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
    _x_axis(figure, axis, min(ends), max(ends), logarithmic, most)
    outside = max(100 * one.outside(low, high) for one in drawn)
    upto = "up to " if len(drawn) > 1 else ""
    note = f"{upto}{outside:.2g} % of the samples are outside" if outside else "all samples"
    figure.add("set yrange [0:*]")
    return plot, note


def tail(
    figure: Figure, drawn: Sequence[Drawn], axis: Axis, most: int = 9
) -> tuple[list[str], str]:
    """The same for the cumulative distribution of all samples, on a scale that spreads its end."""
    low = min(one.smallest_positive for one in drawn)
    high = max(one.largest for one in drawn)
    logarithmic = high > _TAIL * min(one.at(0.5) for one in drawn)
    reach = math.log10(max(len(one.ordered) for one in drawn))
    top_edge = max(1.0, reach) * 1.05
    plot = []
    for one in drawn:
        curve = reduce.cumulative(one.ordered)
        x, y = curve.values * one.scale, curve.nines
        # All samples are shorter than a value beyond the largest one: a share that lies infinitely
        # far up.
        block = figure.data(np.append(x, x[-1]), np.append(y, top_edge))
        plot.append(f"{block} using 1:2 with fsteps {line(one.colour, 2, one.dash)}")
        last = figure.data(x[-1:], y[-1:])
        plot.append(f"{last} using 1:2 with points {points(7, 0.7, one.colour)}")
    first = low if logarithmic else min(one.at(0) for one in drawn)
    _x_axis(figure, axis, first, high, logarithmic, most)
    figure.add(f"set yrange [0:{top_edge:.6g}]", f"set ytics {_percentiles(reach)}")
    zeros = sum(int(one.ordered.below(1)) for one in drawn) if logarithmic else 0
    note = f"all samples but {zeros:,} of 0" if zeros else "all samples"
    return plot, f"{note}, to the maximum"


def _percentiles(nines: float) -> str:
    """Tics where 0, 50, 90, 99, 99.9, ... % of the samples are shorter."""
    places = [(0.0, "0"), (1.0, "90")]
    if nines < 6:  # beyond, there is no room between 0 and 50
        places.insert(1, (-math.log10(0.5), "50"))
    places += [
        (float(n), f"{100 - 10.0 ** (2 - n):.{max(0, n - 2)}f}")
        for n in range(2, math.floor(nines) + 1)
    ]
    return tics(places)


def _x_axis(
    figure: Figure, axis: Axis, low: float, high: float, logarithmic: bool, most: int
) -> None:
    low, high = apart(low, high)
    if logarithmic:
        margin = (high / low) ** 0.02
        low, high = low / margin, high * margin
        figure.add("set logscale x", f"set xtics {logarithmic_tics(low, high, most)}")
    else:
        margin = (high - low) * 0.02
        low, high = max(0.0, low - margin), high + margin
        figure.add(f"set xtics {linear_tics(low, high, most)}")
    figure.add(f"set xrange [{low:.10g}:{high:.10g}]")
    figure.add(f"set xlabel {quoted(axis.samples)}")
