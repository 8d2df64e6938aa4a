"""The report of `klat explain`, for a terminal of 80 columns."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from klat.report.text.columns import WIDTH, aligned, column_widths, wrapped
from klat.report.text.numbers import plural
from klat.tracing.kept_traces import MOST_MEGABYTES
from klat.tracing.sample_split import Cause, SplitSample, TracedSession, causes

_NAME = 36
_CAUSES = 10  # lines of the table of causes; smaller ones share one line
_LINES = 20  # lines of a sample; if it has more parts, short parts join the lines around them
_SHORT = 0.02  # a part below this share of the sample is short
_CONFIDENCE = 0.95


def report(found: TracedSession, above_ns: int, longest: int) -> Iterator[str]:
    yield from _heading(found, above_ns)
    if found.samples:
        yield ""
        yield from _sums(found, above_ns)
        for split in sorted(found.samples, key=lambda s: -s.ticks)[:longest]:
            yield ""
            yield from _timeline(found, split)
    yield ""
    yield from _surroundings(found)


def _us(found: TracedSession, ticks: float) -> str:
    return f"{1000 * ticks / found.khz:,.1f}"


def time_text(ns: int) -> str:
    for unit, size in (("s", 1000**3), ("ms", 1000**2), ("us", 1000)):
        if ns % size == 0:
            return f"{ns // size:,} {unit}"
    return f"{ns:,} ns"


def _heading(found: TracedSession, above_ns: int) -> Iterator[str]:
    slow = sum(run.slow for run in found.runs)
    checked = sum(run.checked for run in found.runs)
    yield from wrapped(
        f"{found.benchmark}.{found.metric}: {slow:,} of {checked:,} samples in"
        f" {plural(len(found.runs), 'traced run')} took more than {time_text(above_ns)}"
    )
    after = sum(run.after_copy for run in found.runs)
    if after:
        yield from wrapped(
            f"{after:,} came right after the copy of a trace and are not explained: the copy may have"
            " delayed them",
            "  ",
        )
    if not slow:
        yield "  nothing to explain; a lower limit finds more samples"
    left = slow - after - len(found.samples)
    if left:
        yield from wrapped(
            f"{left:,} have no trace: klat keeps 100 traces of each run, and {MOST_MEGABYTES} MB of"
            " each session",
            "  ",
        )
    invalid = sum(split.run in found.invalid for split in found.samples)
    if invalid:
        yield from wrapped(
            f"{invalid:,} of the {len(found.samples):,} explained are of invalid runs, which klat summary"
            " leaves out",
            "  ",
        )
    overwritten = sum(split.overwritten for split in found.samples)
    if overwritten:
        yield from wrapped(
            f"the traces of {overwritten:,} have lost events: the buffer of a CPU was too small. The"
            " time without events counts as residual",
            "  ",
        )


def _sums(found: TracedSession, above_ns: int) -> Iterator[str]:
    table = causes(found.samples)
    total = sum(cause.ticks for cause in table)
    count = len(found.samples)
    largest = table[0]
    yield from wrapped(
        f"{_percent(largest.ticks, total)} of the time of {count:,} sample{'s' * (count > 1)} above"
        f" {time_text(above_ns)} is {largest.name}"
    )
    yield ""
    rows = [["cause", "share", "us", "samples", "longest, us"]]
    shown = table if len(table) <= _CAUSES + 1 else table[:_CAUSES]
    rows += [_row(found, cause, total) for cause in shown]
    if rest := table[len(shown) :]:
        ticks = sum(cause.ticks for cause in rest)
        name = f"{len(rest)} others"
        rows.append([name, _percent(ticks, total), _us(found, ticks), "", ""])
    rows.append(["sum", "100.0 %", _us(found, total), f"{count:,}", ""])
    widths = column_widths(rows)
    yield from (aligned(row, widths, 1) for row in rows)


def _row(found: TracedSession, cause: Cause, total: int) -> list[str]:
    return [
        _short(cause.name),
        _percent(cause.ticks, total),
        _us(found, cause.ticks),
        f"{cause.samples:,}",
        _us(found, cause.longest),
    ]


def _short(name: str) -> str:
    return name if len(name) <= _NAME else f"{name[: _NAME - 3]}..."


def _percent(part: int, total: int) -> str:
    return f"{100 * part / total:.1f} %"


@dataclass(frozen=True)
class _Line:
    """Parts that share a line. `others` is the time of the parts with another cause than the first."""

    begin: int
    end: int
    cpu: int
    cause: str
    others: int = 0

    def joins(self, between: _Line, after: _Line, short: float) -> bool:
        same = (self.cause, self.cpu, between.cpu) == (after.cause, after.cpu, after.cpu)
        return same and between.end - between.begin < short

    def with_both(self, between: _Line, after: _Line) -> _Line:
        others = self.others + between.end - between.begin + after.others
        return replace(self, end=after.end, others=others)


def _lines(split: SplitSample) -> list[_Line]:
    lines = [_Line(part.begin, part.end, part.cpu, part.cause) for part in split.parts]
    if len(lines) <= _LINES:
        return lines
    found: list[_Line] = []
    for line in lines:
        found.append(line)
        while len(found) > 2:
            first, between, after = found[-3:]
            if not first.joins(between, after, _SHORT * split.ticks):
                break
            found[-3:] = [first.with_both(between, after)]
    return found


def _timeline(found: TracedSession, split: SplitSample) -> Iterator[str]:
    invalid = " (invalid)" if split.run in found.invalid else ""
    faults, changes = split.page_faults, split.frequency_changes
    notes = [
        f"{_us(found, split.ticks)} us: run {split.run}{invalid}, sample {split.index}",
        f"page faults of its threads: {faults}" if faults else "",
        f"changes of CPU frequency: {changes}" if changes else "",
        "its trace has lost events" if split.overwritten else "",
    ]
    yield from wrapped("; ".join(filter(None, notes)), "", "  ")
    rows = [["from, us", "us", "CPU", "cause"]]
    for line in _lines(split):
        start, time = line.begin - split.begin, line.end - line.begin
        more = f"; other causes took {_us(found, line.others)} of it" if line.others else ""
        rows.append([_us(found, start), _us(found, time), str(line.cpu), line.cause + more])
    widths = column_widths(rows)
    for row in rows:
        numbers = [cell.rjust(width) for cell, width in zip(row[:3], widths)]
        yield f"  {'  '.join(numbers)}  {row[3]}"[:WIDTH]


def _surroundings(found: TracedSession) -> Iterator[str]:
    smi = "n/a" if found.smi is None else f"{found.smi:,}"
    yield from wrapped(
        f"over all traced runs: {found.steal_ms:,.0f} ms stolen by a hypervisor, on all CPUs of the"
        f" runs; system-management interrupts: {smi}"
    )
    if found.overhead:
        low, high = (math.exp(end) for end in found.overhead.interval(_CONFIDENCE))
        yield from wrapped(
            f"tracing: the median of a traced run, without the samples right after a copy, is"
            f" {math.exp(found.overhead.value):.2f} times that of an untraced one (95 % interval"
            f" {low:.2f} to {high:.2f}, {len(found.runs):,} pairs)"
        )
    else:
        yield "tracing: the overhead needs two pairs of runs"
    yield from _reasons(found)


def _reasons(found: TracedSession) -> Iterator[str]:
    """Why runs are not ok. Reasons that differ only in numbers share a line."""
    for kind, statuses in found.statuses.items():
        groups: dict[tuple[str, str], list[str]] = {}
        for status, reason in statuses:
            if status != "ok":
                groups.setdefault((status, re.sub(r"\d+", "#", reason)), []).append(reason)
        for (status, _), reasons in sorted(groups.items(), key=lambda group: -len(group[1])):
            like = " (and similar)" if len(set(reasons)) > 1 else ""
            yield from wrapped(
                f"{status}, {len(reasons):,} of {len(statuses):,} {kind} runs: {reasons[0]}{like}"
            )
