"""The slow samples of a traced program, split by cause, as a Document."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from klat.report.document import Block, Column, Document, Line, Paragraph, Row, Section, Table, Word
from klat.report.text.numbers import plural
from klat.tracing.kept_traces import MOST_MEGABYTES
from klat.tracing.sample_split import Cause, SplitSample, TracedSession, causes

_NAME = 36
_CAUSES = 10  # lines of the table of causes; smaller ones share one line
_LINES = 20  # lines of a sample; if it has more parts, short parts join the lines around them
_SHORT = 0.02  # a part below this share of the sample is short
_CONFIDENCE = 0.95


def document(traced: TracedSession, above_ns: int, longest: int) -> Document:
    blocks: list[Block] = [*_heading(traced, above_ns), Line("")]
    if traced.samples:
        blocks += _sums(traced, above_ns)
        for split in sorted(traced.samples, key=lambda s: -s.ticks)[:longest]:
            blocks += _timeline(traced, split)
    section = Section("Slow samples", tuple(blocks))
    return Document("Slow samples", Word(""), 0, (section,), tuple(_surroundings(traced)))


def _us(traced: TracedSession, ticks: float) -> str:
    return f"{1000 * ticks / traced.khz:,.1f}"


def time_text(ns: int) -> str:
    for unit, size in (("s", 1000**3), ("ms", 1000**2), ("us", 1000)):
        if ns % size == 0:
            return f"{ns // size:,} {unit}"
    return f"{ns:,} ns"


def _heading(traced: TracedSession, above_ns: int) -> Iterator[Line]:
    slow = sum(run.slow for run in traced.runs)
    checked = sum(run.checked for run in traced.runs)
    yield Line(
        f"{traced.benchmark}.{traced.metric}: {slow:,} of {checked:,} samples in"
        f" {plural(len(traced.runs), 'traced run')} took more than {time_text(above_ns)}"
    )
    after = sum(run.after_copy for run in traced.runs)
    left = slow - after - len({(split.run, split.index) for split in traced.samples})
    invalid = sum(split.run in traced.invalid for split in traced.samples)
    overwritten = sum(split.overwritten for split in traced.samples)
    if after:
        yield Line(
            f"{plural(after, 'sample')} not explained: the copy of a trace just before can delay a sample",
            1,
        )
    if not slow:
        yield Line("nothing to explain; a lower limit finds more samples", 1)
    if left:
        yield Line(
            f"{plural(left, 'sample')} without a trace: klat keeps 100 traces of each run, and"
            f" {MOST_MEGABYTES} MB of each session",
            1,
        )
    if invalid:
        yield Line(
            f"{invalid:,} of the {plural(len(traced.samples), traced.noun)} explained: of invalid runs, which klat"
            " summary leaves out",
            1,
        )
    if overwritten:
        yield Line(
            f"{plural(overwritten, traced.noun)} with lost events in the trace: the buffer of a CPU was too small;"
            " the time without events counts as residual",
            1,
        )


def _sums(traced: TracedSession, above_ns: int) -> Iterator[Block]:
    by_cause = causes(traced.samples)
    total = sum(cause.ticks for cause in by_cause)
    count = len(traced.samples)
    largest = by_cause[0]
    yield Paragraph(
        f"{_percent(largest.ticks, total)} of the time of {plural(count, traced.noun)} above"
        f" {time_text(above_ns)} is {largest.name}"
    )
    shown = by_cause if len(by_cause) <= _CAUSES + 1 else by_cause[:_CAUSES]
    rows = [_row(traced, cause, total) for cause in shown]
    if rest := by_cause[len(shown) :]:
        ticks = sum(cause.ticks for cause in rest)
        cells = (_percent(ticks, total), _us(traced, ticks), "", "")
        rows.append(Row(f"{len(rest)} others", cells))
    rows.append(Row("sum", ("100.0 %", _us(traced, total), f"{count:,}", "")))
    columns = tuple(map(Column, ("share", "us", f"{traced.noun}s", "longest, us")))
    yield Table("", columns, tuple(rows), "cause", 0)


def _row(traced: TracedSession, cause: Cause, total: int) -> Row:
    name = cause.name if len(cause.name) <= _NAME else f"{cause.name[: _NAME - 3]}..."
    times = _us(traced, cause.ticks), f"{cause.samples:,}", _us(traced, cause.longest)
    return Row(name, (_percent(cause.ticks, total), *times))


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


def _timeline(traced: TracedSession, split: SplitSample) -> Iterator[Block]:
    invalid = " (invalid)" if split.run in traced.invalid else ""
    faults, changes = split.page_faults, split.frequency_changes
    notes = [
        f"{_us(traced, split.ticks)} us: run {split.run}{invalid}, sample {split.index}",
        f"page faults of its threads: {faults}" if faults else "",
        f"changes of CPU frequency: {changes}" if changes else "",
        "its trace has lost events" if split.overwritten else "",
    ]
    yield Line("; ".join(filter(None, notes)))
    rows = []
    for line in _lines(split):
        start, time = line.begin - split.begin, line.end - line.begin
        more = f"; other causes took {_us(traced, line.others)} of it" if line.others else ""
        cells = (_us(traced, time), str(line.cpu), line.cause + more)
        rows.append(Row(_us(traced, start), cells))
    columns = (Column("us"), Column("CPU"), Column("cause", left=True, wraps=True))
    yield Table("", columns, tuple(rows), "from, us", 1, right=True)


def _surroundings(traced: TracedSession) -> Iterator[str]:
    smi = "n/a" if traced.smi is None else f"{traced.smi:,}"
    yield (
        f"over all traced runs: {traced.steal_ms:,.0f} ms stolen by a hypervisor, on all CPUs of the"
        f" runs; system-management interrupts: {smi}"
    )
    if traced.overhead:
        low, high = (math.exp(end) for end in traced.overhead.interval(_CONFIDENCE))
        yield (
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
            yield (
                f"{status}, {len(reasons):,} of {len(statuses):,} {kind} runs: {reasons[0]}{like}"
            )
