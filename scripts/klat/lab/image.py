"""A kernel's image: whether a guest can boot it, its release, and the kernel in it."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from klat.base import files
from klat.base.bounded_read import read_named
from klat.base.errors import KlatError
from klat.lab import compression
from klat.lab.kernel_formats import KernelFormat


@dataclass(frozen=True)
class Image:
    path: Path
    format: KernelFormat
    release: str  # as uname -r
    version: str  # the whole line
    sha256: str


@dataclass(frozen=True)
class Unpacked:
    path: Path
    sha256: str


def inspect(path: Path, form: KernelFormat) -> Image:
    """KlatError says what the file is, if it is not a kernel of this format."""
    try:
        data = read_named(path, compression.LARGEST)
    except OSError as error:
        raise KlatError(f"{path}: cannot read the kernel: {error.strerror}") from None
    try:
        version = form.version(data)
    except ValueError as error:
        raise KlatError(f"{path}: {error}") from None
    return Image(path, form, version.split()[0], version, hashlib.sha256(data).hexdigest())


def unpacked(image: Image, cache: Path) -> Unpacked | None:
    """The unpacked kernel; None if it cannot be unpacked here, or QEMU cannot start it. Replaces a file
    of the cache that is not the kernel of this image."""
    kept, digest_file = cache / f"{image.sha256}.vmlinux", cache / f"{image.sha256}.sha256"
    with suppress(OSError):
        digest = hashlib.sha256(kept.read_bytes()).hexdigest()
        if digest_file.read_bytes() == digest.encode():
            return Unpacked(kept, digest)
    data = _kernel(image)
    if not image.format.bootable(data):
        return None
    digest = hashlib.sha256(data).hexdigest()
    files.write_whole(kept, data)
    files.write_whole(digest_file, digest.encode())
    return Unpacked(kept, digest)


def configuration(image: Image) -> bytes | None:
    """The configuration that the kernel holds (CONFIG_IKCONFIG; kernel/configs.c); None if it holds none."""
    begin, end = b"IKCFG_ST", b"IKCFG_ED"
    data = _kernel(image)
    start = data.find(begin + compression.GZIP)
    stop = data.find(end, start)
    if not 0 <= start < stop:
        return None
    with suppress(ValueError):
        return compression.decompress(data[start + len(begin) : stop]) or None
    return None


def _kernel(image: Image) -> bytes:
    """Empty if it cannot be unpacked here."""
    try:
        return image.format.kernel(read_named(image.path, compression.LARGEST))
    except compression.TooLarge as error:
        raise KlatError(f"{image.path}: its kernel {error}") from None
