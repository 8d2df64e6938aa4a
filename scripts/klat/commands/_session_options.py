"""The options of all commands that begin sessions, and their values."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from klat.base import programs
from klat.base.errors import KlatError
from klat.commands._types import add_number, checked, number, short_time
from klat.record import plan_csv, session_directory
from klat.record.json_files import MOST_PAUSE_MS, MOST_SECONDS
from klat.record.profiles import PROFILES
from klat.report.text.columns import wrapped
from klat.running import choices

_MOST_NS = 10 * 1000**3
LOAD = "background load for the whole session: a name from load/load --list, or a command"

label = checked(session_directory.check_label)

# The options that decide what is measured, and how.
_MEASURE: dict[str, dict[str, Any]] = {
    "profile": {
        "choices": [*PROFILES],
        "help": "the programs, options and loads for one kind of user, see below; options given here"
        " override the profile's",
    },
    "seed": {
        "type": number(0, 2**63 - 1),
        "metavar": "N",
        "help": "seed of the order (default: drawn, printed and recorded)",
    },
    "sweep": {
        "action": "append",
        "default": [],
        "type": checked(plan_csv.parse_sweep),
        "metavar": "BENCHMARK.OPTION=VALUES",
        "help": "run the whole set for each value: 0,1,2,4 or 0..79 or both; with ';' between values"
        " that hold commas",
    },
    "option": {
        "action": "append",
        "default": [],
        "type": checked(plan_csv.parse_option),
        "metavar": "BENCHMARK.OPTION[=VALUE]",
        "help": "give a program an option, or every program where BENCHMARK is 'all'",
    },
    "policy": {
        "metavar": "POLICY",
        "help": "for every program: fifo, rr, other or batch; fifo and rr may have :PRIORITY. Only for"
        " timer: deadline:RUNTIME:PERIOD",
    },
    "iterations": {
        "type": number(1, 10**9),
        "metavar": "N",
        "help": "samples of a run (default: the program's)",
    },
    "cpus": {"metavar": "LIST", "help": "CPUs of every program (default: the program's choice)"},
    "load": {"metavar": "NAME|COMMAND", "help": LOAD},
    "output": {
        "type": Path,
        "metavar": "DIR",
        "help": "where sessions go (default: results, in the current directory)",
    },
    "pause": {
        "type": number(0, MOST_PAUSE_MS, "number of milliseconds"),
        "metavar": "MS",
        "help": "pause between runs (default: 0)",
    },
    "time-limit": {
        "type": number(1, MOST_SECONDS, "number of seconds"),
        "metavar": "S",
        "help": "time after which a run is ended and counted as failed (default: 120)",
    },
    "trust": {
        "action": "store_true",
        "help": "with --resume: accept a session that another user owns or can write",
    },
}
PROGRAM = ("option", "policy")
PLAN = ("seed", "sweep", *PROGRAM, "iterations")
SESSION = (*PLAN, "cpus", "load", "output", "pause", "time-limit")


def add_measure(parser: argparse._ActionsContainer, *names: str, **changed: Any) -> None:
    """Add these options. `changed` has other settings of one of them, by its name."""
    for name in names:
        parser.add_argument(f"--{name}", **_MEASURE[name] | changed.get(name, {}))


def several_loads(
    text: str = f"{LOAD}; 'none' is no load; repeatable, with a session and a label for each",
) -> dict[str, Any]:
    """The settings of a --load that can be repeated."""
    return {"action": "append", "default": [], "help": text}


def add_benchmarks(parser: argparse.ArgumentParser) -> None:
    core = f"core, which is {' '.join(programs.CORE)}"
    help_text = f"any of klat's programs, or all, or core (default: {core})"
    parser.add_argument("benchmarks", nargs="*", metavar="benchmark", help=help_text)
    parser.add_argument(
        "--all", action="store_true", default=argparse.SUPPRESS, help="the same as the word 'all'"
    )


def add_above(parser: argparse.ArgumentParser, option: str, *, required: bool) -> None:
    parser.add_argument(
        option,
        required=required,
        type=checked(partial(short_time, most_ns=_MOST_NS)),
        metavar="TIME",
        help="explain the samples above this limit, for example 100us"
        + ("" if required else "; adds a traced run for each run"),
    )


def add_runs(parser: argparse.ArgumentParser, help_text: str, option: str = "--runs") -> None:
    add_number(parser.add_argument, option, 1, plan_csv.MAX_RUNS, help_text)


def profiles_text() -> str:
    """What is in each profile, for --help."""
    lines = ["profiles:"]
    for name, profile in PROFILES.items():
        lines += wrapped(profile.about, f"  {name:<4}")
        sets = [parameters.text for parameters in profile.sets]
        loads = f"a session for each load: {', '.join(profile.loads)}"
        first = [f"reports show {name}'s {metric} first" for name, metric in profile.first.items()]
        for text in (*sets, loads, *first):
            lines += wrapped(text, " " * 6, " " * 10)
    return "\n".join(lines) + "\n"


def named(arguments: argparse.Namespace) -> list[str]:
    """The benchmarks as typed: by name, or by --all."""
    typed: list[str] = arguments.benchmarks
    if not hasattr(arguments, "all"):
        return typed
    if typed:
        raise KlatError(f"--all runs every program: leave out {typed[0]}, or --all")
    return ["all"]


def refuse_with_resume(arguments: argparse.Namespace, *allowed: str) -> None:
    given = [
        f"--{name.replace('_', '-')}" if name != "benchmarks" else "benchmarks"
        for name, value in vars(arguments).items()
        if name not in ("command", "func", "resume", *allowed) and value not in (None, [])
    ]
    if given:
        raise KlatError(f"--resume follows the session's own plan, without {', '.join(given)}")


def refuse_without_resume(arguments: argparse.Namespace) -> None:
    if arguments.trust:
        raise KlatError("--trust needs --resume: a new session is the user's own")


def seed(arguments: argparse.Namespace) -> int:
    return secrets.randbelow(2**32) if arguments.seed is None else int(arguments.seed)


def output(arguments: argparse.Namespace, default: str = "results") -> Path:
    return Path(default) if arguments.output is None else Path(arguments.output)


def common(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings that all sessions have, except label, seed and load."""
    for name in ("restore", "prefix", "setup"):
        value = getattr(arguments, name, None)
        if value is not None and not value.strip():
            raise KlatError(f"--{name} is empty")
    return {"pause_ms": arguments.pause or 0, "time_limit_s": arguments.time_limit or 120}


def parameter_sets(
    arguments: argparse.Namespace,
    benchmarks: list[str],
    more: Sequence[plan_csv.ProgramOption] = (),
    profile: str | None = None,
    guest_cpus: int | None = None,
) -> list[tuple[str, tuple[str, ...]]]:
    """The parameter sets of choices.parameter_sets(). In a guest, --cpus is the number of its CPUs."""
    names = ("iterations", "policy") if guest_cpus else ("iterations", "cpus", "policy")
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    options = [*arguments.option, *more]
    return choices.parameter_sets(benchmarks, given, options, arguments.sweep, profile, guest_cpus)
