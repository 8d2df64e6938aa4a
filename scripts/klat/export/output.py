"""Where an exported file goes: whole, or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from klat.directory import give
from klat.errors import KlatError
from klat.session import printable


@contextmanager
def destination(path: Path | None) -> Iterator[BinaryIO]:
    """A stream into a file, which is there when all was written and as before if not, or into
    standard output. KlatError where it cannot be written."""
    if path is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = path.resolve() if path.is_symlink() else path
    try:
        if path.exists() and not path.is_file():  # a pipe or a device
            with path.open("wb") as out:
                yield out
            return
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o666)
        try:
            with open(descriptor, "wb") as out:
                yield out
            give(temporary)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        where = printable(str(path))
        raise KlatError(f"cannot write {where}: {error.strerror or error}") from error


def make_directory(path: Path) -> None:
    """As mkdir -p."""
    try:
        for missing in reversed([p for p in (path, *path.parents) if not p.exists()]):
            missing.mkdir()
            give(missing)
    except OSError as error:
        where = printable(str(path))
        raise KlatError(f"cannot make the directory {where}: {error.strerror}") from error
