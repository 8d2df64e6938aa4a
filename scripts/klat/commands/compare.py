"""`klat compare`: whether a kernel is faster or slower than another, by how much, how surely."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from klat.commands import SUMMARIES, add_command, add_format, add_metric, add_page, page_templates
from klat.commands import print_document, write_page
from klat.commands._types import add_flag, add_limit, add_repeatable, estimand, limit_of, margin
from klat.commands._types import share

_DESCRIPTION = """\
Compares each benchmark, metric, placement and parameter set that BASE and NEW
have in common. NEW is faster, slower, or the same within the margin; or the
verdict is inconclusive, with what would settle it. Each argument is a session,
or a label, whose sessions are its boots. Each NEW is compared with BASE.
"""

_EPILOG = """\
The boot is the unit: runs of a boot are averaged, and boots are compared. With
one boot on a side, a difference cannot be attributed to the kernel. Sessions
that share their boot are one boot.

Sides with sessions of several machines are compared machine by machine. With
6 machines or more there is also a verdict over machines, and the exit status
follows it. A machine that it leaves out counts by itself.

With --limit, compare judges the share of samples above the limit, and no
medians. Samples of one run or one boot are alike, so the bounds of the share
count them as fewer samples. All verdicts are after the correction.
  within       the share of NEW's samples above the limit is at most --share
  exceeded     the share is larger
  cannot tell  neither is shown; the report says how many samples would show it
  fewer, more  NEW has a smaller or larger share above the limit than BASE
The exit status depends on NEW only: 0 every verdict is within; 1 one is
exceeded; 2 usage; 3 one is cannot tell, or has no figure; 4 and 5 as below.

verdicts:
  same            shown to differ by less than the margin
  faster, slower  shown to differ by more than the margin, after the correction
                  for the number of tests
  inconclusive    none of these is shown, or a side has no figure; the report
                  gives the reason, and the boots or runs that would settle it
  cannot be attributed  one boot on a side: boot and kernel cannot be separated
  not delivered         a kernel delivered none of the events
  not comparable        a condition differs; the report names each one

Conditions that somebody sets must agree. --allow KEY accepts a difference:
{keys}
  unit (cannot be allowed)
Differences that the kernels bring are listed.

Exit status: 0 no regression: all same or faster; 1 regression: something is
slower; 2 usage, or something could not be read; 3 inconclusive: nothing is
slower, but something is inconclusive or missing in NEW; 4 not comparable:
nothing is slower, but something was refused, or nothing is in common; 5 not
delivered: as 0, but NEW did not deliver what BASE delivered.
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers, "compare", SUMMARIES["compare"], _DESCRIPTION, _EPILOG.format(keys=_keys())
    )
    add = parser.add_argument
    add("base", metavar="BASE", type=Path, help="a session, or a label with its sessions")
    add("new", metavar="NEW", type=Path, nargs="+", help="the same")
    add_rules(add)
    add_metric(add)
    add_format(add, "json", "csv", "markdown")
    add_page(add)
    parser.set_defaults(func=run)


def add_rules(add: Any) -> None:
    """The options that decide verdicts. `add` is add_argument of a parser."""
    add("--margin", type=margin, default=0.02, metavar="M", help="largest ratio still treated as equal (default: 2%%)")  # fmt: skip
    add("--alpha", type=share, default=0.05, metavar="A", help="chance of error (default: 5%%)")
    help_text = (
        "the figure to test: median, mean, p90, p99.9; repeatable (default: median, and"
        " p99 where the samples of every run support it); pooled over a boot if runs are too short"
    )
    add("--quantile", action="append", metavar="Q", help=help_text)
    add("--correction", choices=("holm", "bh"), default="holm", help="default: holm")
    add_limit(add)
    help_text = "read every sample, and print how well single runs resolve the quantile"
    add_flag(add, "--within-runs", help_text)
    help_text = "compare although this condition differs; repeatable"
    add_repeatable(add, "--allow", "KEY", help_text)


def _keys() -> str:
    import textwrap

    from klat.compare.conditions import ALLOWABLE

    return textwrap.fill(" ".join(ALLOWABLE), 78, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)  # fmt: skip


def options(args: argparse.Namespace) -> Any:
    from klat.compare.conditions import ALLOWABLE, is_allowable
    from klat.compare.comparison import Options
    from klat.base.errors import KlatError, did_you_mean
    from klat.compare.verdicts import Rules

    for key in args.allow:
        if not is_allowable(key):
            meant = did_you_mean(key, ALLOWABLE) or "; klat compare --help lists them"
            raise KlatError(f"--allow {key}: is no condition that can be allowed{meant}")
    tested = tuple(dict.fromkeys(map(estimand, args.quantile or ())))
    limit = limit_of(args)
    for name, given in (("--quantile", args.quantile), ("--within-runs", args.within_runs)):
        if limit and given:
            raise KlatError(f"{name}: has no effect with --limit; leave one of them out")
    return Options(
        rules=Rules(args.margin, args.alpha, args.correction),
        tested=tested,
        metrics=tuple(dict.fromkeys(args.metric)),
        allow=tuple(dict.fromkeys(args.allow)),
        limit=limit,
        within_runs=args.within_runs,
    )


def run(args: argparse.Namespace) -> int:
    from klat.base.errors import KlatError
    from klat.compare.compare_sides import compare_with_runs
    from klat.compare.dataset import read_dataset

    chosen = options(args)
    for number, path in enumerate(args.new):
        # Each NEW adds its tests to the family of the correction.
        if any(path.resolve() == other.resolve() for other in args.new[:number]):
            raise KlatError(f"{path}: is given twice as NEW; give it once")
    environment = page_templates(args.html)
    base, news = read_dataset(args.base), [read_dataset(new) for new in args.new]
    comparison, matched = compare_with_runs(base, news, chosen)
    for problem in comparison.problems:
        print(f"klat compare: {problem}", file=sys.stderr)
    if args.format in ("text", "markdown"):
        from klat.report.comparison import document

        print_document(document(comparison), args.format)
    else:
        from klat.report.comparison_columns import write_csv, write_json

        (write_csv if args.format == "csv" else write_json)(comparison, sys.stdout)
    sys.stdout.flush()
    if environment:
        from klat.compare.figure_data import side_figures
        from klat.report.comparison import document

        curves = [side_figures(sides, comparison.options.rules) for sides in matched]
        write_page("compare", args.html, environment, document(comparison, curves))
    return comparison.status
