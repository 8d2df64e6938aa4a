"""Writes files and directories safely where other users can write, even as root.

- In a session directory, klat follows no symbolic link, and appends only to regular files without hard
  links.
- In a path that the user gives, root follows a symbolic link only if root owns the directory of the link
  and no other user can write that directory. An ordinary user follows every link.
- A new file belongs to the caller of sudo. A replaced file keeps its owner and its mode.
- A file is replaced as a whole: klat writes a draft under an unpredictable name, then renames it.

A path is opened directory by directory. If another user replaces a directory by a link in the meantime,
the open fails.
"""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
import shutil
import signal
import stat
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from klat.base import owners
from klat.base.errors import KlatError

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKS_MAX = 40  # the kernel's limit
_OWN_STREAM = re.compile(r"/dev/(stdout|stderr)|/(?:dev|proc/self)/fd/([0-9]{1,9})", re.ASCII)
_STREAMS = {"stdout": 1, "stderr": 2}


@contextmanager
def directory(path: Path, make: bool = False) -> Iterator[int]:
    """A descriptor of the directory, for `dir_fd` only. `make` creates missing directories.

    Raises OSError, or KlatError for a symbolic link in the path that root must not follow.
    """
    descriptor = _walk(path, make)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_directories(path: Path) -> None:
    """Like `mkdir -p`. Raises the errors of directory()."""
    with directory(path, make=True):
        pass


def make_directory(parent: int, name: str, mode: int = 0o777) -> None:
    """Make a directory that belongs to the caller of sudo. Raises OSError."""
    caller = owners.caller()  # before mkdir(): a refusal leaves no directory behind
    os.mkdir(name, mode, dir_fd=parent)
    if caller is None:
        return
    made = os.open(name, os.O_RDONLY | _DIRECTORY, dir_fd=parent)
    try:
        # A user who can write `parent` may have replaced it by another directory of root.
        if os.fstat(made).st_uid == os.geteuid() and not os.listdir(made):
            owners.give(made)
    finally:
        os.close(made)


def remove_tree(path: Path) -> None:
    """Remove a directory and its contents, as far as possible."""
    with suppress(OSError, KlatError), directory(path.parent) as parent:
        shutil.rmtree(path.name, ignore_errors=True, dir_fd=parent)


def rename(source: Path, target: Path) -> None:
    """Rename a file or a directory. Raises the errors of directory()."""
    with directory(source.parent) as old, directory(target.parent) as new:
        os.rename(source.name, target.name, src_dir_fd=old, dst_dir_fd=new)


class _Ended(BaseException):
    """A signal has arrived that ends klat."""


@contextmanager
def _before_the_end() -> Iterator[None]:
    """If SIGTERM or SIGHUP ends klat, leave the inner contexts first."""
    arrived: list[int] = []

    def end(number: int, _: object) -> None:
        arrived.append(number)
        raise _Ended

    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        numbers = []  # only the main thread can have handlers
    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        if arrived:
            os.kill(os.getpid(), arrived[0])


@contextmanager
def private_directory() -> Iterator[int]:
    """A descriptor of a temporary directory that no other user can enter. Its path is not safe: the
    owner of $TMPDIR can replace the directory."""
    with _before_the_end():
        with tempfile.TemporaryDirectory(prefix="klat-", ignore_cleanup_errors=True) as name:
            descriptor = os.open(name, os.O_RDONLY | _DIRECTORY)
            try:
                status = os.fstat(descriptor)
                if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                    raise KlatError(f"{name} was replaced by another user; set TMPDIR to /tmp")
                yield descriptor
            finally:
                os.close(descriptor)


def _walk(path: Path, make: bool = False, start: int | None = None) -> int:
    """A descriptor of the directory `path`, which is relative to `start` or to the current directory."""
    parts = deque(path.parts)
    links = 0
    here = os.open("/" if path.is_absolute() else ".", os.O_PATH | _DIRECTORY, dir_fd=start)
    try:
        while parts:
            name = parts.popleft()
            target = _link(here, name)
            if target is not None:
                links += 1
                _check_link(here, name, target, links)
                parts.extendleft(reversed(Path(target).parts))
                continue
            try:
                there = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=here)
            except FileNotFoundError:
                if not make:
                    raise
                with suppress(FileExistsError):
                    make_directory(here, name)
                there = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=here)
            os.close(here)
            here = there
    except BaseException:
        os.close(here)
        raise
    return here


def _find(path: Path) -> tuple[int, str]:
    """Follow the links of `path`: a descriptor of the final directory, and the file's name in it."""
    parent = _walk(path.parent)
    try:
        name = path.name or "."
        links = 0
        while (target := _link(parent, name)) is not None:
            links += 1
            _check_link(parent, name, target, links)
            further = _walk(Path(target).parent, start=parent)
            os.close(parent)
            parent, name = further, Path(target).name or "."
    except BaseException:
        os.close(parent)
        raise
    return parent, name


def _link(parent: int, name: str) -> str | None:
    """The target of a symbolic link; None if `name` is not one."""
    try:
        return os.readlink(name, dir_fd=parent)
    except OSError:
        return None


def _check_link(parent: int, name: str, target: str, links: int) -> None:
    """Raises OSError after too many links, and KlatError if root must not follow this one."""
    if links > _LINKS_MAX:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    status = os.fstat(parent)
    only_root = status.st_uid == 0 and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if os.geteuid() == 0 and not only_root:
        raise KlatError(
            f"{_place(parent, name)} is a symbolic link to {target} that another user may have"
            " made; as root, klat does not follow it: remove the link, or give its target if you made"
            " the link"
        )


