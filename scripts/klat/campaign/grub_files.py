"""Files by their path for GRUB, and the GRUB that reads them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from klat.campaign.boot_loader import path_on_partition
from klat.machine.kernel_files import Mount, mounts

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


def doubt(root: Path, name: str) -> str:
    """Why GRUB may not load this file; empty if there is no reason. The mount table, or else GRUB's path of the running
    kernel, shows in which subvolume or data set the files of this system are."""
    file, above = find(root, name)
    line = root / "proc/cmdline"
    if not file:
        return (
            f"klat does not find the file {name}, so GRUB could stop at its menu; mount its partition, or make"
            " grub.cfg again"
        )
    if not above or not line.exists():
        return ""
    path = Path("/", file.relative_to(root))
    around = [mount for mount in mounts(root) if path.is_relative_to(mount.point)]
    if around:
        top = _top(max(reversed(around), key=lambda mount: len(mount.point)))
        is_of_system, why = above == top, f"{path} is in {top or 'none'}"
    else:
        images = re.findall(r"BOOT_IMAGE=(\S+)/", line.read_text())
        is_of_system = path_on_partition(name).rpartition("/")[0] in map(path_on_partition, images)
        why = "klat does not know that of the running system"
    return (
        ""
        if is_of_system
        else f"klat finds the file {name} only without {above}: mount its partition; if {above} is a subvolume or data"
        f" set, {why}"
    )


def _top(mount: Mount) -> str:
    """GRUB's path of what is mounted: the btrfs subvolume, or the ZFS data set."""
    return f"{mount.source.partition('/')[2]}@" if mount.kind == "zfs" else mount.top.strip("/")


def target(root: Path) -> str:
    """The CPU and the platform of GRUB. The CPU is that of the firmware."""
    firmware = root / "sys/firmware"
    if firmware.is_dir() and not (firmware / "efi").is_dir():
        return "i386-pc"
    size, machine = firmware / "efi/fw_platform_size", os.uname().machine
    if machine == "x86_64" and size.exists() and size.read_text().strip() == "32":
        machine = "i386"
    return f"{_CPUS.get(machine, machine)}-efi"
