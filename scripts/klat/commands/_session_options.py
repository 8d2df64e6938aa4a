"""The options of all commands that begin sessions, and the settings that follow from them."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from klat.base import programs
from klat.record import plan_csv, session_directory
from klat.running import loads
from klat.base.errors import KlatError
from klat.record.json_files import MOST_PAUSE_MS, MOST_SECONDS


def number(minimum: int, maximum: int, what: str = "number") -> Any:
    """Converts the text of an option to a whole number in a range."""

    def convert(text: str) -> int:
        if not (text.isascii() and text.isdigit() and minimum <= int(text[:20]) <= maximum):
            raise argparse.ArgumentTypeError(
                f"{text!r} must be a {what} from {minimum} to {maximum}"
            )
        return int(text)

    return convert


def checked(convert: Any) -> Any:
    """`convert` for argparse, which shows the message of this error alone."""

    def wrapper(text: str) -> Any:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return wrapper


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
    add = parser.add_argument
    add(
        "--option",
        action="append",
        default=[],
        type=checked(plan_csv.parse_option),
        metavar="BENCHMARK.OPTION[=VALUE]",
        help="give a program an option, or every program where BENCHMARK is 'all'",
    )
    add(
        "--iterations",
        type=number(1, 10**9),
        metavar="N",
        help="samples of a run (default: the program's)",
    )
    add("--policy", metavar="POLICY", help="fifo, rr or other, with :PRIORITY, for every program")


def add_output(parser: argparse._ActionsContainer, default: str = "results") -> None:
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help=f"where sessions go (default: {default}, in the current directory)",
    )


def add_surroundings(parser: argparse.ArgumentParser) -> None:
    """Where the programs run, and beside what."""
    add = parser.add_argument
    add("--cpus", metavar="LIST", help="CPUs of every program (default: the program's choice)")
    add(
        "--load",
        metavar="NAME|COMMAND",
        help="background load for the whole session: a name from load/load --list, or a command",
    )


def add_shared(parser: argparse.ArgumentParser) -> None:
    add_plan(parser)
    add = parser.add_argument
    add_surroundings(parser)
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
    add(
        "--trust",
        action="store_true",
        help="with --resume: accept a session that another user owns or can write",
    )


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
    """The settings that all sessions have, except label and seed."""
    for name in ("restore", "prefix", "setup"):
        value = getattr(arguments, name, None)
        if value is not None and not value.strip():
            raise KlatError(f"--{name} is empty")
    return {
        "load": common_load(arguments),
        "pause_ms": arguments.pause or 0,
        "time_limit_s": arguments.time_limit or 120,
    }


def common_load(arguments: argparse.Namespace) -> str | None:
    """The checked --load."""
    load: str | None = arguments.load
    if load is not None and not load.strip():
        raise KlatError("--load is empty")
    if load is not None:
        loads.check(load)
    return load


def plain(name: str, value: str) -> str:
    """The value of an option, as a plan can hold it."""
    if not value or '"' in value or not value.isprintable():
        raise KlatError(f"--{name} cannot be {value!r}")
    return value


def parameter_sets(
    arguments: argparse.Namespace, benchmarks: list[str], own: Sequence[plan_csv.ProgramOption] = ()
) -> list[tuple[str, tuple[str, ...]]]:
    given = {
        name: str(value)
        for name in ("iterations", "cpus", "policy")
        if (value := getattr(arguments, name)) is not None
    }
    for name, value in given.items():
        plain(name, value)
    return plan_csv.parameter_sets(benchmarks, given, [*arguments.option, *own], arguments.sweep)


def benchmarks(named: list[str]) -> list[str]:
    """The session's benchmarks in klat's order, whatever the order typed: the plan is then the
    same."""
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
