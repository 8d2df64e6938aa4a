"""`klat lab explain`: counts the instructions of a metric's samples by function."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, TYPE_CHECKING

from klat import export
from klat.base import files
from klat.base.errors import KlatError
from klat.base.streams import say
from klat.commands import _lab_options, _session_options, add_command, add_format, add_page
from klat.commands import page_templates
from klat.commands._types import add_repeatable, checked, number, real

if TYPE_CHECKING:
    from klat.explain.explanation import Explanation
    from klat.lab.choosing import Wanted

_SIDES = ("BASE", "NEW")
_LARGEST = 10  # functions of each metric in a report on all metrics
_OUTPUT = "results/explain"
# Options of klat lab run with the only value that they can have here.
_FIXED = {"mode": "counted", "cpus": "1", "boots": "1", "runs": "1"}
_WITH_KERNEL = (
    *("arch", "time_limit", "output", "append", "clock", "load"),
    *("seed", "sweep", "option", "iterations", "policy", *_FIXED),
)

_DESCRIPTION = """\
Repeats boots of the lab and counts the instructions of a sample by function.
With two kernels it also prints the differences.
"""

_EPILOG = """\
Exit status: 0 explained; 1 a boot could not be repeated, or gave other samples;
2 usage, input or output; 3 the instructions may not be those of the sample;
130, 143, 129 stopped by SIGINT, SIGTERM, SIGHUP.

examples:
  klat lab run --mode counted --kernel debian:stock --kernel debian:rt pipes
  klat lab explain results/lab-stock results/lab-rt --metric pipes.round_trip
  klat lab explain --kernel debian:stock --kernel debian:rt pipes
      boots the kernels first, unless results/explain has such boots
  klat lab explain results/lab-rt
      the largest functions of every metric
