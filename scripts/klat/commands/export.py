"""`klat export`: sessions and verdicts in the formats of other programs."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any, TYPE_CHECKING

from klat.base import files
from klat.commands import SUMMARIES, add_command, add_metric, compare, say_of
from klat.commands._types import add_repeatable
from klat.export import RUNS, VERDICTS

if TYPE_CHECKING:
    from klat.export.exported_runs import ExportedRuns

_say = say_of("export")
_DESCRIPTION = """\
Writes what some sessions measured, or the verdicts on them, in a format that
other programs read.
"""

_EPILOG = """\
formats of runs and samples; PATH is a session, a label or a results directory:
{runs}

formats of verdicts; PATH... is BASE NEW [MORE...], as of klat compare:
{verdicts}

Only usable runs (ok, disturbed) are exported; standard error has the number of
the others. Instructions, and ticks of an emulator, keep their unit; googlebench
refuses them, because it has only times. A file of googlebench or pyperf holds
one label. A file of hgrm holds one distribution; -o DIR/ writes a file for
each. The verdicts slower and exceeded are failures; same, faster and within
pass; all others are skipped with their reason.

Exit status: 0 done, whatever the verdicts; 2 usage, or something could not be
read or written, or does not fit the format.
"""


def add_parser(subparsers: Any) -> None:
    of_runs, of_verdicts = [
        "\n".join(f"  {name:12} {holds}" for name, holds in formats.items())
        for formats in (RUNS, VERDICTS)
    ]
    epilog = _EPILOG.format(runs=of_runs, verdicts=of_verdicts)
    parser = add_command(subparsers, "export", SUMMARIES["export"], _DESCRIPTION, epilog)
    add = parser.add_argument
    add("paths", metavar="PATH", nargs="+", type=Path, help="see below")
    add("--format", choices=(*RUNS, *VERDICTS), required=True, metavar="FORMAT", help="see below")
    add("-o", "--output", metavar="FILE", help="default: standard output")
    add_metric(add)
    group = parser.add_argument_group("of runs and samples only")
    add = group.add_argument
    add_repeatable(add, "--benchmark", "NAME", "only this; repeatable")
    group = parser.add_argument_group("of verdicts only, as of klat compare")
    rules: dict[str, Any] = {}

    def add_rule(*names: str, **settings: Any) -> None:
        """An option that is not given is not in the namespace. `rules` has its default."""
        action = group.add_argument(*names, **settings)
        rules[action.dest], action.default = action.default, argparse.SUPPRESS

    compare.add_rules(add_rule)
    parser.set_defaults(func=run, rules=rules)


def run(args: argparse.Namespace) -> int:
    from klat.base.errors import KlatError

    output: str | None = args.output
    if output == "":
        raise KlatError("-o: the name of a file cannot be empty")
    directory = output is not None and (output.endswith("/") or os.path.isdir(output))
    if directory and args.format != "hgrm":
        raise KlatError(f"-o {output}: is a directory; {args.format} is written into one file")
    if output is None and args.format == "parquet" and sys.stdout.isatty():
        raise KlatError("parquet is binary and would garble the terminal: name a file with -o")
    if args.format in VERDICTS:
        _verdicts(args)
    else:
        _runs(args, directory)
    return 0


def _destination(args: argparse.Namespace) -> Path | None:
    return None if args.output is None else Path(args.output)


def _runs(args: argparse.Namespace, directory: bool) -> None:
    from klat import export
    from klat.base.errors import KlatError
    from klat.export.exported_runs import read_runs

    for name in filter(args.__contains__, args.rules):
        option = f"--{name.replace('_', '-')}"
        raise KlatError(f"{option} is for verdicts, and {args.format} holds runs")
    exported = read_runs(args.paths, args.benchmark, args.metric)
    _tell(exported)
    if directory:
        from klat.export import hgrm

        distributions = list(hgrm.files(exported))  # compute all before writing the first
        with files.explained("make the directory", Path(args.output)):
            files.make_directories(Path(args.output))
        for name, content in distributions:
            with files.output(Path(args.output) / name, streams=False) as out:
                out.write(content)
        return
    with files.output(_destination(args)) as out:
        export.load(args.format).write(exported, out)


def _tell(exported: ExportedRuns) -> None:
    from klat.record.rows import status_counts

    for problem in exported.problems:
        _say(problem)
    for line in exported.unmeasurable:
        _say(line)
    if exported.left_out:
        _say(f"left out, because they count in no figure: {status_counts(exported.left_out)}")
    for label in exported.labels:
        if label.unit == "ticks" and label.figure_unit != "ns":
            _say(f"label {label.name}: mode {label.mode}, so its ticks are not exported as time")
    names = [label.name for label in exported.labels]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            _say(
                f"label {name}: its sessions are of {names.count(name)} kinds that klat compare"
                " does not combine; a reader that uses only the label combines them"
            )


def _verdicts(args: argparse.Namespace) -> None:
    from klat.compare.compare_sides import compare as compare_sides
    from klat.base.errors import KlatError
    from klat.compare.dataset import read_dataset
    from klat.report.comparison import document
    from klat.report.renderers.cases import WRITERS

    if args.benchmark:
        raise KlatError(f"--benchmark is for runs and samples; {args.format} takes --metric")
    if len(args.paths) < 2:
        raise KlatError(f"{args.format} holds verdicts: give two paths, BASE NEW")
    chosen = compare.options(argparse.Namespace(**args.rules | vars(args)))
    base, *news = map(read_dataset, args.paths)
    comparison = compare_sides(base, news, chosen)
    for problem in comparison.problems:
        _say(problem)
    pairs = ((("BASE", a.base), ("NEW", a.new)) for a in comparison.against)
    sides = dict.fromkeys(side for pair in pairs for side in pair)
    for name, side in sides:
        if any(status in side.runs for status in ("invalid", "error", "skipped")):
            _say(f"{name} {side.label}: {side.runs}; only ok and disturbed count")
    with files.output(_destination(args)) as out:
        WRITERS[args.format](document(comparison), out)
