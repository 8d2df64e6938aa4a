"""Reads runs.csv as docs/record.md defines it: each row is checked, by its checksum and column by column.

A row that cannot be believed is left out and told among the problems. It never stops the reading of the
rest. Needs the standard library only.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any

from klat.errors import SessionError, printable
from klat.reading import read_regular
from klat.record_files import LARGEST_INTEGER, TIMED_MODES

STATUSES = ("ok", "disturbed", "invalid", "error", "skipped")
# The statuses that count in statistics; docs/record.md says why `disturbed` is among them.
USABLE = ("ok", "disturbed")


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
# Of samples, and empty without any. Samples support the quantiles among them only if they are enough.
FIGURES = ("mean", "stddev", "min", "p50", "p90", "p99", "max")


def parse_pairs(text: str) -> dict[str, str]:
    """`a=1;b=2`, as in the columns params, policy and evidence, as a dictionary."""
    pairs = (item.partition("=") for item in text.split(";") if item)
    return {name: value for name, _, value in pairs}


@dataclass(frozen=True)
class _Numbers:
    """What a column of numbers holds: from 0 to `high`, with `decimals` behind it, or nothing where it
    is not needed."""

    high: int
    needed: bool = False
    decimals: str = ""

    @property
    def convert(self) -> Callable[[str], Any]:
        return Decimal if self.decimals else int

    @property
    def quick(self) -> str:
        """The pattern of numbers that need no comparison with `high`: fewer digits, or as many and a
        lower first one."""
        digits = str(self.high)
        first = f"[0-{int(digits[0]) - 1}]?[0-9]{{1,{len(digits) - 1}}}"
        return f"{first}{self.decimals}" if self.needed else f"(?:{first}{self.decimals})?"

    def read(self, name: str, text: str) -> object:
        if not text and not self.needed:
            return None
        if not re.fullmatch(f"[0-9]{{1,20}}{self.decimals}", text, re.ASCII):
            what = "a number as recorded" if self.decimals else "a whole number"
            raise _BadRow(f"{name} is '{printable(text)[:20]}', not {what}")
        value = self.convert(text)
        if value > self.high:
            raise _BadRow(f"{name} is {text}, which is more than {self.high}")
        return value


_SAMPLE = 2**64 - 1
_THOUSANDTHS = r"\.[0-9]{3}"
_NUMBERS = {
    "order": _Numbers(LARGEST_INTEGER, needed=True),
    "run": _Numbers(LARGEST_INTEGER, needed=True),
    "first_sample": _Numbers(2**59),  # so that its place in bytes is a file's
    "n": _Numbers(2**32 - 1),  # so that the sum of squares stays exact
    "mean": _Numbers(_SAMPLE, decimals=_THOUSANDTHS),
    "stddev": _Numbers(_SAMPLE, decimals=_THOUSANDTHS),
    "min": _Numbers(_SAMPLE),
    "p50": _Numbers(_SAMPLE),
    "p90": _Numbers(_SAMPLE),
    "p99": _Numbers(_SAMPLE),
    "max": _Numbers(_SAMPLE),
    "floor": _Numbers(_SAMPLE),
    "steal_ms": _Numbers(LARGEST_INTEGER, decimals=r"(?:\.[0-9]{1,9})?"),
    "smi": _Numbers(_SAMPLE),
    "start_ns": _Numbers(LARGEST_INTEGER, needed=True),
    "elapsed_ns": _Numbers(LARGEST_INTEGER),
    "rows": _Numbers(4096, needed=True),
}
# Names, which files and figures are called after: their characters. A benchmark names a file.
_NAMES = {
    "benchmark": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}", re.ASCII),
    "metric": re.compile(r"[^\x00-\x1f\x7f]{0,255}"),
    "placement": re.compile(r"[^\x00-\x1f\x7f]{0,255}"),
}
# Every other text: how long it may be. Most rows are shorter as a whole.
_LONGEST = {"params": 1 << 13, "reason": 1 << 13}
_LONGEST_LIST = 1 << 18  # a value for each CPU
_SHORT_LINE = 1 << 12
_FAULTS_SHOWN = 8
_LARGEST_FILE = 1 << 31
# A number in a text of pairs has no more digits than the largest sample.
_MOST_DIGITS = 20
_DIGITS = bytes(0x30 if chr(byte).isdigit() else 0x20 for byte in range(128)) + b" " * 128

# The numbers of a row in one go. Where they do not match, each is read for itself and told what is wrong with it.
_QUICK = re.compile(",".join(numbers.quick for numbers in _NUMBERS.values()), re.ASCII)
_numbers_of = itemgetter(*map(COLUMNS.index, _NUMBERS))
_names_of = itemgetter(*_NAMES)
_always_of = itemgetter("mean", "stddev", "min", "max")
_CONVERT = tuple(numbers.convert for numbers in _NUMBERS.values())


class Faults:
    """Collects the lines that cannot be believed, by what is wrong with them."""

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
    """The rows of all whole runs. `info` is session.json; `problems` and `faults` take what was left
    out. SessionError where the file cannot be understood at all."""
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

    parser = _Parser(header, info, _has_odd_bytes(data))
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
            except _BadRow as bad:
                faults.add(str(bad), number)
    problems.extend(faults.sentences())
    return _complete_runs(rows, problems)


def _has_odd_bytes(data: bytes) -> bool:
    """Whether there is a NUL or a very long number anywhere, so that each row has to be searched."""
    return b"\0" in data or b"0" * (_MOST_DIGITS + 1) in data.translate(_DIGITS)


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
    unknown = [printable(name)[:40] for name in header if name not in COLUMNS]
    if unknown:
        shown = ", ".join(unknown[:4]) + (", ..." if unknown[4:] else "")
        problems.append(
            f"ignored {len(unknown)} unknown column{'s' if unknown[1:] else ''} of runs.csv"
            f" ({shown}): a newer klat may read them"
        )
    return COLUMNS if tuple(header) == COLUMNS else header


class _BadRow(Exception):
    pass


class _Parser:
    """Of the rows of one session."""

    def __init__(self, header: Sequence[str], info: Mapping[str, Any], careful: bool) -> None:
        self._header = header
        self._boot, self._unit = info["boot_id"], info["unit"]
        self._timed = info["mode"] in TIMED_MODES
        self._careful = careful
        self._known: set[tuple[str, ...]] = set()  # names that were checked

    def row(self, line: bytes, number: int) -> Row:
        """_BadRow says why the line cannot be believed."""
        body, _, check = line.rpartition(b",")
        if hashlib.sha256(body).hexdigest()[:16].encode() != check:
            raise _BadRow(
                "does not match its checksum, so it was edited or damaged; resume the session to"
                " measure it again"
            )
        typed = self._typed(self._values(line))
        if self._careful or len(line) > _SHORT_LINE:
            _check_texts(typed)
        self._check(typed)
        typed["line"] = number
        # Past the constructor of a frozen class, which costs as much as all the rest of the parsing.
        row = object.__new__(Row)
        object.__setattr__(row, "__dict__", typed)
        return row

    def _values(self, line: bytes) -> list[str]:
        try:
            text = line.decode("utf-8")
            values = next(csv.reader([text], strict=True)) if '"' in text else text.split(",")
        except (UnicodeDecodeError, csv.Error, StopIteration) as error:
            raise _BadRow("is not CSV in UTF-8") from error
        if len(values) != len(self._header):
            raise _BadRow(f"has {len(values)} fields where the header has {len(self._header)}")
        return values

    def _typed(self, values: Sequence[str]) -> dict[str, Any]:
        typed: dict[str, Any] = dict(zip(self._header, values))
        if self._header is COLUMNS:
            numbers = _numbers_of(values)
            if _QUICK.fullmatch(",".join(numbers)):
                typed.update(
                    zip(_NUMBERS, [c(x) if x else None for c, x in zip(_CONVERT, numbers)])
                )
                return typed
        for name, kind in _NUMBERS.items():
            typed[name] = kind.read(name, typed[name])
        if len(self._header) == len(COLUMNS):
            return typed
        return {name: typed[name] for name in COLUMNS}

    def _check(self, typed: dict[str, Any]) -> None:
        """What the columns must say of each other and of the session."""
        names = _names_of(typed)
        if names not in self._known:
            for name, pattern in _NAMES.items():
                if not pattern.fullmatch(typed[name]):
                    raise _BadRow(f"'{printable(typed[name])[:20]}' is not the name of a {name}")
            self._known.add(names)
        if typed["status"] not in STATUSES:
            raise _BadRow(f"status is '{printable(typed['status'])[:20]}', which is not known")
        if typed["boot"] != self._boot:
            raise _BadRow("was recorded in another boot than the session")
        if typed["unit"] != self._unit:
            raise _BadRow(f"unit is not '{self._unit}', the session's")
        n = typed["n"]
        if n and typed["first_sample"] is None:
            raise _BadRow("has samples and does not say where")
        if typed["status"] in USABLE and (
            not typed["metric"] or (not n and (self._timed or n is None))
        ):
            raise _BadRow(f"status is '{typed['status']}' without a metric or samples")
        if n:
            mean, stddev, low, high = _always_of(typed)
            if mean is None or stddev is None or low is None or high is None:
                raise _BadRow("has samples and no figures")
        elif any(typed[name] is not None for name in FIGURES):
            raise _BadRow("has figures without samples")


def _check_texts(typed: Mapping[str, Any]) -> None:
    for name, text in typed.items():
        if not isinstance(text, str):
            continue
        longest = _LONGEST.get(name, _LONGEST_LIST)
        if len(text) > longest:
            raise _BadRow(f"{name} has {len(text):,} characters, more than {longest:,}")
        if "\0" in text:
            raise _BadRow(f"{name} holds NUL")
        if re.search(f"[0-9]{{{_MOST_DIGITS + 1}}}", text, re.ASCII):
            raise _BadRow(f"{name} holds a number of more than {_MOST_DIGITS} digits")


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
        if len(batch) == 1:
            whole = batch[0].rows == 1
        else:
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
