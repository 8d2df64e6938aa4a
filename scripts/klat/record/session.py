"""Reads a session as docs/record.md defines it: session.json, and the rows of runs.csv that belong to it.

Needs the standard library only, because the runner resumes a session on machines without numpy.
A torn last line, a row that does not match its checksum, and a run with rows missing are left out of
`Session.rows` and listed in `Session.problems`. The rest is still read. A session that cannot be read
at all raises SessionError with one sentence.
"""

from __future__ import annotations

import csv
import os
import sys
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from klat.base import files
from klat.base.bounded_read import open_below, read_regular
from klat.base.errors import SessionError, did_you_mean, printable
from klat.base.grouping import grouped
from klat.record.json_files import SESSION_FILE, TIMED_MODES, read_session_json
from klat.record.rows import COLUMNS, FIGURES, Row, RowParser, STATUSES, USABLE, batch_of
from klat.record.rows import has_odd_bytes, parse_pairs, start_of

__all__ = [
    "COLUMNS",
    "FIGURES",
    "NOT_MEASURABLE",
    "STATUSES",
    "USABLE",
    "Row",
    "Session",
    "SessionError",
    "find_sessions",
    "parse_pairs",
    "printable",
    "read_session",
]

NOT_MEASURABLE = "not measurable in this mode"
_ROWS_FILE = "runs.csv"


@dataclass(frozen=True)
class Session:
    """One session: its rows that passed all checks, and the problems of the others."""

    path: Path
    info: dict[str, Any]
    rows: list[Row]
    problems: list[str] = field(default_factory=list)
    damaged: int = 0  # lines of runs.csv that failed a check

    @property
    def label(self) -> str:
        return str(self.info["label"])

    @property
    def mode(self) -> str:
        return str(self.info["mode"])

    @property
    def unit(self) -> str:
        return str(self.info["unit"])

    @property
    def boot_id(self) -> str:
        return str(self.info["boot_id"])

    @property
    def khz(self) -> float | None:
        """Ticks per millisecond; None if ticks do not measure time in this mode."""
        if self.unit != "ticks" or self.mode not in TIMED_MODES:
            return None
        return float(self.info["tsc"]["khz"])

    @property
    def figure_unit(self) -> str:
        """The unit of figures: ns, or the unit of the samples if it does not measure time."""
        return "ns" if self.khz else self.unit

    @property
    def quantum(self) -> int:
        """The counter's granularity in ticks."""
        return round(self.info["tsc"].get("quantum") or 1)

    @property
    def step(self) -> int:
        """The smallest difference between two samples. Instructions are counted one by one."""
        return self.quantum if self.unit == "ticks" else 1

    def measurable(self, row: Row) -> bool:
        """False if the row has no samples because this mode cannot measure its metric. The evidence of
        the row is valid."""
        return not row.metric or bool(row.n) or self.mode in TIMED_MODES

    @cached_property
    def runs(self) -> list[list[Row]]:
        """The rows of each run together, in the order in which the runs were recorded."""
        return list(grouped(self.rows, batch_of).values())

    def worst_rows(self) -> Iterator[Row]:
        """Of each run, the row with the worst status."""
        return (max(rows, key=lambda row: STATUSES.index(row.status)) for rows in self.runs)

    def completed_orders(self) -> set[int]:
        """Places in the plan whose run has all its rows, whatever its status."""
        return {row.order for row in self.rows if row.order > 0}


def find_sessions(path: Path | str | Iterable[Path | str]) -> list[Path]:
    """The sessions of a path. It names a session, a label (a directory of sessions), or a directory of
    labels.

    For several paths: the sessions of each in the order given, each session once. SessionError if a
    path does not exist or has no session.
    """
    paths = [path] if isinstance(path, (str, Path)) else list(path)
    by_real_path: dict[Path, Path] = {}
    for item in paths:
        for session in _sessions_below(Path(item)):
            by_real_path.setdefault(session.resolve(), session)
    return list(by_real_path.values())


def _is_session(path: Path) -> bool:
    return (path / SESSION_FILE).exists() or (path / _ROWS_FILE).exists()


def _directories(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))


def _similar(path: Path) -> str:
    """A question for a directory of a similar name beside the path, or below `results`."""
    for place in filter(lambda place: os.access(place, os.R_OK), (path.parent, Path("results"))):
        prefix = "" if place == Path() else f"{place}/"
        if meant := did_you_mean(path.name, [p.name for p in _directories(place)], prefix):
            return meant
    return ""


