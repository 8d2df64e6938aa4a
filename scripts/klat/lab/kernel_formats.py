"""The files in which kernels come: a bzImage of x86, or a flat Image of the other architectures."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import shutil
import struct
import subprocess
import tempfile
import zlib
from dataclasses import dataclass
from typing import IO, Protocol

from klat.lab import elf

GZIP = b"\x1f\x8b"
# Bytes of a kernel or a module, packed or not. Without KASLR, x86 maps a kernel into 512 MiB (KERNEL_IMAGE_SIZE).
LARGEST = 512 << 20
_PIECE = 1 << 20


class TooLarge(ValueError):
    """The data unpack to more than they may."""


def decompress(data: bytes, largest: int = LARGEST) -> bytes:
    """Unpacks gzip, bzip2, xz and zstd. Returns data of other formats unchanged. ValueError if the data is
    damaged, if it unpacks to more than `largest` bytes, or if the zstd command is missing."""
    try:
        if data.startswith(GZIP):
            return _limited(gzip.GzipFile(fileobj=io.BytesIO(data)), largest)
        if data.startswith(b"BZh"):
            return _limited(bz2.BZ2File(io.BytesIO(data)), largest)
        if data.startswith(b"\xfd7zXZ\0"):
            return _limited(lzma.LZMAFile(io.BytesIO(data)), largest)
    except (lzma.LZMAError, zlib.error, OSError, EOFError) as error:
        raise ValueError(f"cannot be unpacked: {error}") from None
    return _decompress_zstd(data, largest) if data.startswith(b"\x28\xb5\x2f\xfd") else data


def _limited(stream: IO[bytes] | gzip.GzipFile, largest: int) -> bytes:
    """What the stream holds, read in pieces: one read() of `largest` bytes may allocate as much at once."""
    pieces = []
    left = largest + 1
    while left and (piece := stream.read(min(left, _PIECE))):
        pieces.append(piece)
        left -= len(piece)
    if not left:
        raise TooLarge(f"unpacks to more than {largest:,} bytes")
    return b"".join(pieces)


def _decompress_zstd(data: bytes, largest: int) -> bytes:
    zstd = shutil.which("zstd")
    if not zstd:
        raise ValueError("is packed with zstd, which is not installed: apt install zstd")
    with tempfile.TemporaryFile() as packed, tempfile.TemporaryFile() as complaint:
        packed.write(data)
        packed.seek(0)
        with subprocess.Popen(
            [zstd, "-dcq"], stdin=packed, stdout=subprocess.PIPE, stderr=complaint
        ) as process:
            assert process.stdout
            try:
                unpacked = _limited(process.stdout, largest)
            except ValueError:
                process.kill()
                raise
        complaint.seek(0)
        if process.returncode:
            why = complaint.read(1000).decode(errors="replace").strip()
            raise ValueError(f"cannot be unpacked: {why}")
    return unpacked


# What a file is, by the bytes at an offset.
_SIGNS = (
    (0x38, b"ARM\x64", "a kernel for arm64 (--arch arm64)"),
    (0x24, b"\x18\x28\x6f\x01", "a kernel for arm"),
    (0x30, b"RISCV", "a kernel for riscv64 (--arch riscv64)"),
    (0x202, b"HdrS", "a kernel for x86 (--arch amd64)"),
    (0, b"\x7fELF", "an ELF file"),
    (0, b"\x1f\x8b", "packed with gzip"),
    (0, b"\x27\x05\x19\x56", "a U-Boot image"),
    (0, b"MZ", "an EFI program without a Linux boot header"),
)


class KernelFormat(Protocol):
    """How klat reads the kernel files of an architecture. `data` is the whole file."""

    @property
    def target(self) -> str:
        """What the kernel's build makes."""

    @property
    def packed(self) -> str:
        """The name of the file's format."""

    @property
    def unpacked(self) -> str:
        """The name of the format that bootable() gives."""

    @property
    def boots_packed(self) -> bool:
        """Whether QEMU can start the packed file, in every version and form."""

    def version(self, data: bytes) -> str:
        """The release and what follows it in the kernel's version line. ValueError says why the file is no
        kernel of this format."""

    def kernel(self, data: bytes) -> bytes:
        """The unpacked kernel; empty if it cannot be unpacked here."""

    def bootable(self, kernel: bytes) -> bool:
        """Whether QEMU can start the unpacked kernel."""


def boot_header_version(data: bytes) -> str:
    """The version line of a bzImage, which begins with `data`. Empty if `data` has no such header."""
    if data[0x202:0x206] != b"HdrS":
        return ""
    at = int.from_bytes(data[0x20E:0x210], "little")  # less 0x200
    text = data[0x200 + at :][:512].split(b"\0", 1)[0] if at else b""
    return text.decode("ascii", "replace").strip()


