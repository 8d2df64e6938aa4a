"""Checks the rows of a session against their samples, in every digit.

A checksum detects damage. It does not detect an edit, because whoever edits a row can also compute its
checksum. The samples detect both. One pass over the samples, in pieces that fit into the cache, checks all
statistics of short rows. The samples of long rows are counted by value. Figures need these counts too, so
SampleFiles keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from operator import attrgetter, mul
from typing import Any

from klat.base.grouping import grouped
from klat.record.rows import batch_of, is_soak
from klat.record.samples import DamagedPairs, SampleFiles, adjacent, is_counted
from klat.record.session import FIGURES, Row, Session, SessionError, printable
from klat.stats.descriptive import RowFigures, row_figures, thousandths
from klat.stats.distribution import Distribution

_recorded_of = attrgetter(*FIGURES)
_place_of = attrgetter("first_sample", "line")


@dataclass
class Verification:
    """`rows`: the number of rows checked. `refuted`: the differences, by line of runs.csv. `unread`: why the
    samples of a row cannot be read, by line of runs.csv."""

    rows: int = 0
    refuted: dict[int, list[str]] = field(default_factory=dict)
    unread: dict[int, str] = field(default_factory=dict)


def verify(session: Session, files: SampleFiles | None = None) -> Verification:
    """Check every row that has samples, whatever its status. `files` are the samples of the session."""
    result = Verification()
    files = files or SampleFiles(session)
    short: list[Row] = []
    figures: list[RowFigures] = []
    sampled = (row for row in session.rows if row.n)
    by_file = grouped(sampled, lambda row: (row.benchmark, is_soak(row.params)))
    for (_, soak), rows in by_file.items():
        rows.sort(key=_place_of)
        if soak:
            _check_soak(files, rows, result)
            continue
        for group in adjacent(_apart(rows, result)):
            if is_counted(group[0]):
                _check_counted(files, group[0], result)
                continue
            for part, samples in files.block(group):
                if isinstance(samples, SessionError):
                    result.unread[part[0].line] = str(samples)
                    continue
                short += part
                figures += row_figures(samples)
    result.rows += len(short)
    for row, recorded, computed in zip(short, _recorded(short), figures):
        if recorded != computed:
            result.refuted[row.line] = _differing(recorded, computed)
    return result


def _apart(rows: Sequence[Row], result: Verification) -> list[Row]:
    """The rows that share no samples with an earlier row. `rows` is in the order of samples. If two rows
    share samples, one is a copy of the other."""
    kept: list[Row] = []
    end = 0
    for row in rows:
        first = row.first_sample or 0
        if first < end:
            result.refuted[row.line] = [_shared(kept[-1])]
        else:
            kept.append(row)
            end = first + (row.n or 0)
    return kept


def _shared(row: Row) -> str:
    return f"it shares samples with line {row.line}"


def _check_soak(files: SampleFiles, rows: Sequence[Row], result: Verification) -> None:
    """Check rows whose samples are counted by value. `rows` is in the order of their pairs."""
    end, last = 0, rows[0]
    for row in rows:
        counted = _check_counted(files, row, result)
        if counted is None:
            continue
        first = row.first_sample or 0
        if first < end:
            result.rows -= 1
            result.refuted[row.line] = [_shared(last)]
            continue
        end, last = first + len(counted.values), row


def _check_counted(files: SampleFiles, row: Row, result: Verification) -> Distribution | None:
    """Check a row by its samples, counted by value. None if they cannot be read."""
    try:
        counted = files.distribution(row)
    except DamagedPairs as error:
        result.refuted[row.line] = [str(error)]
        return None
    except SessionError as error:
        result.unread[row.line] = str(error)
        return None
    result.rows += 1
    (recorded,) = _recorded([row])
    if differences := _differing(recorded, counted.row_figures()):
        result.refuted[row.line] = differences
    return counted


def believed(session: Session, files: SampleFiles) -> Session:
    """The session without the runs of refuted rows. Its problems list the runs that are left out and the
    rows that cannot be checked."""
    result = verify(session, files)
    files.release()
    bad = {batch_of(row) for row in session.rows if row.line in result.refuted}
    kept = [row for row in session.rows if batch_of(row) not in bad] if bad else session.rows
    problems = list(session.problems)
    if bad:
        line = min(result.refuted)
        problems.append(
            f"left out {len(bad)} run{'s' if len(bad) > 1 else ''} whose rows contradict their samples:"
            " the rows were edited or the samples are damaged"
            f" (line {line}: {result.refuted[line][0]}); klat summary --verify lists all"
        )
    if result.unread:
        count = len(result.unread)
        reasons = list(dict.fromkeys(result.unread.values()))
        problems.append(
            f"not verified: the samples of {count:,} row{'s' if count > 1 else ''} cannot be read"
            f" ({reasons[0]})"
        )
    return replace(session, rows=kept, problems=problems)


def failures(session: Session) -> tuple[int, list[str]]:
    """The number of rows checked, and a sentence for each failure."""
    result = verify(session)
    where = printable(str(session.path / "runs.csv"))
    sentences = []
    if session.damaged:
        sentences.append(f"{where}: {session.damaged} damaged rows could not be verified")
    for row in session.rows:
        name = f"{where} line {row.line} ({printable(row.benchmark)} {printable(row.metric)})"
        sentences += (f"{name}: {difference}" for difference in result.refuted.get(row.line, ()))
        if row.line in result.unread:
            sentences.append(f"{name}: {result.unread[row.line]}")
    return result.rows, sentences


def _recorded(rows: Sequence[Row]) -> Iterator[tuple[Any, ...]]:
    """The figures in the rows: integers, with the mean and the deviation in thousandths."""
    means, deviations, *whole = zip(*map(_recorded_of, rows)) if rows else [()] * 7
    return zip(map(mul, means, repeat(1000)), map(mul, deviations, repeat(1000)), *whole)


def _differing(recorded: Sequence[Any], computed: RowFigures) -> list[str]:
    return [
        f"{column} is {_shown(column, a)} in the row and {_shown(column, b)} from the samples"
        for column, a, b in zip(FIGURES, recorded, computed)
        if a != b
    ]


def _shown(column: str, figure: Any) -> object:
    if figure is None:
        return "empty"
    return thousandths(int(figure)) if column in ("mean", "stddev") else figure
