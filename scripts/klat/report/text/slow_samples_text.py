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


def report(traced: TracedSession, above_ns: int, longest: int) -> Iterator[str]:
    yield from _heading(traced, above_ns)
    if traced.samples:
        yield ""
        yield from _sums(traced, above_ns)
        for split in sorted(traced.samples, key=lambda s: -s.ticks)[:longest]:
            yield ""
            yield from _timeline(traced, split)
    yield ""
    yield from _surroundings(traced)


def _us(traced: TracedSession, ticks: float) -> str:
    return f"{1000 * ticks / traced.khz:,.1f}"


def time_text(ns: int) -> str:
    for unit, size in (("s", 1000**3), ("ms", 1000**2), ("us", 1000)):
        if ns % size == 0:
            return f"{ns // size:,} {unit}"
    return f"{ns:,} ns"


def _heading(traced: TracedSession, above_ns: int) -> Iterator[str]:
    slow = sum(run.slow for run in traced.runs)
    checked = sum(run.checked for run in traced.runs)
    yield from wrapped(
        f"{traced.benchmark}.{traced.metric}: {slow:,} of {checked:,} samples in"
        f" {plural(len(traced.runs), 'traced run')} took more than {time_text(above_ns)}"
    )
    after = sum(run.after_copy for run in traced.runs)
    if after:
        yield from wrapped(
            f"{after:,} came right after the copy of a trace and are not explained: the copy may have"
            " delayed them",
            "  ",
        )
    if not slow:
        yield "  nothing to explain; a lower limit finds more samples"
    left = slow - after - len(traced.samples)
    if left:
        yield from wrapped(
            f"{left:,} have no trace: klat keeps 100 traces of each run, and {MOST_MEGABYTES} MB of"
            " each session",
            "  ",
        )
    invalid = sum(split.run in traced.invalid for split in traced.samples)
    if invalid:
        yield from wrapped(
            f"{invalid:,} of the {len(traced.samples):,} explained are of invalid runs, which klat summary"
            " leaves out",
            "  ",
        )
    overwritten = sum(split.overwritten for split in traced.samples)
    if overwritten:
        yield from wrapped(
            f"the traces of {overwritten:,} have lost events: the buffer of a CPU was too small. The"
            " time without events counts as residual",
            "  ",
        )


def _sums(traced: TracedSession, above_ns: int) -> Iterator[str]:
    table = causes(traced.samples)
    total = sum(cause.ticks for cause in table)
    count = len(traced.samples)
    largest = table[0]
    yield from wrapped(
        f"{_percent(largest.ticks, total)} of the time of {count:,} sample{'s' * (count > 1)} above"
        f" {time_text(above_ns)} is {largest.name}"
    )
    yield ""
    rows = [["cause", "share", "us", "samples", "longest, us"]]
    shown = table if len(table) <= _CAUSES + 1 else table[:_CAUSES]
    rows += [_row(traced, cause, total) for cause in shown]
    if rest := table[len(shown) :]:
        ticks = sum(cause.ticks for cause in rest)
        name = f"{len(rest)} others"
        rows.append([name, _percent(ticks, total), _us(traced, ticks), "", ""])
    rows.append(["sum", "100.0 %", _us(traced, total), f"{count:,}", ""])
    widths = column_widths(rows)
    yield from (aligned(row, widths, 1) for row in rows)


def _row(traced: TracedSession, cause: Cause, total: int) -> list[str]:
    return [
        _short(cause.name),
        _percent(cause.ticks, total),
        _us(traced, cause.ticks),
        f"{cause.samples:,}",
        _us(traced, cause.longest),
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
    drawn: list[_Line] = []
    for line in lines:
        drawn.append(line)
        while len(drawn) > 2:
            first, between, after = drawn[-3:]
            if not first.joins(between, after, _SHORT * split.ticks):
                break
            drawn[-3:] = [first.with_both(between, after)]
    return drawn


def _timeline(traced: TracedSession, split: SplitSample) -> Iterator[str]:
    invalid = " (invalid)" if split.run in traced.invalid else ""
    faults, changes = split.page_faults, split.frequency_changes
    notes = [
        f"{_us(traced, split.ticks)} us: run {split.run}{invalid}, sample {split.index}",
        f"page faults of its threads: {faults}" if faults else "",
        f"changes of CPU frequency: {changes}" if changes else "",
        "its trace has lost events" if split.overwritten else "",
    ]
    yield from wrapped("; ".join(filter(None, notes)), "", "  ")
    rows = [["from, us", "us", "CPU", "cause"]]
    for line in _lines(split):
        start, time = line.begin - split.begin, line.end - line.begin
        more = f"; other causes took {_us(traced, line.others)} of it" if line.others else ""
        rows.append([_us(traced, start), _us(traced, time), str(line.cpu), line.cause + more])
    widths = column_widths(rows)
    for row in rows:
        numbers = [cell.rjust(width) for cell, width in zip(row[:3], widths)]
        yield f"  {'  '.join(numbers)}  {row[3]}"[:WIDTH]


def _surroundings(traced: TracedSession) -> Iterator[str]:
    smi = "n/a" if traced.smi is None else f"{traced.smi:,}"
    yield from wrapped(
        f"over all traced runs: {traced.steal_ms:,.0f} ms stolen by a hypervisor, on all CPUs of the"
        f" runs; system-management interrupts: {smi}"
    )
    if traced.overhead:
        low, high = (math.exp(end) for end in traced.overhead.interval(_CONFIDENCE))
        yield from wrapped(
            f"tracing: the median of a traced run, without the samples right after a copy, is"
            f" {math.exp(traced.overhead.value):.2f} times that of an untraced one (95 % interval"
            f" {low:.2f} to {high:.2f}, {len(traced.runs):,} pairs)"
        )
    else:
        yield "tracing: the overhead needs two pairs of runs"
    yield from _reasons(traced)


def _reasons(traced: TracedSession) -> Iterator[str]:
    """Why runs are not ok. Reasons that differ only in numbers share a line."""
    for kind, statuses in traced.statuses.items():
        groups: dict[tuple[str, str], list[str]] = {}
        for status, reason in statuses:
            if status != "ok":
                groups.setdefault((status, re.sub(r"\d+", "#", reason)), []).append(reason)
        for (status, _), reasons in sorted(groups.items(), key=lambda group: -len(group[1])):
            like = " (and similar)" if len(set(reasons)) > 1 else ""
            yield from wrapped(
                f"{status}, {len(reasons):,} of {len(statuses):,} {kind} runs: {reasons[0]}{like}"
            )
