"""Checks that the user's kernel with debug information is the build that was booted."""

from __future__ import annotations

import struct
from mmap import ACCESS_READ, mmap
from pathlib import Path

from klat.base.errors import KlatError
from klat.lab import elf

_NOTE = struct.Struct("<III")
_BUILD_ID, _OWNER = 3, b"GNU\0"


def check(vmlinux: Path, booted: Path) -> None:
    """KlatError unless `vmlinux` has debug information and is the build that was booted."""
    try:
        # A file with debug information can have a gigabyte, so klat maps the files instead of reading them.
        with _mapped(vmlinux) as data, _mapped(booted) as other:
            _check(data, other)
    except OSError as error:
        raise KlatError(f"{error.filename}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise KlatError(f"--vmlinux {vmlinux}: {error}") from None


def _check(data: elf.Data, booted: elf.Data) -> None:
    elf.section(data, b".debug_line")
    if booted[:4] != elf.MAGIC:
        # A flat Image has the sections of its vmlinux, and no headers.
        if booted.find(elf.section(data, b".notes" if build_id(data) else b".text")) < 0:
            raise ValueError("is not of the booted kernel's build: give the vmlinux of that build")
        return
    ids = build_id(data), build_id(booted)
    if all(ids):
        if ids[0] != ids[1]:
            raise ValueError(
                f"has the build ID {ids[0].hex()}, and the booted kernel has"
                f" {ids[1].hex()}: give the vmlinux of that build"
            )
    elif elf.section(data, b".text") != elf.section(booted, b".text"):
        raise ValueError("its code differs from that of the booted kernel")


def _mapped(path: Path) -> mmap:
    with path.open("rb") as file:
        return mmap(file.fileno(), 0, access=ACCESS_READ)


def build_id(data: elf.Data) -> bytes:
    """The build ID of an unpacked kernel; empty if it has none."""
    try:
        notes = elf.section(data, b".notes")
    except ValueError:
        return b""
    at = 0
    while at + _NOTE.size <= len(notes):
        name_size, size, kind = _NOTE.unpack_from(notes, at)
        name = at + _NOTE.size
        content = name + (name_size + 3 & ~3)
        if kind == _BUILD_ID and notes[name : name + name_size] == _OWNER:
            return notes[content : content + size]
        at = content + (size + 3 & ~3)
    return b""
