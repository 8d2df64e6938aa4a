"""Standard streams whose failure never affects a record."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

_OUTPUT = "standard output"


class _Output(io.FileIO):
    """Sets `filename` in its errors, like other files."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = _OUTPUT
            raise


class _Error(io.FileIO):
    """Drops what it cannot write."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or len(data)
        except OSError:
            return len(data)


def secure() -> None:
    """Call this before klat opens a file. It opens each closed standard descriptor on /dev/null, so that
    no file of a record gets that number."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # open() returns the lowest free number, which is `descriptor`.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is sys.__stdout__:
        utf8 = sys.stdout is None or sys.stdout.encoding.lower() == "utf-8"
        # Print paths byte for byte, also those that are not valid text.
        errors = "surrogateescape" if utf8 else "backslashreplace"
        sys.stdout = _text(_Output(1, "w", closefd=False), sys.stdout, errors)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Error(2, "w", closefd=False), sys.stderr, "backslashreplace")


def _text(raw: io.FileIO, before: TextIO | None, errors: str) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=before.encoding if before else "utf-8",
        errors=errors,
        line_buffering=bool(before and before.line_buffering),
    )


def say(line: str) -> None:
    """Print a line on standard error at once."""
    print(line, file=sys.stderr, flush=True)


def announce(records: Sequence[Path], say: Callable[[str], None]) -> None:
    """Print the paths of the records on standard output, or `say` them if that fails."""
    try:
        for path in records:
            print(path)
        sys.stdout.flush()
    except OSError as error:
        discard_output()
        paths = " and ".join(map(str, records))
        say(f"recorded in {paths}; {_OUTPUT}: {error.strerror or error}")


def broke(error: Exception) -> bool:
    """Whether the reader of standard output has closed it."""
    return isinstance(error, BrokenPipeError) and error.filename == _OUTPUT


def discard_output() -> None:
    """Drop buffered output that cannot be written, so that Python prints no message at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, sys.stdout.fileno())
        os.close(sink)
