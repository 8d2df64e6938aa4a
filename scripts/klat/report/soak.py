"""Soaks in a summary: their drift, their longest samples with the times, and the tail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from klat.compare.dataset import Dataset
from klat.compare.settings import Setting
from klat.compare.runs import Runs
from klat.compare.soaks import WINDOW_NS, Delay, SoakDrift, SoakReport, soak_reports, soaks_together
from klat.record.session import printable
from klat.report.document import Column, Line, Row, Table
from klat.report.text.numbers import MISSING, duration, one_in, plural, sample_figure
from klat.report.text.parameters import title

_CLOCK_SETS = 5
# p below which the delays of any two CPUs are said to have common causes, by Bonferroni.
_SURE = 0.001
TAIL = (
    "tail: at most one sample in 10, 100, 1,000 ... is longer than the figure. A figure needs 5 longer"
    " samples. Over all samples of the runs that count."
)


def is_soak(label: Dataset) -> bool:
    return any(setting.is_soak for setting in label.settings)


def soak_rows(
    label: Dataset, setting: Setting, failed: Callable[[str], None]
) -> Iterator[Line | Table]:
    """Nothing for a setting that is not a soak. `failed` gets a sentence on what cannot be read."""
    for measurement in setting.measurements.values():
        reports = list(soak_reports(measurement, failed))
        for number, report in enumerate(reports, 1):
            place = f", soak {number} of {len(reports)}" if len(reports) > 1 else ""
            yield from _report(label, report, f"{printable(report.metric)}{place}")


def _report(label: Dataset, report: SoakReport, name: str) -> Iterator[Line | Table]:
    unit = label.figure_unit
    asked = f" of {duration(report.asked_s)}" if report.asked_s else ""
    soaked = f"{name}: soaked {duration(report.seconds)}{asked}"
    drifts = ", ".join(_drift(label, drift) for drift in report.drifts)
    if drifts:
        soaked += f"; from the first to the last quarter of {plural(report.segments, 'segment')}: {drifts} {unit}"
    yield Line(soaked, 2)
    if report.clock_sets:
        yield Line(f"{name}: {_clock_sets(report)}", 2)
    if report.missing:
        yield Line(f"{name}, longest delays: {report.missing}", 2)
    if report.delays:
        columns = tuple(map(Column, (unit, "samples", "CPU", "segment")))
        rows = tuple(_delay(label, delay) for delay in report.delays)
        yield Table("", columns, rows, f"{name}, longest delays")


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
        f"the clock was set {', '.join(sets)}"
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
            common = coincidence.p < _SURE / len(pairs)
            yield (
                f"{printable(pair.metric)} on CPU {pair.cpus[0]} and on CPU {pair.cpus[1]}:"
                f" {coincidence.together} of the {plural(coincidence.events, 'longest delay')} on CPU"
                f" {pair.cpus[0]} came within {window} ms of one on CPU {pair.cpus[1]}"
                f" ({coincidence.expected:.1f} by chance):"
                f" {'they have common causes' if common else 'no common cause is shown'}"
            )


def _delay(label: Dataset, delay: Delay) -> Row:
    sample = delay.longest
    cpu = MISSING if sample.cpu is None else str(sample.cpu)
    figures = (sample_figure(label, sample.value), f"{delay.samples:,}", cpu)
    return Row(f"  {_time(sample.time_ns)}", (*figures, f"{sample.row.run:,}"))


def _time(nanoseconds_since_1970: int | None) -> str:
    """Local time, with milliseconds."""
    if nanoseconds_since_1970 is None:
        return "at an unknown time"
    seconds, rest = divmod(nanoseconds_since_1970, 10**9)
    local = time.localtime(seconds)
    return f"{time.strftime('%F %T', local)}.{rest // 10**6:03d} {time.strftime('%Z', local)}"


def tail_table(label: Dataset, failed: Callable[[str], None]) -> Table | None:
    """A row for each metric. `failed` gets a sentence on samples that cannot be read."""
    rows: list[Line | Row] = []
    for setting in label.settings:
        metrics = [m for m in setting.measurements.values() if m.runs]
        of_setting = [row for m in metrics if (row := _tail(label, m, failed))]
        rows += [Line(title(setting)), *of_setting] if of_setting else []
    if not rows:
        return None
    reach = max(len(row.cells) for row in rows if isinstance(row, Row)) - 1
    columns = (*map(one_in, range(1, reach + 1)), "max")

    for i, line in enumerate(rows):
        if isinstance(line, Row):
            # The maximum is the last.
            gap = [""] * (reach + 1 - len(line.cells))
            rows[i] = replace(line, cells=(*line.cells[:-1], *gap, line.cells[-1]))
    return Table("", tuple(map(Column, columns)), tuple(rows), f"tail [{label.figure_unit}]")


def _tail(label: Dataset, measurement: Runs, failed: Callable[[str], None]) -> Row | None:
    statistics = measurement.readable_statistics(failed)
    if not statistics or not statistics.samples:
        return None
    values = (*statistics.tail, statistics.max)
    return Row(printable(measurement.metric), tuple(sample_figure(label, v) for v in values))
