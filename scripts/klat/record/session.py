"""Reads a session as docs/record.md defines it: session.json, and the rows of runs.csv that belong to it.

Needs the standard library only, because the runner resumes a session on machines without numpy.
A torn last line, a row that does not match its checksum, and a run with rows missing are left out of
`Session.rows` and listed in `Session.problems`. The rest is still read. A session that cannot be read
at all raises SessionError with one sentence.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from klat.base.errors import SessionError, did_you_mean, printable
from klat.record.json_files import SESSION_FILE, TIMED_MODES, read_session_json
from klat.record.rows import COLUMNS, FIGURES, STATUSES, USABLE, Row, parse_pairs
from klat.record.runs_csv import Faults, read_rows

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

    def runs(self) -> list[list[Row]]:
        """The rows of each run together, in the order in which the runs were recorded."""
        batches: dict[tuple[str, str, int, int], list[Row]] = {}
        for row in self.rows:
            batches.setdefault(row.batch, []).append(row)
        return list(batches.values())

    def worst_rows(self) -> Iterator[Row]:
        """Of each run, the row with the worst status."""
        return (max(rows, key=lambda row: STATUSES.index(row.status)) for rows in self.runs())

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
    found: dict[Path, Path] = {}
    for item in paths:
        for session in _sessions_below(Path(item)):
            found.setdefault(session.resolve(), session)
    return list(found.values())


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
