"""The items of GRUB's menu: what they load, klat's copies of them, and which one GRUB boots by default."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from klat.base.errors import KlatError
from klat.campaign.grub_execution import NUMBER, number_of
from klat.campaign.grub_script import GrubBlock, commands, text_of

LINUX, INITRAMFS = re.compile(r"linux(?:16|efi)?"), re.compile(r"initrd(?:16|efi)?")
# These start another program, or Linux under one.
OTHERS = re.compile(r"multiboot2?|module2?|xen_\w+|chainloader|\w*configfile")


@dataclass
class MenuItem:
    """A line of the menu, at `line` of the file `path`. `sure` is false if it is known only during the boot whether
    GRUB adds the line. `above` has, for each submenu above the line, the commands that GRUB executes when it opens
    the submenu. `before` has the same commands for klat's copy of the item: they also remove the variables that the
    item names but does not see. `restricted`: if there are superusers, GRUB asks for a password before it starts the
    item.
    """

    title: str
    identity: str
    path: Path
    line: int
    sure: bool
    body: GrubBlock
    above: tuple[str, ...] = ()
    before: str = ""
    items: list[MenuItem] | None = None  # of a submenu
    restricted: bool = False
    why: str = ""  # a line that klat cannot read
    default: str | None = (
        ""  # what the commands of a submenu set; None if it is known only during the boot
    )

    def place(self, line: int = 0) -> str:
        """The file and the line. The commands of a file of the Boot Loader Specification have no line."""
        return f"{self.path}, line {line or self.line}" if self.line else str(self.path)


class LoadCommand(NamedTuple):
    """A command that loads a kernel, its initramfs, or another program. `words` are its arguments. A variable that
    is known only during the boot stays a word with a $."""

    command: str
    words: tuple[str, ...]
    line: int
    sure: bool

    def files(self) -> list[str]:
        """The paths of the kernel, or of the initramfs."""
        if self.command.startswith("linux"):
            return [*self.words[:1]]
        files = self.words if self.command.startswith("initrd") else ()
        return [re.sub("^newc:[^:]*:", "", word) for word in files if not word.startswith("-")]


CURE = (
    "choose one with GRUB_DEFAULT in /etc/default/grub, or if that is saved, with grub-set-default"
)
_FIRST = re.compile(r"((?:[^>]|>>)*)>?(.*)", re.DOTALL)


def default_item(items: Sequence[MenuItem], default: str, is_of_fedora: bool) -> MenuItem:
    """The item that GRUB boots. If no item of a menu has the name, GRUB boots the first item. A default in a submenu
    is a path.

    KlatError if the item is known only during the boot, or if an item that klat cannot read may have the name.
    """
    menu, rest = items, default
    while True:
        path = rest
        name, rest = _split(path)
        number = _number(path, is_of_fedora)
        # A line that klat cannot read has no name.
        named = [i for i in menu if name in (i.identity, i.title) and (name or i.sure)]
        if is_of_fedora:  # an id is a word, and comes before any title
            named.sort(key=lambda item: name != item.identity)
        if named and (number is None or is_of_fedora):
            chosen = named[0]
            must_be_sure = [chosen]
        elif not menu:
            raise KlatError("GRUB's menu has no entry")
        else:
            at = number if number is not None and number < len(menu) else 0
            chosen = menu[at]
            must_be_sure = list(menu[: at + 1])
            if number is None and name:
                must_be_sure += [item for item in menu if not item.title]
        for item in must_be_sure:
            if not item.sure:
                why = item.why or "it is known only during the boot what this line adds to the menu"
                raise KlatError(
                    f"{item.place()}: {why}, so klat does not know the default of GRUB, {default!r}; {CURE}, by its id"
                )
        if not chosen.items:
            return chosen
        if chosen.default is None:
            raise KlatError(
                f"{chosen.place()}: the default of this submenu is known only during the boot; {CURE}"
            )
        menu, rest = chosen.items, chosen.default or rest


def identified(items: Sequence[MenuItem], above: str = "") -> Iterator[tuple[str, MenuItem]]:
    """All items but submenus, with unique paths. A path consists of ids. If an earlier item has the same
    id, the title or the number replaces it."""
    taken: set[str] = set()
    for number, item in enumerate(items):
        names = (item.identity, item.title, str(number))
        name = next((name for name in names if name not in taken), f"#{number}")
        taken.add(name)
        if item.items is None:
            yield above + name, item
        else:
            yield from identified(item.items, f"{above}{name}>")


def _split(path: str) -> tuple[str, str]:
    """The first name of a path, and the rest. In a name, > is doubled."""
    match = _FIRST.fullmatch(path)
    return (match[1].replace(">>", ">"), match[2]) if match else (path, "")


def _number(path: str, is_of_fedora: bool) -> int | None:
    """The number at the beginning of the path. In Fedora and its relatives, GRUB accepts no text after the number."""
    match = (NUMBER.fullmatch if is_of_fedora else NUMBER.match)(path)
    return number_of(match) if match else None


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
