"""The commands of ./klat: each module here is one.

A module has `add_parser(subparsers)`, which adds its parser and sets the default `func`, a
function from the parsed arguments to the exit status. It imports cheaply: what is slow to load is
imported where it is used.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

_FIRST = ("run", "ab", "summary", "plot", "compare", "history", "plan", "export", "doctor", "lab")


def names() -> list[str]:
    """In the order of a session, then the others by name."""
    found = {file.stem for file in Path(__file__).parent.glob("[a-z]*.py")}
    return [name for name in _FIRST if name in found] + sorted(found.difference(_FIRST))


def load(name: str) -> ModuleType:
    return import_module(f"klat.commands.{name}")
