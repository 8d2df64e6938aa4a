"""The ways in which a boot can fail, and what a guest leaves behind: a header and a tar, on a raw disk or, without virtio, on a serial line.

The header is one line in a block of 512 bytes, `klat-lab 1 STATE BYTES SHA256`.

- On a disk it is the first block. Its state is `failed` before the guest starts. The guest writes the tar at
  byte 4096, then replaces the header.
- On a serial line, which cannot be overwritten, a header `failed` comes before the tar, and a second one
  after it. The second counts.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from klat.base.errors import KlatError
from klat.record import received
from klat.record.session import printable

_LONGEST = 1000  # characters that a guest can put into a message


class BootFailure(KlatError):
    """`kind` is a word for run.json. `console` holds the last lines of the guest's console. The message may
    hold text of the guest."""

    kind = "failed"

    def __init__(self, message: str, console: tuple[str, ...] = ()) -> None:
        super().__init__(printable(message[:_LONGEST]), status=1)
        self.console = console


class NotRecorded(KlatError):
    """This machine has no room for a guest or for its results."""


class EmulatorFailed(BootFailure):
    """QEMU did not start, or ended by itself."""

    kind = "emulator"


class NotBooted(BootFailure):
    """The kernel did not reach the first program, or died."""

    kind = "boot"


class ModuleMissing(BootFailure):
    """A module is missing, or the kernel refused it."""

    kind = "module"


class ProgramsFailed(BootFailure):
    """The guest ended early because its programs failed."""

    kind = "programs"


class ResultsIncomplete(BootFailure):
    """The guest ended, and its results are incomplete."""

    kind = "results"


class TimeLimit(BootFailure):
    """The guest did not end in time."""

    kind = "time-limit"


HEADER = 512
OFFSET = 4096
_MAGIC = "klat-lab"
_VERSION = "1"


@contextmanager
def delivered() -> Iterator[None]:
    """Turn any error in the results of a guest into ResultsIncomplete. An OSError is an error of the host
    and passes."""
    try:
        yield
    except (KlatError, OSError):
        raise
    except Exception as error:
        raise ResultsIncomplete(f"the results are damaged: {error or repr(error)}") from error


@dataclass(frozen=True)
class Delivery:
    """`state` is `complete`, or the reason of a failure: `failed`, `programs`, `module`."""

    state: str
    tar: bytes


def prepare(disk: Path, size: int, wants_symbols: bool = False) -> None:
    """Prepares the disk of a guest. With `wants_symbols` the guest adds its /proc/kallsyms to the
    results. OSError if the file system is full."""
    with disk.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
        line = f"{_MAGIC} {_VERSION} failed 0 {hashlib.sha256().hexdigest()}\n"
        line += "kallsyms\n" if wants_symbols else ""
        file.write(line.encode().ljust(HEADER, b"\0"))


def _header(block: bytes) -> tuple[str, int, str] | None:
    words = block.split(b"\n", 1)[0].decode("ascii", "replace").split()
    if len(words) != 5 or words[:2] != [_MAGIC, _VERSION] or not words[3].isdecimal():
        return None
    return words[2], int(words[3]), words[4]


def _whole(state: str, data: bytes, size: int, digest: str) -> Delivery:
    if len(data) != size or hashlib.sha256(data).hexdigest() != digest:
        raise ResultsIncomplete("the results are damaged: their checksum does not match")
    return Delivery(state, data)


@delivered()
def receive(disk: Path, serial: Path) -> Delivery:
    """What the guest wrote to the disk, or else to the serial line. ResultsIncomplete if it is not complete."""
    with disk.open("rb") as file:
        header = _header(file.read(HEADER))
        if header is None:
            raise ResultsIncomplete("the results are damaged: the disk has no header")
        state, size, digest = header
        if size > os.fstat(file.fileno()).st_size:
            raise ResultsIncomplete("the results are damaged: they are said to exceed the disk")
        file.seek(OFFSET)
        delivery = _whole(state, file.read(size), size, digest)
    data = serial.read_bytes() if serial.exists() else b""
    last = _header(data[-HEADER:]) if len(data) >= 2 * HEADER else None
    if state != "failed" or not _header(data[:HEADER]) or not last:
        return delivery
    return _whole(last[0], data[HEADER:-HEADER], last[1], last[2])


@delivered()
def unpack(tar: bytes, into: Path) -> None:
    """Unpack within the limits of received.unpack(). After ResultsIncomplete, the files before the bad one are there."""
    try:
        received.unpack(io.BytesIO(tar), into, len(tar))
    except received.Refused as error:
        raise ResultsIncomplete(f"the tar of the results {error}") from None
