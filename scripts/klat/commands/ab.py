"""`klat ab`: two settings of one machine take turns within one boot, so that they can be compared."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from klat.base.errors import KlatError
from klat.base.process import Signals
from klat.commands import SUMMARIES, _session_options, add_command
from klat.commands._types import add_repeatable
from klat.record import plan_csv
from klat.report.text.columns import wrapped
from klat.report.text.numbers import plural, too_few_units
from klat.running import choices

_DESCRIPTION = """\
Alternates two settings of this machine, A and B, within one boot, each with
its own session. A block is four turns, A B B A or B A A B, drawn from the
seed. `klat compare` takes each block as one pair and says whether B is faster
or slower than A. A steady drift of the machine cancels within a pair.
"""

_EPILOG = """\
A setting consists of one or more of these:
  set-up   a command that changes the machine: idle states, governor, sysctl
  prefix   a command that runs its arguments: taskset, chrt, a cgroup wrapper
  options  of the programs: --a-option, --b-option

sh runs the set-up command before each turn of its setting, so the set-up of A
has to undo that of B, and the reverse. If a set-up fails, klat ab stops with
its message. sh runs the --restore command at the end, also after Ctrl-C. If
klat itself is killed, --restore runs when the current run has ended. It may run
twice. Without --restore nothing is restored.

klat splits the prefix into words as sh does, and expands nothing in it. The
prefix must pass on the program's exit status and record.

The order: SEED decides each block's order. Each turn holds every parameter set
--runs-per-block times, shuffled as `klat run` does. All draws are one stream.

Prints the paths of both sessions, A's first. Ctrl-C ends the run in flight;
--resume with either path completes both. It loses no recorded run and repeats
none. --resume runs the commands in run.json of both sessions. So it refuses a
session that another user owns or can write. Root, you and the caller of sudo
are trusted. --trust overrides this.

Exit status: 0 every run measured or skipped; 1 a run, a set-up
command or --restore failed, or the load ended; 2 usage, input or output, disk
full; 3 some runs are invalid; 4 every run was skipped; 130, 143, 129 stopped by
SIGINT, SIGTERM, SIGHUP. A closed or full standard stream does not
affect the status.

examples:
  klat ab --a aslr --b fixed --b-prefix 'setarch -R' pipes cv
      address-space randomisation on (A) and off (B)
  klat ab --a read --b epoll --b-option pipes.wait=epoll pipes
      two options of a program; all other options must agree
  export P=/sys/module/haltpoll/parameters/guest_halt_poll_ns
  klat ab --blocks 40
      --a sleep --a-setup 'echo 0 > $P' --b poll --b-setup 'echo 200000 > $P'
      --restore "echo $(cat $P) > $P"
      a parameter of the kernel (one command line)
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(subparsers, "ab", SUMMARIES["ab"], _DESCRIPTION, _EPILOG)
    _session_options.add_benchmarks(parser)
    add = parser.add_argument
    for side in ("a", "b"):
        name = side.upper()
        help_text = f"name of setting {name}"
        add(f"--{side}", type=_session_options.label, metavar="LABEL", help=help_text)
        add(f"--{side}-setup", metavar="COMMAND", help=f"run before each turn of {name}")
        add(f"--{side}-prefix", metavar="COMMAND", help=f"goes before each program of {name}")
        help_text, form = f"as --option, for {name} alone", "BENCHMARK.OPTION[=VALUE]"
        add_repeatable(add, f"--{side}-option", form, help_text, plan_csv.parse_option)
    help_text = "blocks of four turns, ABBA or BAAB; the unit of comparison (default: 10)"
    _session_options.add_runs(parser, help_text, "--blocks")
    help_text = "runs of each parameter set in each turn (default: 5)"
    _session_options.add_runs(parser, help_text, "--runs-per-block")
    help_text = "run at the end, also after an error, to undo the set-ups"
    add("--restore", metavar="COMMAND", help=help_text)
    _session_options.add_measure(parser, *_session_options.SESSION, "trust")
    add("--resume", type=Path, metavar="SESSION", help="complete this session and its partner")
    parser.set_defaults(func=_run)


def _run(arguments: argparse.Namespace) -> int:
    return _resume(arguments) if arguments.resume else _begin(arguments)


def _resume(arguments: argparse.Namespace) -> int:
    from klat.running.alternation import TurnsRunner, both

    _session_options.refuse_with_resume(arguments, "trust")
    sessions = both(arguments.resume, arguments.trust)
    return TurnsRunner(sessions, arguments.trust).run(resumed=True)


def _begin(arguments: argparse.Namespace) -> int:
    from klat.running.recording import Settings
    from klat.running.alternation import TurnsRunner, begin

    _session_options.refuse_without_resume(arguments)
    given = vars(arguments)
    if None in (arguments.a, arguments.b):
        raise KlatError("two settings are needed, --a LABEL and --b LABEL")
    if arguments.a == arguments.b:
        raise KlatError(f"--a and --b are both {arguments.a!r}; compare could not distinguish them")
    blocks = 10 if arguments.blocks is None else arguments.blocks
    for name in ("a_setup", "a_prefix", "b_setup", "b_prefix"):
        if given[name] is not None and not given[name].strip():
            raise KlatError(f"--{name.replace('_', '-')} is empty")
    if (arguments.a_setup is None) != (arguments.b_setup is None):
        lacking = "--a-setup" if arguments.a_setup is None else "--b-setup"
        raise KlatError(
            f"{lacking} is missing: without it, that side runs in the state that the other side's set-up leaves;"
            " give both (true, if that side needs none)"
        )
    benchmarks = choices.benchmarks(_session_options.named(arguments))
    seed = _session_options.seed(arguments)
    shared = _session_options.common(arguments) | {
        "load": choices.checked_load(arguments.load),
        "restore": arguments.restore,
    }
    commands = [{k: given[f"{side}_{k}"] for k in ("setup", "prefix")} for side in ("a", "b")]
    settings = [
        Settings(given[side], seed, **both, **shared) for side, both in zip(("a", "b"), commands)
    ]
    side_options = [given[f"{side}_option"] for side in ("a", "b")]
    sets = [_session_options.parameter_sets(arguments, benchmarks, more) for more in side_options]
    if len(sets[0]) != len(sets[1]):
        raise KlatError("--a-option and --b-option leave the settings different numbers of runs")
    for side in sets:
        choices.check_options(side, later=arguments.a_setup is not None)
    runs = 5 if arguments.runs_per_block is None else arguments.runs_per_block
    plans = plan_csv.take_turns(sets, blocks, runs, seed)
    texts = [[option.text() for option in options] for options in side_options]
    with Signals():  # a signal cannot leave empty sessions
        sessions = begin(_session_options.output(arguments), settings, plans, texts, sys.argv)
        for line in too_few_units("--blocks", blocks, 2, sets[0], True):
            print("\n".join(wrapped(f"note: {line}", "", "  ")), file=sys.stderr)
        print(
            f"{sum(len(schedule) for schedule, _ in plans)} runs ({', '.join(benchmarks)}) in"
            f" {plural(blocks, 'block')}, labels {arguments.a} and {arguments.b}, seed {seed}\n"
            f"into {sessions[0]} and {sessions[1]}",
            file=sys.stderr,
        )
        return TurnsRunner(sessions).run()
