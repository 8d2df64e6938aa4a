"""The options --limit and --share of commands that judge a limit."""

from __future__ import annotations

import argparse
from typing import Any

from klat.commands._types import limit, rare_share

_DEFAULT = 1e-3


def add_limit(add: Any, counted: bool = True) -> None:
    """`add` is add_argument of a parser."""
    add_limit_alone(add, "judge the share of samples above L", counted)
    add(
        "--share",
        type=rare_share,
        metavar="S",
        help="share of samples that may be above the limit (default: 0.001); 0: none may be",
    )


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
