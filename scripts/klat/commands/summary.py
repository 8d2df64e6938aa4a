"""`klat summary`: what some sessions measured, as a table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from klat.commands import SUMMARIES, add_command, add_format, add_metric, add_page, add_paths
from klat.commands import page_templates, print_document, say_of, write_page
from klat.commands._types import add_flag, add_limit, limit_of

_MISMATCH = 1
_UNREADABLE = 2
_SHOWN = 20
_say = say_of("summary")

_DESCRIPTION = """\
Prints what was measured: for each benchmark, placement and metric the average
and standard deviation over runs, and the median, p99 and maximum over all
samples. Warns if samples at one position of a run stand out, for example the
last one. Pools those sessions of a label that klat compare would accept as one
side. Shows the others separately, and names what differs.

With --limit, also judges the share of samples above the limit. The verdict of
each metric is within (at most --share), exceeded (more), or cannot tell, with
the number of samples that would settle it. The chance that any verdict is wrong
is at most 5 % (Holm)."""

_EPILOG = """\
Runs whose rows contradict their samples are left out, with a warning on
standard error.

Exit status: 0 done; 1 --verify found a bad row; 2 usage, or something could not
be read. With --limit: 0 every verdict is within; 1 one is exceeded; 3 none is
exceeded, but one is cannot tell, or a metric has no run that counts."""


def add_parser(subparsers: Any) -> None:
    parser = add_command(subparsers, "summary", SUMMARIES["summary"], _DESCRIPTION, _EPILOG)
    add_paths(parser)
    add = parser.add_argument
    add_format(add, "markdown", "csv", "json")
    add_page(add, "also write a page, as one file that needs no other")
    help_text = (
        "list each row that contradicts its samples, is damaged or cannot be checked; if there is one,"
        " end with status 1"
    )
    add_flag(add, "--verify", help_text)
    help_text = (
        "also print the values that one sample in 10, 100, 1,000 and so on exceeds; always printed for"
        " a soak"
    )
    add_flag(add, "--tail", help_text)
    add_metric(add)
    add_limit(add)
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    from klat.compare.dataset import read_datasets, with_metrics
    from klat.record.session import SessionError
    from klat.report.summary import document

    environment = page_templates(args.html)
    limit = limit_of(args)
    verified = not args.verify or _verify(args.paths)
    try:
        labels, problems = read_datasets(args.paths)
    except SessionError as error:
        if verified:
            raise
        _say(str(error))
        return _MISMATCH
    for problem in problems:
        _say(problem)
    if args.metric:
        labels = with_metrics(labels, args.metric)
    limits = None
    if limit:
        from klat.compare.limits import label_limits
        from klat.compare.verdicts import Rules

        limits = label_limits(labels, limit, Rules())
    failures: dict[str, None] = {}  # each once, in order

    def failed(reason: str) -> None:
        failures.setdefault(reason)

    is_shown = args.format in ("text", "markdown")
    if is_shown or environment:
        report = document(labels, failed, limits, args.tail, problems, bool(environment))
    if is_shown:
        print_document(report, args.format)
    else:
        from klat.report.summary_tables import write_csv, write_json

        if limits and limits.without_figure:
            _say(f"no run counts of {', '.join(dict.fromkeys(limits.without_figure))}")
        if args.format == "csv":
            write_csv(labels, sys.stdout, failed, limits)
        else:
            write_json(labels, problems, sys.stdout, failed, limits)
    sys.stdout.flush()
    if environment:
        write_page("summary", args.html, environment, report)
    for reason in failures:
        _say(reason)
    if not verified:
        return _MISMATCH
    if failures:
        return _UNREADABLE
    return limits.status if limits else 0


def _verify(paths: Sequence[Path]) -> bool:
    """Whether every row agrees with its samples. Prints the result, or each failure."""
    from klat.record.session import find_sessions, read_session
    from klat.record.verification import failures

    rows = 0
    said: list[str] = []
    for path in find_sessions(paths):
        checked, sentences = failures(read_session(path))
        rows += checked
        said += sentences
    for line in said[:_SHOWN]:
        _say(line)
    if len(said) > _SHOWN:
        _say(f"and {len(said) - _SHOWN:,} more")
    if not said:
        _say(f"verified {rows:,} rows: each agrees with its samples in every digit")
    return not said
