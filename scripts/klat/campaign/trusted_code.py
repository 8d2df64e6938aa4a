"""Checks that only trusted users can write the code that systemd starts as root after each boot."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import klat
from klat.base import owners, programs
from klat.base.errors import KlatError
from klat.running import loads

_PACKAGES = Path(klat.__file__).resolve().parents[1]  # the launcher's directory for imports


def check_code(names: Iterable[str]) -> None:
    """KlatError if an untrusted user can write klat or one of these programs, or replace them. Trusted are root,
    the user of this process, and the caller of sudo."""
    for path in _code(names):
        try:
            doubt = owners.doubt_of_path(path)
        except OSError as error:
            raise KlatError(f"cannot check the owner of {path}: {error.strerror}") from error
        if doubt:
            raise KlatError(
                f"{doubt}, but root runs code from there after each boot; change the owner or mode, or"
                " install klat"
            )


def launcher() -> Path:
    """The file that started this process. After each boot, systemd starts it again."""
    return Path(sys.argv[0]).resolve()


def _code(names: Iterable[str]) -> Iterator[Path]:
    yield launcher()
    yield _PACKAGES
    for directory, directories, found in os.walk(_PACKAGES):
        yield from (Path(directory, name) for name in (*directories, *found))
    for path in (*map(programs.locate, dict.fromkeys(names)), loads.program()):
        if path is not None:
            yield path