"""


def add_parser(actions: Any) -> None:
    summary = "count the instructions of a sample by function"
    parser = add_command(actions, "explain", summary, _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    help_text = (
        "labels or sessions of klat lab run: BASE, and NEW to compare with it; with --kernel,"
        " the benchmarks to run"
    )
    add("sides", nargs="*", metavar="BASE|BENCHMARK", help=help_text)
    help_text = (
        "for example pipes.round_trip (default: with BASE alone, every metric; with two sides,"
        " the first metric of their only benchmark)"
    )
    add("--metric", type=_lab_options.metric, metavar="BENCHMARK.METRIC", help=help_text)
    help_text = "use only runs with this parameter, for example bytes=64; repeatable"
    add_repeatable(add, "--where", "NAME=VALUE", help_text, _parameter)
    help_text = (
        "functions that differ by fewer instructions share one line (default: 20, or a thousandth"
        " of the sample if that is more)"
    )
    add("--least", type=number(0, 10**9, "number of instructions"), metavar="N", help=help_text)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--worst",
        nargs="?",
        const="",
        type=_worst,
        metavar="BENCHMARK.METRIC",
        help="explain the largest sample of this metric (default: the metric of --metric)",
    )
    which.add_argument(
        "--quantile",
        type=real(lambda value: 0 < value <= 100, "a percentage above 0 and up to 100"),
        metavar="PERCENT",
        help="explain the sample at this quantile, for example 99.9",
    )
    _add_output(parser)
    _add_kernels(parser)
    parser.set_defaults(func=_explain)


def _add_output(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--path", action="store_true", help="print the calls in order, as a diff")
    more = "; the other formats have every function and call chain"
    add_format(add, *export.EXPLANATIONS, more=more)
    help_text = (
        "also print the source lines with most instructions; FILE is that side's kernel with debug"
        " information"
    )
    add_repeatable(add, "--vmlinux", "BASE=FILE|NEW=FILE", help_text, _debug)
    add_page(add, "also write a page with pictures of the calls")


def _add_kernels(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "with --kernel",
        "The options of klat lab run that choose kernels, programs and conditions.\n"
        "--mode is fixed to counted, and --cpus, --boots and --runs to 1: klat\n"
        "repeats one run of one boot.",
    )
    _lab_options.add_kernel(group, "the kernel of BASE; the second --kernel is that of NEW")
    place = f"where sessions go (default: {_OUTPUT}, in the current directory)"
    _session_options.add_measure(group, "output", output={"help": place})
    _lab_options.add_conditions(group)
    for name, value in _FIXED.items():
        fixed = checked(partial(_fixed, value))
        group.add_argument(f"--{name}", type=fixed, help=argparse.SUPPRESS)


def _fixed(value: str, text: str) -> str:
    if text != value:
        raise ValueError(
            f"is fixed to {value}: klat repeats one counted run of one boot, on one CPU"
        )
    return value


def _worst(text: str) -> str:
    """The text is empty for --worst without a metric: argparse passes `const` to this function, too."""
    return text and _lab_options.metric(text)


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
        say(f"stopped: {stopped}")
        return stopped.status


def _explain_wanted(arguments: argparse.Namespace) -> int:
    from klat.lab import explaining

    wanted = _wanted(arguments)
    every = len(arguments.kernel or arguments.sides) == 1 and not wanted.metric
    if every:
        for name in ("worst", "quantile", "path", "vmlinux", "html"):
            if getattr(arguments, name) not in (None, False, []):
                raise KlatError(f"--{name} needs --metric, or BASE and NEW")
        if arguments.format != "text":
            raise KlatError(f"--format {arguments.format} needs --metric, or BASE and NEW")
    paths = _kernels(arguments, wanted) if arguments.kernel else _recorded(arguments)
    if not every:
        return _explain_one(paths, wanted, arguments)
    explanations, failures = explaining.explain_every(paths[0], wanted, say)
    for name, error in failures.items():
        say(f"{name} cannot be explained: {error}")
    return _print_each(explanations) or (1 if failures else 0)


def _recorded(arguments: argparse.Namespace) -> list[Path]:
    for name in _WITH_KERNEL:
        if getattr(arguments, name) not in (None, []):
            raise KlatError(f"--{name.replace('_', '-')} needs --kernel")
    if not 1 <= len(arguments.sides) <= 2:
        raise KlatError("give BASE, or BASE and NEW, or --kernel and a benchmark")
    return [Path(side) for side in arguments.sides]


def _kernels(arguments: argparse.Namespace, wanted: Wanted) -> list[Path]:
    """The sessions of the kernels. Records those that are missing."""
    from klat.lab import explaining, needed

    explaining.check(_lab_options.architecture(arguments))
    if len(arguments.kernel) > 2:
        raise KlatError("--kernel: give one or two kernels")
    if len(arguments.load) > 1:
        raise KlatError("--load: give one load")
    arguments.benchmarks = arguments.sides or [wanted.benchmark] * bool(wanted.benchmark)
    if not arguments.benchmarks:
        raise KlatError("give a benchmark, for example pipes")
    request = _lab_options.request(
        arguments, mode="counted", shape=_lab_options.shape(1, None, None), boots=1, runs=1
    )
    fixed = frozenset(name for name in ("seed", "clock") if getattr(arguments, name) is not None)
    output = _session_options.output(arguments, _OUTPUT)
    return needed.sessions(request, fixed, output, sys.argv, say)


def _wanted(arguments: argparse.Namespace) -> Wanted:
    from klat.lab import choosing

    quantile = choosing.TYPICAL
    named = arguments.metric
    if arguments.worst is not None:
        if arguments.worst and named is not None:
            raise KlatError("give the metric once: to --worst or to --metric")
        named = named or arguments.worst or None
        quantile = 1.0
    elif arguments.quantile is not None:
        quantile = arguments.quantile / 100
    benchmark, _, metric = (named or "").partition(".")
    return choosing.Wanted(benchmark, metric, quantile, tuple(arguments.where))


def _explain_one(paths: list[Path], wanted: Wanted, arguments: argparse.Namespace) -> int:
    from klat.lab import choosing, explaining
    from klat.report import explanation
    from klat.report.renderers import html, terminal

    environment = page_templates(arguments.html)
    debug = dict(arguments.vmlinux)
    if "NEW" in debug and len(paths) == 1:
        raise KlatError("--vmlinux NEW=FILE: NEW is not given")
    kernels = [debug.get(side) for side in _SIDES[: len(paths)]]
    result = explaining.explain(paths, wanted, say, kernels, arguments.least)
    story = [] if wanted.quantile == choosing.TYPICAL else list(explanation.story_blocks(result))
    if arguments.format == "text":
        report = explanation.document(result, arguments.least, story=story)
        path = ("", *explanation.path(result)) if arguments.path else ()
        for line in (*terminal.lines(report, colour=False), *path):
            print(line)
    else:
        for side in result.sides:
            if side.sample.residual:
                say(f"{side.label}: {side.sample.residual:+,} instructions belong to no function")
            if side.sample.doubt:
                say(f"{side.label}: {side.sample.doubt}")
        from klat.export import explained

        with files.output(None) as out:
            explained.WRITERS[arguments.format](result, out)
    if environment:
        from klat.report.explanation_page import explanation_page

        html.write(arguments.html, explanation_page(environment, result, story))
    return 0 if result.valid else 3


def _print_each(explanations: Sequence[Explanation]) -> int:
    from klat.report.explanation import document
    from klat.report.renderers import terminal

    for number, e in enumerate(explanations):
        if number:
            print()
        for line in terminal.lines(document(e, most=_LARGEST), colour=False):
            print(line)
    return 0 if all(e.valid for e in explanations) else 3
