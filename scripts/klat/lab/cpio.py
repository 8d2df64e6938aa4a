"""Writes and reads cpio archives in the "newc" format, the one that the kernel unpacks as its first file system.

The same entries give the same bytes: times are 0, owners root, inode numbers count from 1. The kernel
unpacks archives that follow one another as if they were one
(Documentation/driver-api/early-userspace/buffer-format.rst in its source).
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass

_MAGIC = b"070701"
_ALIGNED = 512


@dataclass(frozen=True)
class Entry:
    """`data` is the target if `mode` is that of a link. `device` is (major, minor)."""

    name: str  # without a leading slash
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def file(name: str, data: bytes, mode: int = 0o644) -> Entry:
    return Entry(name, stat.S_IFREG | mode, data)


def directory(name: str) -> Entry:
    return Entry(name, stat.S_IFDIR | 0o755)


def link(name: str, target: str) -> Entry:
    return Entry(name, stat.S_IFLNK | 0o777, target.encode())


def character_device(name: str, major: int, minor: int) -> Entry:
    return Entry(name, stat.S_IFCHR | 0o600, device=(major, minor))


def archive(entries: Iterable[Entry]) -> bytes:
    """The entries and all their parent directories, each name once, directories first."""
    found: dict[str, Entry] = {}
    for entry in entries:
        parts = entry.name.split("/")
        for depth in range(1, len(parts)):
            found.setdefault("/".join(parts[:depth]), directory("/".join(parts[:depth])))
        found[entry.name] = entry
    written = bytearray()
    for inode, name in enumerate(sorted(found), start=1):
        _write(written, found[name], inode)
    _write(written, Entry("TRAILER!!!", 0), 0)
    written += b"\0" * (-len(written) % _ALIGNED)
    return bytes(written)


def _write(written: bytearray, entry: Entry, inode: int) -> None:
    name = entry.name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    major, minor = entry.device
    # inode, mode, uid, gid, links, time, size, device of the file, device number, size of the name,
    # check
    fields = (inode, entry.mode, 0, 0, links, 0, len(entry.data), 0, 0, major, minor, len(name), 0)
    written += _MAGIC + b"".join(b"%08x" % field for field in fields) + name
    written += b"\0" * (-len(written) % 4)
    written += entry.data
    written += b"\0" * (-len(written) % 4)


def read(data: bytes) -> dict[str, bytes]:
    """The files of one archive that archive() made, by name."""
    found = {}
    at = 0
    while data[at : at + len(_MAGIC)] == _MAGIC:
        fields = [int(data[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        start = at + 110 + name_size
        start += -start % 4
        name = data[at + 110 : at + 109 + name_size].decode()
        if stat.S_ISREG(mode):
            found[name] = data[start : start + size]
        at = start + size
        at += -at % 4
    return found
