"""A row of runs.csv: its columns, what each of them may hold, and how a line becomes a row.

docs/record.md defines the columns and their limits. Needs the standard library only.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from operator import itemgetter
from typing import Any

from klat.base.errors import printable
from klat.record import renamed_metrics
from klat.record.json_files import LARGEST_INTEGER, TIMED_MODES

STATUSES = ("ok", "disturbed", "invalid", "error", "skipped")
# The statuses that count in statistics; docs/record.md says why `disturbed` is among them.
USABLE = ("ok", "disturbed")


def is_soak(params: str) -> bool:
    """Whether a run with these params is a segment of a soak."""
    return ";soak=" in f";{params}"


def run_noun(soak: bool) -> str:
    """The word for a run, in reports."""
    return "segment" if soak else "run"


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
        """Whether the row counts in statistics. A row without samples does not, even if its status is
        ok: see Session.measurable()."""
        return self.status in USABLE and self.metric != "" and bool(self.n)

    @property
    def batch(self) -> tuple[str, str, int, int]:
        """The key that all rows of one run share."""
        return (self.benchmark, self.params, self.run, self.start_ns)

    @property
    def soak(self) -> bool:
        """Whether the row is a segment of a soak, whose samples are counted by value."""
        return is_soak(self.params)

    def options(self) -> dict[str, str]:
        return parse_pairs(self.params)


COLUMNS = tuple(f.name for f in fields(Row) if f.name != "line")
# Empty if the row has no samples. A quantile is also empty if the samples are too few for it.
FIGURES = ("mean", "stddev", "min", "p50", "p90", "p99", "max")


def parse_pairs(text: str) -> dict[str, str]:
    """`a=1;b=2`, as in the columns params, policy and evidence, as a dictionary."""
    pairs = (item.partition("=") for item in text.split(";") if item)
    return {name: value for name, _, value in pairs}


@dataclass(frozen=True)
class _Numbers:
    """A column of numbers from 0 to `high`. `decimals` is the pattern of the decimals. The field may be
    empty unless `needed`."""

    high: int
    needed: bool = False
    decimals: str = ""

    @property
    def convert(self) -> Callable[[str], Any]:
        return Decimal if self.decimals else int

    @property
    def quick(self) -> str:
        """A pattern of numbers that need no comparison with `high`. They have fewer digits than `high`,
        or as many digits and a lower first digit."""
        digits = str(self.high)
        first = f"[0-{int(digits[0]) - 1}]?[0-9]{{1,{len(digits) - 1}}}"
        return f"{first}{self.decimals}" if self.needed else f"(?:{first}{self.decimals})?"

    def read(self, name: str, text: str) -> object:
        if not text and not self.needed:
            return None
        if not re.fullmatch(f"[0-9]{{1,20}}{self.decimals}", text, re.ASCII):
            what = "a number in klat's format" if self.decimals else "a whole number"
            raise BadRow(f"{name} is '{printable(text)[:20]}', not {what}")
        value = self.convert(text)
        if value > self.high:
            raise BadRow(f"{name} is {text}, which is more than {self.high}")
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

# Matches all numbers of a row at once. If this fails, each is checked by itself to find the column.
_QUICK = re.compile(",".join(numbers.quick for numbers in _NUMBERS.values()), re.ASCII)
_numbers_of = itemgetter(*map(COLUMNS.index, _NUMBERS))
_names_of = itemgetter(*_NAMES)
_always_of = itemgetter("mean", "stddev", "min", "max")
_CONVERT = tuple(numbers.convert for numbers in _NUMBERS.values())


def has_odd_bytes(data: bytes) -> bool:
    """Whether `data` contains a NUL or a very long number. Then the texts of each row must be checked."""
    return b"\0" in data or b"0" * (_MOST_DIGITS + 1) in data.translate(_DIGITS)


class BadRow(Exception):
    pass


class RowParser:
    """Turns the lines of one session into rows."""

    def __init__(self, header: Sequence[str], info: Mapping[str, Any], careful: bool) -> None:
        self._header = header
        self._boot, self._unit = info["boot_id"], info["unit"]
        self._timed = info["mode"] in TIMED_MODES
        self._careful = careful
        self._known: set[tuple[str, ...]] = set()  # names that were checked

    def row(self, line: bytes, number: int) -> Row:
        """The row of a line. BadRow if a check fails."""
        body, _, check = line.rpartition(b",")
        if hashlib.sha256(body).hexdigest()[:16].encode() != check:
            raise BadRow(
                "does not match its checksum, so it was edited or damaged; resume the session to"
                " measure it again"
            )
        typed = self._typed(self._values(line))
        if self._careful or len(line) > _SHORT_LINE:
            _check_texts(typed)
        self._check(typed)
        typed["metric"] = renamed_metrics.present_name(typed)
        typed["line"] = number
        # Bypass the constructor of the frozen class. It takes as long as the rest of the parsing.
        row = object.__new__(Row)
        object.__setattr__(row, "__dict__", typed)
        return row

    def _values(self, line: bytes) -> list[str]:
        try:
            text = line.decode("utf-8")
            values = next(csv.reader([text], strict=True)) if '"' in text else text.split(",")
        except (UnicodeDecodeError, csv.Error, StopIteration) as error:
            raise BadRow("is not CSV in UTF-8") from error
        if len(values) != len(self._header):
            raise BadRow(f"has {len(values)} fields, but the header has {len(self._header)}")
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
        """Check that the columns agree with each other and with the session."""
        names = _names_of(typed)
        if names not in self._known:
            for name, pattern in _NAMES.items():
                if not pattern.fullmatch(typed[name]):
                    raise BadRow(f"{name} is '{printable(typed[name])[:20]}', not a valid name")
            self._known.add(names)
        if typed["status"] not in STATUSES:
            raise BadRow(f"status is '{printable(typed['status'])[:20]}', which is not known")
        if typed["boot"] != self._boot:
            raise BadRow("boot is not the boot_id of session.json")
        if typed["unit"] != self._unit:
            raise BadRow(f"unit is not '{self._unit}' as in session.json")
        n = typed["n"]
        if n and typed["first_sample"] is None:
            raise BadRow("has samples, but no first_sample")
        if typed["status"] in USABLE and (
            not typed["metric"] or (not n and (self._timed or n is None))
        ):
            raise BadRow(f"status is '{typed['status']}' without a metric or samples")
        if n:
            mean, stddev, low, high = _always_of(typed)
            if mean is None or stddev is None or low is None or high is None:
                raise BadRow("has samples, but no figures")
        elif any(typed[name] is not None for name in FIGURES):
            raise BadRow("has figures, but no samples")


def _check_texts(typed: Mapping[str, Any]) -> None:
    for name, text in typed.items():
        if not isinstance(text, str):
            continue
        longest = _LONGEST.get(name, _LONGEST_LIST)
        if len(text) > longest:
            raise BadRow(f"{name} has {len(text):,} characters, more than {longest:,}")
        if "\0" in text:
            raise BadRow(f"{name} contains a NUL byte")
        if re.search(f"[0-9]{{{_MOST_DIGITS + 1}}}", text, re.ASCII):
            raise BadRow(f"{name} contains a number of more than {_MOST_DIGITS} digits")
