"""Files that GRUB reads: kernels by their path for GRUB, and grubenv."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from klat.campaign.boot_loader import path_on_partition
from klat.machine.kernel_files import Mount, mounts

# GRUB's path of a file in these begins with a subvolume or a data set.
_WITH_VOLUMES = ("btrfs", "zfs")
_CPUS = {"i686": "i386", "aarch64": "arm64"}  # others have the name of the machine


def find(root: Path, name: str) -> tuple[Path | None, str]:
    """The file, and the subvolume or data set before its path, if the mount table does not have it. The path begins at
    the partition, which can be mounted at /boot, or at the top of a btrfs or ZFS file system. GRUB's loopback opens an
    image of another system.
    """
    if name.startswith("(loop"):
        return None, ""
    table = [mount for mount in mounts(root) if mount.kind in _WITH_VOLUMES]
    sources: dict[str, set[str]] = {}
    for mount in table:
        sources.setdefault(_top(mount), set()).add(mount.source)
    for mount in table:
        # Subvolumes of two disks can have one name.
        top = _top(mount) if len(sources[_top(mount)]) == 1 else ""
        path = _grub_path(name, mount)
        if top and path.is_relative_to(f"/{top}"):
            file = root / mount.point[1:] / path.relative_to(f"/{top}")
            if file.is_file():
                return file, ""
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
    mount = _mount_of(root, file)
    if mount:
        for_grub = Path("/", _top(mount), path.relative_to(mount.point))
        is_of_system = for_grub == _grub_path(name, mount)
        why = f"GRUB's path of {path} is {for_grub}"
    else:
        images = re.findall(r"BOOT_IMAGE=(\S+)/", line.read_text())
        is_of_system = path_on_partition(name).rpartition("/")[0] in map(path_on_partition, images)
        why = "klat does not know that of the running system"
    if is_of_system:
        return ""
    return (
        f"klat finds the file {name} only without {above}: mount its partition; if {above} is a subvolume or data"
        f" set, {why}"
    )


def _mount_of(root: Path, file: Path) -> Mount | None:
    """The file system of a file. GRUB does not see an overlay."""
    path = Path("/", file.relative_to(root))
    enclosing = [m for m in mounts(root) if m.kind != "overlay" and path.is_relative_to(m.point)]
    return max(reversed(enclosing), key=lambda m: len(m.point)) if enclosing else None


def is_uuid_of_partition(root: Path, directory: Path, uuid: str) -> bool:
    """Whether the file system of this directory has this UUID."""
    mount, device = _mount_of(root, directory), root / "dev/disk/by-uuid" / uuid
    if not mount or not uuid or not device.exists():
        return False
    return device.resolve() == root.joinpath(mount.source.lstrip("/")).resolve()


def on_partition(root: Path, directory: Path, name: str) -> Path | None:
    """Where the file with this path on the partition of the directory is, or would be. None if klat does not know."""
    mount = _mount_of(root, directory)
    if not mount or mount.kind in _WITH_VOLUMES or not name.startswith(("/", "($root)/")):
        return None
    path = Path(path_on_partition(name))
    if not path.is_relative_to(mount.top):
        return None
    file = root / mount.point[1:] / path.relative_to(mount.top)
    return None if file.is_symlink() or _mount_of(root, file) != mount else file


def searched(words: Sequence[str]) -> tuple[str, str]:
    """The variable that the command search sets, and the UUID that it looks for; empty if it has none
    (grub-core/commands/search_wrap.c)."""
    variable, names, rest = "", [], list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-s", "--set"):
            variable = rest.pop(0) if rest and not rest[0].startswith("-") else "root"
        elif word.startswith("--set="):
            variable = word.partition("=")[2]
        elif not word.startswith("-"):
            names.append(word)
    if variable and not names:
        variable, names = "root", [variable]
    is_by_uuid = len(names) == 1 and {"-u", "--fs-uuid"} & {*words}
    return variable, names[0] if is_by_uuid else ""


def _grub_path(name: str, mount: Mount) -> Path:
    """NixOS has a slash before the @ of a data set, which GRUB ignores."""
    path = path_on_partition(name).lstrip("/")
    return Path("/", path.replace("/@/", "@/") if mount.kind == "zfs" else path)


def _top(mount: Mount) -> str:
    """GRUB's path of what is mounted: the btrfs subvolume, or the ZFS data set."""
    if mount.kind == "zfs":
        return f"{mount.source.partition('/')[2]}@{mount.top}"
    return mount.top.strip("/")


def target(root: Path) -> str:
    """The CPU and the platform of GRUB. The CPU is that of the firmware."""
    firmware = root / "sys/firmware"
    if firmware.is_dir() and not (firmware / "efi").is_dir():
        return "i386-pc"
    size, machine = firmware / "efi/fw_platform_size", os.uname().machine
    if machine == "x86_64" and size.exists() and size.read_text().strip() == "32":
        machine = "i386"
    return f"{_CPUS.get(machine, machine)}-efi"


GRUBENV, SIGNATURE = "grubenv", "# GRUB Environment Block\n"


def environment_words(words: Sequence[str]) -> tuple[str, list[str]]:
    """The file that load_env or save_env names, or "", and the variables that it names."""
    file, names, rest = "", [], list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-f", "--file"):
            file = "".join(rest[:1])
            del rest[:1]
        elif word.startswith("--file="):
            file = word.partition("=")[2]
        elif word not in ("-s", "--skip-sig"):
            names.append(word)
    return file, names


def variables(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
