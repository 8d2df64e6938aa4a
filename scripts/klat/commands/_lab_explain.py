"""`klat lab explain`: which functions a metric's samples consist of, to the instruction."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from klat.base import files
from klat.base.errors import KlatError
from klat import export
from klat.commands import _lab_options, _session_options

if TYPE_CHECKING:
    from klat.explain.explanation import Explanation
    from klat.lab.choosing import Wanted

_SIDES = ("BASE", "NEW")
_LARGEST = 10  # functions of a metric among others
_OUTPUT = "results/explain"
_WITH_KERNEL = (
    *("time_limit", "output", "append", "clock", "load"),
    *("seed", "sweep", "option", "iterations", "policy"),
)

_DESCRIPTION = """\
Repeats boots of the lab and says which instructions the samples of one metric
consist of, by function: of one kernel, or of two and what differs.
"""

_EPILOG = """\
Exit status: 0 explained; 1 a boot could not be repeated, or gave other samples;
2 usage, input or output; 130, 143, 129 stopped by SIGINT, SIGTERM, SIGHUP.

examples:
  klat lab run --mode counted --kernel debian:stock --kernel debian:rt pipes
  klat lab explain results/lab-stock results/lab-rt --metric pipes.round_trip
  klat lab explain --kernel debian:stock --kernel debian:rt pipes
      boots the kernels first, unless results/explain has such boots
  klat lab explain results/lab-rt
      the largest functions of every metric
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
    add(
        "sides",
        nargs="*",
        metavar="BASE|BENCHMARK",
        help="BASE and, to compare with it, NEW: labels or sessions of klat lab run; with --kernel,"
        " the benchmarks to run",
    )
    add(
        "--metric",
        metavar="BENCHMARK.METRIC",
        help="pipes.round_trip, for example (default: every metric of BASE alone; of two sides, the"
        " first one of their only benchmark)",
    )
    add(
        "--where",
        action="append",
        default=[],
        type=_session_options.checked(_parameter),
        metavar="NAME=VALUE",
        help="of the runs with this parameter, for example bytes=64; repeatable",
    )
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
    _add_output(parser)
    _add_kernels(parser)
    parser.set_defaults(func=_explain)


def _add_output(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--path", action="store_true", help="print the calls in order, as a diff")
    add(
        "--format",
        choices=("text", *export.EXPLANATIONS),
        default="text",
        help="default: text; the others have every function and call chain",
    )
    add(
        "--vmlinux",
        action="append",
        default=[],
        type=_session_options.checked(_debug),
        metavar="BASE=FILE|NEW=FILE",
        help="that side's kernel with debug information: also print the source lines with most"
        " instructions",
    )
    add("--html", type=Path, metavar="FILE", help="write a page with pictures of the calls too")


def _add_kernels(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "with --kernel", "As of klat lab run. Each kernel is booted once, for one run."
    )
    _lab_options.add_kernel(group, "the kernel of BASE; a second one is of NEW")
    _session_options.add_output(group, _OUTPUT)
    _lab_options.add_conditions(group)


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(f"'{text}' is not a percentage above 0 and up to 100")
    return value


def _debug(text: str) -> tuple[str, Path]:
    side, _, path = text.partition("=")
    if side not in _SIDES or not path:
        raise ValueError(f"{text!r} is not BASE=FILE or NEW=FILE")
    return side, Path(path)


def _parameter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"{text!r} is not NAME=VALUE")
    return name, value


def _explain(arguments: argparse.Namespace) -> int:
    from klat.base.process import Stopped

    try:
        return _explain_wanted(arguments)
    except Stopped as stopped:
        _say(f"stopped: {stopped}")
        return stopped.status