def _place(parent: int, name: str) -> Path:
    """The path of `name`, for messages."""
    try:
        return Path(os.readlink(f"/proc/self/fd/{parent}")) / name
    except OSError:
        return Path(name)


@contextmanager
def explained(what: str, path: Path, cure: str = "") -> Iterator[None]:
    """Turns an OSError into a KlatError `cannot WHAT PATH: why; CURE`."""
    try:
        yield
    except OSError as error:
        why = "; ".join(filter(None, (error.strerror or str(error), cure)))
        raise KlatError(f"cannot {what} {path}: {why}") from error


def write_whole(path: Path, data: bytes, give: bool = True) -> None:
    """Replace the file by `data`. If this fails, even by a crash, the file is unchanged. Raises KlatError.
    `give`: a new file belongs to the caller of sudo. Files of the system are root's."""
    with explained("write", path), directory(path.parent) as parent:
        with _draft(parent, path.name, 0o644, give) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        opened = os.open(".", os.O_RDONLY | _DIRECTORY, dir_fd=parent)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def create(path: Path, data: bytes | IO[bytes]) -> None:
    """Write a new file. Raises the errors of directory()."""
    source = io.BytesIO(data) if isinstance(data, bytes) else data
    with directory(path.parent) as parent:
        with open(_create(parent, path.name, 0o644), "wb") as file:
            shutil.copyfileobj(source, file)


def append(path: Path, mode: int = 0o644) -> int:
    """A descriptor that appends to the file. Creates a missing file with this mode. Raises KlatError."""
    with explained("write", path), directory(path.parent) as parent:
        try:
            return _create(parent, path.name, mode, os.O_APPEND)
        except FileExistsError:
            return open_regular(parent, path.name, os.O_WRONLY | os.O_APPEND)


def open_regular(parent: int, name: str, flags: int) -> int:
    """A descriptor of an existing regular file. For writing, the file must have no hard links. Raises
    OSError, or KlatError for any other file."""
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a pipe without a reader, a socket
            raise _refused(parent, name) from None
        raise
    status = os.fstat(descriptor)
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    if not stat.S_ISREG(status.st_mode) or (writes and status.st_nlink != 1):
        os.close(descriptor)
        raise _refused(parent, name)
    return descriptor


def _refused(parent: int, name: str) -> KlatError:
    place = _place(parent, name)
    target = _link(parent, name)
    status = _status(parent, name)
    if target is not None:
        return KlatError(
            f"{place} is a symbolic link to {target}; klat does not follow it: remove it"
        )
    if status and stat.S_ISREG(status.st_mode):
        return KlatError(f"{place} has {status.st_nlink} hard links; remove it, or copy it")
    return KlatError(f"{place} is not a regular file; remove it")


def _status(parent: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _create(parent: int, name: str, mode: int, more: int = 0, give: bool = True) -> int:
    if give:
        owners.caller()  # a refusal leaves no file behind
    descriptor = os.open(name, _NEW | more, mode, dir_fd=parent)
    try:
        if give:
            owners.give(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def _draft(parent: int, name: str, mode: int, give: bool = True) -> Iterator[BinaryIO]:
    """A draft that replaces `name` when it is complete. After an error, `name` is unchanged."""
    status = _status(parent, name)
    if status and not stat.S_ISREG(status.st_mode):
        raise _refused(parent, name)
    draft = f".klat-{secrets.token_hex(16)}"
    with _before_the_end():
        descriptor = _create(parent, draft, 0o600 if status else mode, give=give)
        try:
            with open(descriptor, "wb") as file:
                yield file
                if status:
                    with suppress(PermissionError):  # an ordinary user cannot give a file away
                        os.fchown(descriptor, status.st_uid, status.st_gid)
                    os.fchmod(descriptor, status.st_mode & 0o777)
            os.rename(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft, dir_fd=parent)
            raise


@contextmanager
def output(path: Path | None, streams: bool = True) -> Iterator[BinaryIO]:
    """A stream into the file that -o or --html names. The file is replaced when all data is written.
    For None, /dev/stdout and /dev/fd/N, klat writes to the stream that it was started with.

    klat writes to a pipe or a character device directly, unless `streams` is False. As root, klat
    refuses another user's pipe. KlatError if the file cannot be written.
    """
    number = _own_stream(path)
    if path is None or number == 1:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with explained("write", path):
        if number is not None:
            with open(os.dup(number), "wb") as out:
                yield out
            return
        parent, name = _find(path)
        try:
            status = _status(parent, name)
            if status and stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if status and streams and not stat.S_ISREG(status.st_mode):
                with open(_open_stream(parent, name, status), "wb") as out:
                    yield out
            else:
                with _draft(parent, name, 0o666) as out:
                    yield out
        finally:
            os.close(parent)


def _own_stream(path: Path | None) -> int | None:
    match = _OWN_STREAM.fullmatch(str(path))
    if not match:
        return None
    return int(match[2]) if match[2] else _STREAMS[match[1]]


def _open_stream(parent: int, name: str, status: os.stat_result) -> int:
    _check_stream(status, parent, name)
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=parent)
    try:
        _check_stream(os.fstat(descriptor), parent, name)  # another user may have replaced it
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_stream(status: os.stat_result, parent: int, name: str) -> None:
    if stat.S_ISCHR(status.st_mode):
        return
    if not stat.S_ISFIFO(status.st_mode):
        raise KlatError(f"{_place(parent, name)} is not a file, a pipe or a terminal; name a file")
    if os.geteuid() == 0 and not owners.trusted(status.st_uid):
        raise KlatError(
            f"{_place(parent, name)} is a pipe that belongs to"
            f" {owners.user_name(status.st_uid)}; as root, klat does not write it: name a file"
        )
