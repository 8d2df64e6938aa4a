"""`klat soak`: measures for hours, under loads, and judges a limit."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, TYPE_CHECKING

from klat.base import programs, streams
from klat.base.errors import FAILED, KlatError, MEASURED, SessionError, USAGE, worst
from klat.base.process import Signals
from klat.base.streams import say
from klat.commands import SUMMARIES, _session_options, add_command
from klat.commands._types import add_flag, add_limit, checked, limit_of, long_time
from klat.record import plan_csv, session_directory
from klat.record.json_files import MOST_SECONDS, MOST_SOAK_SECONDS
from klat.record.profiles import PROFILES
from klat.running import choices

if TYPE_CHECKING:
    from klat.running.soaking import SoakEnd

# The usual lengths of a segment. The samples above a limit cluster in segments: with fewer segments
# than these, they would show little of it.
_SEGMENT_SECONDS = (60, 10)
_SEGMENTS = 20
# What cyclictest does. The period and the policy are timer's own defaults.
_CYCLIC = {"method": "nanosleep", "mode": "periodic"}
_CYCLIC_TEXT = "timer waits as cyclictest does: --method nanosleep --mode periodic"
_IDLE_TEXT = "cyclictest disables idle states too: --option timer.dma-latency=0 does that here"

_DESCRIPTION = """\
Runs one program for hours in bounded memory, under all the loads at the same
time. Counts every sample by its value, and keeps the longest samples and those
above the limit, with their times. Each segment is on disk when it ends: a crash
loses the last one at most. At the end, klat prints the summary of the session.
"""

_EPILOG = """\
timer soaks as cyclictest does: --method nanosleep --mode periodic. Another
method or mode: --option timer.method=METHOD, --option timer.mode=MODE.
tlbflush has a series for each responder: what a shootdown by another thread
costs a thread that spins. messages soaks between two threads that sleep.
transport soaks asleep, or with a rate: --option transport.wait=block or
--option transport.rate=N. wakeup soaks on one CPU: --cpus 1,1.

Ctrl-C ends the soak early: the program records what it has, and klat prints the
summary. A load that ends by itself ends the soak, too. If klat is killed, its
program records what it has and ends, and the loads end.

klat run --help lists what is in a profile. A soak has all its loads at once.

Records into OUTPUT/LABEL/TIME. Prints that path on standard output, and all
else on standard error. klat summary, compare, history, plot and export read the
session. docs/soak.md says what the figures mean.

Exit status: 0 measured, and with --limit every verdict is within; 1 a verdict
is exceeded, or the program or a load failed; 2 usage, or the disk is full; 3 a
verdict is cannot tell, no segment of a metric counts, or the evidence refutes
some segments; 4 the machine lacks what the program needs; 129 stopped by
SIGHUP, 143 by SIGTERM.

