"""Entries of the Boot Loader Specification, as GRUB's command blscfg reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from klat.campaign.boot_loader import file_text
from klat.campaign.grub_files import on_partition
from klat.campaign.grub_script import Variables
from klat.machine.kernel_files import text

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
