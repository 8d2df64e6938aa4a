"""`klat run`: runs each benchmark many times, in random order, into a session."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from pathlib import Path
from typing import Any

from klat import directory, plan, programs
from klat.errors import KlatError

_DESCRIPTION = """\
Runs each benchmark many times, each run in a process of its own, in an order
drawn from the seed over all runs. Records into OUTPUT/LABEL/TIME and prints
that path on standard output, all else on standard error.
"""

_EPILOG = """\
Ctrl-C ends the run in flight and leaves a valid record; --resume completes it.
Whatever was killed, nothing that was recorded is repeated or lost, runs that
were recorded as failed or skipped included. A session is one boot, one build.

The order: the runs of all parameter sets are put in one list, shuffled by
Fisher and Yates's method over Python's random.Random(SEED).random(). The same
seed and options give the same plan.csv, byte for byte.

Exit status: 0 every run measured, but for skipped ones; 1 a run failed, or the
load ended; 2 usage, input or output, disk full; 3 some runs are invalid: the
evidence says that they did not time what they should; 4 every run was skipped;
130, 143, 129 stopped by SIGINT, SIGTERM, SIGHUP.

examples:
  klat run
      the core benchmarks, 500 times each
  klat run pipes --option pipes.cpus=1,1
      both ends on CPU 1
  klat run tlbflush --sweep tlbflush.responders=0..3 --runs 100
      each number of responders 100 times
  klat run --option all.dma-latency=0
      hold CPUs out of idle states
  klat run timer --load 'stress-ng --vm 1'
      under a background load
"""

_PAUSE_MAX = 60_000
_LIMIT_MAX = 86_400


def _number(minimum: int, maximum: int, what: str) -> Any:
    def convert(text: str) -> int:
        if not (text.isascii() and text.isdigit() and minimum <= int(text[:20]) <= maximum):
            raise argparse.ArgumentTypeError(f"{text!r} is no {what} from {minimum} to {maximum}")
        return int(text)

    return convert


def _checked(convert: Any) -> Any:
    def wrapper(text: str) -> Any:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return wrapper


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "run",
        help="run each benchmark many times into a session",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "benchmarks",
        nargs="*",
        metavar="benchmark",
        help=f"any of klat's programs, or 'all' (default: {' '.join(programs.CORE)})",
    )
    add(
        "--label",
        type=_checked(directory.check_label),
        help="name of the kernel under test (default: its release)",
    )
    add(
        "--runs",
        type=_number(1, plan.MAX_RUNS, "number"),
        metavar="N",
        help="runs of each parameter set (default: 500)",
    )
    add(
        "--seed",
        type=_number(0, 2**63 - 1, "number"),
        metavar="N",
        help="of the order (default: drawn, printed and recorded)",
    )
    add(
        "--sweep",
        action="append",
        default=[],
        type=_checked(plan.parse_sweep),
        metavar="BENCHMARK.OPTION=VALUES",
        help="--runs runs for each value: 0,1,2,4 or 0..79 or both; by ';' if values hold commas",
    )
    add(
        "--option",
        action="append",
        default=[],
        type=_checked(plan.parse_option),
        metavar="BENCHMARK.OPTION[=VALUE]",
        help="give a program an option, or every program where BENCHMARK is 'all'",
    )
    add(
        "--iterations",
        type=_number(1, 10**9, "number"),
        metavar="N",
        help="samples of a run (default: the program's)",
    )
    add("--cpus", metavar="LIST", help="CPUs of every program (default: the program's choice)")
    add("--policy", metavar="POLICY", help="fifo, rr or other, with :PRIORITY, for every program")
    add("--load", metavar="COMMAND", help="run beside the whole session; recorded, ended with it")
    add("--output", type=Path, metavar="DIR", help="where sessions go (default: results)")
    add(
        "--pause",
        type=_number(0, _PAUSE_MAX, "number of milliseconds"),
        metavar="MS",
        help="between runs (default: 0)",
    )
    add(
        "--time-limit",
        type=_number(1, _LIMIT_MAX, "number of seconds"),
        metavar="S",
        help="after which a run is ended and counted as failed (default: 120)",
    )
    add("--resume", type=Path, metavar="SESSION", help="complete this session, by its own plan")
    parser.set_defaults(func=_run)


def _run(arguments: argparse.Namespace) -> int:
    return _resume(arguments) if arguments.resume else _begin(arguments)


def _resume(arguments: argparse.Namespace) -> int:
    from klat.runner import Runner

    given = [
        f"--{name.replace('_', '-')}" if name != "benchmarks" else "benchmarks"
        for name, value in vars(arguments).items()
        if name not in ("command", "func", "resume") and value not in (None, [])
    ]
    if given:
        raise KlatError(f"--resume follows the session's own plan, without {', '.join(given)}")
    return Runner(arguments.resume).run(resumed=True)


def _begin(arguments: argparse.Namespace) -> int:
    from klat.runner import Runner, Settings, begin

    benchmarks = _benchmarks(arguments.benchmarks)
    label = arguments.label
    if label is None:
        try:
            label = directory.check_label(os.uname().release)
        except ValueError as error:
            raise KlatError(f"the kernel's release: {error}; give a --label") from None
    seed = secrets.randbelow(2**32) if arguments.seed is None else arguments.seed
    common = {
        name: str(value)
        for name in ("iterations", "cpus", "policy")
        if (value := getattr(arguments, name)) is not None
    }
    if arguments.load is not None and not arguments.load.strip():
        raise KlatError("--load is empty")
    for name, value in common.items():
        if not value or '"' in value or not value.isprintable():
            raise KlatError(f"--{name} cannot be {value!r}")
    sets = plan.parameter_sets(benchmarks, common, arguments.option, arguments.sweep)
    runs = 500 if arguments.runs is None else arguments.runs
    schedule = plan.make(sets, runs, seed)
    settings = Settings(
        label, seed, arguments.load, arguments.pause or 0, arguments.time_limit or 120
    )
    output = Path("results") if arguments.output is None else arguments.output
    session = begin(output, settings, schedule, sys.argv)
    print(
        f"{len(schedule)} runs ({', '.join(benchmarks)}), label {label}, seed {seed},"
        f" into {session}",
        file=sys.stderr,
    )
    return Runner(session).run()


def _benchmarks(named: list[str]) -> list[str]:
    """Those of the session, in klat's order whatever the order typed: the plan is the same."""
    if not named:
        chosen = list(programs.CORE)
    elif named == ["all"]:
        chosen = programs.available() or list(programs.CORE)
    else:
        chosen = named
    for name in chosen:
        if chosen.count(name) > 1:
            raise KlatError(f"{name} is named twice")
        programs.require(name)
    core = [name for name in programs.CORE if name in chosen]
    return core + sorted(set(chosen).difference(core))
