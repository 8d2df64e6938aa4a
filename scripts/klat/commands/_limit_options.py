"""The options --limit and --share of commands that judge a limit."""

from __future__ import annotations

import argparse
import re
from typing import Any

_NANOSECONDS = {"": 1.0, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_DEFAULT = 1e-3


def add_limit(add: Any, counted: bool = True) -> None:
    """`add` is add_argument of a parser."""
    add_limit_alone(add, "judge the share of samples above L", counted)
    add(
        "--share",
        type=_share,
        metavar="S",
        help="share of samples that may be above the limit (default: 0.001); 0: none may be",
    )


def add_limit_alone(add: Any, what: str, counted: bool = True) -> None:
    """Without --share. `counted`: the samples can be from counted mode."""
    bare = "; a bare number in counted mode" if counted else ""
    help_text = f"{what}: 100us, 1ms, 20000ns{bare}"
    add("--limit", type=_limit, metavar="L", help=help_text)


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


def _limit(text: str) -> tuple[str, float, bool]:
    """The text, its value in ns or as a bare number, and whether a unit was given."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(ns|us|ms|s|)", text, re.ASCII)
    if not match:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be a time, for example 50us, 20000ns or 1ms, or a bare number in"
            " counted mode"
        )
    value = float(match[1]) * _NANOSECONDS[match[2]]
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} must be above 0")
    return text, value, bool(match[2])


def _share(text: str) -> float:
    """`0.001`, `1e-4`, `0.1%` or `0`."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?(?:e-?[0-9]{1,2})?)(%?)", text, re.ASCII)
    value = float(match[1]) / (100 if match[2] else 1) if match else 1.0
    if value >= 1 or 0 < value < 1e-12:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be 0 or from 1e-12 to below 1, for example 0.001, 1e-4 or 0.1%"
        )
    return value
