"""klat's copy of an entry of GRUB's menu."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from klat.campaign.grub_item import MenuItem
from klat.campaign.grub_menu import LINUX
from klat.campaign.grub_script import commands, text_of

STARTED = "klat_entry"  # the variable in which GRUB records which entry of klat it starts


def command_line(words: Sequence[str]) -> tuple[str, ...]:
    """The words of /proc/cmdline that GRUB makes of its arguments (grub-core/lib/cmdline.c)."""
    quoted = (re.sub(r"\\(?!x[0-9a-fA-F]{2})|['\"]", r"\\\g<0>", word) for word in words)
    return tuple(" ".join(f'"{word}"' if " " in word else word for word in quoted).split())


def copied_body(name: str, item: MenuItem, words: Sequence[str], grubenv: Container[str]) -> str:
    """The commands of klat's copy of an item."""
    file = '-f "${env_block}" ' if "env_block" in grubenv else ""
    return f"set {STARTED}={name}\nsave_env {file}{STARTED}\n{_copy(item, words)}"


def _copy(item: MenuItem, words: Sequence[str]) -> str:
    """The commands of an item, with these words added to the kernel's command line."""
    text = item.body.text
    for command in reversed(list(commands(item.body.statements))):
        if LINUX.fullmatch(text_of(command.words[0])):
            end = command.end - item.body.start
            text = " ".join((text[:end], *words)) + text[end:]
    return item.before + text.strip("\n").rstrip()
