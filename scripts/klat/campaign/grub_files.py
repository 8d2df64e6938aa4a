"""Files by their path for GRUB, and the GRUB that reads them."""

from __future__ import annotations

import os
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


def target(root: Path) -> str:
    """The CPU and the platform of GRUB. The CPU is that of the firmware."""
    firmware = root / "sys/firmware"
    if firmware.is_dir() and not (firmware / "efi").is_dir():
        return "i386-pc"
    size, machine = firmware / "efi/fw_platform_size", os.uname().machine
    if machine == "x86_64" and size.exists() and size.read_text().strip() == "32":
        machine = "i386"
    return f"{_CPUS.get(machine, machine)}-efi"
