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


def check_roots(
    entries: Iterable[BootEntry], running: Sequence[str], root: Path = Path("/")
) -> None:
    """KlatError if an entry starts another system than the kernel with this command line."""
    wanted = _root(running, root)
    for entry in entries:
        named = _root(entry.words, root)
        if not wanted or not named or "$" in "".join(named.values()):
            continue
        keys = wanted.keys() | named.keys()
        # One can name a subvolume by its path, and the other by its number.
        unlike = set(_SUBVOLUMES) if keys >= set(_SUBVOLUMES) else set()
        for key in sorted(keys - unlike):
            if named.get(key) != wanted.get(key):
                raise KlatError(
                    f"{entry.title}: its {key} is {named.get(key, '(none)')}, but that of the running system is"
                    f" {wanted.get(key, '(none)')}; the entry boots another system, from which no campaign"
                    " returns; choose an entry of the running system"
                )


def _root(words: Sequence[str], root: Path) -> Mapping[str, str]:
    """Where the root file system is. Empty if the words do not say it."""
    options = words[: words.index("--")] if "--" in words else words  # the rest is for init
    values = dict(word.split("=", 1) for word in options if "=" in word)
    if "root" not in values:
        return {}
    flags = [flag.partition("=") for flag in values.get("rootflags", "").split(",")]
    named = {key: value.strip("/") for key, _, value in flags if key in _SUBVOLUMES}
    named |= {key: values[key] for key in ("ostree",) if key in values}
    kind, _, name = values["root"].partition("=")
    name = name.lower() if kind in ("UUID", "PARTUUID") else name
    path = f"/dev/disk/by-{kind.lower()}/{name}" if kind in _NAMES else values["root"]
    device = root / path.lstrip("/")
    known = path.startswith("/dev/") and device.exists()
    return {
        **named,
        "root": str(device.resolve()) if known else f"{kind}={name}" if name else values["root"],
    }
