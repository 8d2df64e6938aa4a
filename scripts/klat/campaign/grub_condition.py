"""Conditions of GRUB's scripts: grub-core/commands/test.c in GRUB's source.

A condition is None if only the boot decides it."""

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
_UNARY = ("-n", "-z", *_FILES)
# Numbers after a common word, and the ages of files, are known only during the boot.
_SIGN = re.compile(r"==?|!=|-(?:eq|ne|lt|le|gt|ge)|-p(?:gt|lt)|-[no]t[-+\d]*")


def holds(arguments: Sequence[str | None], is_file: Callable[[str], Truth]) -> Truth:
    """Whether `[` or `test` succeeds with these arguments. -a binds closer than -o."""
    return _group(list(arguments), is_file)


def _group(rest: list[str | None], is_file: Callable[[str], Truth]) -> Truth:
    """Whether the arguments hold. Removes them, up to the parenthesis that ends the group."""
    groups: list[list[Truth]] = [[]]
    invert = False
    while rest:
        sign = _SIGN.fullmatch(rest[1] or "") if len(rest) > 2 else None
        word = None if sign or (len(rest) > 1 and rest[0] in _UNARY) else rest[0]
        if word in ("-a", "-o", "!", "(", ")"):
            del rest[0]
        if word == ")":
            break
        if word in ("-a", "-o", "!"):
            groups += [[]] if word == "-o" else []
            invert ^= word == "!"
            continue
        value, used = (_group(rest, is_file), 0) if word == "(" else _term(rest, is_file)
        groups[-1].append(negated(value) if invert else value)
        invert = False
        del rest[:used]
    return negated(_all([negated(_all(group)) for group in groups]))


def negated(truth: Truth) -> Truth:
    return None if truth is None else not truth


def _term(rest: Sequence[str | None], is_file: Callable[[str], Truth]) -> tuple[Truth, int]:
    """Whether the first condition holds, and how many arguments it has."""
    sign = rest[1] if len(rest) > 2 else None
    if sign and _SIGN.fullmatch(sign):
        left, right = rest[0], rest[2]
        if left is None or right is None or sign not in (*_TEXTS, *_NUMBERS):
            return None, 3
        if sign in _TEXTS:
            return bool(_TEXTS[sign](left, right)), 3
        return bool(_NUMBERS[sign](_signed(left), _signed(right))), 3
    is_unary = len(rest) > 1 and rest[0] in _UNARY
    kind, value, used = (rest[0], rest[1], 2) if is_unary else ("-n", rest[0], 1)
    if value is None:
        return None, used
    if kind in _FILES:
        return is_file(value), used
    return (value == "") == (kind == "-z"), used


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
