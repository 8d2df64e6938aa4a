"""The distribution of a metric's samples: histogram and tail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from klat.compare.runs import by_boot, merged_distribution
from klat.report.plot import reduction as reduce
from klat.report.plot.axis import Axis, sample_axis
from klat.report.plot.gnuplot import COLOURS, DASHES, EDGE, INK, LEFT, LINE, RIGHT, Figure, line
from klat.report.plot.gnuplot import points, quoted, tics
from klat.report.plot.series import Curve, Overlay, describe
from klat.report.text.numbers import one_in, plural
from klat.stats.descriptive import Values
from klat.stats.distribution import Distribution


# As many characters as fit into a line, with a gap to spare.
_SIDE_BY_SIDE = 112
# The body of the samples: up to this share, and this many interquartile ranges around the middle.
_BODY = 0.995
_REACH = 4


@dataclass(frozen=True)
class Drawn:
    """Samples as recorded, at least `quantum` apart. `scale` converts them to the unit of the axis.
    `boots` has those of each boot."""

    ordered: Distribution
    quantum: int
    scale: float
    colour: str
    dash: str
    boots: tuple[Distribution, ...] = ()

    def at(self, share: float) -> float:
        index = min(self.ordered.n - 1, math.floor(share * self.ordered.n))
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
        return float(np.sum(self.ordered.counts[outside]) / self.ordered.n)

    @property
    def smallest_positive(self) -> float:
        first = min(int(self.ordered.below(1)), self.ordered.n - 1)
        return max(1.0, self.ordered.at(first)) * self.scale

    @property
    def largest(self) -> float:
        return float(self.ordered.values[-1]) * self.scale


def distribution(overlay: Overlay, axis: Axis, limit: LimitLine | None = None) -> Figure | None:
    """Histogram of the body above the tail of everything. None without a usable run."""
    drawn: list[Drawn] = []
    shown: list[Curve] = []
    for curve in overlay.curves:
        by_unit = by_boot(curve.measurement.runs)
        boots = tuple(map(merged_distribution, by_unit.values()))
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
    top = figure.head(f"{overlay.title}: distribution", overlay.subtitle)
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
    note = histogram(figure, drawn, axis)
    figure.caption(top, "% of samples, by bin", note)
    figure.panel(LEFT, RIGHT, top, top + 200)
    note = tail(figure, drawn, axis, limit=limit)
    figure.caption(top + 294, "share of samples that are at least as long", note)
    figure.panel(LEFT, RIGHT, top + 294, top + 548)
    figure.height = round(top + 606)
    return figure


def _key_figures(side: Drawn, curve: Curve, axis: Axis) -> str:
    s = curve.measurement.statistics
    quantiles = [("median", s.median), ("p99", s.p99), ("max", s.max)]
    shown = [f"{name} {axis.figure(v * side.scale)}" for name, v in quantiles if v is not None]
    return f"{plural(side.ordered.n, 'sample')}: {', '.join(shown)} {axis.unit}"


def histogram(figure: Figure, drawn: Sequence[Drawn], axis: Axis, most: int = 9) -> str:
    """Add the histogram of the body to a panel that the caller places, with at most about `most` tics. Returns
    a note on the share of samples that are outside."""
    low = min(side.body[0] for side in drawn)
    high = max(side.body[1] for side in drawn)
    logarithmic = low > 0 and high > 3 * LONG * low
    ends = [low, high]
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
            solid = 0.35 if len(drawn) == 1 else 0.2
            fill = f"fillstyle transparent solid {solid} noborder linecolor rgb '{side.colour}'"
            figure.curve("filledcurves y1=0", fill, block)
        figure.curve("lines", line(side.colour, 1.5, side.dash), block)
    # All of each bin: a bin may be wider than the body.
    sample_axis(figure, axis, min(ends), max(ends), logarithmic, most)
    outside = max(100 * side.outside(low, high) for side in drawn)
    upto = "up to " if len(drawn) > 1 else ""
    note = f"{upto}{outside:.2g} % of the samples are outside" if outside else "all samples"
    figure.add("set yrange [0:*]")
    return note


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
) -> str:
    """The share of samples at or above each value, both on a logarithmic scale, with a thin line for
    each boot. Returns a note. At most about `most` tics."""
    low = min(side.smallest_positive for side in drawn)
    high = max(side.largest for side in drawn)
    reached = max(high, limit.value) if limit else high
    logarithmic = reached > LONG * min(side.at(0.5) for side in drawn)
    reach = math.log10(max(side.ordered.n for side in drawn))
    bottom = -max(1.0, reach) * 1.05
    thin = [_thin(figure, side, bottom) for side in drawn]
    for side in drawn:
        curve = reduce.cumulative(side.ordered)
        x, y = curve.values * side.scale, -curve.nines
        _curve(figure, x, y, bottom, line(side.colour, 2, side.dash))
        figure.points(x[-1:], y[-1:], points(7, 0.7, side.colour))
    first = low if logarithmic else min(side.at(0) for side in drawn)
    if limit:
        first = min(first, limit.value)
        _draw_limit(figure, limit, beyond_middle=limit.value > math.sqrt(first * reached))
    sample_axis(figure, axis, first, reached, logarithmic, most)
    places = ((float(-power), one_in(power)) for power in range(math.floor(reach) + 1))
    figure.axis("y", bottom, 0, tics(places))
    zeros = sum(int(side.ordered.below(1)) for side in drawn) if logarithmic else 0
    note = f"without {plural(zeros, 'sample')} of 0" if zeros else "all samples"
    return f"{note}, to the maximum{'; thin: each boot' if any(thin) else ''}"


def _curve(figure: Figure, x: Values, y: Values, bottom: float, style: str) -> None:
    # No sample is above the largest one: a share that lies infinitely far down.
    block = figure.data(np.append(x, x[-1]), np.append(y, bottom))
    figure.curve("fsteps", style, block)


def _thin(figure: Figure, side: Drawn, bottom: float) -> bool:
    """Draws the boots if there are several, and says so."""
    if len(side.boots) < 2:
        return False
    most = max(_FEWEST, min(_MOST, _POINTS // len(side.boots)))
    for boot in side.boots:
        curve = reduce.cumulative(boot, most)
        _curve(figure, curve.values * side.scale, -curve.nines, bottom, line(side.colour, 0.4))
    return True


def _draw_limit(figure: Figure, limit: LimitLine, beyond_middle: bool) -> None:
    figure.upright(limit.value, LIMIT)
    side, shift = ("right", "-0.6") if beyond_middle else ("left", "0.6")
    text = quoted(f"limit {limit.text}")
    x = f"first {limit.value:.10g}"
    figure.add(f"set label {text} at {x}, graph 0.95 {side} offset character {shift}, 0")
