"""Reads ELF files: unpacked kernels, kernel modules and programs (elf(5)). ValueError if a file is not a
64-bit ELF file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path

from klat.base.errors import KlatError

Data = bytes | mmap  # of a file

NOTE = 4  # a type of segment
_INTERPRETER = 3
MAGIC = b"\x7fELF"
_LITTLE_ENDIAN_64 = MAGIC + b"\x02\x01"
_SEGMENT = struct.Struct("<IIQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")


def segments(data: Data) -> list[tuple[int, bytes]]:
    """The type and the contents of each segment."""
    table = _table(data, _SEGMENT, 32, 54)
    return [(kind, data[start : start + size]) for kind, _, start, _, _, size in table]


def section(data: Data, name: bytes) -> bytes:
    """The contents of the section of that name."""
    table = _table(data, _SECTION, 40, 58)
    (names_index,) = struct.unpack_from("<H", data, 62)
    names = b""
    if names_index < len(table):
        names_start, names_size = table[names_index][4:6]
        names = data[names_start : names_start + names_size]
    for name_start, _, _, _, start, size, *_ in table:
        if names[name_start : name_start + len(name) + 1] == name + b"\0":
            return data[start : start + size]
    raise ValueError(f"has no {name.decode()} section")


def is_static(program: Path, machine: int) -> bool:
    """Whether the program is for this machine (e_machine), and needs no interpreter and so no shared
    library."""
    data = program.read_bytes()
    try:
        static = all(kind != _INTERPRETER for kind, _ in segments(data))
    except ValueError:
        return False
    return static and struct.unpack_from("<H", data, 18)[0] == machine


def _table(data: Data, entry: struct.Struct, offset_at: int, size_at: int) -> list[tuple[int, ...]]:
    """The entries of a table. The header has the table's offset at `offset_at`. It has the size and the
    number of the entries at `size_at`."""
    if data[:6] != _LITTLE_ENDIAN_64 or len(data) < 64:
        raise ValueError("is not a 64-bit ELF file")
    (start,) = struct.unpack_from("<Q", data, offset_at)
    size, count = struct.unpack_from("<HH", data, size_at)
    try:
        return [entry.unpack_from(data, start + i * size) for i in range(count)]
    except struct.error:
        raise ValueError("is a damaged ELF file") from None


_NOTE = struct.Struct("<III")
_BUILD_ID = 3


def notes(data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """The owner, the type and the contents of each note."""
    at = 0
    while at + _NOTE.size <= len(data):
        name_size, size, kind = _NOTE.unpack_from(data, at)
        name = at + _NOTE.size
        content = name + (name_size + 3 & ~3)
        yield data[name : name + name_size], kind, data[content : content + size]
        at = content + (size + 3 & ~3)


def check_vmlinux(vmlinux: Path, booted: Path) -> None:
    """KlatError unless `vmlinux` has debug information and is the build that was booted."""
    try:
        # A file with debug information can have a gigabyte, so klat maps the files instead of reading them.
        with _mapped(vmlinux) as data, _mapped(booted) as other:
            _check_build(data, other)
    except OSError as error:
        raise KlatError(f"{error.filename}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise KlatError(f"--vmlinux {vmlinux}: {error}") from None


def _check_build(data: Data, booted: Data) -> None:
    section(data, b".debug_line")
    if booted[:4] != MAGIC:
        # A flat Image has the sections of its vmlinux, and no headers.
        if booted.find(section(data, b".notes" if build_id(data) else b".text")) < 0:
            raise ValueError("is not of the booted kernel's build: give the vmlinux of that build")
        return
    ids = build_id(data), build_id(booted)
    if all(ids):
        if ids[0] != ids[1]:
            raise ValueError(
                f"has the build ID {ids[0].hex()}, and the booted kernel has"
                f" {ids[1].hex()}: give the vmlinux of that build"
            )
    elif section(data, b".text") != section(booted, b".text"):
        raise ValueError("its code differs from that of the booted kernel")


def _mapped(path: Path) -> mmap:
    with path.open("rb") as file:
        return mmap(file.fileno(), 0, access=ACCESS_READ)


def build_id(data: Data) -> bytes:
    """The build ID of an unpacked kernel; empty if it has none."""
    try:
        all_notes = notes(section(data, b".notes"))
    except ValueError:
        return b""
    ids = (content for owner, kind, content in all_notes if (owner, kind) == (b"GNU\0", _BUILD_ID))
    return next(ids, b"")
