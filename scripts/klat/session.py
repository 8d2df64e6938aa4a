"""Reads a session as docs/record.md defines it. The only reader of session.json and runs.csv.

Needs the standard library only, for the runner resumes from a session on machines without numpy.
What cannot be believed (a torn last line, a row that does not match its checksum, a run with rows
missing) is left out of `Session.rows` and told in `Session.problems`; it never stops the reading of
the rest. A session that cannot be understood at all raises SessionError with one sentence.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any

SCHEMA = 1
STATUSES = ("ok", "disturbed", "invalid", "error", "skipped")
# The statuses that count in statistics; docs/record.md says why `disturbed` is among them.
USABLE = ("ok", "disturbed")
UNITS = ("ticks", "instructions")
MODES = ("hardware", "virtual", "emulated", "counted")
# The modes in which a tick can be turned into nanoseconds.
TIMED_MODES = ("hardware", "virtual")
NOT_MEASURABLE = "not measurable in this mode"


class SessionError(Exception):
    """A session, or a path said to be one, that cannot be read. The message is one sentence."""


@dataclass(frozen=True)
class Row:
    """One line of runs.csv: one metric of one run. An empty numeric field is None."""

    boot: str
    order: int
    benchmark: str
    params: str
    run: int
    metric: str
    unit: str
    status: str
    reason: str
    first_sample: int | None
    n: int | None
    mean: Decimal | None
    stddev: Decimal | None
    min: int | None
    p50: int | None
    p90: int | None
    p99: int | None
    max: int | None
    floor: int | None
    cpus: str
    placement: str
    policy: str
    voluntary: str
    involuntary: str
    minor_faults: str
    major_faults: str
    migrations: str
    wait_ns: str
    irq_res: str
    irq_cal: str
    irq_tlb: str
    irq_loc: str
    steal_ms: Decimal | None
    smi: int | None
    evidence: str
    start_ns: int
    elapsed_ns: int | None
    rows: int
    check: str
    line: int  # in runs.csv, from 1; not a column

    @property
    def usable(self) -> bool:
        """Whether the row counts in statistics. One without samples, of a metric that was not
        measurable, does not: see Session.measurable()."""
        return self.status in USABLE and self.metric != "" and bool(self.n)

    @property
    def batch(self) -> tuple[str, str, int, int]:
        """What the rows of one run share."""
        return (self.benchmark, self.params, self.run, self.start_ns)

    def options(self) -> dict[str, str]:
        return parse_pairs(self.params)


COLUMNS = tuple(f.name for f in fields(Row) if f.name != "line")
_REQUIRED_INTEGERS = frozenset({"order", "run", "start_ns", "rows"})
_INTEGERS = frozenset(
    {"first_sample", "n", "min", "p50", "p90", "p99", "max", "floor", "smi", "elapsed_ns"}
)
_THOUSANDTHS = frozenset({"mean", "stddev"})
_DECIMALS = frozenset({"steal_ms"})

# Of samples, and empty without any.
FIGURES = ("mean", "stddev", "min", "p50", "p90", "p99", "max")
_TYPED = tuple(sorted(_REQUIRED_INTEGERS | _INTEGERS | _THOUSANDTHS | _DECIMALS, key=COLUMNS.index))

_INTEGER = re.compile(r"[0-9]{1,20}", re.ASCII)
_THOUSANDTH = re.compile(r"[0-9]{1,20}\.[0-9]{3}", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,20}(\.[0-9]{1,9})?", re.ASCII)


def _number(name: str) -> str:
    if name in _REQUIRED_INTEGERS:
        return r"[0-9]{1,20}"
    if name in _INTEGERS:
        return r"([0-9]{1,20})?"
    return f"({(_THOUSANDTH if name in _THOUSANDTHS else _DECIMAL).pattern})?"


# The numbers of a row in one go. Where they do not match, each is read for itself and told what is wrong with it.
_NUMBERS = re.compile(",".join(map(_number, _TYPED)), re.ASCII)
_numbers_of = itemgetter(*map(COLUMNS.index, _TYPED))
_KINDS = tuple(Decimal if name in _THOUSANDTHS | _DECIMALS else int for name in _TYPED)


@dataclass(frozen=True)
class Session:
    """All that one session holds and that can be believed."""

    path: Path
    info: dict[str, Any]
    rows: list[Row]
    problems: list[str] = field(default_factory=list)
    damaged: int = 0  # lines of runs.csv that were ignored for what they say

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
        """Ticks per millisecond, where that turns a tick into time; else None."""
        if self.unit != "ticks" or self.mode not in TIMED_MODES:
            return None
        return _positive(self.info["tsc"].get("khz"))

    @property
    def quantum(self) -> int:
        """The counter's granularity in ticks."""
        quantum = _positive(self.info["tsc"].get("quantum"))
        return max(1, round(quantum)) if quantum is not None else 1

    @property
    def step(self) -> int:
        """The least that two samples can differ by. Instructions are counted one by one."""
        return self.quantum if self.unit == "ticks" else 1

    def measurable(self, row: Row) -> bool:
        """False where an emulator gave the row's metric no number: the run's evidence stands, and
        there is no sample."""
        return not row.metric or bool(row.n) or self.mode in TIMED_MODES

    def runs(self) -> list[list[Row]]:
        """The rows of each run together, in the order in which the runs were recorded."""
        batches: dict[tuple[str, str, int, int], list[Row]] = {}
        for row in self.rows:
            batches.setdefault(row.batch, []).append(row)
        return list(batches.values())

    def completed_orders(self) -> set[int]:
        """Places in the plan whose run has all its rows, whatever its status."""
        return {row.order for row in self.rows if row.order > 0}


