"""`klat run`: runs each benchmark many times, in random order, into a session."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TYPE_CHECKING

from klat.base.errors import KlatError, ends_all, worst
from klat.base.process import Signals
from klat.commands import SUMMARIES, _session_options, add_command
from klat.record import plan_csv, session_directory
from klat.record.profiles import PROFILES
from klat.report.text.columns import wrapped
from klat.report.text.numbers import plural
from klat.running import choices

if TYPE_CHECKING:
    from klat.running.recording import Settings

_MATRIX_RUNS = 10

_DESCRIPTION = """\
Runs each benchmark many times, each run in a process of its own, in an order
drawn from the seed over all runs. Records into OUTPUT/LABEL/TIME and prints
that path on standard output, all else on standard error.
"""

_EPILOG = """\
Ctrl-C ends the run in flight and leaves a valid record; --resume completes it.
Before the first recorded run, it leaves no session. klat then does not begin
the sessions under further loads, and names their labels.
After any kill, --resume loses no recorded run and repeats none, not even a run
that failed or was skipped. A session is one boot and one build.

--resume runs the load that is in run.json of the session. So it refuses a
session that another user owns or can write. Root, you and the caller of sudo
are trusted. --trust overrides this.

The order: the runs of all parameter sets are put in one list, shuffled by
Fisher and Yates's method over Python's random.Random(SEED).random(). The same
seed and options give the same plan.csv, byte for byte.

With --explain-above, klat runs each program as often with tracing as without,
in the same shuffled order. A program without a metric that klat can explain has
no traced runs. Traced runs have traced=NS in their params, so no report mixes
them with untraced runs. At the end klat says what took the time of the slow
samples, like klat explain. This report goes to standard error and to
explained.txt in the session. The session's directory traces has the traces,
200 MB at most. --explain-above needs root and a kernel that can trace.

Exit status: 0 every run measured or skipped; 1 a run failed, or the load ended;
2 usage, input or output, disk full; 3 some runs are invalid: the evidence
refutes them; 4 every run was skipped; 130, 143, 129 stopped by SIGINT, SIGTERM,
SIGHUP. A closed or full standard stream does not affect the status.

{profiles}
examples:
  klat run
      the core benchmarks, 500 times each
  klat run --all --runs 50
      every program
  klat run pipes --option pipes.cpus=1,1
      both ends on CPU 1
  klat run tlbflush --sweep tlbflush.responders=0..3 --runs 100
      each number of responders 100 times
  klat run pipes --matrix
      the round trip between every two CPUs, as a map
  klat run --option all.dma-latency=0
      hold CPUs out of idle states
  klat run timer --load none --load populate
      without a load, then while memory is mapped and unmapped; load/load --list
      names the loads
  klat run timer --load 'stress-ng --vm 1'
      under your own load
  klat run --profile rt --label stock
      what a real-time user needs, without a load and under four; then boot the
      other kernel, and repeat with --label rt
  klat run --runs 50 --explain-above 100us pipes timer
      100 runs of each program, 50 of them traced: what delays the slow samples
