"""Boots without a menu: klat itself gives the kernel and its whole command line.

The default is the kernel that runs when the campaign is planned. Every other kernel gets its command line. Only
the running kernel shows which entry was started, so an entry whose kernel panics at its start leaves no record.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from klat.base.errors import KlatError
from klat.campaign.boot_loader import (
    OWN_WORD,
    BootEntry,
    BootLoader,
    OwnEntry,
    is_of_campaign,
    run_tool,
    without_loader_words,
)
from klat.campaign.kernel_words import words_of_loader


class WithoutMenu(BootLoader):
    """`words` is the command line of the default kernel; None if this is the running kernel."""

    def __init__(
        self, release: str = "", words: Sequence[str] | None = None, root: Path = Path("/")
    ) -> None:
        self._root = root
        self._release = release or os.uname().release
        given = self._running() if words is None else words
        self.default_words = without_loader_words(given)

    def entries(self) -> list[BootEntry]:
        """The kernels with modules. Those without modules are not known."""
        releases = sorted(path.name for path in (self._root / "lib/modules").glob("*"))
        return [self._entry(release) for release in releases if self._is_installed(release)]

    def default(self) -> BootEntry:
        lost = f"the default kernel, {self._release}, is not installed in /lib/modules"
        return self.entry(self._release, lost)

    def check(self) -> None:
        running = self._running()
        if is_of_campaign(running):
            raise KlatError("a campaign started this boot; reboot into the default kernel")
        default, release = self.default(), os.uname().release
        if not default.is_running(release, running):
            why = default.difference(release, running)
            raise KlatError(
                f"the running kernel is not the default of the plan ({why}); plan again"
            )

    def started(self) -> str:
        labels = (word for word in self._running() if word.startswith(OWN_WORD))
        return next(labels, "").removeprefix(OWN_WORD)

    def _running(self) -> tuple[str, ...]:
        return words_of_loader(self._root)

    def _entry(self, release: str) -> BootEntry:
        kernel = self._kernel(release)
        title = str(kernel or self._root / "lib/modules" / release)
        return BootEntry(release, title, release, self.default_words, kernel)

    def _is_installed(self, release: str) -> bool:
        return (self._root / "lib/modules" / release / "modules.dep").is_file()

    def _kernel(self, release: str) -> Path | None:
        names = (f"boot/vmlinuz-{release}", f"lib/modules/{release}/vmlinuz")
        return next((self._root / n for n in names if (self._root / n).is_file()), None)


class UserCommand(WithoutMenu):
    name = "the boot command"
    tools = ("/bin/sh",)

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

    def choose(self, copy: OwnEntry) -> None:
        self._run(copy.entry.release, " ".join(copy.booted.words))
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