def _explain_wanted(arguments: argparse.Namespace) -> int:
    from klat.lab import explaining

    wanted = _wanted(arguments)
    every = len(arguments.kernel or arguments.sides) == 1 and not wanted.metric
    if every:
        for name in ("worst", "quantile", "path", "vmlinux", "html"):
            if getattr(arguments, name):
                raise KlatError(f"--{name} needs --metric, or BASE and NEW")
        if arguments.format != "text":
            raise KlatError(f"--format {arguments.format} needs --metric, or BASE and NEW")
    paths = _kernels(arguments, wanted) if arguments.kernel else _recorded(arguments)
    if not every:
        return _explain_one(paths, wanted, arguments)
    found, failures = explaining.explain_every(paths[0], wanted, _say)
    for name, error in failures.items():
        _say(f"{name} cannot be explained: {error}")
    return _print_each(found) or (1 if failures else 0)


def _recorded(arguments: argparse.Namespace) -> list[Path]:
    for name in _WITH_KERNEL:
        if getattr(arguments, name) not in (None, []):
            raise KlatError(f"--{name.replace('_', '-')} needs --kernel")
    if not 1 <= len(arguments.sides) <= 2:
        raise KlatError("what to explain: BASE, or BASE and NEW, or --kernel and a benchmark")
    return [Path(side) for side in arguments.sides]


def _kernels(arguments: argparse.Namespace, wanted: Wanted) -> list[Path]:
    """The sessions of the kernels, recorded if need be."""
    from klat.lab import needed

    if len(arguments.kernel) > 2:
        raise KlatError("--kernel: one kernel or two can be explained")
    if len(arguments.load) > 1:
        raise KlatError("--load: one load can be explained")
    arguments.benchmarks = arguments.sides or [wanted.benchmark] * bool(wanted.benchmark)
    if not arguments.benchmarks:
        raise KlatError("which benchmark: pipes, for example")
    request = _lab_options.request(
        arguments, mode="counted", shape=_lab_options.shape(1, None, None), boots=1, runs=1
    )
    fixed = frozenset(name for name in ("seed", "clock") if getattr(arguments, name) is not None)
    output = _session_options.output(arguments, _OUTPUT)
    return needed.sessions(request, fixed, output, sys.argv, _say)


def _wanted(arguments: argparse.Namespace) -> Wanted:
    from klat.lab import choosing

    quantile = choosing.TYPICAL
    if arguments.worst:
        quantile = 1.0
    elif arguments.quantile is not None:
        quantile = arguments.quantile / 100
    benchmark, dot, metric = (arguments.metric or "").partition(".")
    if arguments.metric is not None and not (dot and metric):
        raise KlatError(f"--metric {arguments.metric!r} is not BENCHMARK.METRIC")
    return choosing.Wanted(benchmark, metric, quantile, tuple(arguments.where))


def _explain_one(paths: list[Path], wanted: Wanted, arguments: argparse.Namespace) -> int:
    from klat.lab import choosing, explaining
    from klat.report.html import page
    from klat.report.text import explanation_text, story_text

    environment = page.templates() if arguments.html else None
    debug = dict(arguments.vmlinux)
    if "NEW" in debug and len(paths) == 1:
        raise KlatError("--vmlinux NEW=FILE: there is no NEW")
    kernels = [debug.get(side) for side in _SIDES[: len(paths)]]
    found = explaining.explain(paths, wanted, _say, kernels, arguments.least)
    typical = wanted.quantile == choosing.TYPICAL
    story = [] if typical else list(story_text.lines(found))
    if arguments.format == "text":
        lines = [*explanation_text.heading(found), *explanation_text.table(found, arguments.least)]
        if arguments.path:
            lines += ["", *explanation_text.path(found)]
        for line in [*lines, *story]:
            print(line)
    else:
        for side in found.sides:
            if side.sample.residual:
                _say(f"{side.label}: {side.sample.residual:+,} instructions are of no function")
        with files.output(None) as out:
            export.load(export.EXPLANATIONS[arguments.format]).write(found, out)
    if environment:
        from klat.report.html.explanation_page import explanation_page

        page.write(arguments.html, explanation_page(environment, found, story))
    return 0 if found.valid else 3


def _print_each(found: Sequence[Explanation]) -> int:
    from klat.report.text import explanation_text

    for number, each in enumerate(found):
        if number:
            print()
        for line in (*explanation_text.heading(each), *explanation_text.largest(each, _LARGEST)):
            print(line)
    return 0 if all(each.valid for each in found) else 3


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
