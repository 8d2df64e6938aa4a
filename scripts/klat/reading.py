"""Reads files that somebody else may have written: regular files only, never more than a limit.

A FIFO would block, and a device may do anything. As root, a file that is a symbolic link is refused,
because its target may be a file that only root can read.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from klat.errors import SessionError, printable
from klat.fields import Kind, Wrong

# Of lists and objects in each other. klat writes four.
_DEEPEST = 32
_MOST_DIGITS = 1000


def open_to_read(path: Path) -> BinaryIO:
    """FileNotFoundError where nothing is there; SessionError, in one sentence, where it cannot be
    read or is not a regular file."""
    name = printable(str(path))
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        if os.geteuid() == 0:
            flags |= os.O_NOFOLLOW
            if path.is_symlink():
                raise SessionError(
                    f"{name}: is a symbolic link, which klat does not follow as root"
                )
        # To open a device may be an action, so the kind of file is looked at before and after.
        _require_regular(name, os.stat(path))
        file = open(os.open(path, flags), "rb", buffering=0)
        try:
            _require_regular(name, os.fstat(file.fileno()))
        except SessionError:
            file.close()
            raise
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SessionError(f"{name}: {error.strerror or error}") from error
    return file


def _require_regular(name: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise SessionError(f"{name}: is not a regular file")


def read_regular(path: Path, largest: int) -> bytes:
    """All of a file of at most so many bytes. Errors as open_to_read()."""
    with open_to_read(path) as file:
        return read_open(file, path, largest)


def read_open(file: BinaryIO, path: Path, largest: int) -> bytes:
    """The same of a file that is open, without a buffer. SessionError."""
    name = printable(str(path))
    try:
        size = os.fstat(file.fileno()).st_size
        data = b"" if size > largest else _all(file, max(size + 1, 1 << 16), largest + 1)
    except OSError as error:
        raise SessionError(f"{name}: {error.strerror or error}") from error
    if max(size, len(data)) > largest:
        raise SessionError(f"{name}: is larger than {largest:,} bytes, which klat never writes")
    return data


def _all(file: BinaryIO, at_once: int, most: int) -> bytes:
    """Up to `most` bytes. The file may grow, and one read() gives 2 GiB at most."""
    data = file.read(min(at_once, most))
    while len(data) < most and (more := file.read(min(at_once, most - len(data)))):
        data += more
    return data


def read_json(path: Path, kind: Kind, largest: int) -> Any:
    """The value in a JSON file of at most so many bytes, of that kind. Errors as open_to_read()."""
    return parse_json(path, read_regular(path, largest), kind)


def parse_json(path: Path, data: bytes, kind: Kind) -> Any:
    """The value in the bytes of a JSON file. Text that is no valid Unicode is read with escapes.
    SessionError where it is not of that kind."""
    name = printable(str(path))
    try:
        value = plain(json.loads(data.decode("utf-8"), parse_int=_whole))
    except Wrong as wrong:
        raise SessionError(f"{name} is damaged or was edited: {wrong}") from None
    except (ValueError, RecursionError) as error:
        raise SessionError(f"{name} is damaged or was edited: not valid JSON ({error})") from None
    return checked(path, kind, value)


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:  # Python's limit has a message for programmers
        raise Wrong(f"it has a number of {len(text):,} digits")
    return int(text)


def checked(path: Path, kind: Kind, value: Any) -> Any:
    """The value of that file. SessionError where it is not of that kind."""
    try:
        kind.check("", value)
    except Wrong as wrong:
        said = str(wrong).lstrip()
        raise SessionError(f"{printable(str(path))} is damaged or was edited: {said}") from None
    return value


def plain(value: Any, depth: int = _DEEPEST) -> Any:
    """The same with escapes for text that is no valid Unicode. Wrong where it is too deep."""
    if isinstance(value, str):
        if value.isascii():
            return value
        return value.encode("utf-8", "backslashreplace").decode()
    if not isinstance(value, (list, dict)):
        return value
    if not depth:
        raise Wrong(f"it has more than {_DEEPEST} levels")
    if isinstance(value, list):
        return [plain(entry, depth - 1) for entry in value]
    return {plain(key): plain(held, depth - 1) for key, held in value.items()}
