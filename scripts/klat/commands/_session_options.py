"""The options of all commands that begin sessions, and the settings that follow from them."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from klat.base import programs
from klat.commands._types import checked, number, short_time
from klat.record import plan_csv, profiles, session_directory
from klat.record.profiles import PROFILES
from klat.report.text.columns import wrapped
from klat.running import loads
from klat.base.errors import KlatError
from klat.record.json_files import MOST_PAUSE_MS, MOST_SECONDS

_MOST_NS = 10 * 1000**3
_SKIPPED = 4


label = checked(session_directory.check_label)


def add_benchmarks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "benchmarks",
        nargs="*",
        metavar="benchmark",
        help=f"any of klat's programs, or 'all' (default: {' '.join(programs.CORE)})",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        default=argparse.SUPPRESS,
        help="the same as the word 'all'",
    )


def add_profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile",
        choices=[*PROFILES],
        help="the programs, options and loads for one kind of user, see below; options given here"
        " override the profile's",
    )


def profiles_text() -> str:
    """What is in each profile, for --help."""
    lines = ["profiles:"]
    for name, profile in PROFILES.items():
        lines += wrapped(profile.about, f"  {name:<4}")
        sets = [each.text for each in profile.sets]
        loads = f"a session for each load: {', '.join(profile.loads)}"
        first = [f"reports show {name}'s {metric} first" for name, metric in profile.first.items()]
        for text in (*sets, loads, *first):
            lines += wrapped(text, " " * 6, " " * 10)
    return "\n".join(lines) + "\n"


def variants(
    profile: str | None, benchmarks: Sequence[str], cpus: str | None, one_cpu: bool
) -> dict[str, list[dict[str, str]]] | None:
    """The profile's sets of options, by benchmark; None without a profile. Says what is left out
    because there is only one CPU."""
    if profile is None:
        return None
    found, left_out = profiles.variants(PROFILES[profile], benchmarks, cpus, one_cpu)
    if left_out:
        line = f"profile {profile}: left out, because there is one CPU: {', '.join(left_out)}"
        print("\n".join(wrapped(line, "", "  ")), file=sys.stderr)
    if not any(found.values()):
        raise KlatError(f"--profile {profile}: nothing is left to measure on one CPU", _SKIPPED)
    return found


def named(arguments: argparse.Namespace) -> list[str]:
    """The benchmarks as typed: by name, or by --all."""
    typed: list[str] = arguments.benchmarks
    if not hasattr(arguments, "all"):
        return typed
    if typed:
        raise KlatError(f"--all runs every program: leave out {typed[0]}, or --all")
    return ["all"]


def add_plan(parser: argparse._ActionsContainer) -> None:
    """The options that decide the plan, on this machine and in a guest."""
    add = parser.add_argument
    add(
        "--seed",
        type=number(0, 2**63 - 1),
        metavar="N",
        help="seed of the order (default: drawn, printed and recorded)",
    )
    _add_sweep(parser)
    add_program_options(parser)


def _add_sweep(parser: argparse._ActionsContainer) -> None:
    add = parser.add_argument
    add(
        "--sweep",
        action="append",
        default=[],
        type=checked(plan_csv.parse_sweep),
        metavar="BENCHMARK.OPTION=VALUES",
        help="run the whole set for each value: 0,1,2,4 or 0..79 or both; with ';' between values"
        " that hold commas",
    )


def add_program_options(parser: argparse._ActionsContainer) -> None:
    """Options that the programs get."""
    add_option(parser)
    parser.add_argument(
        "--iterations",
        type=number(1, 10**9),
        metavar="N",
        help="samples of a run (default: the program's)",
    )


def add_option(parser: argparse._ActionsContainer) -> None:
    """--option and --policy."""
    add = parser.add_argument
    add(
        "--option",
        action="append",
        default=[],
        type=checked(plan_csv.parse_option),
        metavar="BENCHMARK.OPTION[=VALUE]",
        help="give a program an option, or every program where BENCHMARK is 'all'",
    )
    add("--policy", metavar="POLICY", help="fifo, rr or other, with :PRIORITY, for every program")


def add_output(parser: argparse._ActionsContainer, default: str = "results") -> None:
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help=f"where sessions go (default: {default}, in the current directory)",
    )


def add_surroundings(parser: argparse.ArgumentParser, several_loads: bool = False) -> None:
    """The CPUs of the programs, and the load beside them."""
    add = parser.add_argument
    add("--cpus", metavar="LIST", help="CPUs of every program (default: the program's choice)")
    named = "background load for the whole session: a name from load/load --list, or a command"
    if several_loads:
        add(
            "--load",
            action="append",
            default=[],
            metavar="NAME|COMMAND",
            help=f"{named}; 'none' is no load; repeatable, with a session and a label for each",
        )
    else:
        add("--load", metavar="NAME|COMMAND", help=named)


def add_shared(parser: argparse.ArgumentParser, several_loads: bool = False) -> None:
    add_plan(parser)
    add = parser.add_argument
    add_surroundings(parser, several_loads)
    add_output(parser)
    add(
        "--pause",
        type=number(0, MOST_PAUSE_MS, "number of milliseconds"),
        metavar="MS",
        help="pause between runs (default: 0)",
    )
    add(
        "--time-limit",
        type=number(1, MOST_SECONDS, "number of seconds"),
        metavar="S",
        help="time after which a run is ended and counted as failed (default: 120)",
    )


def add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust",
        action="store_true",
        help="with --resume: accept a session that another user owns or can write",
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


def add_runs(parser: argparse.ArgumentParser, what: str, option: str = "--runs") -> None:
    add = parser.add_argument
    add(option, type=number(1, plan_csv.MAX_RUNS), metavar="N", help=what)


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
    return {
        "pause_ms": arguments.pause or 0,
        "time_limit_s": arguments.time_limit or 120,
    }


def checked_load(load: str | None) -> str | None:
    """The --load as typed, after its check."""
    if load is not None and not load.strip():
        raise KlatError("--load is empty")
    if load is not None:
        loads.check(load)
    return load


def different_loads(typed: Sequence[str]) -> list[str]:
    """The loads as typed. KlatError if one is empty, or named twice."""
    for load in typed:
        if not load.strip():
            raise KlatError("--load is empty")
        if typed.count(load) > 1:
            raise KlatError(f"the load {load} is named twice")
    return list(typed)


def plain(name: str, value: str) -> str:
    """The value of an option, as a plan can hold it."""
    if not value or '"' in value or not value.isprintable():
        raise KlatError(f"--{name} cannot be {value!r}")
    return value


def parameter_sets(
    arguments: argparse.Namespace,
    benchmarks: list[str],
    own: Sequence[plan_csv.ProgramOption] = (),
    profile: str | None = None,
) -> list[tuple[str, tuple[str, ...]]]:
    given = {
        name: plain(name, str(value))
        for name in ("iterations", "cpus", "policy")
        if (value := getattr(arguments, name)) is not None
    }
    # The sets of a profile differ in the number of CPUs.
    cpus = given.pop("cpus", None) if profile else None
    only_one = len(os.sched_getaffinity(0)) == 1
    found = variants(profile, benchmarks, cpus, cpus is None and only_one)
    return plan_csv.parameter_sets(
        benchmarks, given, [*arguments.option, *own], arguments.sweep, found
    )


def benchmarks(named: list[str], profile: str | None = None) -> list[str]:
    """The session's benchmarks in klat's order, whatever the order typed: the plan is then the
    same."""
    if profile:
        _check_profile(named, profile)
        chosen = named or PROFILES[profile].benchmarks
    elif not named:
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


def _check_profile(named: list[str], profile: str) -> None:
    """KlatError if a named benchmark is not in the profile."""
    there = PROFILES[profile].benchmarks
    for name in named:
        if name not in there:
            raise KlatError(f"--profile {profile} has no {name}; it has {', '.join(there)}")
