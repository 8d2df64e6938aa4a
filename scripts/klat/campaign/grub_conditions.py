"""The conditions of GRUB's scripts: grub-core/commands/test.c in GRUB's source.

None stands for an argument, or the result of a condition, that is known only during the boot."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Optional

Truth = Optional[bool]

_TEXTS = {"=": operator.eq, "==": operator.eq, "!=": operator.ne}
_NUMBERS = {f"-{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
# grub_strtoul() in grub-core/kern/misc.c, with base 0.
NUMBER = re.compile(r"\s*(?:0x(?P<hex>[0-9a-fA-F]+)|0(?P<octal>[0-7]+)|(?P<decimal>\d+))")
_FILES = ("-d", "-e", "-f", "-s")


def holds(arguments: Sequence[str | None], is_file: Callable[[str], Truth]) -> Truth:
    """Whether `[` or `test` succeeds with these arguments. -a binds closer than -o."""
    groups: list[list[Truth]] = [[]]
    invert = False
    rest = list(arguments)
    while rest:
        if rest[0] in ("-a", "-o", "!"):
            groups += [[]] if rest[0] == "-o" else []
            invert ^= rest.pop(0) == "!"
            continue
        value, used = _term(rest, is_file)
        groups[-1].append(negated(value) if invert else value)
        invert = False
        del rest[:used]
    return negated(_all([negated(_all(group)) for group in groups]))


def negated(truth: Truth) -> Truth:
    return None if truth is None else not truth


def _term(rest: Sequence[str | None], is_file: Callable[[str], Truth]) -> tuple[Truth, int]:
    """Whether the first condition holds, and how many arguments it has."""
    sign = rest[1] if len(rest) > 2 else None
    if sign in _TEXTS or sign in _NUMBERS:
        return _compared(rest[0], sign or "", rest[2]), 3
    if rest[0] in ("(", ")") or (sign or "").startswith("-p"):
        return None, len(rest)
    kind, value, used = (rest[0], rest[1], 2) if len(rest) > 1 else ("-n", rest[0], 1)
    if kind not in ("-n", "-z", *_FILES):
        kind, value, used = "-n", rest[0], 1
    if value is None:
        return None, used
    if kind in _FILES:
        return is_file(value), used
    return (value == "") == (kind == "-z"), used


def _compared(left: str | None, sign: str, right: str | None) -> Truth:
    if left is None or right is None:
        return None
    if sign in _TEXTS:
        return bool(_TEXTS[sign](left, right))
    return bool(_NUMBERS[sign](_signed(left), _signed(right)))


def _signed(text: str) -> int:
    """The number at the beginning. 0 if there is none: test.c ignores the error."""
    match = NUMBER.match(text.removeprefix("-"))
    value = number_of(match) if match else 0
    return -value if text.startswith("-") else value


def number_of(match: re.Match[str]) -> int:
    return int(match[match.lastgroup or 0], {"hex": 16, "octal": 8}.get(match.lastgroup or "", 10))


def _all(truths: Sequence[Truth]) -> Truth:
    if False in truths:
        return False
    return None if None in truths else True
