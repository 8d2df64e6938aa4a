"""Reads files that another user may have written: only regular files, and only up to a size.

Opening a FIFO would block, and opening a device may have an effect. Root refuses symbolic links, because
the target may be a file that only root can read.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from klat.base.errors import SessionError, printable
from klat.base.fields import Kind, Wrong

# Levels of nested lists and objects. klat writes at most four.
_DEEPEST = 32
_MOST_DIGITS = 1000
_A_LINK = "is a symbolic link, which klat does not follow as root"


@contextmanager
def directory_to_read(path: Path) -> Iterator[int]:
    """A descriptor of a directory in a session. Root does not follow a link in its place. Raises the errors of
    open_to_read()."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if os.geteuid() else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise
    except OSError as error:
        why = _A_LINK if path.is_symlink() and not os.geteuid() else error.strerror or str(error)
        raise SessionError(f"{printable(str(path))}: {why}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_below(path: Path) -> FileIO:
    """As open_to_read(), for a file in a directory of a session."""
    with directory_to_read(path.parent) as parent:
        return open_to_read(path, parent)


def open_to_read(path: Path | str, parent: int | None = None) -> FileIO:
    """Open a regular file, in the directory with the descriptor `parent` if that is given. FileNotFoundError if it
    is missing. SessionError, in one sentence, if it is not a regular file or cannot be read."""
    name = path if parent is None else os.path.basename(path)
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    follows = os.geteuid() != 0
    try:
        # Check before open(), because opening a device may have an effect, and again after it.
        _require_regular(path, os.stat(name, dir_fd=parent, follow_symlinks=follows))
        flags |= 0 if follows else os.O_NOFOLLOW
        file = FileIO(os.open(name, flags, dir_fd=parent))
        try:
            _require_regular(path, os.fstat(file.fileno()))
        except SessionError:
            file.close()
            raise
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SessionError(f"{printable(str(path))}: {error.strerror or error}") from error
    return file


def _require_regular(path: Path | str, status: os.stat_result) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    what = "is not a regular file"
    if stat.S_ISLNK(status.st_mode):
        what = _A_LINK
    raise SessionError(f"{printable(str(path))}: {what}")


def read_regular(path: Path, largest: int) -> bytes:
    """The whole file, of at most `largest` bytes. Raises the errors of open_to_read()."""
    with open_to_read(path) as file:
        return read_open(file, path, largest)


def read_named(path: Path, largest: int) -> bytes:
    """The whole of a regular file that the user names, of at most `largest` bytes. Follows symbolic links. Raises
    OSError."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    with open(path, "rb", buffering=0, opener=lambda name, _: os.open(name, flags)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is no regular file", str(path))
        data = _whole_file(file, largest)
    if data is None:
        raise OSError(errno.EFBIG, f"is larger than {largest:,} bytes", str(path))
    return data


def read_open(file: FileIO, path: Path, largest: int) -> bytes:
    """The whole of an open, unbuffered file, of at most `largest` bytes. Raises SessionError."""
    name = printable(str(path))
    try:
        data = _whole_file(file, largest)
    except OSError as error:
        raise SessionError(f"{name}: {error.strerror or error}") from error
    if data is None:
        raise SessionError(f"{name}: is larger than {largest:,} bytes, more than klat ever writes")
    return data


def _whole_file(file: FileIO, largest: int) -> bytes | None:
    """None if the file is larger than `largest` bytes."""
    size = os.fstat(file.fileno()).st_size
    data = b"" if size > largest else read_at_most(file, max(size + 1, 1 << 16), largest + 1)
    return None if max(size, len(data)) > largest else data


def read_at_most(file: FileIO, at_once: int, most: int) -> bytes:
    """Up to `most` bytes. The file may grow, and one read() returns at most 2 GiB. The kernel refuses to read
    a file of /proc/sys into a buffer of 4 MiB or more (KMALLOC_MAX_SIZE on x86)."""
    data = b""
    while len(data) < most and (more := file.read(min(at_once, most - len(data)))) != b"":
        if more is None:
            raise BlockingIOError(errno.EAGAIN, "would block")
        data += more
    return data


def read_json(path: Path, kind: Kind, largest: int) -> Any:
    """The value in a JSON file of at most `largest` bytes, checked by `kind`. Raises the errors of
    open_to_read()."""
    return parse_json(path, read_regular(path, largest), kind)


def parse_json(path: Path, data: bytes, kind: Kind) -> Any:
    """The value in the bytes of a JSON file, with escapes for text that is not valid Unicode.
    SessionError if `kind` refuses the value."""
    name = printable(str(path))
    try:
        value = plain(json.loads(data.decode("utf-8"), parse_int=_whole))
    except Wrong as wrong:
        raise SessionError(f"{name} is damaged or was edited: {wrong}") from None
    except (ValueError, RecursionError) as error:
        raise SessionError(f"{name} is damaged or was edited: not valid JSON ({error})") from None
    return checked(path, kind, value)


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:  # Python's own message for this is not for users
        raise Wrong(f"it has a number of {len(text):,} digits")
    return int(text)


def checked(path: Path, kind: Kind, value: Any) -> Any:
    """The value, checked. SessionError names the file `path` if `kind` refuses the value."""
    try:
        kind.check("", value)
    except Wrong as wrong:
        said = str(wrong).lstrip()
        raise SessionError(f"{printable(str(path))} is damaged or was edited: {said}") from None
    return value


def plain(value: Any, depth: int = _DEEPEST) -> Any:
    """The value with escapes for text that is not valid Unicode. Wrong if it has too many levels."""
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
    return {plain(key): plain(item, depth - 1) for key, item in value.items()}
