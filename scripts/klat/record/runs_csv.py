"""Reads runs.csv as docs/record.md defines it, and checks the checksum and each column of every row.

A row that fails a check is left out, and the problems name it. The other rows are still read. Needs the
standard library only.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from klat.base.errors import SessionError, printable
from klat.base.bounded_read import read_regular
from klat.record.rows import COLUMNS, BadRow, RowParser, Row, has_odd_bytes

_LARGEST_FILE = 1 << 31
_FAULTS_SHOWN = 8


class Faults:
    """The lines that failed a check, by fault."""

    def __init__(self) -> None:
        self._lines: dict[str, list[int]] = defaultdict(list)

    def add(self, fault: str, line: int) -> None:
        self._lines[fault].append(line)

    def __len__(self) -> int:
        return sum(len(lines) for lines in self._lines.values())

    def sentences(self) -> Iterator[str]:
        for fault, lines in list(self._lines.items())[:_FAULTS_SHOWN]:
            shown = ", ".join(str(line) for line in lines[:5]) + (", ..." if lines[5:] else "")
            noun = "row" if len(lines) == 1 else "rows"
            where = "line" if len(lines) == 1 else "lines"
            yield f"ignored {len(lines)} {noun} of runs.csv ({where} {shown}): {fault}"
        others = sum(len(lines) for lines in list(self._lines.values())[_FAULTS_SHOWN:])
        if others:
            yield f"ignored {others} more rows of runs.csv, for other reasons"


def read_rows(
    file: Path, info: Mapping[str, Any], problems: list[str], faults: Faults
) -> list[Row]:
    """The rows of all complete runs. `info` is session.json. Adds the rows that are left out to
    `problems` and `faults`. SessionError if the header cannot be read."""
    try:
        data = read_regular(file, _LARGEST_FILE)
    except FileNotFoundError:
        problems.append("has no runs.csv: no run has been recorded yet")
        return []
    lines = data.split(b"\n")
    tail = lines.pop()
    if not lines:
        what = "runs.csv holds no complete line" if tail else "runs.csv is empty"
        problems.append(f"{what}: no run has been recorded yet")
        return []
    header = _read_header(file, lines[0], problems)
    if tail:
        problems.append(
            f"ignored the torn last line of runs.csv (line {len(lines) + 1}): the run was killed"
            " while recording; resume the session to repeat it"
        )

    parser = RowParser(header, info, has_odd_bytes(data))
    rows: list[Row] = []
    seen: dict[bytes, int] = {}
    for number, line in enumerate(lines[1:], start=2):
        line = line.removesuffix(b"\r")
        if not line:
            faults.add("empty", number)
        elif line in seen:
            faults.add("repeats an earlier row", number)
        else:
            seen[line] = number
            try:
                rows.append(parser.row(line, number))
            except BadRow as bad:
                faults.add(str(bad), number)
    problems.extend(faults.sentences())
    return _complete_runs(rows, problems)


def _read_header(file: Path, line: bytes, problems: list[str]) -> Sequence[str]:
    where = printable(str(file))
    try:
        text = line.removesuffix(b"\r").decode("utf-8")
        header: list[str] = next(csv.reader([text], strict=True), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise SessionError(f"{where}: its first line is not a CSV header ({error})") from error
    known = ",".join(COLUMNS)
    if text != known and known.startswith(text):
        # The first run was killed while recording. The checksums still prove the later rows.
        problems.append("the header of runs.csv is torn: klat assumes the columns of schema 1")
        return COLUMNS
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        shown = ", ".join(missing[:4]) + (", ..." if missing[4:] else "")
        raise SessionError(f"{where}: its header lacks the columns {shown}")
    if len(set(header)) != len(header):
        raise SessionError(f"{where}: its header names a column twice")
    if header[-1] != "check":
        raise SessionError(f"{where}: the column 'check' is not its last, so no row can be checked")
    unknown = [printable(name)[:40] for name in header if name not in COLUMNS]
    if unknown:
        shown = ", ".join(unknown[:4]) + (", ..." if unknown[4:] else "")
        problems.append(
            f"ignored {len(unknown)} unknown column{'s' if unknown[1:] else ''} of runs.csv"
            f" ({shown}): a newer klat may read them"
        )
    return COLUMNS if tuple(header) == COLUMNS else header


def _complete_runs(rows: Iterable[Row], problems: list[str]) -> list[Row]:
    """The rows of complete runs. Of runs with the same order, only the first is kept."""
    batches: dict[tuple[str, str, int, int], list[Row]] = {}
    for row in rows:
        batches.setdefault(row.batch, []).append(row)

    kept: list[Row] = []
    incomplete = 0
    repeated = 0
    orders: set[int] = set()
    for batch in batches.values():
        if len(batch) == 1:
            whole = batch[0].rows == 1
        else:
            metrics = {row.metric for row in batch}
            whole = len(batch) == len(metrics) and all(row.rows == len(batch) for row in batch)
        if not whole:
            incomplete += 1
        elif batch[0].order and batch[0].order in orders:
            # Choosing among repetitions would be choosing the result.
            repeated += 1
        else:
            orders.add(batch[0].order)
            kept.extend(batch)
    if incomplete:
        problems.append(
            f"ignored {incomplete} incomplete run{'s' if incomplete > 1 else ''} (some of the"
            " rows are missing or failed a check); resume the session to repeat"
            f" {'them' if incomplete > 1 else 'it'}"
        )
    if repeated:
        problems.append(
            f"ignored {repeated} run{'s' if repeated > 1 else ''}: an earlier run has the same place in"
            " the plan"
        )
    return kept
