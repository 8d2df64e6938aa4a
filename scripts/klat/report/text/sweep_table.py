"""A sweep as a table: a row for each value of the option, a column for each line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from klat.compare.sweep_shapes import crossings
from klat.compare.dataset import Dataset
from klat.report.text.columns import WIDTH, Table, aligned, column_widths, params_text, wrapped
from klat.report.text.parameters import parameters
from klat.report.text.numbers import MISSING, nanoseconds, plural, whole
from klat.record.session import printable
from klat.compare.sweeps import SweepLine, SweepPoint, Sweep, shown, sweeps

_NOTE = "mean over runs of the median of each"


def sweep_tables(label: Dataset) -> Iterator[str]:
    """The tables of one label, each after an empty line."""
    for sweep in sweeps([label], [label.name]):
        yield ""
        yield from _table(label, sweep)


def title(sweep: Sweep) -> str:
    """`semaphore item by idle, for each primitive, hog`."""
    what = " ".join(part for part in (sweep.benchmark, sweep.name) if part)
    text = f"{what} by {sweep.option}"
    return printable(f"{text}, for each {', '.join(sweep.by)}" if sweep.by else text)


def _table(label: Dataset, sweep: Sweep) -> Iterator[str]:
    unit = ("ns" if label.khz else label.unit) if sweep.is_time else ""
    is_count = sweep.quantity is not None and sweep.quantity.is_count
    note = ", ".join(filter(None, ("mean over runs" if is_count else _NOTE, unit)))
    shown_params = params_text(parameters(sweep.benchmark, sweep.distinctive))
    yield from wrapped(f"{title(sweep)} ({note})  {shown_params}".rstrip(), "", "  ")
    for lines in _blocks(label, sweep):
        table = _rows(label, sweep, lines)
        widths = column_widths(table)
        yield from (aligned(row, widths, left=1 if sweep.choices else 0) for row in table)
    for line in sweep.lines:
        for x, figure in line.published:
            at = f"{sweep.option}={sweep.text(x)}"
            value = whole(figure.nanoseconds)
            text = f"published, {at}, {printable(line.name)}: {value} ns; {figure.about}"
            yield from wrapped(text, "  ", "    ")
    for figure in sweep.beside if label.khz else ():
        text = f"published, {shown(figure.metric)}: {whole(figure.nanoseconds)} ns; {figure.about}"
        yield from wrapped(printable(text), "  ", "    ")
    for sentence in crossing_sentences(sweep):
        yield from wrapped(sentence, "  ", "    ")


def _blocks(label: Dataset, sweep: Sweep) -> Iterator[Sequence[SweepLine]]:
    """As many lines at a time as fit the terminal; one at least."""
    lines = list(sweep.lines)
    while lines:
        fitting = len(lines)
        while fitting > 1:
            widths = column_widths(_rows(label, sweep, lines[:fitting]))
            if sum(widths) + len(widths) - 1 <= WIDTH:
                break
            fitting -= 1
        yield lines[:fitting]
        lines = lines[fitting:]


def _rows(label: Dataset, sweep: Sweep, lines: Sequence[SweepLine]) -> Table:
    table: Table = [[f"  {printable(sweep.option)}", "runs", *(printable(x.name) for x in lines)]]
    for x in sweep.values:
        points = [line.at(x) for line in lines]
        counts = {len(point.runs) for point in points if point}
        if not counts:
            continue
        runs = f"{min(counts):,}" if len(counts) == 1 else f"{min(counts):,}-{max(counts):,}"
        value = f"  {printable(sweep.text(x))}" if sweep.choices else sweep.text(x)
        table.append([value, runs, *(_cell(label, sweep, point) for point in points)])
    return table


def _cell(label: Dataset, sweep: Sweep, point: SweepPoint | None) -> str:
    if point is None:
        return MISSING
    if sweep.is_time and label.khz:
        return nanoseconds(label, point.value, sample=point.resolution > 0)
    return whole(point.value)


def crossing_sentences(sweep: Sweep) -> list[str]:
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
