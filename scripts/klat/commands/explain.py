"""`klat explain`: who took the time of the slow samples, on this machine."""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from typing import Any

from klat.base import files
from klat.base.errors import KlatError
from klat.commands import _session_options, add_command
from klat.record import plan_csv

_UNITS = {"ns": 1, "us": 1000, "ms": 1000**2, "s": 1000**3}
_MOST_NS = 10 * 1000**3
_INVALID = 3

_DESCRIPTION = """\
Runs a benchmark with a kernel trace of its own, and says of each sample above
the limit who took its time: interrupts, softirqs, other tasks, the exit from an
idle state, the scheduler, or the event itself. The residual is the time that no
event of the trace explains: the hypervisor, the firmware or the caches.
"""

_EPILOG = """\
Each traced run has an untraced one beside it. The report shows how much longer
the traced median is. Traced runs are recorded with traced=NS in their params,
so klat compare never mixes them with others. The lab's klat lab explain says
which functions of the kernel take the time of a typical sample.

Needs root, tracefs and a clock of the trace that reads the CPU's counter.

Exit status: 0 done; 1 a run failed, or the load ended; 2 usage, input or
output; 3 the evidence refutes every run; 4 this kernel or user cannot
trace; 130, 143, 129 stopped by SIGINT, SIGTERM, SIGHUP.

examples:
  klat explain pipes --above 100us
      who took the time of the round trips above 100 us
  klat explain timer --above 50us --load populate
      what delays a timer's thread beside a load
"""


def _duration(text: str) -> int:
    found = re.fullmatch(r"(\d{1,12})(ns|us|ms|s)", text, re.ASCII)
    value = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < value <= _MOST_NS:
        raise ValueError(f"{text!r} must be a time up to 10s with its unit, as in 100us")
    return value


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers, "explain", "say who took the time of the slow samples", _DESCRIPTION, _EPILOG
    )
    add = parser.add_argument
    add("benchmark", help="one of klat's programs")
    add(
        "--above",
        required=True,
        type=_session_options.checked(_duration),
        metavar="TIME",
        help="explain samples that took longer, as in 100us",
    )
    add("--metric", metavar="NAME", help="of the program (default: its first with a trace)")
    add(
        "--runs",
        type=_session_options.number(1, plan_csv.MAX_RUNS),
        metavar="N",
        help="traced runs, and as many untraced ones (default: 25)",
    )
    add(
        "--longest",
        type=_session_options.number(0, 1000),
        default=3,
        metavar="N",
        help="samples to show part by part, the longest first (default: 3)",
    )
    _session_options.add_program_options(parser)
    _session_options.add_surroundings(parser)
    add("--keep", type=Path, metavar="DIR", help="keep the record and the traces in this directory")
    parser.set_defaults(func=_run)


def _run(arguments: argparse.Namespace) -> int:
    from klat.base.process import Signals, Stopped
    from klat.running.cleanup import Load
    from klat.running.traced_runs import TracedProgram, perform
    from klat.report.text.slow_samples_text import report
    from klat.tracing.instance import tracing_instance

    arguments.sweep = []
    load = _session_options.common_load(arguments)
    (benchmark,) = _session_options.benchmarks([arguments.benchmark])
    ((_, words),) = _session_options.parameter_sets(arguments, [benchmark])
    program = TracedProgram(benchmark, words, arguments.above, arguments.metric or "")
    if arguments.keep:
        _make(arguments.keep)
    # The program writes traces as root: in a directory that no other user can enter.
    with Signals() as signals, tempfile.TemporaryDirectory(prefix="klat-explain-") as name:
        private = Path(name)
        session, traces = (arguments.keep or private) / "session", private / "traces"
        traces.mkdir()
        try:
            with tracing_instance() as instance:
                beside = Load(load, private, signals) if load else None
                try:
                    if beside:
                        beside.settle()
                    runs = arguments.runs or 25
                    found = perform(program, runs, instance, session, traces, signals)
                    if beside:
                        beside.check()
                finally:
                    if beside:
                        beside.end()
        except Stopped as stopped:
            return stopped.status
        for trace in traces.iterdir() if arguments.keep else ():
            files.create(arguments.keep / "traces" / trace.name, trace.read_bytes())
    for line in report(found, arguments.above, arguments.longest):
        print(line)
    return _INVALID if all(status == "invalid" for status, _ in found.statuses) else 0


def _make(keep: Path) -> None:
    if keep.exists():
        raise KlatError(f"--keep {keep}: exists; name a new directory")
    files.make_directories(keep / "traces")
