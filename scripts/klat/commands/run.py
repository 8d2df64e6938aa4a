"""`klat run`: runs each benchmark many times, in random order, into a session."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from klat.commands import _session_options, add_command
from klat.report.text.numbers import plural
from klat.record import plan_csv, session_directory
from klat.base.errors import KlatError

_DESCRIPTION = """\
Runs each benchmark many times, each run in a process of its own, in an order
drawn from the seed over all runs. Records into OUTPUT/LABEL/TIME and prints
that path on standard output, all else on standard error.
"""

_EPILOG = """\
Ctrl-C ends the run in flight and leaves a valid record; --resume completes it.
After any kill, --resume loses no recorded run and repeats none, not even a run
that failed or was skipped. A session is one boot and one build.

--resume runs the load that is in run.json of the session. So it refuses a
session that another user owns or can write. Root, you and the caller of sudo
are trusted. --trust overrides this.

The order: the runs of all parameter sets are put in one list, shuffled by
Fisher and Yates's method over Python's random.Random(SEED).random(). The same
seed and options give the same plan.csv, byte for byte.

Exit status: 0 every run measured or skipped; 1 a run failed, or the load ended;
2 usage, input or output, disk full; 3 some runs are invalid: the evidence
refutes them; 4 every run was skipped; 130, 143, 129 stopped by SIGINT, SIGTERM,
SIGHUP. A closed or full standard stream does not affect the status.

examples:
  klat run
      the core benchmarks, 500 times each
  klat run --all --runs 50
      every program
  klat run pipes --option pipes.cpus=1,1
      both ends on CPU 1
  klat run tlbflush --sweep tlbflush.responders=0..3 --runs 100
      each number of responders 100 times
  klat run --option all.dma-latency=0
      hold CPUs out of idle states
  klat run timer --load populate
      while memory is mapped and unmapped; load/load --list names the loads
  klat run timer --load 'stress-ng --vm 1'
      under your own load
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers, "run", "run each benchmark many times into a session", _DESCRIPTION, _EPILOG
    )
    _session_options.add_benchmarks(parser)
    add = parser.add_argument
    add(
        "--label",
        type=_session_options.label,
        help="name of what is measured (default: the kernel's release, with -LOAD under a load and"
        " -BENCHMARK.OPTION for a sweep)",
    )
    add(
        "--runs",
        type=_session_options.number(1, plan_csv.MAX_RUNS),
        metavar="N",
        help="runs of each parameter set (default: 500)",
    )
    _session_options.add_shared(parser)
    add("--resume", type=Path, metavar="SESSION", help="complete this session, by its own plan")
    parser.set_defaults(func=_run)


def _run(arguments: argparse.Namespace) -> int:
    return _resume(arguments) if arguments.resume else _begin(arguments)


def _resume(arguments: argparse.Namespace) -> int:
    from klat.running.runner import Runner
    from klat.running.alternation import Partner

    _session_options.refuse_with_resume(arguments, "trust")
    session = arguments.resume
    if Partner.of(session, session_directory.read_facts(session, arguments.trust)):
        raise KlatError(f"{session}: takes turns with another; klat ab --resume completes both")
    return Runner([session], arguments.trust).run(resumed=True)


def _default_label(arguments: argparse.Namespace) -> str:
    """The kernel's release, and what makes the session another measurement: its load, the options
    that it sweeps. So such a session does not mix with plain ones."""
    load = (arguments.load or "").split()[:1]
    swept = [f"{sweep.benchmark}.{sweep.option}" for sweep in arguments.sweep]
    parts = [os.uname().release, *(os.path.basename(word) for word in load), *swept]
    try:
        return session_directory.check_label("-".join(filter(None, parts)))
    except ValueError as error:
        raise KlatError(f"the default label: {error}; give a --label") from None


def _begin(arguments: argparse.Namespace) -> int:
    from klat.running.recording import Settings, write
    from klat.running.runner import Runner

    _session_options.refuse_without_resume(arguments)
    benchmarks = _session_options.benchmarks(_session_options.named(arguments))
    label = _default_label(arguments) if arguments.label is None else arguments.label
    seed = _session_options.seed(arguments)
    settings = Settings(label, seed, **_session_options.common(arguments))
    sets = _session_options.parameter_sets(arguments, benchmarks)
    schedule = plan_csv.make(sets, 500 if arguments.runs is None else arguments.runs, seed)
    session = session_directory.create(_session_options.output(arguments), label)
    write(session, settings, schedule, sys.argv)
    print(
        f"{plural(len(schedule), 'run')} ({', '.join(benchmarks)}), label {label}, seed {seed}\n"
        f"into {session}",
        file=sys.stderr,
    )
    return Runner([session]).run()
