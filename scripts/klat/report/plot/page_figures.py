"""The figures of a page. They are small, to fit the width of a phone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from klat.compare.comparison import Against, Cell, Options, OverMachines
from klat.compare.figure_data import CellFigures, Shift, SideFigures, UnitRuns
from klat.compare.figure_data import maxima_of, medians_of
from klat.compare.limits import Limit
from klat.compare.verdicts import Interval, Judgement, Rules
from klat.report.document import Captioned
from klat.report.plot.axis import Axis, apart, is_wide, linear_tics, logarithmic_tics, padded_axis
from klat.report.plot.axis import whole_tics
from klat.report.plot.distribution_figures import LIMIT, Drawn, LimitLine, histogram, tail
from klat.report.plot.gnuplot import BLUE, CIRCLE, DASHES, GREY, INK, SQUARE, VERMILLION
from klat.report.plot.gnuplot import Figure, line, point_size, points, quoted, tics
from klat.report.plot.reduction import Band, thinned
from klat.stats.descriptive import Values

WIDTH, _LEFT, _RIGHT, _TOP = 440, 62, 428, 10
_BELOW = 52  # tics and the name of the axis
_TICS = 5
# The colour of the margin. A page replaces it, as it replaces the others.
BAND = "#E8E4D8"
_SEPARATOR = "(4,4)"
_SIDES = ((BLUE, CIRCLE, DASHES[0]), (VERMILLION, SQUARE, DASHES[1]))


def page_axis(unit: str) -> Axis:
    return Axis("us" if unit == "ns" else unit)


def figures(
    cell: Cell, curves: CellFigures | None, against: Against, options: Options
) -> list[Captioned]:
    """Of one metric."""
    rules, limit = options.rules, options.limit
    shown = [_intervals("interval", cell, rules)]
    if curves is not None:
        axis = page_axis(cell.unit)
        per = 1e-3 if axis.unit != cell.unit else 1.0
        noun, run = against.unit_noun, cell.run_noun
        shown += [
            _shift("shift", curves.shifts, rules),
            *_distributions(_drawn(curves, per), axis, _limit_line(limit, per)),
            _units("units", curves, axis, per, noun, run),
            _runs("runs", curves, medians_of, axis, per, (noun, run), None),
        ]
        if run == "segment":
            maxima = ("maxima", curves, maxima_of, axis, per, (noun, run), limit)
            shown.append(_runs(*maxima))
    return [figure for figure in shown if figure is not None]


def _figure(name: str, height: int) -> Figure:
    return Figure(name, WIDTH, height, font=9.5)


def _captioned(figure: Figure, title: str, note: str) -> Captioned:
    """A figure with one panel."""
    figure.panel(_LEFT, _RIGHT, _TOP, figure.height - _BELOW)
    return Captioned(figure, title, note)


def _rectangle(figure: Figure, x: tuple[str, str], y: tuple[str, str], colour: str) -> None:
    figure.add(
        f"set object rectangle from {x[0]}, {y[0]} to {x[1]}, {y[1]} behind fillstyle solid 1"
        f" noborder fillcolor rgb '{colour}'"
    )


@dataclass(frozen=True)
class _RatioRow:
    """A line of a figure of ratios. Without a ratio it has no point."""

    name: str
    ratio: float | None
    interval: Interval | None
    colour: str
    width: float


def _intervals(name: str, cell: Cell, rules: Rules) -> Captioned | None:
    """The ratio of each estimand with its interval, the tested ones dark, above the margin."""
    with_ratio = [r for r in cell.results if r.judgement.ratio is not None]
    if not with_ratio:
        return None
    rows = [
        _RatioRow(r.estimand, r.judgement.ratio, r.judgement.interval, *style)
        for r in with_ratio
        for style in [(INK, 3.0) if r.tested else (GREY, 1.5)]
    ]
    tested = ", ".join(r.estimand for r in with_ratio if r.tested)
    note = "the band is the margin" + (f"; the verdict is on the {tested}" if tested else "")
    return Captioned(_ratios(name, rows, rules, _LEFT), "Ratio and interval", note)


def forest(
    machines: Sequence[tuple[str, Judgement]], over_all: OverMachines, rules: Rules
) -> Captioned | None:
    """A forest plot: a line for each machine, then the mean over machines."""
    rows = [_RatioRow(m, j.ratio, j.interval, INK, 1.5) for m, j in machines if j.ratio]
    if not rows:
        return None
    note = "the band is the margin"
    if over := over_all.judgement:
        what = f"over {len(over_all.machines)} machines"
        rows.append(_RatioRow(what, over.ratio, over.interval, VERMILLION, 3.0))
        rows.append(_RatioRow("one more machine", None, over_all.next_machine, GREY, 1.5))
        note += "; the last line is the interval expected for one more machine"
    return Captioned(_ratios("machines", rows, rules, 140), "Machine by machine", note)


def _ratios(name: str, rows: Sequence[_RatioRow], rules: Rules, left: int) -> Figure:
    tall = 34 if len(rows) < 6 else 22
    figure = _figure(name, _TOP + tall * len(rows) + _BELOW + 12)
    least, most = 1 / (1 + rules.margin), 1 + rules.margin
    ends = [least, most, 1.0]
    for row in rows:
        ends += [row.ratio or 1.0, *(row.interval or ())]
    low, high = max(min(ends), 1e-6), min(max(ends), 1e6)
    room = (high / low) ** 0.06
    low, high = low / room, high * room
    wide = high / low > 4
    figure.axis("x", low, high, (logarithmic_tics if wide else linear_tics)(low, high, _TICS), wide)
    names = tics((float(-i), row.name) for i, row in enumerate(rows))
    figure.axis("y", -len(rows) + 0.4, 0.6, names)
    figure.add(f"set xlabel {quoted('NEW/BASE')}")
    _rectangle(figure, (f"first {least:.10g}", f"first {most:.10g}"), ("graph 0", "graph 1"), BAND)
    figure.upright(1, line(GREY, 1))
    for i, row in enumerate(rows):
        y = np.array([float(-i)])
        if row.interval:
            first, last = (np.array([min(max(end, low), high)]) for end in row.interval)
            figure.segments(y, first, last, line(row.colour, row.width), across=True)
        if row.ratio is not None:
            ratio = np.array([min(max(row.ratio, low), high)])
            size = 1.4 if row.width > 2 else 1.0
            figure.points(ratio, y, points(CIRCLE, size, row.colour))
    figure.panel(left, _RIGHT, _TOP, figure.height - _BELOW)
    return figure


def _shift(name: str, shifts: Sequence[Shift], rules: Rules) -> Captioned | None:
    """The difference at each quantile in per cent, with the interval of each."""
    if len(shifts) < 2:
        return None
    figure = _figure(name, 270)
    x = np.array([100 * s.share for s in shifts])
    middle = np.array([100 * (s.ratio - 1) for s in shifts])
    with_interval = [s for s in shifts if s.interval]
    ends = [-100 * rules.margin, 100 * rules.margin, *middle.tolist()]
    # An interval much larger than the ratios is cut off at the edge.
    reach = 4 * max(abs(end) for end in ends)
    for s in with_interval:
        assert s.interval
        ends += [min(max(100 * (end - 1), -reach), reach) for end in s.interval]
    low, high = apart(min(ends), max(ends))
    room = 0.08 * (high - low)
    low, high = low - room, high + room
    places = ((float(p), f"{p}") for p in (5, 25, 50, 75, 90, 99))
    figure.axis("x", 0, 100, tics(places))
    figure.axis("y", low, high, linear_tics(low, high, 6))
    figure.add(f"set xlabel {quoted('percentile')}")
    least = 100 * (1 / (1 + rules.margin) - 1)
    band = (f"first {least:.10g}", f"first {100 * rules.margin:.10g}")
    _rectangle(figure, ("graph 0", "graph 1"), band, BAND)
    figure.level(0, line(GREY, 1))
    if len(with_interval) == len(shifts):
        ends_of = (
            np.array([100 * (s.interval[k] - 1) for s in with_interval if s.interval])
            for k in (0, 1)
        )
        bottom, top = (values.clip(low, high) for values in ends_of)
        fill = f"fillstyle transparent solid 0.25 noborder linecolor rgb '{VERMILLION}'"
        figure.curve("filledcurves", fill, figure.data(x, bottom, top), "1:2:3")
    figure.lines(x, middle, line(VERMILLION, 2))
    figure.points(x, middle, points(SQUARE, 0.5, VERMILLION))
    interval = (
        f", with an interval of {100 * (1 - rules.alpha):g} % at each" if with_interval else ""
    )
    return _captioned(figure, "Shift at every quantile", f"NEW/BASE - 1 in %{interval}")


def _drawn(curves: CellFigures, per: float) -> list[Drawn]:
    return [
        Drawn(side.samples, side.quantum, side.scale * per, colour, dash, side.boots)
        for side, (colour, _, dash) in zip((curves.base, curves.new), _SIDES)
        if side.samples.n
    ]


def _limit_line(limit: Limit | None, per: float) -> LimitLine | None:
    return LimitLine(limit.text, limit.value * per) if limit else None


def _distributions(
    drawn: Sequence[Drawn], axis: Axis, limit: LimitLine | None
) -> Iterator[Captioned]:
    """Histogram and tail, if both sides have samples."""
    if len(drawn) < 2:
        return
    figure = _figure("histogram", 270)
    note = histogram(figure, drawn, axis, _TICS)
    yield _captioned(figure, "Distribution of the samples", f"% of samples, by bin; {note}")
    figure = _figure("tail", 270)
    note = tail(figure, drawn, axis, _TICS, limit)
    yield _captioned(figure, "Tail", f"share of samples that are at least as long; {note}")


def _units(
    name: str, curves: CellFigures, axis: Axis, per: float, noun: str, run: str
) -> Captioned | None:
    """The figures behind the verdict: a point for each boot or block; the points of a pair are
    above each other."""
    sides = [curves.base.units, curves.new.units]
    if not all(sides):
        return None
    figure = _figure(name, 270)
    pairs = list(dict.fromkeys(unit.pair for side in sides for unit in side))
    paired = "" not in pairs
    places: list[list[float]] = []
    if paired:
        number = {pair: float(i) for i, pair in enumerate(pairs, 1)}
        for side, shift in zip(sides, (-0.12, 0.12)):
            places.append([number[unit.pair] + shift for unit in side])
        last = float(len(pairs))
        figure.add(f"set xtics {whole_tics(0.5, last + 0.5)}")
        figure.add(f"set xlabel {quoted(f'pair of {noun}s')}")
    else:
        first = [float(i) for i in range(1, len(sides[0]) + 1)]
        gap = len(first) + max(1.0, 0.12 * len(first))
        places = [first, [gap + i for i in range(1, len(sides[1]) + 1)]]
        last = places[1][-1]
        middles = [(place[0] + place[-1]) / 2 for place in places]
        figure.add(f"set xtics {tics(zip(middles, ('BASE', 'NEW')))}")
        figure.add(f"set xlabel {quoted(f'{noun}s in order')}")
    figure.add(f"set xrange [0.4:{last + 0.6:g}]")
    values = [m * per for side in sides for unit in side for m in unit.medians]
    padded_axis(figure, "y", min(values), max(values), 0.08, False, 6)
    for side, place, (colour, shape, _) in zip(sides, places, _SIDES):
        low, high = (np.array([f(unit.medians) * per for unit in side]) for f in (min, max))
        figure.segments(np.array(place), low, high, line(colour, 1))
        size = 1.3 if len(place) <= 30 else 0.7
        centres = np.array([unit.centre * per for unit in side])
        figure.points(np.array(place), centres, points(shape, size, colour))
        if not paired:
            middle = math.exp(float(np.mean([math.log(unit.centre) for unit in side]))) * per
            ends = np.array([place[0] - 0.4, place[-1] + 0.4])
            figure.lines(ends, np.array([middle, middle]), line(colour, 1, _SEPARATOR))
    note = f"median in {axis.unit}, averaged over {run}s; the line spans the {run}s of the {noun}"
    return _captioned(figure, f"{noun.capitalize()} by {noun}", note)


def _runs(
    name: str,
    curves: CellFigures,
    of: Callable[[Sequence[UnitRuns]], Values],
    axis: Axis,
    per: float,
    nouns: tuple[str, str],
    limit: Limit | None,
) -> Captioned | None:
    """A figure of each run in order of start, BASE above NEW on one scale. `nouns` are those of a unit
    and of a run."""
    noun, run = nouns
    sides = [curves.base, curves.new]
    both = [of(side.units) * per for side in sides]
    if not all(map(len, both)):
        return None
    tall = 110
    figure = _figure(name, _TOP + 2 * tall + 26 + _BELOW)
    mark = _limit_line(limit, per)
    every = [float(value) for values in both for value in values]
    every += [mark.value] if mark else []
    top = float(_TOP)
    low, high = min(every), max(every)
    for number, (side, values) in enumerate(zip(sides, both)):
        padded_axis(figure, "y", low, high, 0.08, is_wide(low, high), 4)
        count = len(values)
        figure.axis("x", 0.5, count + 0.5, whole_tics(0.5, count + 0.5, 6))
        for start in _starts(side)[1:]:
            figure.upright(start + 0.5, line(GREY, 0.6, _SEPARATOR))
        if mark:
            figure.level(mark.value, f"front {LIMIT}")
        if number:
            figure.add(f"set xlabel {quoted(f'{run}, {noun} by {noun}')}")
        _series(figure, values, number)
        figure.panel(_LEFT, _RIGHT, top, top + tall)
        top += tall + 26
    what = "Median" if of is medians_of else "Maximum"
    drawn = f"; the line is the limit, {mark.text}" if mark else ""
    note = f"BASE above NEW, in {axis.unit}, one scale; dashes separate the {noun}s{drawn}"
    return Captioned(figure, f"{what} of each {run}", note)


def _starts(side: SideFigures) -> list[int]:
    """Runs before the first of each unit."""
    counts = [len(unit.medians) for unit in side.units]
    return [0, *np.cumsum(counts).tolist()][:-1] if len(counts) <= 60 else [0]


def _series(figure: Figure, values: Values, number: int) -> None:
    colour, shape, _ = _SIDES[number]
    band = thinned(Band(np.arange(1.0, len(values) + 1), values, values, values), 600)
    figure.points(band.position, band.middle, points(shape, point_size(len(values)), colour))
    if len(band.position) < len(values):  # a point stands for several, the line for their range
        figure.segments(band.position, band.low, band.high, line(colour, 1))
