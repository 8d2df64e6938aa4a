"""`klat plan`: how many boots and runs find a change, from a pilot."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from klat.commands import SUMMARIES, add_command, add_format, add_metric, print_document
from klat.commands._types import estimand, margin, real, share

_DESCRIPTION = """\
Reads a pilot of a few boots of one kernel. Computes how many boots, and runs in
each boot, a comparison of two kernels needs

  - to find a change of a given size;
  - to show that nothing has changed (exit status 0 of compare).

It chooses the numbers that need the least time. If the pilot is a session of
klat ab, it computes the number of blocks. If it is a soak, it computes the
length of the soak in each boot.
"""

_EPILOG = """\
The change is found in every metric at alpha, with the strictest step of Holm's
correction. The time of a run comes from the record. The time of a boot comes
from the record too if klat lab made the pilot, else from --boot-seconds. A
pilot of one boot does not show how much boots vary. The plan then lists the
boots for several variations; choose the one that applies.

Fix the number of boots or blocks before you measure. If you look after each
boot from 4 to 20 and stop at the first verdict, the chance of a false one is
17 % instead of 5 %.

Exit status: 0 done; 2 usage, or something could not be read; 3 the pilot does
not show how many boots are needed, or no number is enough.
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(subparsers, "plan", SUMMARIES["plan"], _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("path", metavar="PATH", type=Path, help="the pilot: a session (also of ab) or a label")
    add("--change", type=share, metavar="C", help="change to find (default: twice the margin)")
    add("--margin", type=margin, default=0.02, metavar="M", help="as of compare (default: 2%%)")
    add("--power", type=share, default=0.9, metavar="P", help="chance to find it (default: 0.9)")
    add("--alpha", type=share, default=0.05, metavar="A", help="as of compare (default: 5%%)")
    add(
        "--boot-seconds",
        type=real(lambda value: 0 <= value <= 1e6, "a number of seconds from 0 to 1000000"),
        metavar="S",
        help="from the end of a boot's runs to the start of the next's (default: as recorded by"
        " klat lab, or 60)",
    )
    add("--quantile", metavar="Q", help="as of compare (default: median, and p99 where supported)")
    add_metric(add)
    add_format(add, "markdown", "json")
    parser.set_defaults(func=run)


def _took_turns(path: Path) -> list[Path]:
    """Both sessions of klat ab, A's first, if the path leads to one of them; else none. KlatError if the
    path leads to several sessions and klat ab wrote one of them."""
    from klat.base.errors import KlatError
    from klat.record.json_files import read_run_json
    from klat.record.session import find_sessions, printable
    from klat.running.alternation import both

    sessions = find_sessions(path)
    turns = [s for s in sessions if read_run_json(s).get("partner") is not None]
    if turns and len(sessions) > 1:
        raise KlatError(
            f"{printable(str(path))}: {len(turns)} of its {len(sessions)} sessions took turns with"
            f" another setting; name one of them, for example {printable(str(turns[-1]))}"
        )
    # klat plan runs no command of the session.
    return both(turns[0], trust=True) if turns else []


def _boot_seconds(args: argparse.Namespace) -> tuple[float, str]:
    """The time that a boot takes besides its runs, and where it comes from."""
    from klat.record.json_files import boot_seconds
    from klat.record.session import find_sessions

    if args.boot_seconds is not None:
        return args.boot_seconds, f"a boot takes {args.boot_seconds:g} s (--boot-seconds)"
    recorded = boot_seconds(find_sessions(args.path))
    if recorded is not None:
        return recorded, f"a boot took {recorded:.3g} s until its first run"
    return 60.0, "a boot is assumed to take 60 s (--boot-seconds)"


def _named(value: Any, noun: str) -> Any:
    """JSON in which a unit is called a boot or a block."""
    if isinstance(value, list):
        return [_named(item, noun) for item in value]
    if not isinstance(value, dict):
        return value
    names = {"unit": noun, "units": f"{noun}s", "unit_bound": f"{noun}_bound"}
    return {names.get(key, key): _named(item, noun) for key, item in value.items()}


def run(args: argparse.Namespace) -> int:
    from klat.base.errors import KlatError
    from klat.compare.least_effort import Target
    from klat.compare.pilot import Pilot, plan_path
    from klat.compare.pilot_blocks import TurnsPilot, plan_turns

    estimands = (estimand(args.quantile),) if args.quantile else ()
    boot_seconds, boot_time = _boot_seconds(args)
    metrics = tuple(dict.fromkeys(args.metric))
    change = args.change or 2 * args.margin or 0.02
    if change <= args.margin:
        raise KlatError(
            f"--change {100 * change:.3g}% is within the margin of {100 * args.margin:.3g}%, which"
            " compare calls the same; give a smaller --margin"
        )
    target = Target(change, args.power, args.alpha, args.margin, boot_seconds, estimands, metrics)
    both = _took_turns(args.path)
    if both and args.boot_seconds is not None:
        raise KlatError(
            f"--boot-seconds: {args.path} is of two settings that took turns in one boot"
        )
    plan: Pilot | TurnsPilot = plan_turns(both, target) if both else plan_path(args.path, target)
    for problem in plan.problems:
        print(f"klat plan: {problem}", file=sys.stderr)
    if args.format == "json":
        from klat.report.comparison_columns import plain

        json.dump(_named(plain(plan), plan.noun), sys.stdout, indent=2, allow_nan=False)
        print()
    else:
        from klat.report.plan import document

        print_document(document(plan, boot_time), args.format)
    sys.stdout.flush()
    return 0 if plan.effort else 3