examples:
  klat soak timer --for 8h --limit 100us --load populate --load 'stress-ng -m 2'
      a night under two loads: is at most 1 sample in 1000 above 100 us?
  klat soak timer --for 8h --limit 100us --share 0 --stop-above
      is any sample above 100 us? Ends at the first one
  klat soak timer --for 8h --limit 100us --threads all
      on every CPU at the same time, as cyclictest -S does
  klat soak tlbflush --for 8h --limit 100us --cpus 2,3 --load populate
      does any munmap() on CPU 2 stop the thread on CPU 3 for longer?
  klat soak pipes --for 30min --option pipes.cpus=1,1
      both ends on CPU 1
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(subparsers, "soak", SUMMARIES["soak"], _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("program", help="the program that measures, for example timer")
    add(
        "--for",
        dest="seconds",
        required=True,
        type=checked(partial(long_time, most_s=MOST_SOAK_SECONDS)),
        metavar="TIME",
        help="how long: 90s, 8min, 8h, 2d",
    )
    add_limit(add, counted=False)
    add_flag(add, "--stop-above", "end the soak at the first sample above the limit")
    help_text = "with --stop-above: trace the kernel, and say what took the time of this sample"
    add_flag(add, "--explain", help_text)
    add(
        "--segment",
        type=checked(partial(long_time, most_s=MOST_SECONDS)),
        metavar="TIME",
        help="length of a segment, which is recorded when it ends (default: 1min; 10s if --for is below"
        " 20min; 1s below 200s)",
    )
    loads = f"{_session_options.LOAD}; repeatable: all run at the same time"
    _session_options.add_measure(parser, "load", load=_session_options.several_loads(loads))
    help_text = "name of what is measured (default: the kernel's release, with -LOAD for each load)"
    add("--label", type=_session_options.label, help=help_text)
    _session_options.add_measure(parser, "profile", "cpus", *_session_options.PROGRAM, "output")
    help_text = (
        "all: run the program on each CPU of --cpus, or on each that klat may use, at the same"
        " time; each CPU's samples are a series"
    )
    add("--threads", choices=("one", "all"), default="one", help=help_text)
    parser.set_defaults(func=_run, sweep=[], iterations=None)


def _run(arguments: argparse.Namespace) -> int:
    from klat.running.soaking import SoakSettings, begin_soak, soak

    limit = limit_of(arguments)
    if limit and not limit.is_time:
        raise KlatError(f"--limit {limit.text}: give a unit, for example {limit.text}us")
    if arguments.stop_above and not limit:
        raise KlatError("--stop-above: needs --limit")
    if arguments.explain:
        _check_tracing(arguments)
    if arguments.segment is None:
        fitting = (s for s in _SEGMENT_SECONDS if s * _SEGMENTS <= arguments.seconds)
        arguments.segment = next(fitting, 1)
    path = programs.require(arguments.program)
    loads = _loads(arguments.load or _profile_loads(arguments.profile))
    settings = SoakSettings(
        label=_label(arguments.label, loads),
        commands=_commands(arguments, path, limit),
        loads=loads,
        seconds=arguments.seconds,
        segment_s=arguments.segment,
        limit_ns=round(limit.value) if limit else None,
        stop_above=arguments.stop_above,
        profile=arguments.profile,
        explain=arguments.explain,
    )
    with Signals():  # a signal cannot leave an empty session
        session = session_directory.create(_session_options.output(arguments), settings.label)
        with session_directory.removed_unless_begun(session):
            begin_soak(session, settings, sys.argv)
        _say_cyclic(arguments, settings.commands[0])
        under = f" under {settings.load}" if loads else ""
        say(f"{arguments.program} soaks{under}, label {settings.label}\ninto {session}")
        end = soak(session, settings)
    status = _conclude(session, end, limit)
    if arguments.explain and limit and session.exists():
        _explain(session, round(limit.value))
    return status


def _say_cyclic(arguments: argparse.Namespace, words: Sequence[str]) -> None:
    """If klat chose timer's method and mode, say so, and what else cyclictest does."""
    given = {option.option for option in arguments.option}
    if arguments.program != "timer" or arguments.profile or given & set(_CYCLIC):
        return
    say(_CYCLIC_TEXT)
    if not any(word.startswith("--dma-latency") for word in words):
        say(_IDLE_TEXT)


def _loads(typed: Sequence[str]) -> list[str]:
    from klat.running.loads import IDLE

    different = choices.different_loads([load for load in typed if load != IDLE])
    for load in different:
        choices.checked_load(load)
    return different


def _check_tracing(arguments: argparse.Namespace) -> None:
    """KlatError if this machine or user cannot trace."""
    from klat.tracing.instance import clock, tracefs

    if not arguments.stop_above:
        raise KlatError("--explain: needs --stop-above; klat run --explain-above explains many")
    clock()
    tracefs()


def _profile_loads(profile: str | None) -> Sequence[str]:
    return PROFILES[profile].loads if profile else ()


def _label(given: str | None, loads: Sequence[str]) -> str:
    if given is not None:
        return given
    words = [os.path.basename(load.split()[0]) for load in loads]
    label = "-".join([os.uname().release, *words])
    try:
        return session_directory.check_label(label)
    except ValueError as error:
        raise KlatError(f"the label {label[:40]!r}: {error}; give a --label") from None


def _commands(arguments: argparse.Namespace, path: Path, limit: Any) -> list[list[str]]:
    """The command of each program that soaks. KlatError if the program refuses its command."""
    # The affinity mask of klat lacks isolated CPUs. Only --cpus can name these.
    named = bool(arguments.cpus)
    cpus = sorted(os.sched_getaffinity(0))
    if arguments.threads == "one" or (len(cpus) == 1 and not named):
        return [_words(arguments, path, limit)]
    if named:
        cpus = _list_of(arguments.cpus)
    together = [f"--together={len(cpus)}"] if len(cpus) > 1 else []
    commands = []
    for cpu in cpus:
        arguments.cpus = str(cpu)
        check = named or cpu == cpus[0]
        commands.append(_words(arguments, path, limit, together, check))
    return commands


def _list_of(text: str) -> list[int]:
    """The CPUs of a list such as 2,3 or 4-7."""
    from klat.machine.kernel_files import cpu_list

    # The kernel supports 8192 CPUs.
    form = r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*"
    cpus = cpu_list(text) if re.fullmatch(form, text, re.ASCII) else ()
    if not cpus:
        raise KlatError(f"--cpus: --threads all takes a list, for example 2,3 or 4-7, not {text!r}")
    return sorted(set(cpus))


def _words(
    arguments: argparse.Namespace,
    path: Path,
    limit: Any,
    more: Sequence[str] = (),
    check: bool = True,
) -> list[str]:
    """The command of a program, checked by the program itself."""
    name = arguments.program
    cyclic = dict(_CYCLIC) if name == "timer" and not arguments.profile else {}
    given = {o.option: o.values[0] for o in arguments.option if o.benchmark in (name, "all")}
    if given.get("method", _CYCLIC["method"]) != _CYCLIC["method"]:
        cyclic.clear()
    defaults = ((option, value) for option, value in cyclic.items() if option not in given)
    cyclic_options = [plan_csv.ProgramOption(name, option, (value,)) for option, value in defaults]
    lengths = (f"--soak={arguments.seconds}", f"--segment={arguments.segment}")
    words = [*_options(arguments, cyclic_options), *more, *lengths]
    if limit:
        words.append(f"--limit={round(limit.value)}")
    if arguments.stop_above:
        words.append("--stop-above")
    if not check:
        return [str(path), *words]
    # The directory of the session is made only if the options are right.
    status, message = programs.check_options(path, [*words, "--record=."], "virtual")
    if status == USAGE:
        if more and "this measurement takes" in message:
            raise KlatError(f"--threads all: {name} itself needs several CPUs; timer needs one")
        raise KlatError(f"--threads all: {message}" if more else message)
    return [str(path), *words]


def _options(
    arguments: argparse.Namespace, cyclic_options: Sequence[plan_csv.ProgramOption]
) -> tuple[str, ...]:
    """The options of the program. KlatError if the profile has several sets of it."""
    named = choices.benchmarks([arguments.program], arguments.profile)
    sets = _session_options.parameter_sets(arguments, named, cyclic_options, arguments.profile)
    different = list(dict.fromkeys(options for _, options in sets))
    if len(different) > 1:
        sets_text = "; ".join(" ".join(options) or "none" for options in different)
        raise KlatError(
            f"--profile {arguments.profile}: {arguments.program} has {len(different)} sets of"
            f" options; choose one by --cpus or --option: {sets_text}"
        )
    return different[0]


def _conclude(session: Path, end: SoakEnd, limit: Any) -> int:
    """Print the summary. The exit status."""
    for failure in end.failures:
        say(failure)
    if session_directory.is_empty(session):
        session_directory.remove_unused(session)
        return end.stopped.status if end.stopped else end.status
    if end.stopped:
        say(f"ended early: {end.stopped}")
    verdict = _report(session, limit)
    streams.announce([session], say)
    if end.stopped and end.stopped.number != signal.SIGINT:
        return end.stopped.status
    if end.failures or end.status in (FAILED, USAGE):
        return worst([end.status, *[FAILED] * len(end.failures)])
    if verdict is None:
        return end.status or USAGE
    return verdict or end.status


def _explain(session: Path, above_ns: int) -> None:
    from klat.running.traced_runs import explain_soak

    try:
        for line in explain_soak(session, above_ns):
            say(line)
    except (KlatError, SessionError) as error:
        say(str(error))


def _report(session: Path, limit: Any) -> int | None:
    """Say what klat summary says. The exit status of the limit; None if there is no answer."""
    from klat.compare.dataset import read_datasets
    from klat.compare.limits import label_limits
    from klat.compare.verdicts import Rules
    from klat.report.renderers import terminal
    from klat.report.summary import document

    try:
        labels, problems = read_datasets([session])
        for problem in problems:
            say(problem)
        try:
            limits, refusal = label_limits(labels, limit, Rules()) if limit else None, ""
        except KlatError as error:
            limits, refusal = None, str(error)
        for line in terminal.lines(document(labels, say, limits), False):
            say(line)
    except (KlatError, SessionError) as error:
        say(str(error))
        return None
    if refusal:
        say(refusal)
        return None
    return limits.status if limits else MEASURED
