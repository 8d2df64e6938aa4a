"""A kernel's image: whether it can be booted here, its release, and its vmlinux.

Offsets are those of Documentation/arch/x86/boot.rst in the kernel's source. An emulator needs more time to
unpack a bzImage than for the rest of the boot. So the host unpacks the kernel and starts it by its PVH entry
(an ELF note, include/xen/interface/elfnote.h), if it has one. The kernel then gets no random address.
"""

from __future__ import annotations

import hashlib
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from klat.base import files
from klat.base.errors import KlatError
from klat.lab import compression, elf

_SETUP_SECTORS = 0x1F1
_MAGIC = (0x202, b"HdrS")
_PROTOCOL = 0x206
_VERSION_TEXT = 0x20E
_XLOADFLAGS = 0x236
_PAYLOAD = 0x248
_HEADER_END = 0x268  # with what protocol 2.12 has
_OLDEST = 0x20C  # protocol 2.12, of Linux 3.8, marks 64-bit kernels
_KERNEL_64 = 1
_PVH_ENTRY = 18
_OTHERS = (
    (0x38, b"ARM\x64", "a kernel for arm64"),
    (0x24, b"\x18\x28\x6f\x01", "a kernel for arm"),
    (0x30, b"RISCV", "a kernel for RISC-V"),
    (0, b"\x7fELF", "an ELF file; give the bzImage (arch/x86/boot/bzImage)"),
    (0, b"\x1f\x8b", "packed with gzip; a bzImage is not"),
    (0, b"\x27\x05\x19\x56", "a U-Boot image"),
    (0, b"MZ", "an EFI program without a Linux boot header"),
)


@dataclass(frozen=True)
class Image:
    path: Path
    release: str  # as uname -r
    version: str  # the whole line
    sha256: str
    payload: tuple[int, int]  # offset and size of the packed kernel


@dataclass(frozen=True)
class Unpacked:
    path: Path
    sha256: str


def inspect(path: Path) -> Image:
    """KlatError says what the file is, if it is not a kernel for x86-64."""
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise KlatError(f"{path}: is no regular file")  # and may never end
        data = path.read_bytes()
    except OSError as error:
        raise KlatError(f"{path}: cannot read the kernel: {error.strerror}") from None
    offset, magic = _MAGIC
    if data[offset : offset + 4] != magic or data[0x1FE:0x200] != b"\x55\xaa":
        found = next((what for at, sign, what in _OTHERS if data[at : at + len(sign)] == sign), "")
        raise KlatError(
            f"{path}: is no bootable kernel for x86-64 (bzImage)"
            + (f" but {found}" if found else "")
        )
    if len(data) < _HEADER_END:
        raise KlatError(f"{path}: ends within its boot header, so it is cut off")
    (protocol,) = struct.unpack_from("<H", data, _PROTOCOL)
    if protocol < _OLDEST:
        raise KlatError(
            f"{path}: is a kernel of boot protocol {protocol >> 8}.{protocol & 255:02d}, older than"
            " 2.12 (Linux 3.8)"
        )
    if not struct.unpack_from("<H", data, _XLOADFLAGS)[0] & _KERNEL_64:
        raise KlatError(f"{path}: is a 32-bit kernel; the programs are for x86-64")
    (text,) = struct.unpack_from("<H", data, _VERSION_TEXT)
    version = data[0x200 + text :].split(b"\0", 1)[0][:512].decode("ascii", "replace")
    words = version.split()
    if not text or not words:
        raise KlatError(f"{path}: has no release in its header, so it is damaged")
    setup = data[_SETUP_SECTORS] or 4
    start, size = struct.unpack_from("<II", data, _PAYLOAD)
    start += (setup + 1) * 512
    if not size or start + size > len(data):
        raise KlatError(f"{path}: ends before its kernel does, so it is cut off")
    return Image(path, words[0], version, hashlib.sha256(data).hexdigest(), (start, size))


def vmlinux(image: Image, cache: Path) -> Unpacked | None:
    """The unpacked kernel; None if it cannot be unpacked here or has no PVH entry. Replaces a file
    of the cache that is not the kernel of this image."""
    kept, digest_file = cache / f"{image.sha256}.vmlinux", cache / f"{image.sha256}.sha256"
    with suppress(OSError):
        digest = hashlib.sha256(kept.read_bytes()).hexdigest()
        if digest_file.read_bytes() == digest.encode():
            return Unpacked(kept, digest)
    data = _kernel(image)
    if not _has_pvh_entry(data):
        return None
    digest = hashlib.sha256(data).hexdigest()
    files.write_whole(kept, data)
    files.write_whole(digest_file, digest.encode())
    return Unpacked(kept, digest)


def configuration(image: Image) -> bytes | None:
    """The configuration that the kernel holds (CONFIG_IKCONFIG; kernel/configs.c); None if it holds none."""
    begin, end = b"IKCFG_ST", b"IKCFG_ED"
    data = _kernel(image)
    start = data.find(begin + b"\x1f\x8b")
    stop = data.find(end, start)
    return _unpack(data[start + len(begin) : stop]) or None if 0 <= start < stop else None


def _kernel(image: Image) -> bytes:
    """The unpacked payload; empty if it cannot be unpacked here."""
    start, size = image.payload
    with image.path.open("rb") as file:
        file.seek(start)
        data = file.read(size)
    # The kernel's build appends the unpacked size, except to gzip data, which end with it.
    return _unpack(data if data.startswith(compression.GZIP) else data[:-4])


def _unpack(data: bytes) -> bytes:
    try:
        return compression.decompress(data)
    except ValueError:
        return b""


def _has_pvh_entry(kernel: bytes) -> bool:
    try:
        return any(_names_pvh(notes) for kind, notes in elf.segments(kernel) if kind == elf.NOTE)
    except ValueError:
        return False


def _names_pvh(notes: bytes) -> bool:
    offset = 0
    while offset + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, offset)
        name = notes[offset + 12 : offset + 12 + name_size]
        if name == b"Xen\0" and kind == _PVH_ENTRY:
            return True
        offset += 12 + (name_size + 3 & ~3) + (size + 3 & ~3)
    return False
