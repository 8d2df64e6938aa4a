"""What a field of a JSON file may hold: its type, its range, its length and its characters.

A kind checks one value. It raises Wrong with the value and the expected kind. docs/record.md names the fields; the
tables of klat.record.json_files say which kind each of them is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from klat.base.errors import printable

_SHOWN = 40


class Wrong(ValueError):
    """A value that its field cannot hold. The message names the field, the value and the kind."""


class Kind(Protocol):
    def check(self, name: str, value: Any) -> None:
        """Raise Wrong if the field `name` cannot hold the value."""


def _wrong(name: str, value: Any, what: str) -> Wrong:
    return Wrong(f"{name} is {_shown(value)}, not {what}")


def _shown(value: Any) -> str:
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, str):
        return f"'{_short(printable(value))}'"
    names = {None: "missing or null", True: "true", False: "false"}
    return names[value] if value is None or isinstance(value, bool) else _short(str(value))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


@dataclass(frozen=True)
class Text:
    """A text without NUL that matches `pattern`, if one is given. `what` describes the pattern."""

    longest: int = 4096
    pattern: str = ""
    what: str = "a text"

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, str):
            raise _wrong(name, value, self.what)
        if len(value) > self.longest:
            raise _wrong(name, value, f"a text of at most {self.longest:,} characters")
        if "\0" in value:
            raise _wrong(name, value, "a text without NUL")
        if self.pattern and not re.fullmatch(self.pattern, value, re.ASCII):
            raise _wrong(name, value, self.what)


@dataclass(frozen=True)
class OneOf:
    words: tuple[str, ...]

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, str) or value not in self.words:
            raise _wrong(name, value, f"one of {', '.join(self.words)}")


@dataclass(frozen=True)
class Whole:
    low: int
    high: int

    def check(self, name: str, value: Any) -> None:
        if type(value) is not int or not self.low <= value <= self.high:
            raise _wrong(name, value, f"a whole number from {self.low:,} to {self.high:,}")


@dataclass(frozen=True)
class Number:
    """A finite number, with or without decimals."""

    low: float
    high: float

    def check(self, name: str, value: Any) -> None:
        # Python compares a whole number of any length with a float exactly. NaN is in no range.
        if type(value) not in (int, float) or not self.low <= value <= self.high:
            raise _wrong(name, value, f"a number from {self.low:,g} to {self.high:,g}")


@dataclass(frozen=True)
class Truth:
    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, bool):
            raise _wrong(name, value, "true or false")


@dataclass(frozen=True)
class Maybe:
    """A value of that kind, or null."""

    kind: Kind

    def check(self, name: str, value: Any) -> None:
        if value is not None:
            self.kind.check(name, value)


@dataclass(frozen=True)
class Either:
    """A value of one of these kinds. An error has the message of the last kind."""

    kinds: tuple[Kind, ...]

    def check(self, name: str, value: Any) -> None:
        for kind in self.kinds[:-1]:
            try:
                return kind.check(name, value)
            except Wrong:
                continue
        self.kinds[-1].check(name, value)


@dataclass(frozen=True)
class ListOf:
    kind: Kind
    most: int
    least: int = 0

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, list):
            raise _wrong(name, value, "a list")
        if not self.least <= len(value) <= self.most:
            raise Wrong(
                f"{name} has {len(value):,} entries, not from {self.least:,} to {self.most:,}"
            )
        for number, entry in enumerate(value):
            self.kind.check(f"{name}[{number}]", entry)


@dataclass(frozen=True)
class Tuple:
    """A list with one entry of each kind. The last `optional` may be missing."""

    kinds: tuple[Kind, ...]
    optional: int = 0

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, list):
            raise _wrong(name, value, "a list")
        most = len(self.kinds)
        if not most - self.optional <= len(value) <= most:
            raise Wrong(f"{name} has {len(value):,} entries, not {most}")
        for number, (kind, entry) in enumerate(zip(self.kinds, value)):
            kind.check(f"{name}[{number}]", entry)


@dataclass(frozen=True)
class Object:
    """Fields by name. The fields in `needed` must be there. A key that is not in `kinds` has a value of
    the kind `others`; without `others`, it has any value."""

    kinds: Mapping[str, Kind] = field(default_factory=dict)
    needed: frozenset[str] = frozenset()
    others: Kind | None = None
    most: int = 4096

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise _wrong(name, value, "an object")
        if len(value) > self.most:
            raise Wrong(f"{name} has {len(value):,} keys, more than {self.most:,}")
        prefix = f"{name}." if name else ""
        for key, kind in self.kinds.items():
            if key in value or key in self.needed:
                kind.check(prefix + key, value.get(key))
        if self.others:
            for key, entry in value.items():
                if key not in self.kinds:
                    self.others.check(prefix + _short(printable(key)), entry)
