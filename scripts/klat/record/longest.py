"""Reads samples/longest.csv: the samples that soaks keep whole, with their times.

docs/samples.md defines the columns. A line counts only if it agrees with a row of runs.csv. Needs the
standard library only.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from klat.base.bounded_read import open_below
from klat.base.errors import SessionError, printable
from klat.base.grouping import grouped
from klat.record.rows import Row
from klat.record.session import Session

Key = tuple[str, str, str]  # benchmark, params, metric

FILE = Path("samples", "longest.csv")
_HEADER = "benchmark,run,metric,index,time_ns,cpu,value,involuntary,steal_ticks,smi"
_LARGEST = 1 << 31
_LONGEST_LINE = 1 << 10
_FIELD = r"([^,\x00-\x1f\x7f]{1,255})"
_COUNT = r"([0-9]{1,19})"
_LINE = re.compile(
    rf"{_FIELD},{_COUNT},{_FIELD},{_COUNT},{_COUNT}?,([0-9]{{1,6}})?,([0-9]{{1,20}}),(-?[0-9]{{1,19}}),"
    rf"(-?[0-9]{{1,19}})?,{_COUNT}?",
    re.ASCII,
)


class NoLongestSamples(SessionError):
    """The file does not exist, or it is empty."""


@dataclass(frozen=True)
class KeptSample:
    """One sample. `value` is in the session's unit. `time_ns` and `cpu` are None where they are
    unknown. The other counts are of its segment, up to this sample."""

    row: Row
    index: int
    time_ns: int | None
    cpu: int | None
    value: int
    involuntary: int
    steal_ticks: int | None
    smi: int | None


def longest_samples(
    session: Session, count: int, problems: list[str], of_rows: Container[int] | None = None
) -> dict[Key, list[KeptSample]]:
    """The `count` longest samples of each metric of each soak, by (benchmark, params, metric), the
    longest first. Only of segments that count, and with `of_rows` only of the rows on these lines of
    runs.csv. Adds a sentence on lines that are damaged or missing to `problems`. NoLongestSamples if
    there is no file or an empty one, SessionError if it cannot be read."""
    segments = (row for row in session.rows if row.soak)
    rows = grouped(segments, lambda row: (row.benchmark, row.run, row.metric))
    if not rows:
        return {}
    path = session.path / FILE
    # A heap of each: its smallest sample is first. `number` makes equal ones comparable.
    longest: dict[Key, list[tuple[int, int, KeptSample]]] = {}
    complete: set[int] = set()  # the lines of the rows whose longest sample is there
    damaged: list[int] = []
    for number, line in _lines(path):
        match = _LINE.fullmatch(line)
        if not match:
            damaged.append(number)
            continue
        benchmark, run, metric, cpu, *numbers = match.group(1, 2, 3, 6, 4, 5, 7, 8, 9, 10)
        of = _row(rows.get((benchmark, int(run), metric), ()), cpu, numbers[1])
        if of is None:
            continue  # of a segment that was killed before its row was written
        sample = _sample(of, cpu, numbers)
        if sample.value == of.max:
            complete.add(of.line)
        if not (of.min or 0) <= sample.value <= (of.max or 0):
            damaged.append(number)
        elif of.usable and (of_rows is None or of.line in of_rows):
            heap = longest.setdefault((benchmark, of.params, metric), [])
            heapq.heappush(heap, (sample.value, -number, sample))
            if len(heap) > count:
                heapq.heappop(heap)
    if damaged:
        problems.append(
            f"{printable(str(path))}: ignored {len(damaged):,} damaged"
            f" line{'s' if damaged[1:] else ''}, the first is line {damaged[0]:,}"
        )
    if lacking := sum(_lacks(row, longest, complete) for its in rows.values() for row in its):
        problems.append(
            f"{printable(str(path))}: lacks the longest sample of {lacking:,}"
            f" segment{'s' if lacking > 1 else ''}, so the longest delays may be others: the disk was"
            " full, or the file was cut off or edited (then copy the session again)"
        )
    return {key: [item[2] for item in sorted(heap, reverse=True)] for key, heap in longest.items()}


def _lacks(
    row: Row, longest: Mapping[Key, list[tuple[int, int, KeptSample]]], complete: set[int]
) -> bool:
    """Whether the row's longest sample is not there, although shorter ones of the soak are."""
    heap = longest.get((row.benchmark, row.params, row.metric))
    return bool(row.usable and heap and (row.max or 0) > heap[0][0] and row.line not in complete)


def _row(rows: Sequence[Row], cpu: str | None, time_ns: str | None) -> Row | None:
    """The row of the segment. Where programs soak together, the CPU tells them apart; where they
    soak one after the other, the time."""
    if len(rows) > 1:
        rows = [row for row in rows if cpu in re.split("[;=]", row.cpus)]
    if len(rows) > 1 and time_ns:
        at = int(time_ns)
        rows = [min(rows, key=lambda row: _distance(row, at))]
    return rows[0] if len(rows) == 1 else None


def _distance(row: Row, time_ns: int) -> int:
    """From a time to the segment; 0 within it."""
    return max(0, row.start_ns - time_ns, time_ns - row.start_ns - (row.elapsed_ns or 0))


def _sample(row: Row, cpu: str | None, texts: Sequence[str | None]) -> KeptSample:
    index, time_ns, value, involuntary, steal, smi = [int(text) if text else None for text in texts]
    assert index is not None and value is not None  # the pattern requires them
    place = int(cpu) if cpu else None
    return KeptSample(row, index, time_ns, place, value, involuntary or 0, steal, smi)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The complete lines after the header, with their numbers. A last line without its end is of a
    segment that was killed."""
    name = printable(str(path))
    try:
        file = open_below(path)
    except FileNotFoundError:
        raise NoLongestSamples(f"{name} is missing") from None
    with file:
        if file.seek(0, 2) > _LARGEST:
            raise SessionError(f"{name}: is larger than {_LARGEST >> 30} GiB")
        file.seek(0)
        with open(file.fileno(), "rb", closefd=False) as buffered:
            header = buffered.readline(_LONGEST_LINE)
            if not header:  # on a full disk
                raise NoLongestSamples(f"{name} is empty")
            if header.rstrip(b"\n") != _HEADER.encode():
                raise SessionError(
                    f"{name}: its first line is not the header of klat's longest samples"
                )
            number = 1
            while line := buffered.readline(_LONGEST_LINE):
                number += 1
                if line.endswith(b"\n") or len(line) == _LONGEST_LINE:
                    yield number, line[:-1].decode("utf-8", "replace")
