"""The tail of every distribution: the sample that one in 10, 100, 1,000 ... exceeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from klat.compare.dataset import Dataset
from klat.compare.settings import Setting, Statistics
from klat.record.session import SessionError, printable
from klat.report.text.columns import (
    WIDTH,
    Table,
    aligned,
    column_widths,
    wrapped,
)
from klat.report.text.numbers import one_in, sample_figure
from klat.report.text.parameters import title

_MEANING = (
    "tail: at most one sample in 10, 100, 1,000 ... is longer than the figure. A figure needs 5 longer"
    " samples. Over all samples of the runs that count."
)


def is_soak(label: Dataset) -> bool:
    return any(setting.is_soak for setting in label.settings)


def tail_lines(label: Dataset, failed: Callable[[str], None]) -> Iterator[str]:
    """A row for each metric. `failed` gets a sentence on samples that cannot be read."""
    found = [(setting, _rows(label, setting, failed)) for setting in label.settings]
    found = [(setting, rows) for setting, rows in found if rows]
    if not found:
        return
    reach = max(len(row) for _, rows in found for row in rows) - 2
    header = [f"tail [{label.figure_unit}]", *map(one_in, range(1, reach + 1)), "max"]
    tables = [[_padded(row, reach + 2) for row in rows] for _, rows in found]
    whole_table = [header, *(row for table in tables for row in table)]
    first = 1  # to save width, the first columns go: the summary has similar figures
    while _width(whole_table, first) > WIDTH and first < reach:
        first += 1
    widths = column_widths([_cut(row, first) for row in whole_table])
    yield aligned(_cut(header, first), widths, left=1)
    for (setting, _), table in zip(found, tables):
        yield from wrapped(title(setting), "", "    ")
        yield from (aligned(_cut(row, first), widths, left=1) for row in table)
    yield ""
    yield from wrapped(_MEANING)


def _padded(row: list[str], width: int) -> list[str]:
    """With empty cells before the maximum, which is the last."""
    return [*row[:-1], *[""] * (width - len(row)), row[-1]]


def _cut(row: list[str], first: int) -> list[str]:
    return [row[0], *row[first:]]


def _width(table: Table, first: int) -> int:
    widths = column_widths([_cut(row, first) for row in table])
    return sum(widths) + 2 * (len(widths) - 1)


def _rows(label: Dataset, setting: Setting, failed: Callable[[str], None]) -> Table:
    rows: Table = []
    for measurement in setting.measurements.values():
        try:
            statistics = measurement.statistics if measurement.runs else None
        except SessionError as error:
            failed(str(error))
            continue
        if statistics and statistics.samples:
            rows.append([f"    {printable(measurement.metric)}", *_figures(label, statistics)])
    return rows


def _figures(label: Dataset, statistics: Statistics) -> list[str]:
    values = [*statistics.tail, statistics.max]
    return [sample_figure(label, value) for value in values]