class BzImage:
    """A kernel for x86-64.

    Offsets are those of Documentation/arch/x86/boot.rst in the kernel's source. An emulator needs more time
    to unpack a bzImage than for the rest of the boot. So the host unpacks the kernel and starts it by its PVH
    entry (an ELF note, include/xen/interface/elfnote.h), if it has one. The kernel then gets no random
    address."""

    target = "arch/x86/boot/bzImage"
    packed = "bzImage"
    unpacked = "vmlinux"
    boots_packed = True

    _SETUP_SECTORS = 0x1F1
    _MAGIC = (0x202, b"HdrS")
    _PROTOCOL = 0x206
    _XLOADFLAGS = 0x236
    _PAYLOAD = 0x248
    _HEADER_END = 0x268  # with what protocol 2.12 has
    _OLDEST = 0x20C  # protocol 2.12, of Linux 3.8, marks 64-bit kernels
    _KERNEL_64 = 1
    _PVH_ENTRY = 18

    def version(self, data: bytes) -> str:
        offset, magic = self._MAGIC
        if data[offset : offset + 4] != magic or data[0x1FE:0x200] != b"\x55\xaa":
            raise ValueError(f"is no bootable kernel for x86-64 (bzImage){_but(data, self.target)}")
        if len(data) < self._HEADER_END:
            raise ValueError("ends within its boot header, so it is cut off")
        (protocol,) = struct.unpack_from("<H", data, self._PROTOCOL)
        if protocol < self._OLDEST:
            raise ValueError(
                f"is a kernel of boot protocol {protocol >> 8}.{protocol & 255:02d}, older than"
                " 2.12 (Linux 3.8)"
            )
        if not struct.unpack_from("<H", data, self._XLOADFLAGS)[0] & self._KERNEL_64:
            raise ValueError("is a 32-bit kernel; the programs are for x86-64")
        version = boot_header_version(data)
        if not version:
            raise ValueError("has no release in its header, so it is damaged")
        start, size = self._payload(data)
        if not size or start + size > len(data):
            raise ValueError("ends before its kernel does, so it is cut off")
        return version

    def kernel(self, data: bytes) -> bytes:
        start, size = self._payload(data)
        packed = data[start : start + size]
        # The kernel's build appends the unpacked size, except to gzip data, which end with it.
        return _unpack(packed if packed.startswith(GZIP) else packed[:-4])

    def bootable(self, kernel: bytes) -> bool:
        try:
            segments = [data for kind, data in elf.segments(kernel) if kind == elf.NOTE]
        except ValueError:
            return False
        notes = (note for data in segments for note in elf.notes(data))
        return any((owner, kind) == (b"Xen\0", self._PVH_ENTRY) for owner, kind, _ in notes)

    def _payload(self, data: bytes) -> tuple[int, int]:
        """Offset and size of the packed kernel."""
        start, size = struct.unpack_from("<II", data, self._PAYLOAD)
        return start + ((data[self._SETUP_SECTORS] or 4) + 1) * 512, size


@dataclass(frozen=True)
class FlatImage:
    """A kernel for arm64 or riscv64, as it lies in memory (Documentation/arch/arm64/booting.rst and
    Documentation/arch/riscv/boot-image-header.rst in the kernel's source).

    It can be packed: by gzip, or in an EFI program (CONFIG_EFI_ZBOOT; drivers/firmware/efi/libstub/
    zboot-header.S). QEMU before 8.0 cannot start the latter, so the host unpacks both."""

    target: str  # with the architecture's name of the kernel's source
    offset: int  # of the magic
    magic: bytes

    packed = "packed Image"
    unpacked = "Image"
    boots_packed = False

    _EFI_PACKED = (b"MZ", 4, b"zimg")
    _BANNER = re.compile(rb"Linux version ([0-9][^\n\0]*)")

    def version(self, data: bytes) -> str:
        kernel = self.kernel(data)
        if not self.bootable(kernel):
            name = self.target.split("/")[1]
            raise ValueError(
                f"is no bootable kernel for {name} (Image){_but(kernel or data, self.target)}"
            )
        banner = self._BANNER.search(kernel)
        if not banner:
            raise ValueError("has no version line, so it is cut off or damaged")
        return banner[1][:512].decode("ascii", "replace")

    def kernel(self, data: bytes) -> bytes:
        begin, at, sign = self._EFI_PACKED
        if data.startswith(begin) and data[at : at + len(sign)] == sign and len(data) >= 16:
            start, size = struct.unpack_from("<II", data, 8)
            return _unpack(data[start : start + size])
        return _unpack(data)

    def bootable(self, kernel: bytes) -> bool:
        return kernel[self.offset : self.offset + len(self.magic)] == self.magic


def _but(data: bytes, target: str) -> str:
    """What a file without the right header is instead; empty if klat does not know it."""
    for at, sign, what in _SIGNS:
        if data[at : at + len(sign)] == sign:
            if what.startswith("a kernel for "):
                return f" but {what}"
            return f" but {what}; give {target}"
    return ""


def _unpack(data: bytes) -> bytes:
    try:
        return decompress(data)
    except TooLarge:
        raise
    except ValueError:
        return b""
