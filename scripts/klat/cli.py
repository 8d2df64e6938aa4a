"""`./klat`: finds the command or program, and turns every failure into one line and a status."""

from __future__ import annotations

import argparse
import signal
import sys
import textwrap
from collections.abc import Sequence
from typing import NoReturn

from klat import __version__, commands
from klat.base import programs, streams
from klat.base.errors import KlatError, SessionError, did_you_mean, installing

_USAGE = 2
_INTERRUPTED = 128 + signal.SIGINT

_DESCRIPTION = """\
Measures how long the Linux kernel takes to do what concurrent and real-time
programs wait for.
"""

_EPILOG = """\
programs:
{programs}
  klat PROGRAM [OPTION]... runs one once and prints what it measured;
  klat PROGRAM --help says what it times

environment:
  KLAT_PROGRAMS   directory of the programs, in place of this klat's own
  NO_COLOR        when set, no colour

Exit status: 0 done; 2 usage, input or output; others: see klat COMMAND --help.

"""


class Parser(argparse.ArgumentParser):
    """One line for a usage error, in place of argparse's usage and line."""

    def error(self, message: str) -> NoReturn:
        self.exit(_USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser(loaded: Sequence[str], lists_all: bool = False) -> Parser:
    """Loads only the commands in `loaded`. With `lists_all`, the others and the programs are listed without their
    options, because it takes long to load all commands."""
    try:
        available = _wrapped(programs.available() if lists_all else [])
    except KlatError as error:
        available = _wrapped([f"none starts: {error}"])
    parser = Parser(
        prog="klat",
        description=_DESCRIPTION,
        epilog=_EPILOG.format(programs=available),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="version", version=f"klat {__version__}, {programs.commit()}"
    )
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, title="commands"
    )
    for name, summary in commands.SUMMARIES.items():
        if name in loaded:
            commands.load(name).add_parser(subparsers)
        elif lists_all:
            subparsers.add_parser(name, help=summary)
    return parser


def _wrapped(names: Sequence[str]) -> str:
    text = " ".join(names) or f"none is built: {programs.build_cure()}"
    return textwrap.fill(text, 80, initial_indent="  ", subsequent_indent="  ")


def _dispatch(arguments: Sequence[str]) -> int:
    names = commands.names()
    word = arguments[0] if arguments else ""
    if not arguments:
        _parser([], lists_all=True).print_help(sys.stderr)
        return _USAGE
    if word.startswith("-"):
        parser = _parser(arguments, lists_all=True)
    elif word in names:
        # Only the command asked for is loaded: a session needs none of what the reports need.
        parser = _parser([word])
    elif program := programs.find(word):
        return programs.execute(program, list(arguments[1:]))
    elif programs.is_known(word):
        programs.require(word)
    else:
        raise KlatError(f"there is no command or program {word!r}{_like(word, names)}")
    parsed, rest = parser.parse_known_args(arguments)
    # argparse takes no more names after an option that follows others.
    if rest and hasattr(parsed, "benchmarks") and not any(w.startswith("-") for w in rest):
        parsed.benchmarks = [*parsed.benchmarks, *rest]
    elif rest:
        parser.prog += f" {word}" if word in names else ""
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    status: int = parsed.func(parsed)
    return status


def _like(word: str, names: Sequence[str]) -> str:
    return did_you_mean(word, [*names, *programs.available()]) or "; see klat --help"


def _explain(error: Exception) -> tuple[str, int] | None:
    """The line and the status for what the user can mend; None for a defect of klat."""
    if isinstance(error, KlatError):
        return str(error), error.status
    if isinstance(error, SessionError):
        return str(error), _USAGE
    if isinstance(error, ModuleNotFoundError) and error.name in ("numpy", "scipy"):
        cure = installing(error.name)
        return f"this command needs {error.name} for {sys.executable}: {cure}", _USAGE
    # An extension module that does not fit is an ImportError.
    if isinstance(error, MemoryError) or "failed to map segment" in str(error):
        return (
            "out of memory: raise the limit (ulimit -v, the cgroup's memory.max), or give fewer sessions",
            _USAGE,
        )
    if isinstance(error, OSError):
        what = error.strerror or str(error)
        return (f"{error.filename}: {what}" if error.filename else what), _USAGE
    return None


def _say(command: str, line: str) -> None:
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in line)
    print(f"klat{command}: {shown}", file=sys.stderr, flush=True)


def _status(arguments: Sequence[str]) -> int:
    """Run the command and flush its output. The exit status."""
    try:
        status = _dispatch(arguments)
    except SystemExit as end:  # argparse: after --help, --version and a usage error
        status = end.code if isinstance(end.code, int) else _USAGE
    sys.stdout.flush()
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of klat; its exit status. `argv` is without the program's own name."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    streams.secure()
    known = bool(arguments) and arguments[0] in commands.names()
    command = f" {arguments[0]}" if known else ""
    try:
        return _status(arguments)
    except KeyboardInterrupt:
        _say(command, "interrupted")
        return _INTERRUPTED
    except Exception as error:
        explained = _explain(error)
        if explained is None:
            raise
        streams.discard_output()
        if streams.broke(error):  # the reader closed the pipe, as head(1) does
            return 128 + signal.SIGPIPE
        _say(command, explained[0])
        return explained[1]
