"""`klat history`: how the metrics of a label went over its sessions, and where they changed."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from klat.commands import SUMMARIES, add_command, add_metric, add_page, page_templates, write_page
from klat.commands._types import add_number, estimand, share

_TOO_FEW = 3

_DESCRIPTION = """\
Puts the boots of a label in order of time. For each metric it says whether it
changed, and at which boot; whether it drifts; or that no change was found. Each
boot is one point: the medians of its runs, averaged. Boots that klat compare
would refuse as one side, except for their kernels, are in separate series.
"""

_EPILOG = """\
Changes are found by E-divisive, with permutations drawn from --seed, and drift
by Kendall's tau. A change that rounding to the counter's step can cause is
"within one step". If nothing changed, the chance of any mark in the whole table
is at most alpha. If there are too few boots, it says how many are needed.

Exit status: 0 done; 2 usage, or something could not be read or drawn, or the
order of the boots is not known; 3 too few boots for any statement.
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(subparsers, "history", SUMMARIES["history"], _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("path", metavar="DIR", type=Path, help="a label with its sessions")
    add_metric(add)
    add("--quantile", default="median", metavar="Q", help="median, mean, p90, p99.9 (default: median)")  # fmt: skip
    add("--alpha", type=share, default=0.05, metavar="A", help="chance of a false mark (default: 5%%)")  # fmt: skip
    add_number(add, "--seed", 0, 2**63 - 1, "seed of the permutations (default: 1)", default=1)
    add("-o", "--output", type=Path, metavar="DIR", help="draw each metric, as SVG and as PNG")
    add_page(add)
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    from klat.compare.label_history import HistoryOptions, history
    from klat.report.history import history_lines
    from klat.compare.dataset import read_dataset

    tested = estimand(args.quantile)
    environment = page_templates(args.html)
    options = HistoryOptions(args.alpha, tested, tuple(dict.fromkeys(args.metric)), args.seed)
    timeline = history(read_dataset(args.path), options)
    for problem in timeline.problems:
        print(f"klat history: {problem}", file=sys.stderr)
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    blocks = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    for line in history_lines(timeline, colour, blocks):
        print(line)
    sys.stdout.flush()
    if args.output:
        from klat.report.plot.gnuplot import draw
        from klat.base.errors import unique_file_name
        from klat.report.plot.history_figures import series_figure

        taken: set[str] = set()
        names = [
            unique_file_name(f"{s.key[0]}-{s.key[3]}", taken, "-history") for s in timeline.series
        ]
        shown = [series_figure(n, s, timeline, True) for n, s in zip(names, timeline.series)]
        draw([figure.figure for figure in shown if figure], args.output)
    if environment:
        from klat.report.history import document
        from klat.report.plot.history_figures import series_figure

        drawn = [series_figure("series", series, timeline, False) for series in timeline.series]
        write_page("history", args.html, environment, document(timeline, drawn))
    return 0 if timeline.telling else _TOO_FEW
