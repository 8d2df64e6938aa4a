"""The entries that Fedora's GRUB reads from files of the Boot Loader Specification, by its command blscfg."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from klat.campaign.boot_loader import file_text
from klat.campaign.grub_script import Variables

_PARTS = re.compile(r"~|\+|\d+|[a-zA-Z]+")


@dataclass(frozen=True)
class BlsEntry:
    """`body` has the commands that blscfg makes of the file. Empty if GRUB makes no entry, for the reason `why`.
    `restricted`: only some users may start it."""

    identity: str
    title: str
    path: Path
    body: tuple[str, ...]
    why: str = ""
    restricted: bool = False


def bls_entries(directory: Path, variables: Variables | None = None) -> list[BlsEntry]:
    """The entries of this directory, in the menu's order. `variables` are those of GRUB."""
    variables = variables or {}
    files = sorted(directory.glob("[!.]*.conf"), key=lambda file: _age(file.stem), reverse=True)
    return [_entry(file, variables) for file in files]


def _entry(file: Path, variables: Variables) -> BlsEntry:
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
    body += ["load_video", "set gfxpayload=keep", "insmod gzio"]
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
