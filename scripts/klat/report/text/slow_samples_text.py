"""The report of `klat explain`, for a terminal of 80 columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from klat.report.text.columns import WIDTH, aligned, column_widths, wrapped
from klat.tracing.slow_causes import Cause, SplitSample, TracedSession, causes

_NAME = 36
_CAUSES = 10  # lines of the table of causes; smaller ones share one line
_LINES = 20  # of a sample; with more, short parts go into the lines around them
_SHORT = 0.02  # of the sample
_CONFIDENCE = 0.95


def report(found: TracedSession, above_ns: int, longest: int) -> Iterator[str]:
    yield from _heading(found, above_ns)
    if found.samples:
        yield ""
        yield from _sums(found, above_ns)
        for split in sorted(found.samples, key=lambda s: -s.sample.ticks)[:longest]:
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
    yield from wrapped(
        f"{found.benchmark}.{found.metric}: {slow:,} of {found.measured:,} samples in"
        f" {len(found.runs):,} traced runs took more than {time_text(above_ns)}"
    )
    after = sum(run.after_copy for run in found.runs)
    if after:
        yield from wrapped(
            f"{after:,} came right after the copy of a trace, which may have delayed them: not"
            " explained",
            "  ",
        )
    left = slow - after - len(found.samples)
    if left:
        yield from wrapped(f"{left:,} came after the 100 that are kept of a run", "  ")


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
    """Parts in one line. `others` is the time of those that have another cause than the first."""

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
            if not first.joins(between, after, _SHORT * split.sample.ticks):
                break
            found[-3:] = [first.with_both(between, after)]
    return found


def _timeline(found: TracedSession, split: SplitSample) -> Iterator[str]:
    sample = split.sample
    faults = sample.count("page_fault", found.runs[sample.run].workers)
    changes = sample.count("cpu_frequency")
    also = f"; page faults of its threads: {faults}" if faults else ""
    also += f"; changes of CPU frequency: {changes}" if changes else ""
    yield f"{_us(found, sample.ticks)} us: run {sample.run}, sample {sample.index}{also}"
    rows = [["from, us", "us", "CPU", "cause"]]
    for line in _lines(split):
        start, time = line.begin - sample.begin, line.end - line.begin
        more = f"; other causes took {_us(found, line.others)} of it" if line.others else ""
        rows.append([_us(found, start), _us(found, time), str(line.cpu), line.cause + more])
    widths = column_widths(rows)
    for row in rows:
        numbers = [cell.rjust(width) for cell, width in zip(row[:3], widths)]
        yield f"  {'  '.join(numbers)}  {row[3]}"[:WIDTH]


def _surroundings(found: TracedSession) -> Iterator[str]:
    smi = "n/a" if found.smi is None else f"{found.smi:,}"
    yield from wrapped(
        f"beside the residual, over the traced runs: {found.steal_ms:,.0f} ms stolen by a"
        f" hypervisor (of all CPUs of the run); system-management interrupts: {smi}"
    )
    if found.overhead:
        low, high = (math.exp(end) for end in found.overhead.interval(_CONFIDENCE))
        yield from wrapped(
            f"tracing: the median of a traced run is {math.exp(found.overhead.value):.2f} times that"
            f" of an untraced one (95 % interval {low:.2f} to {high:.2f},"
            f" {len(found.runs):,} pairs)"
        )
    else:
        yield "tracing: the overhead needs two pairs of runs"
    reasons = Counter((status, reason) for status, reason in found.statuses if status != "ok")
    for (status, reason), count in reasons.most_common():
        yield from wrapped(f"{status}, {count:,} of {len(found.statuses):,} runs: {reason}")
