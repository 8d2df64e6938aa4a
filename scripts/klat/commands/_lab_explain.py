"""`klat lab explain`: which functions a metric's samples consist of, to the instruction."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from klat.base import files
from klat.base.errors import KlatError
from klat import export
from klat.commands import _session_options

_DESCRIPTION = """\
Repeats boots of the lab and says which instructions the samples of one metric
consist of, by function: of one kernel, or of two and what differs.
"""

_EPILOG = """\
Exit status: 0 explained; 1 a boot could not be repeated, or gave other samples;
2 usage, input or output; 130, 143, 129 stopped by SIGINT, SIGTERM, SIGHUP.

example:
  klat lab run --mode counted --kernel debian:stock --kernel debian:rt pipes
  klat lab explain results/lab-stock results/lab-rt --metric pipes.round_trip
"""


def add_parser(actions: Any) -> None:
    parser = actions.add_parser(
        "explain",
        help="say which functions a sample consists of",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("base", type=Path, metavar="BASE", help="label or session of klat lab run")
    add("new", type=Path, nargs="?", metavar="NEW", help="likewise, to compare with BASE")
    add("--metric", required=True, metavar="BENCHMARK.METRIC", help="such as pipes.round_trip")
    add(
        "--least",
        type=_session_options.number(0, 10**9, "number of instructions"),
        default=20,
        metavar="N",
        help="difference below which functions are summed up (default: 20)",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--worst", action="store_true", help="explain the largest sample")
    which.add_argument(
        "--quantile",
        type=_percent,
        metavar="PERCENT",
        help="explain the sample at 99.9, for example",
    )
    add("--path", action="store_true", help="print the calls in order, as a diff")
    add(
        "--format",
        choices=("text", *export.EXPLANATIONS),
        default="text",
        help="default: text; the others have every function and call chain",
    )
    add("--html", type=Path, metavar="FILE", help="write a page with pictures of the calls too")
    parser.set_defaults(func=_explain)


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(f"'{text}' is not a percentage above 0 and up to 100")
    return value


def _explain(arguments: argparse.Namespace) -> int:
    from klat.lab import explaining
    from klat.report.html import page
    from klat.report.text import explanation_text, story_text

    benchmark, dot, metric = arguments.metric.partition(".")
    if not dot or not metric:
        raise KlatError(f"--metric {arguments.metric!r} is not BENCHMARK.METRIC")
    environment = page.templates() if arguments.html else None
    paths = [path for path in (arguments.base, arguments.new) if path]
    quantile = explaining.TYPICAL
    if arguments.worst:
        quantile = 1.0
    elif arguments.quantile is not None:
        quantile = arguments.quantile / 100
    found = explaining.explain(paths, benchmark, metric, quantile, _say)
    if arguments.format == "text":
        lines = [*explanation_text.heading(found), *explanation_text.table(found, arguments.least)]
        if arguments.path:
            lines += ["", *explanation_text.path(found)]
        if quantile != explaining.TYPICAL:
            lines += story_text.lines(found)
        for line in lines:
            print(line)
    else:
        for side in found.sides:
            if side.sample.residual:
                _say(f"{side.label}: {side.sample.residual:+,} instructions are of no function")
        with files.output(None) as out:
            export.load(export.EXPLANATIONS[arguments.format]).write(found, out)
    if environment:
        from klat.report.html.explanation_page import explanation_page

        page.write(arguments.html, explanation_page(environment, found))
    return 0 if found.valid else 3


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
