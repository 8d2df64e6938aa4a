"""A kernel's image: whether a guest can boot it, its release, the kernel in it, and the options that its
configuration lacks.

klat names a missing option and boots the kernel: other kernels may have another name for it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from klat.base import files
from klat.base.bounded_read import read_named
from klat.base.errors import KlatError
from klat.lab import kernel_formats
from klat.lab.architectures import Architecture
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
        data = read_named(path, kernel_formats.LARGEST)
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


def cached_copy(image: Image, cache: Path) -> Path:
    """A copy of the kernel's file. A new build does not replace it while guests boot it."""
    copy = cache / f"{image.sha256}.packed"
    with suppress(OSError):
        if hashlib.sha256(copy.read_bytes()).hexdigest() == image.sha256:
            return copy
    files.write_whole(copy, _data(image))
    return copy


def configuration(image: Image) -> bytes | None:
    """The configuration that the kernel holds (CONFIG_IKCONFIG; kernel/configs.c); None if it holds none."""
    begin, end = b"IKCFG_ST", b"IKCFG_ED"
    data = _kernel(image)
    start = data.find(begin + kernel_formats.GZIP)
    stop = data.find(end, start)
    if not 0 <= start < stop:
        return None
    with suppress(ValueError):
        return kernel_formats.decompress(data[start + len(begin) : stop]) or None
    return None


def _kernel(image: Image) -> bytes:
    """Empty if it cannot be unpacked here."""
    try:
        return image.format.kernel(_data(image))
    except kernel_formats.TooLarge as error:
        raise KlatError(f"{image.path}: its kernel {error}") from None


def _data(image: Image) -> bytes:
    """KlatError if the file is no longer the one that inspect() read."""
    try:
        data = read_named(image.path, kernel_formats.LARGEST)
    except OSError as error:
        raise KlatError(f"{image.path}: cannot read the kernel: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != image.sha256:
        raise KlatError(f"{image.path}: changed while klat ran; run the command again")
    return data


# docs/kernels.md has the same.
GUEST = {
    "BLK_DEV_INITRD": "the guest's files are an initramfs",
    "BINFMT_ELF": "the programs are ELF files",
    "BINFMT_SCRIPT": "the guest's first program is a script",
    "PROC_FS": "the programs take their evidence from /proc",
    "SYSCTL": "a session records the boot id from /proc/sys; before Linux 7, PROC_SYSCTL selects it",
    "SYSFS": "the programs find their CPUs in /sys",
    "FILE_LOCKING": "the programs lock the session",
    "FUTEX": "the programs have threads",
    "POSIX_TIMERS": "the programs need CLOCK_MONOTONIC_RAW",
    "PRINTK": "without it, a kernel that dies gives no reason",
}
PROGRAMS = {
    "timer": {"HIGH_RES_TIMERS": "timers would wait for the next tick"},
    "network": {"TUN": "its packets come from a tun device"},
}
_CONSOLE = "klat follows a boot on the serial console"
# The disk with the results, or else the second serial line.
_DISK = ("VIRTIO_PCI", "VIRTIO_BLK")


def lacking(config: bytes, programs: Collection[str], architecture: Architecture) -> list[str]:
    """A line for each option that a guest with these programs needs and the configuration lacks."""
    built = set(re.findall(r"^CONFIG_(\w+)=[ym]$", config.decode("utf-8", "replace"), re.MULTILINE))
    if not built:
        return []
    needed = GUEST | {architecture.console_option: _CONSOLE, **architecture.more_options}
    for name in programs:
        needed.update(PROGRAMS.get(name, {}))
    lines = [f"was built without CONFIG_{o}: {why}" for o, why in needed.items() if o not in built]
    missing = [f"CONFIG_{option}" for option in _DISK if option not in built]
    if missing and architecture.results_option in built:
        lines.append(f"was built without {', '.join(missing)}: results come by a serial line")
    return lines
