"""The entries that Fedora's GRUB reads from files of the Boot Loader Specification, by its command blscfg."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PARTS = re.compile(r"~|\+|\d+|[a-zA-Z]+")


@dataclass(frozen=True)
class BlsEntry:
    """`body` has the commands that blscfg makes of the file."""

    identity: str
    title: str
    body: tuple[str, ...]


def bls_entries(directory: Path) -> list[BlsEntry]:
    """The entries of this directory, in the menu's order."""
    files = sorted(directory.glob("[!.]*.conf"), key=lambda file: _age(file.stem), reverse=True)
    return [entry for file in files for entry in _entry(file)]


def _entry(file: Path) -> Iterator[BlsEntry]:
    """No entry if the file names no kernel."""
    found: dict[str, list[str]] = {}
    for line in file.read_text(errors="replace").splitlines():
        key, _, value = line.strip().partition(" ")
        found.setdefault(key, []).append(value.strip())
    if "linux" in found:
        linux = found["linux"][0]
        body = ["load_video", "set gfxpayload=keep", "insmod gzio"]
        body.append(" ".join(["linux", linux, *found.get("options", [])[:1]]))
        for command in ("initrd", "devicetree"):
            if command in found:
                body.append(" ".join([command, *found[command]]))
        yield BlsEntry(file.stem, found.get("title", [linux])[0], tuple(body))


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
