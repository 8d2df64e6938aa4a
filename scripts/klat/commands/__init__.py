"""The commands of ./klat: each module here is one.

A module has `add_parser(subparsers)`, which adds its parser and sets the default `func`, a
function from the parsed arguments to the exit status. It imports cheaply: what is slow to load is
imported where it is used.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

_FIRST = (
    "run",
    "ab",
    "soak",
    "summary",
    "plot",
    "compare",
    "explain",
    "history",
    "plan",
    "export",
    "doctor",
    "campaign",
    "fleet",
    "lab",
)


def names() -> list[str]:
    """In the order of a session, then the others by name."""
    modules = {file.stem for file in Path(__file__).parent.glob("[a-z]*.py")}
    return [name for name in _FIRST if name in modules] + sorted(modules.difference(_FIRST))


def load(name: str) -> ModuleType:
    return import_module(f"klat.commands.{name}")


def add_command(
    subparsers: Any, name: str, summary: str, description: str, epilog: str | None = None
) -> argparse.ArgumentParser:
    """A parser for one command. `summary` is its line in the help of the parser above; description and
    epilog are printed as they are."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=summary,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return parser


def add_metric(add: Any) -> None:
    """`add` is add_argument of a parser."""
    text = "only this; repeatable; pipes.round_trip: of this program only"
    add("--metric", action="append", default=[], metavar="NAME", help=text)
