"""Files that GRUB reads: kernels by their path for GRUB, grubenv, and the entries of the Boot Loader Specification."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from klat.campaign.boot_loader import file_text, path_on_partition
from klat.campaign.grub_script import Variables
from klat.machine.kernel_files import Mount, mounts, text


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


BLS = "boot/loader/entries"
_PARTS = re.compile(r"~|\+|\d+|[a-zA-Z]+")


@dataclass(frozen=True)
class BlsEntry:
    """`body` has the commands that blscfg makes of the file. If GRUB makes no entry, `body` is empty, and `why` has the
    reason. `restricted`: only some users may start the entry."""

    identity: str
    title: str
    path: Path
    body: tuple[str, ...]
    why: str = ""
    restricted: bool = False


def bls_entries(
    directory: Path, variables: Variables | None = None, is_of_fedora: bool = True
) -> list[BlsEntry]:
    """The entries of this directory, in the menu's order. `variables` are those of GRUB."""
    variables = variables or {}
    # GRUB skips what it cannot open.
    readable = [file for file in directory.glob("[!.]*.conf") if file.is_file()]
    files = sorted(readable, key=lambda file: _age(file.stem), reverse=True)
    return [_entry(file, variables, is_of_fedora) for file in files]


def _entry(file: Path, variables: Variables, is_of_fedora: bool) -> BlsEntry:
    """GRUB takes all lines of initrd, but only the first line of any other key."""
    keys: dict[str, list[str]] = {}
    ended = ""
    for number, line in enumerate(file_text(file).replace("\r", "").split("\n"), 1):
        line = line.lstrip(" \t")
        # Other loaders end a key at the first blank; blscfg at a tab only if the line has no space.
        key, _, value = line.partition(" " if " " in line else "\t")
        if key.startswith("#"):
            continue
        if not value:
            ended = f"; GRUB reads no further than line {number}, which has no key with a value"
            break
        keys.setdefault(key, []).append(value.strip(" \t"))
    first = {key: values[0] for key, values in keys.items()}
    linux = first.get("linux")
    title = first.get("title", linux or "")
    if linux is None:
        return BlsEntry(file.stem, title, file, (), f"{file} names no kernel{ended}")
    options = first.get("options", variables.get("default_kernelopts") or "")
    place = (keys.get("initrd") or [linux])[0].rpartition("/")[0]
    early = (variables.get("early_initrd") or "").split()
    initramfs = [*(f"{place}/{name}" for name in early), *keys.get("initrd", [])]
    tree = variables.get("devicetree")
    trees = [first["devicetree"]] if "devicetree" in first else [f"{place}/{tree}"] if tree else []
    body = ["savedefault"] if variables.get("save_default") == "true" else []
    body += ["load_video", "set gfxpayload=keep", "insmod gzio"] if is_of_fedora else []
    body.append(" ".join(filter(None, ("linux", linux, options))))
    for command, files in (("initrd", initramfs), ("devicetree", trees)):
        body += [" ".join((command, *files))] if files else []
    users = first.get("grub_users", "").split()  # grub_arg --unrestricted has no effect
    restricted = any(word[0] != "$" or word[1:] in variables for word in users)
    return BlsEntry(file.stem, title, file, tuple(body), restricted=restricted)


def _age(name: str) -> tuple[list[tuple[int, int, str]], ...]:
    """Sorts names as blscfg does: by name, version and release, each as RPM compares versions."""
    return tuple(_version(part) for part in (*name.rsplit("-", 2), "", "")[:3])


def _version(text: str) -> list[tuple[int, int, str]]:
    """A number is newer than a word, a longer version is newer than its start, and ~ is older than the end."""
    parts = [
        (4, int(part), "") if part.isdigit() else ({"~": 0, "+": 2}.get(part, 3), 0, part)
        for part in _PARTS.findall(text)
    ]
    return [*parts, (1, 0, "")]


# Lines that the two commands read differently. blscfg of GRUB 2.14 (grub-core/commands/blsuki.c) ends a key at the first
# blank, does not strip the end of a line, stops at a value of blanks, and replaces variables as it reads the file.
_UNLIKE = re.compile(r"^[ \t]*[^ \t]*\t|[\r$]|^[ \t]*(?:title .*[ \t]|[^ \t]+ [ \t]+)$")
# Only one of the two commands uses these variables.
_UNLIKE_VARIABLES = (
    "blsdir default_kernelopts early_initrd devicetree save_default blsuki_save_default"
)
_DIFFER = "GRUB 2.14 and Fedora's GRUB differ in {}"
_SUFFIX = re.compile(r"(?:\.[A-Za-z~][A-Za-z0-9~]*)*$")


def doubt_of_grub(
    root: Path, directory: Path, variables: Variables, entries: Sequence[BlsEntry]
) -> str:
    """Why a GRUB that is not Fedora's may make another menu of the entries; `directory` is that of the GRUB. Empty if
    blscfg of GRUB 2.14 makes the same menu as Fedora's: the distribution has one of these two."""
    if on_partition(root, directory, "/loader/entries") != root / BLS:
        return f"GRUB may not see {root / BLS}"
    if re.search("^ID(_LIKE)?=.*suse", text(root / "etc/os-release"), re.MULTILINE):
        return "SUSE's GRUB counts their tries"
    for name in _UNLIKE_VARIABLES.split():
        if variables.get(name, "") != "":
            return _DIFFER.format(f"the variable {name}")
    for file in sorted((root / BLS).glob("*.conf")):
        if file.name.startswith("."):
            return _DIFFER.format(file)
        for number, line in enumerate(file_text(file).split("\n"), 1):
            if _UNLIKE.search(line):
                return _DIFFER.format(f"{file}, line {number}")
    orders = [_file_version(entry.path.name) for entry in entries]
    is_sorted = all(newer > older for newer, older in zip(orders, orders[1:]))
    return "" if is_sorted else _DIFFER.format("the order of the files")


def _file_version(name: str) -> tuple[list[tuple[list[int], int]], ...]:
    """Sorts names as filevercmp() of gnulib does: by digits and other characters in turns, ~ before the end."""

    def weight(character: str) -> int:
        is_letter = character.isascii() and character.isalpha()
        return -1 if character == "~" else ord(character) + 256 * (not is_letter)

    def parts(version: str) -> list[tuple[list[int], int]]:
        pairs = re.findall(r"([^0-9]*)([0-9]*)", version)
        return [([*map(weight, word), 0], int(digits or 0)) for word, digits in pairs]

    return parts(_SUFFIX.sub("", name)), parts(name)
