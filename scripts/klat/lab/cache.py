"""The directory in which the lab keeps what it fetched, and in which it works.

    packages/   Debian packages, unpacked
    apt/        the package lists of the lab's own apt
    images/     kernels, unpacked
    symbols/    the symbols of guests' kernels, for boots that are repeated
    initramfs/  file systems of the newest guests, up to 1 GiB, to repeat their boots
    work/       a directory for each lab at work, gone when it ends

Everything here can be fetched or made again: `klat lab clear` removes it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from klat.base import files, owners
from klat.base.errors import KlatError

_WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.05


def root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    parent = Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()
    return parent / "klat" / "lab"


def folder(*names: str) -> Path:
    """A directory of the cache; a missing one is made. KlatError if that fails, or if klat runs as root
    and another user can write or replace the cache: apt executes commands of its configuration there.
    """
    path = root().joinpath(*names)
    cure = "set XDG_CACHE_HOME to a directory that you can write"
    with files.explained("make", path, cure):
        files.make_directories(path)
        doubt = owners.doubt_of_path(root()) if os.geteuid() == 0 else ""
    if doubt:
        raise KlatError(f"{doubt}; set XDG_CACHE_HOME to a directory of root")
    return path


def _lock(path: Path) -> int | None:
    """A descriptor that holds the lock on a directory; None where another process does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if owners.try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


@contextmanager
def work(name: str = "") -> Iterator[Path]:
    """A directory that is removed at the end. Removes those of killed labs first. KlatError if a lab works
    under the same name."""
    # A directory that is not locked yet looks like one that a killed lab left.
    with exclusive("work"):
        base = folder("work")
        _sweep(base)
        if name and any(base.glob(f"{name}.*")):
            raise KlatError("another klat lab is at work on this experiment")
        path = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=base))
        descriptor = _lock(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def _sweep(base: Path) -> None:
    for path in base.iterdir():
        try:
            descriptor = _lock(path)
        except OSError:
            continue
        if descriptor is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(descriptor)


@contextmanager
def exclusive(
    name: str, seconds: float = _WAIT_SECONDS, say: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Lock a part of the cache. A process that has to wait says so with `say`. KlatError after
    `seconds`."""
    descriptor = _wait_for(name, seconds, say)
    try:
        yield
    finally:
        os.close(descriptor)


def _wait_for(name: str, seconds: float, say: Callable[[str], None] | None) -> int:
    deadline = time.monotonic() + seconds
    while True:
        path = folder(name)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            # Keep this descriptor until the lock is free: `klat lab clear` holds the lock while it
            # removes the directory.
            while not owners.try_lock(descriptor):
                holder = owners.process_name(owners.lock_holder(descriptor))
                if say:
                    say(f"waiting for {holder}, which has locked {path}")
                    say = None
                if time.monotonic() > deadline:
                    raise KlatError(
                        f"timed out after {seconds:g} s waiting for {holder}, which has locked"
                        f" {path}; end it"
                    )
                time.sleep(_POLL_SECONDS)
            if _is_still(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_still(descriptor: int, path: Path) -> bool:
    """Whether the directory has not been removed since it was opened."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def keep(name: str, key: str, data: bytes, most_bytes: int) -> None:
    """Write a file into a directory of the cache. Replaces a file of this name with other contents. Then
    removes the oldest files of the directory until the rest has at most `most_bytes`."""
    with exclusive(name):
        place = folder(name)
        kept = place / key
        if not kept.is_file() or kept.read_bytes() != data:
            files.write_whole(kept, data)
        os.utime(kept)
        total = 0
        for path in sorted(place.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True):
            total += path.stat().st_size
            if total > most_bytes:
                path.unlink()


def clear() -> int:
    """Remove the cache. Returns the bytes that this freed. KlatError while a lab is at work."""
    base = root()
    # A removal that is interrupted leaves no part of a package in the cache.
    removed = base.with_name(f"{base.name}.removed")
    if base.is_dir():
        with exclusive("work"):
            _sweep(base / "work")
            if any((base / "work").iterdir()):
                raise KlatError(f"{base}: a klat lab is at work in it")
            if removed.is_dir():
                shutil.rmtree(removed)
            base.rename(removed)
    removed_files = (os.path.join(inner, f) for inner, _, files in os.walk(removed) for f in files)
    size = sum(os.lstat(file).st_blocks * 512 for file in removed_files)
    if removed.is_dir():
        shutil.rmtree(removed)
    return size
