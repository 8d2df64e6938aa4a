"""Files by their path for GRUB, and the GRUB that reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from klat.campaign.boot_loader import path_on_partition

_CPUS = {"i686": "i386", "aarch64": "arm64"}  # others have the name of the machine


def find(root: Path, name: str) -> tuple[Path | None, str]:
    """The file, and the subvolume or data set before its path. The path begins at the partition, which can be mounted
    at /boot, or at the top of a btrfs or ZFS file system. GRUB's loopback opens an image of another system.
    """
    if name.startswith("(loop"):
        return None, ""
    parts = [part for part in path_on_partition(name).split("/") if part]
    mounted = os.path.ismount(root / "boot")
    tops = (*(("boot", "") if mounted else ("", "boot")), "efi", "boot/efi")
    for first in range(len(parts)):
        for top in tops:
            path = root.joinpath(top, *parts[first:])
            if path.is_file():
                return path, "/".join(parts[:first])
    return None, ""


def doubt(root: Path, name: str, words: Sequence[str]) -> str:
    """Why GRUB may not load this file for a kernel with this command line; empty if there is no reason. GRUB's path of
    the running kernel shows in which subvolume or data set the files of this system are."""
    file, above = find(root, name)
    line = root / "proc/cmdline"
    if not file:
        return (
            f"klat does not find the file {name}, so GRUB could stop at its menu; mount its partition, or make"
            " grub.cfg again"
        )
    if not above or not line.exists():
        return ""
    images = (word for word in line.read_text().split() if word.startswith("BOOT_IMAGE="))
    running = (find(root, image.partition("=")[2])[1] for image in images)
    if above in (*running, *_roots(words)):
        return ""
    return (
        f"klat finds the file {name} only without {above}: mount its partition; if {above} is a subvolume or data set, it"
        " is not that of the running system"
    )


def _roots(words: Sequence[str]) -> Iterator[str]:
    """GRUB's path of the btrfs subvolume, or of the ZFS data set, that has the root file system."""
    for word in words:
        key, _, value = word.partition("=")
        if key == "rootflags":
            yield from (flag[7:].strip("/") for flag in value.split(",") if flag[:7] == "subvol=")
        elif key == "root" and value.lower().startswith(("zfs=", "zfs:")):
            yield f"{value.partition('/')[2]}@"


def target(root: Path) -> str:
    """The CPU and the platform of GRUB. The CPU is that of the firmware."""
    firmware = root / "sys/firmware"
    if firmware.is_dir() and not (firmware / "efi").is_dir():
        return "i386-pc"
    size, machine = firmware / "efi/fw_platform_size", os.uname().machine
    if machine == "x86_64" and size.exists() and size.read_text().strip() == "32":
        machine = "i386"
    return f"{_CPUS.get(machine, machine)}-efi"
