"""A campaign measures in the running system. A kernel with another root file system starts another system, from which
no campaign returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from klat.base.errors import KlatError
from klat.campaign.boot_loader import BootEntry

# What systemd's udev names after the device: /dev/disk/by-uuid/5eed.
_NAMES = ("UUID", "LABEL", "PARTUUID", "PARTLABEL")
_SUBVOLUMES = ("subvol", "subvolid")  # options of btrfs in rootflags=
# Words that choose the system beside root=: deployments, roots on a network, images, slots.
_SYSTEMS = ("ostree", "nfsroot", "netroot", "roothash", "usrhash", "mount.usr", "loop", "rauc.slot")


def check_roots(
    entries: Iterable[BootEntry], running: Sequence[str], root: Path = Path("/")
) -> None:
    """KlatError if an entry starts another system than the kernel with this command line."""
    of_words, mounted = _root(running, root), _mounted_subvolume(root)
    for entry in entries:
        named, wanted = _root(entry.words, root), dict(of_words)
        if "$" in "".join(named.values()):
            continue
        # An entry can name the subvolume by its path or by its number.
        if mounted and named.keys() & mounted.keys():
            wanted = {key: v for key, v in wanted.items() if key not in _SUBVOLUMES}
            wanted |= {key: v for key, v in mounted.items() if key in named}
        keys = wanted.keys() | named.keys()
        if "root" not in wanted.keys() & named.keys():
            keys -= {"root", *_SUBVOLUMES}
        for key in sorted(keys):
            if named.get(key) != wanted.get(key):
                raise KlatError(
                    f"{entry.title}: its {key} is {named.get(key, '(none)')}, but that of the running system is"
                    f" {wanted.get(key, '(none)')}; the entry boots another system, from which no campaign"
                    " returns; choose an entry of the running system"
                )


def _root(words: Sequence[str], root: Path) -> Mapping[str, str]:
    """Where the root file system is, as far as the words say it."""
    options = words[: words.index("--")] if "--" in words else words  # the rest is for init
    values = dict(word.split("=", 1) for word in options if "=" in word)
    systems = {key: values[key] for key in _SYSTEMS if key in values}
    if "root" not in values:
        return systems
    flags = [flag.partition("=") for flag in values.get("rootflags", "").split(",")]
    named = {key: value.strip("/") for key, _, value in flags if key in _SUBVOLUMES}
    kind, _, name = values["root"].partition("=")
    name = name.lower() if kind in ("UUID", "PARTUUID") else name
    path = f"/dev/disk/by-{kind.lower()}/{name}" if kind in _NAMES else values["root"]
    device = root / path.lstrip("/")
    known = path.startswith("/dev/") and device.exists()
    return {
        **systems,
        **named,
        "root": str(device.resolve()) if known else f"{kind}={name}" if name else values["root"],
    }


def _mounted_subvolume(root: Path) -> Mapping[str, str]:
    """The path and the number of the btrfs subvolume that is the running system; empty if there is none."""
    table = root / "proc/self/mountinfo"
    options = ""
    for line in table.read_text().splitlines() if table.exists() else ():
        mount, _, file_system = line.partition(" - ")
        if mount.split()[4] == "/":
            options = file_system if file_system.startswith("btrfs ") else ""
    flags = (flag.partition("=") for flag in "".join(options.split()[-1:]).split(","))
    return {key: value.strip("/") for key, _, value in flags if key in _SUBVOLUMES}
