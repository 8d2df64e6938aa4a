"""The tables and the figure of a matrix of CPU pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from klat.compare.dataset import Dataset
from klat.compare.matrices import Matrix, PairMedians
from klat.compare.settings import Setting
from klat.record.session import printable
from klat.report.document import Captioned, Column, Line, Row, Table
from klat.report.text.columns import params_text
from klat.report.text.numbers import MISSING, nanoseconds, plural, whole
from klat.report.text.parameters import parameters

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


def title(matrix: Matrix) -> str:
    return printable(f"{matrix.benchmark} {matrix.metric} by pair of CPUs")


def matrix_tables(label: Dataset, matrix: Matrix) -> Iterator[Line | Table]:
    unit = "ns" if label.khz else label.unit
    params = params_text(parameters(matrix.benchmark, matrix.params))
    yield Line(f"{title(matrix)} (mean over runs of the median of each, {unit})  {params}".rstrip())
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

    figure = Figure(f"{matrix.benchmark}-{matrix.metric}-matrix")
    draw_matrix(figure, label, matrix, common_axis([label]))
    note = "rows: CPUs of the first role; thick lines separate nodes, thin ones caches"
    return Captioned(figure, title(matrix), note)


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
