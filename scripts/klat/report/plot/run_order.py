"""The runs of a metric in their order: drift, and runs that stand out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from klat.report.plot.axis import Axis, is_wide, padded_axis, whole_tics
from klat.report.plot.gnuplot import BLUE, EDGE, INK, LEFT, LINE, ORANGE, PURPLE, RIGHT, VERMILLION
from klat.report.plot.gnuplot import Figure, line, point_size, points, quoted
from klat.report.plot.reduction import Band, stepped, thinned
from klat.report.plot.series import Curve, Overlay, describe
from klat.report.plot.distribution_figures import LIMIT, LimitLine
from klat.report.text.numbers import duration
from klat.compare.estimands import FAR_TAIL, TAIL, Estimand
from klat.compare.sources import Run
from klat.record.session import USABLE, Row
from klat.stats.descriptive import Values, supports

_BAND = "#B7DDF5"  # the palette's sky blue, lighter
_BOOT = "(4,4)"
# The mean width of a letter of the legend, and the space between two entries.
_CHARACTER, _BETWEEN = 9, 24
_DISTURBED = points(13, 1.3, ORANGE)
_LONGEST = points(9, 0.8, PURPLE)
_MAX = Estimand("max", None, "max")
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
    soak: bool
    longest: Values  # of each segment of a soak; empty for runs

    @property
    def lowest_positive(self) -> float:
        values = np.concatenate([self.band.low, self.band.middle, self.invalid[1]])
        return float(values[values > 0].min(initial=math.inf))

    @property
    def lowest(self) -> float:
        return float(np.concatenate([self.band.low, self.invalid[1]]).min())

    @property
    def highest(self) -> float:
        return float(np.nanmax(np.concatenate([self.band.high, self.longest, self.invalid[1]])))


def run_series(overlay: Overlay, axis: Axis, limit: LimitLine | None = None) -> Figure | None:
    """Each run's median within the band from its minimum to its p99; of a soak, each segment's, with
    its p99.9 and its maximum. None without a run that has samples."""
    runs = [run for curve in overlay.curves for run in curve.measurement.runs]
    soak = all(curve.setting.is_soak for curve in overlay.curves)
    upper = _upper(runs, soak)
    sampled = (curve for curve in overlay.curves if curve.measurement.sampled)
    tracks = [_track(curve, upper, axis.scale(curve.label), soak) for curve in sampled]
    if not tracks:
        return None
    noun = overlay.curves[0].setting.noun
    seconds = overlay.curves[0].setting.params.get("soak") if soak else None
    figure = Figure(f"{overlay.slug}-{noun}s")
    top = figure.head(f"{overlay.title}: {noun} by {noun}", overlay.subtitle)
    top = _legend(figure, tracks, upper.name, noun, top)
    low, high = min(t.lowest for t in tracks), max(t.highest for t in tracks)
    if limit:
        high = max(high, limit.value)
    if low <= 0 < high or is_wide(low, high):
        # On a logarithmic axis, the band of a run with a sample of 0 goes down to the edge.
        low = min(high / 2, *(t.lowest_positive for t in tracks))
    tall = {1: 340, 2: 230}.get(len(tracks), 180)
    for track in tracks:
        top += 40
        figure.caption(top, axis.samples, describe(track.curve, track.count))
        wide = is_wide(low, high)
        padded_axis(figure, "y", low, high, 0.04 if wide else 0.06, wide, 9 if wide else 8)
        if track is tracks[-1]:
            length = f" of {duration(float(seconds))}" if seconds else ""
            figure.add(f"set xlabel '{noun}{length}, in order of start'")
        if limit:
            figure.level(limit.value, f"front {LIMIT}")
            text, y = quoted(f"limit {limit.text}"), f"first {limit.value:.10g}"
            figure.add(f"set label {text} at graph 0.01, {y} left offset 0, character 0.6 front")
        _draw(figure, track, top, top + tall)
        top += tall + 34
    figure.height = round(top + 28)
    return figure


def _upper(runs: Sequence[Run], soak: bool) -> Estimand:
    """The upper end of the band: a quantile that all runs have, or the maximum. Segments that were cut
    short by the end of a soak need not have it."""
    fewest = median(run.row.n or 0 for run in runs) / 2 if soak and runs else 0
    runs = [run for run in runs if (run.row.n or 0) >= fewest]
    for estimand in (FAR_TAIL, TAIL) if soak else (TAIL,):
        assert estimand.q is not None
        if all(supports(run.row.n or 0, estimand.q) for run in runs):
            return estimand
    return _MAX


def _track(curve: Curve, upper: Estimand, scale: float, soak: bool) -> _Track:
    runs = curve.measurement.sampled
    rows = [run.row for run in runs]
    middle = np.array([row.middle for row in rows]) * scale
    number = np.arange(1, len(rows) + 1, dtype=np.float64)
    usable = np.array([row.status in USABLE for row in rows])
    disturbed = np.array([row.status == "disturbed" for row in rows])
    band = Band(
        position=number[usable],
        low=_values(rows, "min", usable) * scale,
        middle=middle[usable],
        high=_high(runs, upper, usable) * scale,
    )
    return _Track(
        curve=curve,
        band=band,
        disturbed=(number[disturbed], middle[disturbed]),
        invalid=(number[~usable], middle[~usable]),
        boots=[i + 1 for i in range(1, len(rows)) if rows[i].boot != rows[i - 1].boot],
        count=len(rows),
        soak=soak,
        longest=_values(rows, "max", usable if soak else usable & False) * scale,
    )


def _values(rows: Sequence[Row], column: str, chosen: Values) -> Values:
    """NaN for a run that has too few samples."""
    used = [getattr(row, column) for row, use in zip(rows, chosen) if use]
    return np.array(used, dtype=np.float64)


def _high(runs: Sequence[Run], upper: Estimand, chosen: Values) -> Values:
    if upper.column:
        return _values([run.row for run in runs], upper.column, chosen)
    quantiles = [run.quantiles([upper.q])[0] for run, use in zip(runs, chosen) if use and upper.q]
    return np.array(quantiles, dtype=np.float64)


def _legend(figure: Figure, tracks: Sequence[_Track], upper: str, noun: str, y: float) -> float:
    """In as many lines as it needs; where the next line goes."""
    disturbed = sum(len(track.disturbed[0]) for track in tracks)
    invalid = sum(len(track.invalid[0]) for track in tracks)
    band = any(len(track.band.position) for track in tracks)
    longest = any(len(track.longest) for track in tracks)
    boots = any(track.boots for track in tracks)
    entries = [
        (band, figure.swatch, line(BLUE, 2), f"median of a {noun}"),
        (band, figure.swatch, line(_BAND, 10), f"minimum to {upper}"),
        (longest, figure.mark, _LONGEST, "maximum"),
        (disturbed, figure.mark, _DISTURBED, f"disturbed, counts ({disturbed:,})"),
        (invalid, figure.mark, _INVALID, f"invalid, does not count ({invalid:,})"),
        (boots, figure.swatch, line(INK, 1, _BOOT), "another boot"),
    ]
    x = float(EDGE)
    for shown, draw, style, text in entries:
        if not shown:
            continue
        beside = 38 if draw == figure.swatch else 14
        width = beside + _CHARACTER * len(text)
        if x + width > RIGHT:
            x, y = float(EDGE), y + LINE
        draw(x, y, style)
        figure.text(text, x + beside, y)
        x += width + _BETWEEN
    return y + LINE


def _draw(figure: Figure, track: _Track, top: float, bottom: float) -> None:
    fill = f"fillstyle solid 1 noborder linecolor rgb '{_BAND}'"
    band = thinned(track.band)
    # A step for each segment, with a gap where segments do not count.
    steps = [stepped(piece, len(track.band.position)) for piece in track.band.pieces()]
    if track.soak and steps:
        block = figure.data(*np.hstack(steps))
        figure.curve("filledcurves", fill, block, "1:2:4")
        figure.curve("lines", line(BLUE, 2), block, "1:3")
    elif not track.soak and len(band.position):
        block = figure.data(band.position, band.low, band.middle, band.high)
        if len(band.position) > 1:
            figure.curve("filledcurves", fill, block, "1:2:4")
        else:  # a single run has no area
            figure.curve("vectors nohead", line(_BAND, 10), block, "1:2:(0):($4-$2)")
        figure.curve("lines", line(BLUE, 1), block, "1:3")
        figure.curve("points", points(7, point_size(len(band.position)), BLUE), block, "1:3")
    if len(track.longest):
        top_line = thinned(Band(track.band.position, *[track.longest] * 3))
        figure.points(top_line.position, top_line.high, _LONGEST)
    for (number, middle), style in ((track.disturbed, _DISTURBED), (track.invalid, _INVALID)):
        if len(number):
            figure.points(number, middle, style)
    for start in track.boots:
        figure.upright(start - 0.5, f"front {line(INK, 1, _BOOT)}")
    figure.axis("x", 0.5, track.count + 0.5, whole_tics(0.5, track.count + 0.5))
    figure.panel(LEFT, RIGHT, top, bottom)
