"""Decompresses kernels and kernel modules. Python 3.11 has no zstd, so zstd data needs the zstd command."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import subprocess
import tempfile
import zlib
from typing import IO

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