def parse_pairs(text: str) -> dict[str, str]:
    """`a=1;b=2`, as in the columns params, policy and evidence, as a dictionary."""
    pairs = (item.partition("=") for item in text.split(";") if item)
    return {name: value for name, _, value in pairs}


def printable(text: str) -> str:
    """The text without anything that could disturb a terminal or a table."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def find_sessions(path: Path | str | Iterable[Path | str]) -> list[Path]:
    """The sessions that a path stands for: itself, those in it (a label), or those of the labels in
    it.

    A list of paths gives the sessions of each, every session once, in the order given. Raises
    SessionError where a path does not exist or leads to no session.
    """
    paths = [path] if isinstance(path, (str, Path)) else list(path)
    found: dict[Path, Path] = {}
    for item in paths:
        for session in _sessions_below(Path(item)):
            found.setdefault(session.resolve(), session)
    return list(found.values())


def _is_session(path: Path) -> bool:
    return (path / "session.json").is_file() or (path / "runs.csv").is_file()


def _directories(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))


def _sessions_below(path: Path) -> list[Path]:
    name = printable(str(path))
    try:
        if not path.exists():
            raise SessionError(f"{name}: no such directory")
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
    info = _read_info(path)
    problems: list[str] = []
    faults = _Faults()
    rows = _read_rows(path, info, problems, faults)
    return Session(path=path, info=info, rows=rows, problems=problems, damaged=len(faults))


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SessionError(f"{printable(str(path))}: {error.strerror or error}") from error


def _positive(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


def _read_info(path: Path) -> dict[str, Any]:
    name = printable(str(path))
    if not path.exists():
        raise SessionError(f"{name}: no such directory")
    if not path.is_dir():
        raise SessionError(f"{name}: is not a directory; give the directory of a session")
    file = path / "session.json"
    if not file.exists():
        raise SessionError(f"{name}: has no session.json, so it is not a session of klat")
    where = printable(str(file))
    try:
        info = json.loads(_read_bytes(file).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise SessionError(f"{where}: is not valid JSON ({error})") from error
    if not isinstance(info, dict):
        raise SessionError(f"{where}: is not a JSON object")
    schema = info.get("schema")
    if isinstance(schema, bool) or not isinstance(schema, int):
        raise SessionError(f"{where}: does not say its schema, so it cannot be read safely")
    if schema > SCHEMA:
        raise SessionError(
            f"{where}: has schema {schema} and this klat reads {SCHEMA}; use a newer klat"
        )
    if schema != SCHEMA:
        raise SessionError(f"{where}: has schema {schema}, which no klat wrote; it was edited")
    for key in ("label", "boot_id", "mode", "unit"):
        if not isinstance(info.get(key), str):
            raise SessionError(f"{where}: lacks the text '{key}'")
    for key, known in (("mode", MODES), ("unit", UNITS)):
        if info[key] not in known:
            raise SessionError(
                f"{where}: {key} is '{printable(info[key])}', not one of {', '.join(known)}"
            )
    if not isinstance(info.get("tsc"), dict):
        raise SessionError(f"{where}: lacks the object 'tsc', the counter's calibration")
    if info["unit"] == "ticks" and info["mode"] in TIMED_MODES:
        if _positive(info["tsc"].get("khz")) is None:
            raise SessionError(f"{where}: tsc.khz is not a positive number")
    return info


class _Faults:
    """Collects the lines that cannot be believed, by what is wrong with them."""

    def __init__(self) -> None:
        self._lines: dict[str, list[int]] = defaultdict(list)

    def add(self, fault: str, line: int) -> None:
        self._lines[fault].append(line)

    def __len__(self) -> int:
        return sum(len(lines) for lines in self._lines.values())

    def sentences(self) -> Iterator[str]:
        for fault, lines in self._lines.items():
            shown = ", ".join(str(line) for line in lines[:5]) + (", ..." if lines[5:] else "")
            noun = "row" if len(lines) == 1 else "rows"
            where = "line" if len(lines) == 1 else "lines"
            yield f"ignored {len(lines)} {noun} of runs.csv ({where} {shown}): {fault}"


def _read_rows(path: Path, info: dict[str, Any], problems: list[str], faults: _Faults) -> list[Row]:
    file = path / "runs.csv"
    if not file.exists():
        problems.append("has no runs.csv: no run has been recorded yet")
        return []
    lines = _read_bytes(file).split(b"\n")
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
                rows.append(_parse_row(line, header, info, number))
            except _BadRow as bad:
                faults.add(str(bad), number)
    problems.extend(faults.sentences())
    return _complete_runs(rows, problems)


def _read_header(file: Path, line: bytes, problems: list[str]) -> Sequence[str]:
    where = printable(str(file))
    try:
        text = line.removesuffix(b"\r").decode("utf-8")
        header: list[str] = next(csv.reader([text], strict=True), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise SessionError(f"{where}: its first line is no CSV header ({error})") from error
    known = ",".join(COLUMNS)
    if text != known and known.startswith(text):
        # The first run was killed while recording; later rows have their checksums to prove them.
        problems.append("the header of runs.csv is torn: its rows are read as those of schema 1")
        return COLUMNS
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        shown = ", ".join(missing[:4]) + (", ..." if missing[4:] else "")
        raise SessionError(f"{where}: its header lacks the columns {shown}")
    if len(set(header)) != len(header):
        raise SessionError(f"{where}: its header names a column twice")
    if header[-1] != "check":
        raise SessionError(f"{where}: the column 'check' is not its last, so no row can be checked")
    unknown = [printable(name) for name in header if name not in COLUMNS]
    if unknown:
        problems.append(
            f"ignored {len(unknown)} unknown column{'s' if unknown[1:] else ''} of runs.csv"
            f" ({', '.join(unknown)}): a newer klat may read them"
        )
    return COLUMNS if tuple(header) == COLUMNS else header


class _BadRow(Exception):
    pass


def _parse_row(line: bytes, header: Sequence[str], info: dict[str, Any], number: int) -> Row:
    body, _, check = line.rpartition(b",")
    if hashlib.sha256(body).hexdigest()[:16].encode() != check:
        raise _BadRow(
            "does not match its checksum, so it was edited or damaged; resume the session to"
            " measure it again"
        )
    try:
        text = line.decode("utf-8")
        values = next(csv.reader([text], strict=True)) if '"' in text else text.split(",")
    except (UnicodeDecodeError, csv.Error, StopIteration) as error:
        raise _BadRow("is not CSV in UTF-8") from error
    if len(values) != len(header):
        raise _BadRow(f"has {len(values)} fields where the header has {len(header)}")
    typed = _typed(values, header)
    if typed["status"] not in STATUSES:
        raise _BadRow(f"status is '{printable(typed['status'])[:20]}', which is not known")
    if typed["boot"] != info["boot_id"]:
        raise _BadRow("was recorded in another boot than the session")
    if typed["unit"] != info["unit"]:
        raise _BadRow(f"unit is not '{info['unit']}', the session's")
    if typed["n"] and typed["first_sample"] is None:
        raise _BadRow("has samples and does not say where")
    measurable = info["mode"] in TIMED_MODES or typed["n"] is None
    if typed["status"] in USABLE and (not typed["metric"] or (measurable and not typed["n"])):
        raise _BadRow(f"status is '{typed['status']}' without a metric or samples")
    if not typed["n"] and any(typed[name] is not None for name in FIGURES):
        raise _BadRow("has figures without samples")
    typed["line"] = number
    # Past the constructor of a frozen class, which costs as much as all the rest of the parsing.
    row = object.__new__(Row)
    object.__setattr__(row, "__dict__", typed)
    return row


def _typed(values: Sequence[str], header: Sequence[str]) -> dict[str, Any]:
    typed: dict[str, Any] = dict(zip(header, values))
    if header is COLUMNS:
        numbers = _numbers_of(values)
        if _NUMBERS.fullmatch(",".join(numbers)):
            typed.update(zip(_TYPED, [k(x) if x else None for k, x in zip(_KINDS, numbers)]))
            return typed
    for name in _TYPED:
        typed[name] = _convert(name, typed[name])
    return typed if len(header) == len(COLUMNS) else {name: typed[name] for name in COLUMNS}


def _convert(name: str, text: str) -> object:
    """Of a column that is not text."""
    if name in _REQUIRED_INTEGERS or name in _INTEGERS:
        if not text and name not in _REQUIRED_INTEGERS:
            return None
        if not _INTEGER.fullmatch(text):
            raise _BadRow(f"{name} is '{printable(text)[:20]}', not a whole number")
        return int(text)
    if not text:
        return None
    pattern = _THOUSANDTH if name in _THOUSANDTHS else _DECIMAL
    if not pattern.fullmatch(text):
        raise _BadRow(f"{name} is '{printable(text)[:20]}', not a number as recorded")
    return Decimal(text)


def _complete_runs(rows: Iterable[Row], problems: list[str]) -> list[Row]:
    """Only the rows of runs that are whole, and each place of the plan once."""
    batches: dict[tuple[str, str, int, int], list[Row]] = {}
    for row in rows:
        batches.setdefault(row.batch, []).append(row)

    kept: list[Row] = []
    incomplete = 0
    repeated = 0
    orders: set[int] = set()
    for batch in batches.values():
        metrics = {row.metric for row in batch}
        whole = len(batch) == len(metrics) and all(row.rows == len(batch) for row in batch)
        if not whole:
            incomplete += 1
        elif batch[0].order and batch[0].order in orders:
            # The first stays: choosing among repetitions would be choosing the result.
            repeated += 1
        else:
            orders.add(batch[0].order)
            kept.extend(batch)
    if incomplete:
        problems.append(
            f"ignored {incomplete} incomplete run{'s' if incomplete > 1 else ''} (some of the"
            " rows are missing or cannot be believed); resume the session to repeat"
            f" {'them' if incomplete > 1 else 'it'}"
        )
    if repeated:
        problems.append(
            f"ignored {repeated} run{'s' if repeated > 1 else ''} of a place in the plan that"
            " was already complete"
        )
    return kept
