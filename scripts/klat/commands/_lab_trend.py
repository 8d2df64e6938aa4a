"""`klat lab trend` and `klat lab diff`: kernels in order, what changed between them, and by which functions."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TYPE_CHECKING

from klat.base.errors import KlatError
from klat.base.streams import say
from klat.commands import _lab_options, _session_options, add_command, add_format, add_page
from klat.commands import page_templates, print_document, write_page
from klat.commands._types import add_number, checked, margin, share

if TYPE_CHECKING:
    from klat.compare.dataset import Dataset, Key
    from klat.compare.trend import Trend
    from klat.lab.kernels import Spec
    from klat.lab.lock import Lock
    from klat.report.trend import Change

_OUTPUT = "results/trend"
_BOOTS = 4  # at least
_METRICS = 2  # metrics of a program that have a number in counted mode, on average
_SIDES = ("base", "new")
# Options whose values a lock file has under the same name.
_LOCKED = ("arch", "boots", "seed", "clock", "append", "margin", "alpha")
# The arguments that decide the programs of a lock file and their options.
_SET_OPTIONS = ("benchmarks", "option", "sweep", "policy", "iterations")
_MARGIN, _ALPHA = 0.02, 0.05

_TREND = """\
Boots kernels in the lab and counts the instructions of every metric. Compares
each kernel with the one before it, and counts by function what makes each jump.
"""

_DIFF = """\
Boots two kernels in the lab and counts the instructions of every metric. Says
which metrics changed, and by which functions.
"""

_EPILOG = """\
All steps of the report are judged together, by the rule of klat compare. A jump
is a step beyond the margin. Each jump is explained by the functions of a
typical sample of both kernels, as klat lab explain does it.

{output} keeps boots and explanations, and a second call reads them. The
seed and the clock are fixed: the same QEMU, klat and kernels give the same
report.

Exit status: that of klat compare: 0 nothing is slower; 1 something is slower; 2
usage, input or output; 3 inconclusive, or nothing is slower and a kernel was
not measured; 4 not comparable, or fewer than two kernels were measured; 5 as 0,
but a kernel did not deliver what the kernel before it delivered; 130, 143, 129
stopped by SIGINT, SIGTERM, SIGHUP.