def _sessions_below(path: Path) -> list[Path]:
    name = printable(str(path))
    try:
        if not path.exists():
            raise SessionError(f"{name}: no such directory{_similar(path)}")
        if not path.is_dir():
            raise SessionError(f"{name}: is a file; give the directory of a session or of a label")
        if _is_session(path):
            return [path]
        below = _directories(path)
        sessions = [p for p in below if _is_session(p)]
        if not sessions:
            sessions = [p for label in below for p in _directories(label) if _is_session(p)]
        for place in {place for p in sessions for place in (p, p.parent)} - {path}:
            if place.is_symlink():
                with files.directory(place):  # refuses what another user may have linked for root
                    pass
    except OSError as error:
        raise SessionError(f"{name}: {error.strerror or error}") from error
    if not sessions:
        raise SessionError(f"{name}: holds no session (no session.json in it or below it)")
    return sessions


def read_session(path: Path | str) -> Session:
    """Read one session directory."""
    path = Path(path)
    name = printable(str(path))
    if not path.exists():
        raise SessionError(f"{name}: no such directory")
    if not path.is_dir():
        raise SessionError(f"{name}: is not a directory; give the directory of a session")
    info = read_session_json(path)
    problems: list[str] = []
    faults = Faults()
    rows = read_rows(path / _ROWS_FILE, info, problems, faults)
    return Session(path=path, info=info, rows=rows, problems=problems, damaged=len(faults))


_LARGEST_FILE = 1 << 31
_FAULTS_SHOWN = 8
_WRITING_NS = 10_000_000_000  # waits for the lock of the session and for the disk


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

    seen: dict[bytes, int] = {}
    faulty: dict[int, str] = {}
    for number, line in enumerate(lines[1:], start=2):
        line = line.removesuffix(b"\r")
        if not line:
            faulty[number] = "empty"
        elif seen.setdefault(line, number) != number:
            faulty[number] = "repeats an earlier row"
    parser = RowParser(header, info, has_odd_bytes(data))
    rows = parser.rows({number: line for line, number in seen.items()}, faulty)
    for number, fault in sorted(faulty.items()):
        faults.add(fault, number)
    problems.extend(faults.sentences())
    return _complete_runs(rows, problems)


def _read_header(file: Path, line: bytes, problems: list[str]) -> Sequence[str]:
    where = printable(str(file))
    try:
        text = line.removesuffix(b"\r").decode("utf-8-sig")
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
    """The rows of complete runs. Of runs with the same order or the same start, only the first is kept."""
    kept: list[Row] = []
    firsts: list[Row] = []
    incomplete = repeated = restarted = 0
    orders: set[int] = set()
    starts: set[tuple[str, int]] = set()
    for batch in grouped(rows, batch_of).values():
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
        elif start_of(batch[0]) in starts:
            restarted += 1
        else:
            orders.add(batch[0].order)
            starts.add(start_of(batch[0]))
            kept.extend(batch)
            firsts.append(batch[0])
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
    if restarted:
        problems.append(
            f"ignored {restarted} run{'s' if restarted > 1 else ''}: an earlier run of the program has the"
            " same start"
        )
    if misplaced := _count_misplaced(firsts):
        problems.append(
            f"{misplaced} run{'s' if misplaced > 1 else ''} of runs.csv ended before an earlier run: the clock"
            " was set back, or runs.csv contains the rows of two sessions"
        )
    return kept


def _count_misplaced(rows: Iterable[Row]) -> int:
    """How many runs ended before an earlier run of the file. `rows` has one row of each run. A program writes its
    rows when its run ends; programs that end at the same time write in any order. A segment of a soak itself
    records that the clock was set, so later runs are compared only with each other."""
    latest_ns, count = 0, 0
    for row in rows:
        end_ns = row.start_ns + (row.elapsed_ns or 0)
        count += end_ns + _WRITING_NS < latest_ns
        latest_ns = 0 if "clock_set_ms=" in row.evidence else max(latest_ns, end_ns)
    return count


def plain_samples(session: Session, row: Row) -> array[int]:
    """The samples of a row. SessionError if some are missing."""
    samples = array("Q")
    path = session.path / "samples" / f"{row.benchmark}.u64"
    if not row.n:
        return samples
    assert row.first_sample is not None  # klat.record.rows refuses such rows
    try:
        with open_below(path) as file:
            file.seek(samples.itemsize * row.first_sample)
            samples.fromfile(file, row.n)
    except (OSError, EOFError) as error:
        raise SessionError(
            f"{printable(str(path))}: the samples of run {row.run} cannot be read: {error}"
        ) from error
    if sys.byteorder == "big":
        samples.byteswap()
    return samples
