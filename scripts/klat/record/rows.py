"""A row of runs.csv: its columns, what each of them may hold, and how a line becomes a row.

docs/runs.md defines the columns, docs/record.md their limits. Needs the standard library only.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple

from klat.base.errors import printable
from klat.record import renamed_metrics
from klat.record.json_files import LARGEST_INTEGER, TIMED_MODES

STATUSES = ("ok", "disturbed", "invalid", "error", "skipped")
# The statuses that count in statistics; docs/measuring.md says why `disturbed` is among them.
USABLE = ("ok", "disturbed")


@lru_cache(maxsize=1 << 10)
def is_soak(params: str) -> bool:
    """Whether a run with these params is a segment of a soak."""
    return ";soak=" in f";{params}"


def run_noun(soak: bool) -> str:
    """The word for a run, in reports."""
    return "segment" if soak else "run"


def status_counts(statuses: Counter[str]) -> str:
    """`5 ok, 1 invalid`."""
    return ", ".join(f"{statuses[s]:,} {s}" for s in STATUSES if statuses[s])


class Row(NamedTuple):
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
    def middle(self) -> float:
        """The median of the run. A run that is too short for a median has its mean instead."""
        return float(self.p50 if self.p50 is not None else self.mean or 0)

    @property
    def usable(self) -> bool:
        """Whether the row counts in statistics. A row without samples does not, even if its status is
        ok: see Session.measurable()."""
        return self.status in USABLE and self.metric != "" and bool(self.n)

    @property
    def soak(self) -> bool:
        """Whether the row is a segment of a soak, whose samples are counted by value."""
        return is_soak(self.params)

    def options(self) -> dict[str, str]:
        return parse_pairs(self.params)


COLUMNS = Row._fields[:-1]
# Row._make without the check of the number of values.
_row_of: Any = partial(tuple.__new__, Row)
# The key that all rows of one run share.
batch_of = attrgetter("benchmark", "params", "run", "start_ns")
# What identifies a run within its boot: a boot starts no program twice at one moment.
start_of = attrgetter("benchmark", "start_ns")
# Empty if the row has no samples. A quantile is also empty if the samples are too few for it.
FIGURES = ("mean", "stddev", "min", "p50", "p90", "p99", "max")


def parse_pairs(text: str) -> dict[str, str]:
    """`a=1;b=2`, as in the columns params, policy and evidence, as a dictionary."""
    pairs = (item.partition("=") for item in text.split(";") if item)
    return {name: value for name, _, value in pairs}


class BadRow(Exception):
    pass


@dataclass(frozen=True)
class _Numbers:
    """A column of numbers from 0 to `high`. `decimals` is the pattern of the decimals. The field may be
    empty unless `needed`."""

    high: int
    needed: bool = False
    decimals: str = ""

    def read(self, name: str, texts: Sequence[str]) -> Sequence[Any]:
        """The value of each text; BadRow for a text that is no such number."""
        different = dict.fromkeys(texts)
        all_differ = len(different) == len(texts) and "" not in different
        if all_differ and (numbers := self._all(texts)):
            return numbers
        present = [text for text in different if text]
        if present and (numbers := self._all(present)):
            values: dict[str, Any] = dict(zip(present, numbers))
        else:
            values = {text: self._one(name, text) for text in present}
        if "" in different:
            values[""] = self._one(name, "") if self.needed else None
        return list(map(values.__getitem__, texts))

    def _all(self, texts: Sequence[str]) -> Sequence[int | Decimal] | None:
        """The values of all texts. None if one of them is no such number."""
        if self.decimals:
            together = re.compile(f"(?:[0-9]{{1,20}}{self.decimals}\n)*", re.ASCII)
            if not together.fullmatch("\n".join((*texts, ""))):
                return None
        else:
            digits = "".join(texts)
            if not (digits.isascii() and digits.isdigit() and max(map(len, texts)) <= 20):
                return None
        values = list(map(Decimal if self.decimals else int, texts))
        return values if max(values) <= self.high else None

    def _one(self, name: str, text: str) -> int | Decimal | BadRow:
        if not re.fullmatch(f"[0-9]{{1,20}}{self.decimals}", text, re.ASCII):
            what = "a number in klat's format" if self.decimals else "a whole number"
            return BadRow(f"{name} is '{printable(text)[:20]}', not {what}")
        value: int | Decimal = Decimal(text) if self.decimals else int(text)
        if value > self.high:
            return BadRow(f"{name} is {text}, which is more than {self.high}")
        return value


_SAMPLE = 2**64 - 1
_THOUSANDTHS = r"\.[0-9]{3}"
_NUMBERS = {
    "order": _Numbers(LARGEST_INTEGER, needed=True),
    "run": _Numbers(LARGEST_INTEGER, needed=True),
    "first_sample": _Numbers(2**59),  # the offset in bytes fits into 63 bits
    "n": _Numbers(2**32 - 1),  # the sum of squares stays exact
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
# The characters of names. Files and figures are named after them.
_NAMES = {
    "benchmark": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}", re.ASCII),
    "metric": re.compile(r"[^\x00-\x1f\x7f]{0,255}"),
    "placement": re.compile(r"[^\x00-\x1f\x7f]{0,255}"),
}
# The maximum lengths of texts.
_LONGEST = {"params": 1 << 13, "reason": 1 << 13}
_LONGEST_LIST = 1 << 18  # of the other texts: a value for each CPU
_SHORT_LINE = 1 << 12  # no text of a shorter line can be too long
# The largest sample has this many digits. A longer number in a text is an error.
_MOST_DIGITS = 20
_DIGITS = bytes(0x30 if chr(byte).isdigit() else 0x20 for byte in range(128)) + b" " * 128

_names_of = attrgetter(*_NAMES)
# What is checked once for all rows with the same values.
_repeated_of = attrgetter(*_NAMES, "status", "boot", "unit")


def has_odd_bytes(data: bytes) -> bool:
    """Whether `data` contains a NUL or a very long number. Then the texts of each row must be checked."""
    return b"\0" in data or b"0" * (_MOST_DIGITS + 1) in data.translate(_DIGITS)


class RowParser:
    """Turns the lines of one session into rows, a column at a time."""

    def __init__(self, header: Sequence[str], info: Mapping[str, Any], careful: bool) -> None:
        self._header = header
        self._boot, self._unit = info["boot_id"], info["unit"]
        self._timed = info["mode"] in TIMED_MODES
        self._careful = careful
        self._known: dict[tuple[str, ...], bool] = {}  # whether the metric has an old name

    def rows(self, lines: Mapping[int, bytes], faults: dict[int, str]) -> list[Row]:
        """The rows of lines by their number. Adds the lines that fail a check to `faults`."""
        texts: dict[int, list[str]] = {}
        for number, line in lines.items():
            try:
                texts[number] = self._values(line)
            except BadRow as bad:
                faults[number] = str(bad)
        kept = []
        long = {number for number, line in lines.items() if len(line) > _SHORT_LINE}
        for row in self._typed(texts, faults):
            try:
                if self._careful or row.line in long:
                    _check_texts(row)
                kept.append(renamed_metrics.renamed(row) if self._check(row) else row)
            except BadRow as bad:
                faults[row.line] = str(bad)
        return kept

    def _values(self, line: bytes) -> list[str]:
        body, _, check = line.rpartition(b",")
        if hashlib.sha256(body).hexdigest()[:16].encode() != check:
            raise BadRow(
                "does not match its checksum, so it was edited or damaged; resume the session to"
                " measure it again"
            )
        try:
            text = line.decode("utf-8")
            values = next(csv.reader([text], strict=True)) if '"' in text else text.split(",")
        except (UnicodeDecodeError, csv.Error, StopIteration) as error:
            raise BadRow("is not CSV in UTF-8") from error
        if len(values) != len(self._header):
            raise BadRow(f"has {len(values)} fields, but the header has {len(self._header)}")
        return values

    def _typed(self, texts: Mapping[int, Sequence[str]], faults: dict[int, str]) -> list[Row]:
        """The rows in which each number is one. Equal texts are one object in memory."""
        if not texts:
            return []
        columns = dict(zip(self._header, zip(*texts.values())))
        texts_seen: dict[str, str] = {}
        typed: list[Iterable[Any]] = []
        for name in COLUMNS:
            column = columns[name]
            if (kind := _NUMBERS.get(name)) is None:
                is_one = column.count(column[0]) == len(column)
                shared = texts_seen.setdefault(column[0], column[0])
                typed.append(
                    repeat(shared) if is_one else map(texts_seen.setdefault, column, column)
                )
                continue
            typed.append(values := kind.read(name, column))
            if BadRow in set(map(type, values)):
                for number, value in zip(texts, values):
                    if isinstance(value, BadRow):
                        faults.setdefault(number, str(value))
        rows = map(_row_of, zip(*typed, texts))
        return [row for row in rows if row.line not in faults] if faults else list(rows)

    def _check(self, row: Row) -> bool:
        """Check that the columns agree with each other and with the session. Return whether the metric has an
        old name."""
        repeated = _repeated_of(row)
        if (is_old := self._known.get(repeated)) is None:
            self._check_repeated(row)
            is_old = self._known[repeated] = renamed_metrics.is_old(row)
        n = row.n
        if n and row.first_sample is None:
            raise BadRow("has samples, but no first_sample")
        if row.status in USABLE and (not row.metric or (not n and (self._timed or n is None))):
            raise BadRow(f"status is '{row.status}' without a metric or samples")
        if n:
            # `None in` would compare each figure with None, which is slow for a Decimal.
            if row.mean is None or row.stddev is None or row.min is None or row.max is None:
                raise BadRow("has samples, but no figures")
        elif any(getattr(row, name) is not None for name in FIGURES):
            raise BadRow("has figures, but no samples")
        return is_old

    def _check_repeated(self, row: Row) -> None:
        for (name, pattern), text in zip(_NAMES.items(), _names_of(row)):
            if not pattern.fullmatch(text):
                raise BadRow(f"{name} is '{printable(text)[:20]}', not a valid name")
        if row.status not in STATUSES:
            raise BadRow(f"status is '{printable(row.status)[:20]}', which is not known")
        if row.boot != self._boot:
            raise BadRow("boot is not the boot_id of session.json")
        if row.unit != self._unit:
            raise BadRow(f"unit is not '{self._unit}' as in session.json")


def _check_texts(row: Row) -> None:
    for name, text in zip(COLUMNS, row):
        if not isinstance(text, str):
            continue
        longest = _LONGEST.get(name, _LONGEST_LIST)
        if len(text) > longest:
            raise BadRow(f"{name} has {len(text):,} characters, more than {longest:,}")
        if "\0" in text:
            raise BadRow(f"{name} contains a NUL byte")
        if re.search(f"[0-9]{{{_MOST_DIGITS + 1}}}", text, re.ASCII):
            raise BadRow(f"{name} contains a number of more than {_MOST_DIGITS} digits")
