"""The runs of a metric in their order: drift, and runs that stand out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from klat.report.plot.reduction import Band, thinned
from klat.report.plot.axis import Axis, apart, linear_tics, logarithmic_tics, whole_tics
from klat.report.plot.gnuplot import BLUE, INK, ORANGE, VERMILLION, Figure, line, point_size, points
from klat.report.plot.layout import EDGE, LEFT, LINE, RIGHT, caption, head
from klat.report.plot.series import Curve, Overlay, describe
from klat.record.session import USABLE, Row
from klat.stats.descriptive import Values

# A range wider than this many times its lowest value needs a logarithmic axis.
_WIDE = 8.0
_BAND = "#B7DDF5"  # the palette's sky blue, lighter
_BOOT = "(4,4)"
_DISTURBED = points(13, 1.3, ORANGE)
_INVALID = points(2, 1.3, VERMILLION) + " linewidth 2"


@dataclass(frozen=True)
class _Track:
    """The runs of one curve, on the axis and numbered from 1 in order of start."""

    curve: Curve
    band: Band  # of the runs that count
    disturbed: tuple[Values, Values]
    invalid: tuple[Values, Values]
    boots: list[int]  # the first run of each boot but the first
    count: int

    @property
    def lowest_positive(self) -> float:
        values = np.concatenate([self.band.low, self.band.middle, self.invalid[1]])
        return float(values[values > 0].min(initial=math.inf))

    @property
    def lowest(self) -> float:
        return float(np.concatenate([self.band.low, self.invalid[1]]).min())

    @property
    def highest(self) -> float:
        return float(np.concatenate([self.band.high, self.invalid[1]]).max())


def run_series(overlay: Overlay, axis: Axis) -> Figure | None:
    """Each run's median within the band from its minimum to its p99. None without a run that has
    samples."""
    rows = [run.row for curve in overlay.curves for run in curve.measurement.runs]
    upper = "p99" if all(row.p99 is not None for row in rows) else "max"
    tracks = [
        _track(curve, upper, axis.scale(curve.label))
        for curve in overlay.curves
        if curve.measurement.all_runs
    ]
    if not tracks:
        return None
    figure = Figure(f"{overlay.slug}-runs")
    top = head(figure, f"{overlay.title}: run by run", overlay.subtitle)
    _legend(figure, tracks, upper, top)
    top += LINE
    low, high = min(t.lowest for t in tracks), max(t.highest for t in tracks)
    if high > _WIDE * low:
        # On a logarithmic axis, the band of a run with a sample of 0 goes down to the edge.
        low = min(high / 2, *(t.lowest_positive for t in tracks))
    tall = {1: 340, 2: 230}.get(len(tracks), 180)
    for track in tracks:
        top += 40
        caption(figure, top, axis.samples, describe(track.curve, track.count))
        _y_axis(figure, axis, low, high)
        if track is tracks[-1]:
            figure.add("set xlabel 'run, in order of start'")
        _draw(figure, track, top, top + tall)
        top += tall + 34
    figure.height = round(top + 28)
    return figure


def _track(curve: Curve, upper: str, scale: float) -> _Track:
    rows = [run.row for run in curve.measurement.all_runs]
    middle = np.array([_middle(row) for row in rows]) * scale
    number = np.arange(1, len(rows) + 1, dtype=np.float64)
    usable = np.array([row.status in USABLE for row in rows])
    disturbed = np.array([row.status == "disturbed" for row in rows])
    band = Band(
        position=number[usable],
        low=_values(rows, "min", usable) * scale,
        middle=middle[usable],
        high=_values(rows, upper, usable) * scale,
    )
    return _Track(
        curve=curve,
        band=band,
        disturbed=(number[disturbed], middle[disturbed]),
        invalid=(number[~usable], middle[~usable]),
        boots=[i + 1 for i in range(1, len(rows)) if rows[i].boot != rows[i - 1].boot],
        count=len(rows),
    )


def _middle(row: Row) -> float:
    """The run's median, or its mean where it has too few samples for one."""
    return float(row.p50 if row.p50 is not None else row.mean or 0)


def _values(rows: Sequence[Row], column: str, chosen: Values) -> Values:
    return np.array([float(getattr(row, column)) for row, use in zip(rows, chosen) if use])


def _legend(figure: Figure, tracks: Sequence[_Track], upper: str, y: float) -> None:
    disturbed = sum(len(track.disturbed[0]) for track in tracks)
    invalid = sum(len(track.invalid[0]) for track in tracks)
    x = EDGE
    if any(len(track.band.position) for track in tracks):
        figure.swatch(x, y, line(BLUE, 2))
        figure.text("median of a run", x + 38, y)
        figure.swatch(x + 170, y, line(_BAND, 10))
        figure.text(f"minimum to {upper}", x + 208, y)
        x += 350
    if disturbed:
        figure.mark(x, y, _DISTURBED)
        figure.text(f"disturbed, counts ({disturbed:,})", x + 14, y)
        x += 200
    if invalid:
        figure.mark(x, y, _INVALID)
        figure.text(f"invalid, does not count ({invalid:,})", x + 14, y)
        x += 230
    if any(track.boots for track in tracks):
        figure.swatch(x, y, line(INK, 1, _BOOT))
        figure.text("another boot", x + 38, y)


def _y_axis(figure: Figure, axis: Axis, low: float, high: float) -> None:
    if high > _WIDE * low:
        margin = (high / low) ** 0.04
        low, high = low / margin, high * margin
        figure.add("set logscale y", f"set ytics {logarithmic_tics(low, high)}")
    else:
        low, high = apart(low, high)
        margin = (high - low) * 0.06
        low, high = max(0.0, low - margin), high + margin
        figure.add(f"set ytics {linear_tics(low, high, 8)}")
    figure.add(f"set yrange [{low:.10g}:{high:.10g}]")


def _draw(figure: Figure, track: _Track, top: float, bottom: float) -> None:
    plot = []
    band = thinned(track.band)
    if len(band.position):
        block = figure.data(band.position, band.low, band.middle, band.high)
        if len(band.position) > 1:
            plot.append(
                f"{block} using 1:2:4 with filledcurves fillstyle solid 1 noborder"
                f" linecolor rgb '{_BAND}'"
            )
        else:  # a single run has no area
            plot.append(f"{block} using 1:2:(0):($4-$2) with vectors nohead {line(_BAND, 10)}")
        plot.append(f"{block} using 1:3 with lines {line(BLUE, 1)}")
        size = point_size(len(band.position))
        plot.append(f"{block} using 1:3 with points {points(7, size, BLUE)}")
    for (number, middle), style in ((track.disturbed, _DISTURBED), (track.invalid, _INVALID)):
        if len(number):
            plot.append(f"{figure.data(number, middle)} using 1:2 with points {style}")
    for start in track.boots:
        x = start - 0.5
        figure.add(
            f"set arrow from {x:g}, graph 0 to {x:g}, graph 1 nohead front {line(INK, 1, _BOOT)}"
        )
    figure.add(f"set xrange [0.5:{track.count + 0.5}]")
    figure.add(f"set xtics {whole_tics(0.5, track.count + 0.5)}")
    figure.panel(LEFT, RIGHT, top, bottom, plot)
