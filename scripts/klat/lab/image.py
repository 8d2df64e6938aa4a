"""A kernel's image: whether it can be booted here, its release, and its vmlinux.

Offsets are those of Documentation/arch/x86/boot.rst in the kernel's source. An emulator needs more time to
unpack a bzImage than for the rest of the boot. So the host unpacks the kernel and starts it by its PVH entry
(an ELF note, include/xen/interface/elfnote.h), if it has one. The kernel then gets no random address.
"""

from __future__ import annotations

import bz2
import hashlib
import lzma
import shutil
import struct
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

from klat.base import files
from klat.base.errors import KlatError

_SETUP_SECTORS = 0x1F1
_MAGIC = (0x202, b"HdrS")
_PROTOCOL = 0x206
_VERSION_TEXT = 0x20E
_XLOADFLAGS = 0x236
_PAYLOAD = 0x248
_HEADER_END = 0x268  # with what protocol 2.12 has
_OLDEST = 0x20C  # protocol 2.12, of Linux 3.8, marks 64-bit kernels
_KERNEL_64 = 1
_PT_NOTE = 4
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


def inspect(path: Path) -> Image:
    """KlatError says what the file is instead of a kernel for x86-64."""
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


def vmlinux(image: Image, cache: Path) -> Path | None:
    """The unpacked kernel; None if it cannot be unpacked here or has no PVH entry."""
    kept = cache / f"{image.sha256}.vmlinux"
    if kept.exists():
        return kept if kept.stat().st_size else None
    data = _kernel(image)
    if not has_pvh_entry(data):
        data = b""
    files.write_whole(kept, data)
    return kept if data else None


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
        return _unpack(file.read(size))


def _unpack(data: bytes) -> bytes:
    """Empty if the format is unknown, the data damaged or zstd missing."""
    try:
        if data.startswith(b"\xfd7zXZ\0"):
            return lzma.LZMADecompressor().decompress(data)
        if data.startswith(b"\x1f\x8b"):
            return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(data)
        if data.startswith(b"BZh"):
            return bz2.BZ2Decompressor().decompress(data)
        if data.startswith(b"\x28\xb5\x2f\xfd"):
            return _unpack_zstd(data)
    except (lzma.LZMAError, zlib.error, OSError):
        pass
    return b""


def _unpack_zstd(data: bytes) -> bytes:
    zstd = shutil.which("zstd")
    if not zstd:
        return b""
    # The last four bytes are the unpacked size, written by the kernel's build.
    done = subprocess.run([zstd, "-dcq"], input=data[:-4], capture_output=True, check=False)
    return b"" if done.returncode else done.stdout


def has_pvh_entry(data: bytes) -> bool:
    if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:
        return False
    try:
        (headers,) = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        for index in range(count):
            kind, _, start, _, _, length = struct.unpack_from(
                "<IIQQQQ", data, headers + index * size
            )
            if kind == _PT_NOTE and _notes_tell_pvh(data[start : start + length]):
                return True
    except struct.error:
        pass
    return False


def _notes_tell_pvh(notes: bytes) -> bool:
    offset = 0
    while offset + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, offset)
        name = notes[offset + 12 : offset + 12 + name_size]
        if name == b"Xen\0" and kind == _PVH_ENTRY:
            return True
        offset += 12 + (name_size + 3 & ~3) + (size + 3 & ~3)
    return False
