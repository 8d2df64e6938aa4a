"""`klat summary`: what some sessions measured, as a table."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

_MISMATCH = 1
_UNREADABLE = 2
_SHOWN = 20

_DESCRIPTION = """\
Prints what was measured: for each benchmark, placement and metric the average
and standard deviation over runs, and the median, p99 and maximum over all
samples. Warns if a position in the run stands out, for example the last sample.
Sessions of one label are pooled where klat compare would take them for
one side; the others are shown apart, with what differs."""

_EPILOG = """\
Exit status: 0 done; 1 --verify found a row that its samples do not bear out;
2 usage, or something could not be read."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "summary",
        help="print what some sessions measured",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        type=Path,
        help="a session, a label or a results directory",
    )
    parser.add_argument(
        "--format", choices=("text", "csv", "json"), default="text", help="default: text"
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="recompute every row from its samples and demand the same digits",
    )
    parser.set_defaults(func=run)


def _say(line: str) -> None:
    print(f"klat summary: {line}", file=sys.stderr)


def run(args: argparse.Namespace) -> int:
    from klat.measurements import read_labels

    labels, problems = read_labels(args.paths)
    for problem in problems:
        _say(problem)
    failures: dict[str, None] = {}  # each once, in order

    def failed(reason: str) -> None:
        failures.setdefault(reason)

    if args.format == "text":
        from klat.report.text import summary

        for line in summary(labels, failed):
            print(line)
    else:
        from klat.report.tabular import write_csv, write_json

        if args.format == "csv":
            write_csv(labels, sys.stdout, failed)
        else:
            write_json(labels, problems, sys.stdout, failed)
    sys.stdout.flush()
    for reason in failures:
        _say(reason)
    verified = True
    if args.verify:
        from klat.verification import verify

        results = [verify(session) for label in labels for session in label.sessions]
        said = [failure for result in results for failure in result.failures]
        for line in said[:_SHOWN]:
            _say(line)
        if len(said) > _SHOWN:
            _say(f"and {len(said) - _SHOWN:,} more")
        rows = sum(result.rows for result in results)
        if not said:
            _say(f"verified {rows:,} rows: each says what its samples say, digit for digit")
        verified = not said
    if not verified:
        return _MISMATCH
    return _UNREADABLE if failures else 0
