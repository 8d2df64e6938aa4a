"""`klat lab bisect-check`: says whether a kernel is like the good or the bad one."""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from klat.base.errors import KlatError
from klat.base.streams import say
from klat.commands import _lab_options, add_command
from klat.commands._types import add_flag, number

_ABORT = 255  # this exit status ends `git bisect run`

_DESCRIPTION = """\
Boots a kernel, measures one metric, and says whether the kernel is like the
good or the bad one. For `git bisect run` in a kernel's source tree. Record the
good and the bad kernel with `klat lab run` first.
"""

_EPILOG = """\
klat measures the kernel in the same way as good and bad: same mode, machine,
load, options, QEMU and --runs. It refuses good and bad that differ in one of
these. Only the program of the metric runs, so record good and bad with that
program alone.

The figure of a boot is the median over its runs. The figure of a kernel is the
median over its boots. klat compares this figure with those of good and bad, as
ratios. The kernel is like the one with the nearer figure.

Exit status, as `git bisect run` takes it: 0 like good; 1 like bad; 125 cannot
be tested: it does not boot, the programs fail, or its figure is like neither;
255 any other error, which ends the bisection: usage, no QEMU, good and bad that
do not differ, or that differ in more than their kernels.

Use --explain for the commit that the bisection finds. It prints which functions
have the additional instructions of bad. It takes two more boots.

example, in the kernel's source tree:
  klat lab run --mode counted --boots 3 --output ../results \\
      --kernel good=../good --kernel bad=../bad pipes
  git bisect start BAD GOOD
  git bisect run sh -c 'make -j8 olddefconfig bzImage </dev/null || exit 125
      klat lab bisect-check --good ../results/good --bad ../results/bad \\
      --metric pipes.round_trip'
  git checkout refs/bisect/bad && make -j8 olddefconfig bzImage
  klat lab bisect-check --good ../results/good --bad ../results/bad \\
      --metric pipes.round_trip --explain
"""


class _Parser(argparse.ArgumentParser):
    """A status of 2 would count as bad."""

    def error(self, message: str) -> NoReturn:
        self.exit(_ABORT, f"{self.prog}: {message}; see {self.prog} --help\n")


def add_parser(actions: Any) -> None:
    actions._parser_class, parser_class = _Parser, actions._parser_class
    summary = "say whether a kernel is like the good or the bad one"
    parser = add_command(actions, "bisect-check", summary, _DESCRIPTION, _EPILOG)
    actions._parser_class = parser_class
    add = parser.add_argument
    add("--good", type=Path, required=True, metavar="PATH", help="label or session of the lab")
    add("--bad", type=Path, required=True, metavar="PATH", help="label or session of the lab")
    help_text = "for example pipes.round_trip"
    add(
        "--metric",
        type=_lab_options.metric,
        required=True,
        metavar="BENCHMARK.METRIC",
        help=help_text,
    )
    help_text = "the figure of a run (default: median)"
    add(
        "--statistic",
        choices=("median", "mean", "p90", "p99", "max"),
        default="median",
        help=help_text,
    )
    help_text = "a kernel's file, or its built tree (default: the current directory)"
    add("--kernel", type=Path, metavar="PATH", help=help_text)
    add("--modules", type=Path, metavar="DIR", help="modules of that kernel")
    add("--boots", type=number(1, 10_000), default=1, help="default: 1")
    add("--time-limit", type=number(1, 86_400, "number of seconds"), metavar="S")
    add_flag(add, "--explain", "also print good against bad by function, as klat lab explain does")
    parser.set_defaults(func=_bisect_check)


def _bisect_check(arguments: argparse.Namespace) -> int:
    from klat.lab import bisect
    from klat.record.session import SessionError

    try:
        status = bisect.check(arguments, sys.argv)
        if arguments.explain:
            _explain(arguments)
        return status
    except (KlatError, SessionError) as error:
        raise KlatError(str(error), status=_ABORT) from None
    except OSError as error:
        what = error.strerror or str(error)
        message = f"{error.filename}: {what}" if error.filename else what
        raise KlatError(message, status=_ABORT) from None
    except Exception:
        # Python's own status would be that of a bad kernel.
        traceback.print_exc()
        return _ABORT


def _explain(arguments: argparse.Namespace) -> None:
    """A failure does not change the exit status."""
    from klat.base.process import Stopped
    from klat.lab import explaining
    from klat.lab.choosing import Wanted
    from klat.report.explanation import document
    from klat.report.renderers import terminal

    benchmark, _, metric = arguments.metric.partition(".")
    wanted = Wanted(benchmark, metric)
    try:
        explanation = explaining.explain([arguments.good, arguments.bad], wanted, say)
    except KlatError as error:
        say(f"good and bad cannot be explained: {error}")
        return
    except Stopped:
        raise KlatError("stopped") from None
    print()
    for line in terminal.lines(document(explanation), colour=False):
        print(line, flush=True)
