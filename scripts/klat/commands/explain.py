"""`klat explain`: what took the time of slow samples on this machine."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from klat.base import files
from klat.base.errors import KlatError
from klat.commands import SUMMARIES, _session_options, add_command
from klat.commands._types import add_number
from klat.record import renamed_metrics
from klat.running import choices

_INVALID = 3

_DESCRIPTION = """\
Runs a benchmark and traces the kernel. Says what took the time of each sample
above the limit: interrupts, softirqs, other tasks, the exit from an idle state,
the scheduler, or the event itself. The residual is the time that no event of
the trace explains: the hypervisor, the firmware or the caches.
"""

_EPILOG = """\
Each traced run is paired with an untraced run. The report has the ratio of
their medians. The record has traced=NS in the params of a traced run, so klat
compare never mixes traced with untraced runs. klat lab explain says which
functions of the kernel a typical sample executes. klat keeps the traces of 100
samples of a run, and 200 MB in all.

klat explain needs root, tracefs and a trace clock that reads the CPU's counter.

Exit status: 0 done; 1 a run failed, or the load ended; 2 usage, input or
output, or klat cannot explain the metric; 3 the evidence refutes every traced
run; 4 this kernel or user cannot trace; 130, 143, 129 stopped by SIGINT,
SIGTERM, SIGHUP.

examples:
  klat explain pipes --above 100us
      what took the time of the round trips above 100 us
  klat explain timer --above 50us --load populate
      what delays the delivery of a timer while a load runs
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(subparsers, "explain", SUMMARIES["explain"], _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("benchmark", help="one of klat's programs")
    _session_options.add_above(parser, "--above", required=True)
    help_text = "a metric of the program (default: the first that klat can explain)"
    add("--metric", metavar="NAME", help=help_text)
    _session_options.add_runs(parser, "number of traced runs, and of untraced runs (default: 25)")
    help_text = "show the parts of the N longest samples (default: 3)"
    add_number(add, "--longest", 0, 1000, help_text, default=3)
    _session_options.add_measure(parser, *_session_options.PROGRAM, "iterations", "cpus", "load")
    add("--keep", type=Path, metavar="DIR", help="keep the record and the traces in this directory")
    parser.set_defaults(func=_run)


def _run(arguments: argparse.Namespace) -> int:
    from klat.base.process import Signals, Stopped
    from klat.running.loads import Load
    from klat.running.traced_runs import explain_session, record_pairs, traceable_sets, traced_words
    from klat.report import slow_samples
    from klat.report.renderers import terminal

    arguments.sweep = []
    load = choices.checked_load(arguments.load)
    (benchmark,) = choices.benchmarks([arguments.benchmark])
    if renamed := renamed_metrics.advice(arguments.metric or "", benchmark):
        raise KlatError(f"{benchmark} has no metric {arguments.metric}{renamed}")
    ((_, words),) = _session_options.parameter_sets(arguments, [benchmark])
    tracing = traced_words(arguments.above, arguments.metric)
    traceable_sets([(benchmark, (*words, *tracing[1:]))])
    if arguments.keep:
        _make(arguments.keep)
    with Signals() as signals, tempfile.TemporaryDirectory(prefix="klat-explain-") as private:
        session = Path(arguments.keep or private) / "session"
        background_load: Load | None = None
        try:
            if load:
                background_load = Load(load, Path(private), signals)
                background_load.settle()
            runs = arguments.runs or 25
            schedule = record_pairs(benchmark, words, tracing, runs, session, signals, bool(load))
            if background_load:
                background_load.check()
        except Stopped as stopped:
            return stopped.status
        finally:
            if background_load:
                background_load.end()
        (explained,) = explain_session(session, schedule)
    report = slow_samples.document(explained.traced, arguments.above, arguments.longest)
    for line in terminal.lines(report, colour=False):
        print(line)
    return _INVALID if explained.traced.refuted else 0


def _make(keep: Path) -> None:
    if keep.exists():
        raise KlatError(f"--keep {keep}: exists; name a new directory")
    files.make_directories(keep)
