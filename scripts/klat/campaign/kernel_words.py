"""The words that a kernel itself adds to its command line: those of its configuration, and those of a bootconfig
(Documentation/admin-guide/bootconfig.rst in the kernel's source)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from klat.machine import kernel_files

_OPTION = re.compile(r"^CONFIG_(CMDLINE\w*)=(.*)$", re.MULTILINE)
_BOOTCONFIG = re.compile(r"^(kernel|init)\.(\S+) = (.*)$", re.MULTILINE)
_VALUE = re.compile(r"\"([^\"]*)\"|'([^']*)'")


def words_of_loader(root: Path = Path("/")) -> tuple[str, ...]:
    """The words of the running kernel's command line without those that the kernel added."""
    line = (root / "proc/cmdline").read_text().split()
    words = _without_bootconfig(line, kernel_files.text(root / "proc/bootconfig"))
    options = _options(
        kernel_files.running_config(root) or _installed_config(os.uname().release, root)
    )
    added = options.get("CMDLINE", "").split()
    count = len(added)
    if options.get("CMDLINE_EXTEND") == "y":  # drivers/of/fdt.c
        return tuple(words[:-count] if count and words[-count:] == added else words)
    if options.get("CMDLINE_BOOL") == "y":  # x86; elsewhere the words only replace an empty line
        return tuple(words[count:] if words[:count] == added else words)
    return tuple(words)


def built_in(release: str, root: Path = Path("/")) -> tuple[str, str]:
    """The command line in the configuration of the kernel of this release, and the option by which the kernel ignores
    the line of the boot loader; empty if there is none."""
    options = _options(_installed_config(release, root))
    line = options.get("CMDLINE", "")
    names = [
        name for name in ("CMDLINE_OVERRIDE", "CMDLINE_FORCE") if options.get(name) == "y" and line
    ]
    return line, "".join(f"CONFIG_{name}" for name in names)


def _options(config: str) -> Mapping[str, str]:
    """The values, without their quotes and backslashes."""
    options = _OPTION.findall(config)
    return {name: re.sub(r'^"|"$|\\(.)', r"\1", value.strip()) for name, value in options}


def _installed_config(release: str, root: Path) -> str:
    names = (f"boot/config-{release}", f"lib/modules/{release}/config") if release else ()
    return next(filter(None, (kernel_files.text(root / name) for name in names)), "")


def _without_bootconfig(words: Sequence[str], bootconfig: str) -> Sequence[str]:
    """The kernel adds the keys `kernel` before the other words, and after -- the keys `init`."""
    added: list[str] = []
    for section, key, values in _BOOTCONFIG.findall(bootconfig):
        if section == "kernel":
            for double, single in _VALUE.findall(values):
                value = double or single
                word = f"{key}={value}" if value else key
                added += word.replace('"', "").split()
        elif "--" in words:
            words = words[: words.index("--")]
    if [word.replace('"', "") for word in words[: len(added)]] == added:
        return words[len(added) :]
    return words
