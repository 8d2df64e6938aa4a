"""A command of the user makes a kernel boot next, once. klat gives it the kernel's release and command line.

Without arguments, the command takes back its choice. It may do nothing if it has chosen nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from klat.base.errors import KlatError
from klat.campaign.boot_loader import OwnEntry, run_tool
from klat.campaign.without_menu import WithoutMenu


class UserCommand(WithoutMenu):
    name = "the boot command"

    def __init__(
        self,
        command: str,
        release: str = "",
        words: Sequence[str] | None = None,
        root: Path = Path("/"),
    ) -> None:
        super().__init__(release, words, root)
        self.command = command

    def check(self) -> None:
        super().check()
        self.remove()

    def choose(self, own: OwnEntry) -> None:
        self._run(own.entry.release, " ".join(own.booted.words))
        os.sync()

    def remove(self) -> None:
        self._run()
        os.sync()

    def _run(self, *words: str) -> None:
        try:
            run_tool("/bin/sh", "-c", f'{self.command} "$@"', "sh", *words)
        except KlatError as error:
            what = "to choose a kernel" if words else "without arguments, to take back its choice"
            raise KlatError(f"the boot command, run {what}: {error}") from None
