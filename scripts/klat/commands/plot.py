"""`klat plot`: figures of what some sessions measured."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TYPE_CHECKING

from klat.commands import SUMMARIES, add_command, add_paths, say_of
from klat.commands._types import add_limit_alone, limit_of

if TYPE_CHECKING:
    from klat.compare.dataset import Dataset
    from klat.report.plot.distribution_figures import LimitLine

_UNREADABLE = 2
_say = say_of("plot")

_DESCRIPTION = """\
Draws with gnuplot, as SVG and as PNG: the distribution of the samples of each
metric with its tail, the runs (of a soak: the segments) in their order, the
time of a shootdown by the number of responders, the effect of each swept
option, and a map of the pairs of CPUs. Several labels share a figure, and so
do the sessions of one label; each map is of one label.
Sessions that klat compare would refuse as one side have separate curves."""

_EPILOG = """\
files: BENCHMARK-METRIC[-PARAMS]-distribution, -runs or -segments, and -scaling;
BENCHMARK[-METRIC]-by-OPTION; BENCHMARK-METRIC-matrix; each .svg and .png

Exit status: 0 done; 2 usage, or something could not be read or drawn."""


def add_parser(subparsers: Any) -> None:
    parser = add_command(subparsers, "plot", SUMMARIES["plot"], _DESCRIPTION, _EPILOG)
    add_paths(parser)
    parser.add_argument(
        "-o", "--output", metavar="DIR", type=Path, default=Path("plots"), help="default: plots"
    )
    parser.add_argument("--sweeps", action="store_true", help="draw only sweeps and maps of CPUs")
    add_limit_alone(parser.add_argument, "draw L as a line")
    parser.set_defaults(func=run)


def _limit_line(args: argparse.Namespace, labels: Sequence[Dataset]) -> LimitLine | None:
    """KlatError for a limit that is not in the unit of the samples."""
    from klat.compare.limits import check
    from klat.report.plot.distribution_figures import LimitLine

    limit = limit_of(args)
    if limit is None:
        return None
    for label in labels:
        check(limit, label)
    return LimitLine(limit.text, limit.value / (1e3 if limit.is_time else 1))


def run(args: argparse.Namespace) -> int:
    from klat.base.errors import KlatError
    from klat.compare.dataset import read_datasets
    from klat.report.plot.axis import common_axis
    from klat.report.plot.distribution_figures import distribution
    from klat.report.plot.gnuplot import draw
    from klat.report.text.numbers import plural
    from klat.report.plot.matrix_figures import matrix_figures
    from klat.report.plot.run_order import run_series
    from klat.report.plot.series import overlays
    from klat.report.plot.sweep_figures import scaling, sweep_figures
    from klat.record.session import SessionError, printable

    labels, problems = read_datasets(args.paths)
    for problem in problems:
        _say(problem)
    for label in labels:
        for line in label.unmeasurable_lines():
            _say(f"label {label.full_name}, mode {label.mode}: {line}")
    axis = common_axis(labels)
    limit = _limit_line(args, labels)
    figures = []
    failures: dict[str, None] = {}  # each once, in order
    for overlay in (
        []
        if args.sweeps
        else overlays(labels, [session for label in labels for session in label.by_session()])
    ):
        try:
            figures += [distribution(overlay, axis, limit), run_series(overlay, axis, limit)]
        except SessionError as error:
            failures.setdefault(str(error))
    figures += scaling(labels, axis)
    figures += sweep_figures(labels, axis)
    figures += matrix_figures(labels, axis)
    drawn = [figure for figure in figures if figure is not None]
    for reason in failures:
        _say(reason)
    if not drawn:
        missing = (
            "no option was swept, or none changed a figure" if args.sweeps else "no run has samples"
        )
        raise KlatError(f"{missing}: there is nothing to draw")
    draw(drawn, args.output)
    print(f"{plural(len(drawn), 'plot')}, as SVG and PNG, in {printable(str(args.output))}/")
    return _UNREADABLE if failures else 0