examples:
{examples}
"""

_TREND_EXAMPLES = """\
  klat lab trend
      every release line of Debian's archive: first stock, then RT
  klat lab trend --kernel debian:5.10 --kernel debian:6.12 \\
      --kernel mine=arch/x86/boot/bzImage pipes cv switch"""

_DIFF_EXAMPLES = """\
  klat lab diff ../before .
      the kernels of two built trees
  klat lab diff --format markdown debian:7.3 arch/x86/boot/bzImage pipes cv"""


def add_parser(actions: Any) -> None:
    epilog = _EPILOG.format(output=_OUTPUT, examples=_TREND_EXAMPLES)
    summary = "show how the kernel changed from release to release"
    parser = add_command(actions, "trend", summary, _TREND, epilog)
    _lab_options.add_kernel(
        parser,
        "debian:NAME, or NAME=KERNEL[,modules=DIR][,append=WORDS]; repeatable, the oldest first"
        " (default: every release line of the archive, stock and RT)",
    )
    help_text = "if FILE exists, repeat its report; otherwise write the kernels and options to FILE"
    parser.add_argument("--lock", type=Path, metavar="FILE", help=help_text)
    _add(parser)
    parser.set_defaults(func=_trend)
    summary = "show what changed between two kernels"
    epilog = _EPILOG.format(output=_OUTPUT, examples=_DIFF_EXAMPLES)
    parser = add_command(actions, "diff", summary, _DIFF, epilog)
    for side in _SIDES:
        text = "debian:NAME, NAME=KERNEL[,modules=DIR][,append=WORDS], or a kernel's file or built tree"
        kind = checked(partial(_of_side, side))
        parser.add_argument(side, type=kind, metavar=side.upper(), help=text)
    _lab_options.add_architecture(parser)
    _lab_options.add_time_limit(parser)
    _add(parser)
    parser.set_defaults(func=_diff, lock=None)


def _add(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    programs = (
        "programs that count on one CPU, or core, or all (default: the core, switch and syscall)"
    )
    # Without a default, argparse would say that it is required.
    add("benchmarks", nargs="*", default=[], metavar="benchmark", help=programs)
    help_text = "boots of each kernel (default: as many as the number of tests needs)"
    add_number(add, "--boots", 2, 10_000, help_text)
    add("--margin", type=margin, metavar="M", help="largest ratio still treated as equal (default: 2%%)")  # fmt: skip
    add("--alpha", type=share, metavar="A", help="chance of error (default: 5%%)")
    add("--no-explain", action="store_true", help="do not count the instructions of jumps by function")  # fmt: skip
    place = f"directory of the kept boots and explanations (default: {_OUTPUT}, in the current directory)"
    _session_options.add_measure(parser, "output", output={"help": place})
    fixed = {
        "seed": {"help": "seed of the boots (default: 0)"},
        "load": {"help": "background load: one of klat's loads"},
    }
    _lab_options.add_conditions(parser, "2026-01-01", **fixed)
    jobs = "guests at once (default: as many as this machine has CPUs)"
    add_number(add, "--jobs", 1, 64, jobs)
    add_format(add, "json", "csv", "markdown", more="; markdown has one line for each jump")
    add_page(add, "write a page too")
    add("--plots", type=Path, metavar="DIR", help="draw all metrics, into trend.svg and trend.png")


def _trend(arguments: argparse.Namespace) -> int:
    from klat.lab import apt, trend

    lock = _lock(arguments)
    every = not arguments.kernel
    architecture = _lab_options.architecture(arguments)
    if every:
        arguments.kernel = trend.default_kernels(apt.Archive(say, architecture.name), architecture)
    return _report(arguments, every, lock)


def _lock(arguments: argparse.Namespace) -> Lock | None:
    """The existing lock file. Its values become the arguments. KlatError if an argument differs from them."""
    if not arguments.lock or not arguments.lock.exists():
        return None
    from klat.lab import lock

    locked = lock.read(arguments.lock)
    values = {name: None if locked.facts[name] == "" else locked.facts[name] for name in _LOCKED}
    values["kernel"] = [*locked.specs]
    values["load"] = [locked.facts["load"]]
    given = {name: getattr(arguments, name) for name in values}
    if [*map(lock.absolute, arguments.kernel)] == [k["kernel"] for k in locked.facts["kernels"]]:
        del given["kernel"]
    changed = [n for n, value in given.items() if value not in (None, [], "", values[n])]
    for name, value in values.items():
        setattr(arguments, name, value)
    typed = [name for name in _SET_OPTIONS if getattr(arguments, name)]
    arguments.benchmarks = arguments.benchmarks or list(dict(locked.sets))
    if typed and not changed:
        sets = _lab_options.parameter_sets(arguments, 1, arguments.load)
        changed = typed if tuple(sets) != locked.sets else []
    if changed:
        name = changed[0] if changed[0] == "benchmarks" else f"--{changed[0]}"
        raise KlatError(
            f"{locked.path} is an existing lock file, which decides {name}: leave out {name}, or name a new file"
        )
    return locked


def _diff(arguments: argparse.Namespace) -> int:
    arguments.kernel = [arguments.base, arguments.new]
    return _report(arguments, False, None)


def _of_side(side: str, text: str) -> Spec:
    """A kernel as typed. A file or a tree, and a kernel of Debian with options, have the name of their side."""
    from klat.lab import kernels

    kernel, comma, _ = text.partition(",")
    is_unnamed = Path(kernel).exists() or (comma and kernel.startswith("debian:"))
    return kernels.parse(f"{side}={text}" if is_unnamed else text)


def _report(arguments: argparse.Namespace, every: bool, lock: Lock | None) -> int:
    from klat.base.process import Stopped
    from klat.report.plot import gnuplot

    environment = page_templates(arguments.html)
    if arguments.plots:
        gnuplot.require()
    try:
        result, changes = _measure(arguments, every, lock)
    except Stopped as stopped:
        say(f"stopped: {stopped}")
        return stopped.status
    for problem in result.comparison.problems:
        say(problem)
    _print(arguments.format, result, changes)
    if environment or arguments.plots:
        from klat.report.plot.trend_figures import metric_figures, overview
        from klat.report.trend import document, names, short_labels

        texts = names(result.series), short_labels(result)
    if arguments.plots:
        gnuplot.draw([overview(result, *texts)], arguments.plots)
    if environment:
        filled = document(result, changes, figures=[*metric_figures(result, *texts)])
        write_page("lab", arguments.html, environment, filled)
    return result.status


def _measure(
    arguments: argparse.Namespace, every: bool, lock: Lock | None
) -> tuple[Trend, list[Change]]:
    from klat.compare.comparison import Options
    from klat.compare.estimands import MEDIAN
    from klat.compare.trend import steps_of
    from klat.compare.trend import trend as follow
    from klat.compare.verdicts import Rules
    from klat.lab import experiment, explaining, trend
    from klat.lab import lock as lock_files
    from klat.stats.power import fewest_of_tests

    architecture = _lab_options.architecture(arguments)
    if not arguments.no_explain:
        explaining.check(architecture)
    if len(arguments.load) > 1:
        raise KlatError("--load: give one load; kernels are compared here, not loads")
    arguments.seed, arguments.clock = arguments.seed or 0, arguments.clock or trend.CLOCK
    shape = _lab_options.shape(1, None, None)
    request = _lab_options.request(arguments, mode="counted", shape=shape, boots=1, runs=1)
    chains = lock.series if lock else trend.chains(request.specs, every)
    if not steps_of(chains):
        raise KlatError(
            "a step needs at least two kernels: --kernel debian:6.1 --kernel debian:7.3"
        )
    sets = lock.sets if lock else request.sets
    rules = Rules(arguments.margin or _MARGIN, arguments.alpha or _ALPHA)
    tests = _METRICS * len(sets) * len(steps_of(chains))
    fewest = max(_BOOTS, fewest_of_tests(tests, rules.alpha))
    boots = arguments.boots or fewest
    if boots < fewest and not lock:
        say(
            f"note: with --boots {boots}, no step can be called slower or faster after the correction for about"
            f" {tests} tests: use --boots {fewest}"
        )
    request = replace(request, boots=boots, study=trend.STUDY, sets=sets)
    experiment.checked_labels([spec.label for spec in request.specs], request.loads)
    kernels, missing = trend.obtain_kernels(request, every, bool(lock), say)
    if lock:
        lock.check(kernels)
    elif arguments.lock:
        lock_files.write(arguments.lock, request, rules, kernels, chains)
    output = _session_options.output(arguments, _OUTPUT)
    sides, failed = trend.boots_of(
        request, kernels, output, arguments.jobs, sys.argv, say, not arguments.no_explain
    )
    failures = {request.specs[n].label: why for n, why in sorted((missing | failed).items())}
    place = {number: index for index, number in enumerate(sides)}
    chains = [[place[number] for number in chain if number in place] for chain in chains]
    chains = [chain for chain in chains if chain]
    result = follow([*sides.values()], chains, Options(rules, tested=(MEDIAN,)), failures)
    if arguments.no_explain:
        return result, []
    return result, changes_of(result, [*sides.values()], output, arguments.jobs)


def changes_of(
    result: Trend, sides: Sequence[Dataset], output: Path, jobs: int | None
) -> list[Change]:
    """The jumps, with their functions."""
    from klat.lab import trend
    from klat.report.trend import Change

    measurements: dict[tuple[Key, int], trend.Measurement] = {}
    for metric, step in result.jumps:
        for kernel in (step.base, step.new):
            key = metric.key_of(kernel)
            measurements[metric.key, kernel] = (sides[kernel], key, metric.values[kernel])
    explained = trend.samples_of([*measurements.values()], output, jobs, say)
    samples = dict(zip(measurements, explained))
    return [Change(m, s, samples[m.key, s.base], samples[m.key, s.new]) for m, s in result.jumps]


def _print(form: str, result: Trend, changes: list[Change]) -> None:
    from klat.report import trend, trend_rows

    if form in ("csv", "json"):
        write = trend_rows.write_csv if form == "csv" else trend_rows.write_json
        write(result, changes, sys.stdout)
    else:
        print_document(trend.document(result, changes, brief=form == "markdown"), form)
    sys.stdout.flush()
