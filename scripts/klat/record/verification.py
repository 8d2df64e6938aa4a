"""Checks the rows of a session against their samples, in every digit.

A checksum detects damage. It does not detect an edit, because whoever edits a row can also compute its
checksum. The samples detect both. One pass over the samples, in pieces that fit into the cache, checks all
statistics of short rows. The samples of long rows are counted by value. Figures need these counts too, so
SampleFiles keeps them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import repeat
from operator import attrgetter, mul
from typing import Any

import numpy as np

from klat.record.samples import DamagedPairs, SampleFiles, Samples, adjacent, is_counted
from klat.record.rows import batch_of, is_soak
from klat.record.session import FIGURES, Row, Session, SessionError, printable
from klat.stats.distribution import Distribution
from klat.stats.descriptive import (
    P50,
    P90,
    P99,
    ExactRow,
    exact_moments,
    exact_row,
    exact_sums,
    rank,
    supports,
)

_recorded_of = attrgetter("min", "max", "p50", "p90", "p99", "mean", "stddev")
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
    by_file: dict[tuple[str, bool], list[Row]] = {}
    short: list[Row] = []
    figures: list[tuple[int | None, ...]] = []
    for row in session.rows:
        if row.n:
            by_file.setdefault((row.benchmark, is_soak(row.params)), []).append(row)
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
                figures += _figures(samples)
    result.rows += len(short)
    for row, recorded, computed in zip(short, _recorded(short), figures):
        if recorded != computed:
            differences = list(_differing(row, exact_row(files.read(row))))
            result.refuted[row.line] = differences or ["its samples changed while they were read"]
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
    if differences := list(_differing(row, counted.exact_row())):
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


def _figures(samples: Samples) -> Iterator[tuple[int | None, ...]]:
    """The figures of each line of samples, as _recorded() has them."""
    n = samples.shape[1]
    low, high = samples.min(axis=1), samples.max(axis=1)
    ranks = _ranks(n)
    if places := [rank - 1 for rank in ranks if rank]:
        ordered = np.partition(samples, places, axis=1)
    quantiles = (ordered[:, rank - 1].tolist() if rank else repeat(None) for rank in ranks)
    if int(high.max()) <= math.isqrt((2**64 - 1) // n):  # each sum fits 64 bits
        totals = samples.sum(axis=1, dtype=np.uint64).tolist()
        squares = np.einsum("ij,ij->i", samples, samples).tolist()
    else:
        totals, squares = zip(*map(exact_sums, samples))
    moments = zip(*map(exact_moments, repeat(n), totals, squares))
    return zip(low.tolist(), high.tolist(), *quantiles, *moments)


def _recorded(rows: Sequence[Row]) -> Iterator[tuple[Any, ...]]:
    """The figures in the rows: integers, with the mean and the deviation in thousandths."""
    *whole, means, deviations = zip(*map(_recorded_of, rows)) if rows else [()] * 7
    return zip(*whole, map(mul, means, repeat(1000)), map(mul, deviations, repeat(1000)))


@lru_cache(maxsize=64)
def _ranks(n: int) -> list[int]:
    """The rank, from 1, of each quantile that a row can hold; 0 if n does not support it."""
    return [rank(n, q) if supports(n, q) else 0 for q in (P50, P90, P99)]


def _differing(row: Row, exact: ExactRow) -> Iterator[str]:
    for column in FIGURES:
        recorded, computed = getattr(row, column), getattr(exact, column)
        if recorded != computed:
            shown = ["empty" if value is None else value for value in (recorded, computed)]
            yield f"{column} is {shown[0]} in the row and {shown[1]} from the samples"
