"""Sweeps and matrices of CPU pairs in a summary. A sweep has a row for each value of the option, and a column for each
line. A shootdown over its responders also has its slope."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from klat.compare.dataset import Dataset
from klat.compare.matrices import Matrix, PairMedians
from klat.compare.settings import Setting
from klat.compare.sweep_shapes import BENCHMARK, LINEAR, Shootdown, crossings, knee, shootdowns
from klat.compare.sweeps import Sweep, SweepLine, SweepPoint, shown, sweeps
from klat.record.session import printable
from klat.report.document import Captioned, Column, Line, Row, Table
from klat.report.text.columns import params_text
from klat.report.text.numbers import MISSING, nanoseconds, plural, whole
from klat.report.text.parameters import parameters
from klat.stats.descriptive import LinearFit

_NOTE = "mean over runs of the median of each"


def sweep_tables(label: Dataset) -> Iterator[Line | Table]:
    for shootdown in shootdowns(label.settings):
        params = params_text(parameters(BENCHMARK, shootdown.params))
        yield Line(f"shootdown by responders: {printable(shootdown.metric)}  {params}".rstrip())
        yield _shootdown(label, shootdown)
    for sweep in sweeps([label], [label.name]):
        unit = ("ns" if label.khz else label.unit) if sweep.is_time else ""
        is_count = all(line.is_count for line in sweep.lines)
        kind = "mean over runs" if is_count else f"{_NOTE}{sweep.without_median}"
        note = ", ".join(filter(None, (kind, unit)))
        params = params_text(parameters(sweep.benchmark, sweep.distinctive))
        yield Line(f"{title(sweep)} ({note})  {params}".rstrip())
        yield _sweep(label, sweep)


def _shootdown(label: Dataset, sweep: Shootdown) -> Table:
    """T(0), T(k), T(k) - T(0), and the slope."""
    columns = ["runs", f"T(k) {label.unit}", "T(k)-T(0)"]
    columns += ["T(k) ns", "T(k)-T(0) ns"] if label.khz else []
    rows: list[Row | Line] = []
    for point in sweep.points:
        values = (point.value, None if sweep.base is None else point.value - sweep.base)
        cells = [f"{len(point.runs):,}", *map(whole, values)]
        if label.khz:
            cells += [nanoseconds(label, value, False) for value in values]
        rows.append(Row(f"{point.x:,.0f}", tuple(cells)))
    if sweep.base is None:
        missing = (
            "T(0) was not measured, so shootdown and teardown cannot be separated; add responders=0 to"
            " the sweep"
        )
        rows.append(Line(missing, 1))
    rows += [Line(line, 1) for line in slope(label, sweep)]
    return Table("", tuple(map(Column, columns)), tuple(rows), "responders", 1, right=True)


def slope(label: Dataset, sweep: Shootdown) -> list[str]:
    """Sentences on the slope, one to a line."""
    fit = sweep.fit
    if fit is None:
        return ["no slope: it needs at least two counts of responders"]
    lines = [_slope(fit, whole, label.unit)]
    if label.khz:
        lines.append(_slope(fit, lambda value: nanoseconds(label, value, False), "ns"))
    if fit.interval is None:
        lines.append("no interval: it needs at least two runs of each count of responders")
    lines.append(f"T(k): mean of the medians of the runs; slope: over {plural(fit.n, 'run')}")
    return lines


def _slope(fit: LinearFit, text: Callable[[float], str], unit: str) -> str:
    said = f"slope {text(fit.slope)} {unit} per responder"
    if fit.interval is None:
        return said
    low, high = fit.interval
    return f"{said}, 95 % interval {text(low)} to {text(high)} {unit}"


def title(sweep: Sweep) -> str:
    """`semaphore item by idle, for each primitive, hog`."""
    what = " ".join(part for part in (sweep.benchmark, sweep.name) if part)
    text = f"{what} by {sweep.option}"
    return printable(f"{text}, for each {', '.join(sweep.by)}" if sweep.by else text)


def _sweep(label: Dataset, sweep: Sweep) -> Table:
    rows: list[Row | Line] = []
    for x in sweep.values:
        points = [line.at(x) for line in sweep.lines]
        counts = {len(point.runs) for point in points if point}
        if not counts:
            continue
        runs = f"{min(counts):,}" if len(counts) == 1 else f"{min(counts):,}-{max(counts):,}"
        cells = (runs, *(_cell(label, sweep, point) for point in points))
        rows.append(Row(printable(sweep.text(x)), cells))
    for line in sweep.lines:
        for x, figure in line.published:
            at = f"{sweep.option}={sweep.text(x)}"
            value = whole(figure.nanoseconds)
            rows.append(Line(f"published, {at}, {line.name}: {value} ns; {figure.about}", 1))
    for figure in sweep.beside if label.khz else ():
        value = whole(figure.nanoseconds)
        rows.append(Line(f"published, {shown(figure.metric)}: {value} ns; {figure.about}", 1))
    rows += [Line(sentence, 1) for sentence in sentences(sweep)]
    columns = (Column("runs"), *(Column(printable(line.name)) for line in sweep.lines))
    return Table("", columns, tuple(rows), printable(sweep.option), 1, right=not sweep.choices)


def _cell(label: Dataset, sweep: Sweep, point: SweepPoint | None) -> str:
    if point is None:
        return MISSING
    if sweep.is_time and label.khz:
        return nanoseconds(label, point.value, sample=point.resolution > 0)
    return whole(point.value)


def sentences(sweep: Sweep) -> list[str]:
    """What the lines show."""
    return _crossing_sentences(sweep) + _knee_sentences(sweep)


def _knee_sentences(sweep: Sweep) -> list[str]:
    return [
        f"the knee of {printable(line.name)} is at {sweep.option}={sweep.text(last)}: at the next value it"
        f" is less than {LINEAR:g} of linear"
        for line in sweep.lines
        if (last := knee(sweep, line))
    ]


def _crossing_sentences(sweep: Sweep) -> list[str]:
    """Where lines cross: which line is better below, and which above. The better one has the shorter
    time or the higher rate. Lines that cross at the same values share a sentence."""
    later: dict[tuple[float, float, str], list[str]] = {}
    for crossing in crossings(sweep):
        names = [printable(line.name) for line in (crossing.low, crossing.high)]
        first, second = names if sweep.is_time else names[::-1]
        later.setdefault((crossing.until, crossing.since, first), []).append(second)
    groups: dict[tuple[float, float, tuple[str, ...]], list[str]] = {}
    for (until, since, first), others in later.items():
        groups.setdefault((until, since, tuple(others)), []).append(first)
    what, better = sweep.name, "shorter" if sweep.is_time else "higher"
    return [
        f"{what} is {better} for {_listed(firsts)} up to {sweep.option}={sweep.text(until)}, for"
        f" {_listed(others)} from {sweep.text(since)} on"
        for (until, since, others), firsts in groups.items()
    ]


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def runs_text(line: SweepLine) -> str:
    return plural(sum(len(point.runs) for point in line.points), "run")


# More columns do not fit a terminal or a page, and a reader sees more in the figure.
_MOST_CPUS = 8


def merged(settings: Sequence[Setting]) -> Setting:
    """The runs of settings that differ in their pair of CPUs as those of one setting, for their counts and reasons."""
    statuses: Counter[str] = Counter()
    for setting in settings:
        statuses += setting.statuses
    first = settings[0]
    params = {name: value for name, value in first.params.items() if name != "cpus"}
    reasons = [reason for setting in settings for reason in setting.reasons]
    pairs = f"{plural(len(settings), 'pair')} of CPUs"
    return Setting(first.benchmark, params, pairs, statuses, reasons, [], first.measurements)


def matrix_title(matrix: Matrix) -> str:
    return printable(f"{matrix.benchmark} {matrix.metric} by pair of CPUs")


def matrix_tables(label: Dataset, matrix: Matrix) -> Iterator[Line | Table]:
    unit = "ns" if label.khz else label.unit
    params = params_text(parameters(matrix.benchmark, matrix.params))
    yield Line(
        f"{matrix_title(matrix)} (mean over runs of the median of each, {unit})  {params}".rstrip()
    )
    columns = tuple(map(Column, ("pairs", "lowest", "median", "highest")))
    rows = []
    for placement, figures in matrix.by_placement():
        values = np.array([figure.value for figure in figures])
        cells = (values.min(), float(np.median(values)), values.max())
        rows.append(
            Row(printable(placement), (f"{len(values):,}", *(_text(label, v) for v in cells)))
        )
    yield Table("", columns, tuple(rows), "placement", 1)
    if len(matrix.cpus) <= _MOST_CPUS:
        yield _grid(label, matrix)


def matrix_figure(label: Dataset, matrix: Matrix) -> Captioned:
    from klat.report.plot.axis import common_axis
    from klat.report.plot.gnuplot import Figure
    from klat.report.plot.matrix_figures import draw_matrix

    figure = Figure(f"{matrix.benchmark}-{matrix.metric}-matrix", width=780, font=13)
    draw_matrix(figure, label, matrix, common_axis([label]), 0)
    note = "rows: CPUs of the first role; thick lines separate nodes, thin ones caches"
    return Captioned(figure, matrix_title(matrix), note)


def _grid(label: Dataset, matrix: Matrix) -> Table:
    """A row for each CPU of the first role, a column for each of the second."""
    names = {cpu: cpu_name(matrix, cpu) for cpu in matrix.cpus}
    rows = tuple(
        Row(names[a], tuple(_pair(label, matrix.pairs.get((a, b))) for b in matrix.cpus))
        for a in matrix.cpus
    )
    return Table("", tuple(Column(names[cpu]) for cpu in matrix.cpus), rows, "CPUs", 1)


def cpu_name(matrix: Matrix, cpu: int) -> str:
    return printable(f"{cpu} {matrix.types.get(cpu, '')}".rstrip())


def _pair(label: Dataset, figure: PairMedians | None) -> str:
    return MISSING if figure is None else _text(label, figure.value)


def _text(label: Dataset, value: float) -> str:
    return nanoseconds(label, value, False) if label.khz else whole(value)
