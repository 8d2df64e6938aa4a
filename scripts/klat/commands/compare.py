"""`klat compare`: what two kernels measured, side by side."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klat.comparison import Figures, Key
    from klat.measurements import Label

_UNREADABLE = 2
_NOT_COMPARABLE = 4

_DESCRIPTION = """\
Prints what two labels measured side by side, with the ratio of medians and of
averages for each metric that both have. It states no verdict: a ratio does
not say whether a difference is more than chance."""

_EPILOG = """\
Exit status: 0 done; 2 usage, or something could not be read; 4 not comparable,
as unit or mode differs."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "compare",
        help="print what two kernels measured side by side",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for side in "AB":
        parser.add_argument(
            side.lower(), metavar=side, type=Path, help="a session, or a label with its sessions"
        )
    parser.set_defaults(func=run)


def _say(line: str) -> None:
    print(f"klat compare: {line}", file=sys.stderr)


def run(args: argparse.Namespace) -> int:
    from klat.comparison import compare, obstacles
    from klat.environment import differences, recorded_differences
    from klat.report.sides import sides

    a, b = _one_label(args.a), _one_label(args.b)
    reasons = obstacles(a.info, b.info)
    for reason in reasons:
        _say(f"not comparable: {reason}")
    if reasons:
        return _NOT_COMPARABLE
    failures: dict[str, None] = {}  # each once, in order
    tick_of_b = a.khz / b.khz if a.khz and b.khz else 1.0
    found = compare(_figures(a, failures), _figures(b, failures), tick_of_b)
    captured = recorded_differences(a.info, b.info)
    captured += differences(*(label.sessions[0].path / "environment" for label in (a, b)))
    for line in sides(a, b, found, captured):
        print(line)
    sys.stdout.flush()
    for failure in failures:
        _say(failure)
    return _UNREADABLE if failures else 0


def _one_label(path: Path) -> Label:
    from klat.errors import KlatError
    from klat.measurements import read_labels

    labels, problems = read_labels([path])
    for problem in problems:
        _say(problem)
    if len(labels) > 1:
        names = ", ".join(f"{label.name} (Linux {label.kernel})" for label in labels[:4])
        raise KlatError(
            f"{path}: holds {len(labels)} kernels under test, {names}; give one of them"
        )
    return labels[0]


def _figures(label: Label, failures: dict[str, None]) -> dict[Key, Figures]:
    from klat.comparison import Figures
    from klat.report.sides import setting_key
    from klat.report.text import guarded_statistics

    found = {}
    for setting in label.settings:
        for measurement in setting.measurements.values():
            if not measurement.runs:
                continue
            s = guarded_statistics(measurement, lambda reason: failures.setdefault(reason))
            if s:
                key = (*setting_key(setting), measurement.metric)
                found[key] = Figures(s.runs, s.average, s.stdev, s.median, s.p99, s.max)
    return found