"""


def add_parser(subparsers: Any) -> None:
    epilog = _EPILOG.format(profiles=_session_options.profiles_text())
    parser = add_command(subparsers, "run", SUMMARIES["run"], _DESCRIPTION, epilog)
    _session_options.add_benchmarks(parser)
    _session_options.add_measure(parser, "profile")
    add = parser.add_argument
    add(
        "--label",
        type=_session_options.label,
        help="name of what is measured (default: the kernel's release, with -LOAD under a load and"
        " -BENCHMARK.OPTION for a sweep; -profile-NAME with a profile; -matrix)",
    )
    _session_options.add_runs(parser, "runs of each parameter set (default: 500, or the profile's)")
    help_text = (
        "measure every ordered pair of CPUs (of 64 CPUs at most, spread evenly), 10 runs each"
        " without --runs or --profile; klat summary and klat plot show a map"
    )
    add("--matrix", action="store_true", default=None, help=help_text)
    _session_options.add_above(parser, "--explain-above", required=False)
    _session_options.add_measure(
        parser, *_session_options.SESSION, "trust", load=_session_options.several_loads()
    )
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


def _loads(arguments: argparse.Namespace) -> list[str | None]:
    """The load of each session, None for no load."""
    from klat.running.loads import IDLE

    chosen = choices.loads_of(arguments.load, arguments.profile)
    return [None if load == IDLE else choices.checked_load(load) for load in chosen]


def _labels(arguments: argparse.Namespace, loads: Sequence[str | None]) -> list[str]:
    """The label of the session under each load. The default begins with the kernel's release and names
    what distinguishes the measurement: the profile, the load and the swept options. So such a session
    does not mix with plain ones."""
    words = [os.path.basename(load.split()[0]) if load else "" for load in loads]
    swept = [f"{sweep.benchmark}.{sweep.option}" for sweep in arguments.sweep]
    if arguments.label is None:
        profile = f"profile-{arguments.profile}" if arguments.profile else ""
        matrix = ["matrix"] if arguments.matrix else []
        named = [[os.uname().release, profile, word, *swept, *matrix] for word in words]
    elif len(loads) == 1 and not arguments.profile:
        named = [[arguments.label]]
    else:
        named = [[arguments.label, word] for word in words]
    labels = ["-".join(filter(None, parts)) for parts in named]
    for label in labels:
        if labels.count(label) > 1:
            raise KlatError(
                f"two loads would have the label {label!r}; measure them one by one, each with a"
                " --label"
            )
        try:
            session_directory.check_label(label)
        except ValueError as error:
            raise KlatError(f"the label {label[:40]!r}: {error}; give another --label") from None
    return labels


def _begin(arguments: argparse.Namespace) -> int:
    from klat.running.recording import Settings
    from klat.running.traced_runs import traceable_sets, traced_words

    _session_options.refuse_without_resume(arguments)
    profile = arguments.profile
    benchmarks = choices.benchmarks(_session_options.named(arguments), profile)
    loads = _loads(arguments)
    labels = _labels(arguments, loads)
    seed = _session_options.seed(arguments)
    common = _session_options.common(arguments)
    sets = _session_options.parameter_sets(arguments, benchmarks, profile=profile)
    choices.check_options(sets)
    if arguments.matrix:
        sets = choices.by_cpu_pairs(sets)
    benchmarks = list(dict.fromkeys(benchmark for benchmark, _ in sets))
    unexplained: list[str] = []
    if arguments.explain_above:
        traceable, unexplained = traceable_sets(sets)
        more = traced_words(arguments.explain_above)
        sets += [(benchmark, (*words, *more)) for benchmark, words in traceable]
    usual = PROFILES[profile].runs if profile else _MATRIX_RUNS if arguments.matrix else 500
    runs = arguments.runs or usual
    schedule = plan_csv.make(sets, runs, seed)
    for line in unexplained:
        print("\n".join(wrapped(f"not explained: {line}", "", "  ")), file=sys.stderr)
    settings = [
        Settings(label, seed, load=load, profile=profile, **common)
        for label, load in zip(labels, loads)
    ]
    return _measure(settings, schedule, benchmarks, _session_options.output(arguments))


def _measure(
    settings: Sequence[Settings],
    schedule: Sequence[plan_csv.PlannedRun],
    benchmarks: Sequence[str],
    output: Path,
) -> int:
    """Record a session for each of `settings`, one after the other. The worst exit status."""
    from klat.running.recording import write
    from klat.running.runner import Runner

    statuses: list[int] = []
    sessions: list[Path] = []
    left = [entry.label for entry in settings]
    try:
        for entry in settings:
            left.remove(entry.label)
            with Signals():  # a signal cannot leave an empty session
                session = session_directory.create(output, entry.label)
                with session_directory.removed_unless_begun(session):
                    write(session, entry, schedule, sys.argv)
                print(
                    f"{plural(len(schedule), 'run')} ({', '.join(benchmarks)}), label {entry.label},"
                    f" seed {entry.seed}\ninto {session}",
                    file=sys.stderr,
                )
                statuses.append(Runner([session], earlier=sessions, last=not left).run())
            if not session_directory.is_empty(session):
                sessions.append(session)
            if ends_all(statuses[-1]):
                break
    finally:
        if left:
            print(f"not begun: {', '.join(left)}", file=sys.stderr)
    return worst(statuses)
