"""What GRUB's menu consists of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from klat.campaign.grub_script import GrubBlock


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
