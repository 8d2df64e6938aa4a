"""klat's own background loads, and the commands that `--load` may name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from klat.base import programs
from klat.base.errors import KlatError, did_you_mean

IDLE = "none"  # the name of no load

_SHELL = "/bin/sh"
_LIST_SECONDS = 5
_WORD = re.compile(r"[a-z][a-z0-9_-]*")


def program() -> Path | None:
    """The program that makes klat's own loads. None if it is not built."""
    directory = programs.directory()
    for path in (directory / "load" / "load", directory / "load-load"):
        if path.is_file() and os.access(path, os.X_OK):
            return path
    return None


def names() -> list[str]:
    """The names of klat's loads; none if load/load is not built."""
    own = program()
    if own is None:
        return []
    try:
        output = subprocess.run(
            [own, "--list"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIST_SECONDS,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.split()[0] for line in output.splitlines() if line.strip()]


def check(load: str) -> None:
    """KlatError if `load` is one word that is neither a load nor a command."""
    if not _WORD.fullmatch(load) or load in names() or shutil.which(load):
        return
    there = ", ".join(names()) or "none: load/load is not built, run 'make' first"
    raise KlatError(
        f"--load {load}: is neither a load nor a command{did_you_mean(load, names())}; the loads are"
        f" {there}"
    )


def words(load: str) -> list[str]:
    """The words that start the load: klat's own by its name, a command by the shell."""
    own = program()
    if own is not None and load in names():
        return [str(own), load]
    return [_SHELL, "-c", load]
