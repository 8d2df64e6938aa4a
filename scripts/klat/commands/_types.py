"""Converters of the texts of options, for argparse. On an error it prints only their message. The options of limits."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_MICRO = str.maketrans("\N{MICRO SIGN}\N{GREEK SMALL LETTER MU}", "uu")
_LONG_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


def checked(convert: Callable[[str], Any]) -> Any:
    """`convert` for argparse, with the message of its ValueError."""

    def wrapper(text: str) -> Any:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return wrapper


def number(minimum: int, maximum: int, what: str = "number") -> Any:
    """A whole number in a range."""

    def convert(text: str) -> int:
        is_whole = text.isascii() and text.isdigit() and len(text) <= 20
        if not is_whole or not minimum <= int(text) <= maximum:
            raise ValueError(f"{text!r} must be a {what} from {minimum} to {maximum}")
        return int(text)

    return checked(convert)


def add_number(add: Any, option: str, least: int, most: int, help_text: str, **more: Any) -> None:
    """`add` is add_argument of a parser."""
    add(option, type=number(least, most), metavar="N", help=help_text, **more)


def add_repeatable(
    add: Any,
    option: str,
    metavar: str,
    help_text: str,
    convert: Callable[[str], Any] = str,
    **more: Any,
) -> None:
    """An option whose values are a list. `convert` raises ValueError."""
    kind = checked(convert)
    add(option, action="append", default=[], type=kind, metavar=metavar, help=help_text, **more)


def add_flag(add: Any, option: str, help_text: str) -> None:
    add(option, action="store_true", help=help_text)


def real(is_valid: Callable[[float], bool], what: str, is_share: bool = False) -> Any:
    """A decimal number that `is_valid` accepts. A share may be in percent."""

    def convert(text: str) -> float:
        digits = text.removesuffix("%") if is_share else text
        plain = re.fullmatch(r"(?=\.?[0-9])[0-9]*\.?[0-9]*(e-?[0-9]{1,2})?", digits, re.ASCII)
        value = float(digits) / (1 if digits == text else 100) if plain else math.nan
        if not is_valid(value):
            raise ValueError(f"{text!r} must be {what}")
        return value

    return checked(convert)


share = real(lambda value: 0 < value < 1, "between 0 and 1, for example 2% or 0.02", True)
# 0 is a plain two-sided test.
margin = real(lambda value: 0 <= value < 1, "0 or between 0 and 1, for example 2% or 0.02", True)
_RARE = "0 or from 1e-12 to below 1, for example 0.001, 1e-4 or 0.1%"
rare_share = real(lambda value: value == 0 or 1e-12 <= value < 1, _RARE, True)


def short_time(text: str, most_ns: int) -> int:
    """A time up to `most_ns`, in ns. ValueError for another text."""
    value = _time(text, _UNITS)
    if value is None or not 1 <= value <= most_ns or value.denominator > 1:
        raise ValueError(
            f"{text!r} must be a time up to {most_ns // 10**9}s with its unit, as in 100us"
        )
    return int(value)


def long_time(text: str, most_s: int) -> int:
    """A time up to `most_s`, in seconds. ValueError for another text."""
    value = _time(text, _LONG_UNITS)
    if value is None or not 1 <= value <= most_s or value.denominator > 1:
        raise ValueError(
            f"{text!r} must be a time from 1s to {most_s // 86_400}d with its unit: 90s, 8min, 8h, 2d"
        )
    return int(value)


def limit(text: str) -> tuple[str, float, bool]:
    """The text, its value in ns or as a bare number, and whether a unit was given."""
    text = text.translate(_MICRO)
    bare = _time(f"{text}ns", {"ns": 1})
    value = _time(text, _UNITS) if bare is None else bare
    if value is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be a time, for example 50us, 20000ns or 1ms, or a bare number in"
            " counted mode"
        )
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} must be above 0")
    return text, float(value), bare is None


def _time(text: str, units: dict[str, int]) -> Fraction | None:
    """A time as a multiple of the unit with factor 1, exactly; None for another text."""
    pattern = rf"([0-9]{{1,15}}(?:\.[0-9]{{1,9}})?)({'|'.join(units)})"
    match = re.fullmatch(pattern, text.translate(_MICRO), re.ASCII)
    return Fraction(match[1]) * units[match[2]] if match else None


def estimand(text: str) -> Any:
    """The klat.compare.estimands.Estimand that --quantile names. KlatError for another text."""
    from klat.base.errors import KlatError
    from klat.compare.estimands import parse

    try:
        return parse(text)
    except ValueError as error:
        raise KlatError(f"--quantile: {error}") from None


_DEFAULT = 1e-3


def add_limit(add: Any, counted: bool = True) -> None:
    """`add` is add_argument of a parser."""
    add_limit_alone(add, "judge the share of samples above L", counted)
    help_text = "share of samples that may be above the limit (default: 0.001); 0: none may be"
    add("--share", type=rare_share, metavar="S", help=help_text)


def add_limit_alone(add: Any, what: str, counted: bool = True) -> None:
    """Without --share. `counted`: the samples can be from counted mode."""
    bare = "; a bare number in counted mode" if counted else ""
    help_text = f"{what}: 100us, 1ms, 20000ns{bare}"
    add("--limit", type=limit, metavar="L", help=help_text)


def limit_of(args: argparse.Namespace) -> Any:
    """The klat.compare.limits.Limit that was asked for; None without one. KlatError for a share
    without a limit."""
    from klat.base.errors import KlatError
    from klat.base.process import Signals

    with Signals():
        # The threads of numpy inherit the blocked signals. They must not take a signal that a soak waits for.
        from klat.compare.limits import Limit

    share = getattr(args, "share", None)
    if args.limit is None:
        if share is not None:
            raise KlatError("--share: needs --limit")
        return None
    text, value, is_time = args.limit
    return Limit(text, value, is_time, _DEFAULT if share is None else share)
