"""Decompresses kernels and kernel modules. Python 3.11 has no zstd, so zstd data needs the zstd command."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import subprocess
import zlib

GZIP = b"\x1f\x8b"


def decompress(data: bytes) -> bytes:
    """Unpacks gzip, bzip2, xz and zstd. Returns data of other formats unchanged. ValueError if the data is
    damaged or the zstd command is missing."""
    try:
        if data.startswith(GZIP):
            return gzip.decompress(data)
        if data.startswith(b"BZh"):
            return bz2.decompress(data)
        if data.startswith(b"\xfd7zXZ\0"):
            return lzma.decompress(data)
    except (lzma.LZMAError, zlib.error, OSError, EOFError, ValueError) as error:
        raise ValueError(f"cannot be unpacked: {error}") from None
    return _decompress_zstd(data) if data.startswith(b"\x28\xb5\x2f\xfd") else data


def _decompress_zstd(data: bytes) -> bytes:
    zstd = shutil.which("zstd")
    if not zstd:
        raise ValueError("is packed with zstd, which is not installed: apt install zstd")
    done = subprocess.run([zstd, "-dcq"], input=data, capture_output=True, check=False)
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip()
        raise ValueError(f"cannot be unpacked: {why}")
    return done.stdout
