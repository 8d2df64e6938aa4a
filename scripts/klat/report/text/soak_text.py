"""Soaks as text: their drift, and their longest samples with the times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from klat.compare.dataset import Dataset
from klat.compare.settings import Setting, Statistics
from klat.compare.soaks import WINDOW_NS, Delay, SoakDrift, SoakReport, soak_reports, soaks_together
from klat.record.session import SessionError, printable
from klat.report.text.columns import WIDTH, Table, aligned, column_widths, wrapped
from klat.report.text.numbers import MISSING, duration, one_in, plural, sample_figure
from klat.report.text.parameters import title


_CLOCK_SETS = 5
# p below which the delays of any two CPUs are said to have common causes, by Bonferroni.
_SURE = 0.001


def soak_lines(label: Dataset, setting: Setting, failed: Callable[[str], None]) -> Iterator[str]:
    """Nothing for a setting that is not a soak. `failed` gets a sentence on what cannot be read."""
    for measurement in setting.measurements.values():
        for report in soak_reports(measurement, failed):
            yield from _report(label, report)


def _report(label: Dataset, report: SoakReport) -> Iterator[str]:
    unit = label.figure_unit
    name = printable(report.metric)
    asked = f" of {duration(report.asked_s)}" if report.asked_s else ""
    soaked = f"{name}: soaked {duration(report.seconds)}{asked}"
    drifts = ", ".join(_drift(label, drift) for drift in report.drifts)
    if drifts:
        soaked += f"; from the first to the last quarter of {plural(report.segments, 'segment')}: {drifts} {unit}"
    yield from wrapped(soaked, "    ", "      ")
    if report.clock_sets:
        yield from wrapped(_clock_sets(report), "    ", "      ")
    if report.missing:
        yield from wrapped(f"{name}, longest delays: {report.missing}", "    ", "      ")
    if report.delays:
        table: Table = [[f"    {name}, longest delays", unit, "samples", "CPU", "segment"]]
        table += [_delay(label, delay) for delay in report.delays]
        widths = column_widths(table)
        yield from (aligned(row, widths, left=1) for row in table)


def _drift(label: Dataset, drift: SoakDrift) -> str:
    change = 100 * (drift.last / drift.first - 1) if drift.first else 0.0
    ends = f"{sample_figure(label, drift.first)} to {sample_figure(label, drift.last)}"
    return f"{drift.figure} {ends} ({round(change):+,d} %)"


def _clock_sets(report: SoakReport) -> str:
    """The first few."""
    sets = [
        f"by {'-' if clock_set.ns < 0 else '+'}{duration(abs(clock_set.ns) / 1e9)} in segment {clock_set.segment:,}"
        for clock_set in report.clock_sets[:_CLOCK_SETS]
    ]
    more = len(report.clock_sets) - len(sets)
    return (
        f"{printable(report.metric)}: the clock was set {', '.join(sets)}"
        + (f" and in {plural(more, 'later segment')}" if more else "")
        + "; the times in a segment follow the clock at its start"
    )


def together_lines(label: Dataset, failed: Callable[[str], None]) -> Iterator[str]:
    """The delays that programs which soaked at the same time have in common. Nothing for other
    sessions."""
    window = WINDOW_NS // 10**6
    for session in label.sessions:
        pairs = list(soaks_together(session, failed))
        for pair in pairs:
            coincidence = pair.coincidence
            line = (
                f"{printable(pair.metric)} on CPU {pair.cpus[0]} and on CPU {pair.cpus[1]}:"
                f" {coincidence.together} of the {plural(coincidence.events, 'longest delay')} on CPU"
                f" {pair.cpus[0]} came within {window} ms of one on CPU {pair.cpus[1]}"
                f" ({coincidence.expected:.1f} by chance): "
            )
            common = coincidence.p < _SURE / len(pairs)
            line += "they have common causes" if common else "no common cause is shown"
            yield from wrapped(line, "  ", "    ")


def _delay(label: Dataset, delay: Delay) -> list[str]:
    sample = delay.longest
    return [
        f"      {_time(sample.time_ns)}",
        sample_figure(label, sample.value),
        f"{delay.samples:,}",
        MISSING if sample.cpu is None else str(sample.cpu),
        f"{sample.row.run:,}",
    ]


def _time(nanoseconds_since_1970: int | None) -> str:
    """Local time, with milliseconds."""
    if nanoseconds_since_1970 is None:
        return "at an unknown time"
    seconds, rest = divmod(nanoseconds_since_1970, 10**9)
    local = time.localtime(seconds)
    return f"{time.strftime('%F %T', local)}.{rest // 10**6:03d} {time.strftime('%Z', local)}"


_MEANING = (
    "tail: at most one sample in 10, 100, 1,000 ... is longer than the figure. A figure needs 5 longer"
    " samples. Over all samples of the runs that count."
)


def is_soak(label: Dataset) -> bool:
    return any(setting.is_soak for setting in label.settings)


def tail_lines(label: Dataset, failed: Callable[[str], None]) -> Iterator[str]:
    """A row for each metric. `failed` gets a sentence on samples that cannot be read."""
    of_setting = [(setting, _rows(label, setting, failed)) for setting in label.settings]
    of_setting = [(setting, rows) for setting, rows in of_setting if rows]
    if not of_setting:
        return
    reach = max(len(row) for _, rows in of_setting for row in rows) - 2
    header = [f"tail [{label.figure_unit}]", *map(one_in, range(1, reach + 1)), "max"]
    tables = [[_padded(row, reach + 2) for row in rows] for _, rows in of_setting]
    whole_table = [header, *(row for table in tables for row in table)]
    first = 1  # to save width, the first columns go: the summary has similar figures
    while _width(whole_table, first) > WIDTH and first < reach:
        first += 1
    widths = column_widths([_cut(row, first) for row in whole_table])
    yield aligned(_cut(header, first), widths, left=1)
    for (setting, _), table in zip(of_setting, tables):
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
