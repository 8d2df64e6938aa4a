"""The commands of ./klat: each module here is one.

A module has `add_parser(subparsers)`, which adds its parser and sets the default `func`, a
function from the parsed arguments to the exit status. It imports cheaply: what is slow to load is
imported where it is used.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
    from klat.report.document import Document

# Each command, in the order of a session, and its line in the help of klat.
SUMMARIES = {
    "run": "run each benchmark many times into a session",
    "ab": "alternate two settings within one boot, to compare them",
    "soak": "measure for hours, and judge a limit",
    "summary": "print what some sessions measured",
    "plot": "draw what some sessions measured",
    "compare": "say whether a kernel is faster or slower than another",
    "explain": "say what took the time of the slow samples",
    "history": "say where a label's metrics changed over time",
    "plan": "compute how many boots and runs find a change",
    "export": "write what was measured in another program's format",
    "submit": "write a file of a session for the table of machines",
    "doctor": "list what on this machine would spoil a session",
    "campaign": "boot kernels in turns, and measure each",
    "fleet": "measure kernels on many machines",
    "lab": "boot kernels in QEMU and measure them there",
}


def names() -> list[str]:
    return list(SUMMARIES)


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


def print_document(document: Document, form: str) -> None:
    """As text, in colour on a terminal, or as Markdown."""
    from klat.report.renderers import markdown, terminal

    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    lines = terminal.lines(document, colour) if form == "text" else markdown.lines(document)
    for line in lines:
        print(line)


def say_of(command: str) -> Callable[[str], None]:
    """Prints a line of the command on standard error."""
    return lambda line: print(f"klat {command}: {line}", file=sys.stderr)


def page_templates(page: Path | None) -> Any:
    """What a page needs; None without a page. KlatError if it is missing."""
    if not page:
        return None
    from klat.report.renderers import html

    return html.templates()


def write_page(command: str, file: Path, environment: Any, document: Document) -> None:
    """Write the page. Says on standard error what is missing in it."""
    from klat.report.renderers import html

    html.write(file, html.page_of(environment, document))
    if sentence := html.missing_figures(document):
        say_of(command)(f"{file}: {sentence}")


def add_paths(parser: argparse.ArgumentParser) -> None:
    help_text = "a session, a label or a results directory"
    parser.add_argument("paths", nargs="+", metavar="PATH", type=Path, help=help_text)


def add_format(add: Any, *others: str, more: str = "") -> None:
    """`add` is add_argument of a parser, here and below."""
    choices = ("text", *others)
    add("--format", choices=choices, default="text", help=f"default: text{more}")


def add_page(add: Any, help_text: str = "write a page with figures too") -> None:
    add("--html", type=Path, metavar="FILE", help=help_text)


def add_metric(add: Any) -> None:
    text = "only this; repeatable; pipes.round_trip: of this program only"
    add("--metric", action="append", default=[], metavar="NAME", help=text)
