"""Boots without a menu: klat itself gives the kernel and its whole command line.

The default is the kernel that runs when the campaign is planned. Every other kernel gets its command line. Only
the running kernel shows which entry was started, so an entry whose kernel panics at its start leaves no record.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from klat.base.errors import KlatError
from klat.campaign.boot_loader import OWN_WORD, BootEntry, OwnEntry, is_of_loader


class WithoutMenu(ABC):
    """`words` is the command line of the default kernel; None if this is the running kernel."""

    name = ""
    own_words: tuple[str, ...] = ()
    reboot_verb = "reboot"

    def __init__(
        self, release: str = "", words: Sequence[str] | None = None, root: Path = Path("/")
    ) -> None:
        self._root = root
        self._release = release or os.uname().release
        given = self._running() if words is None else words
        self.default_words = tuple(word for word in given if not is_of_loader(word))

    def entries(self) -> list[BootEntry]:
        """The kernels with modules. Those without modules are not known."""
        found = sorted(path.name for path in (self._root / "lib/modules").glob("*"))
        return [self._entry(release) for release in found if self._is_installed(release)]

    def left_out(self) -> Mapping[str, str]:
        return {}

    def default(self) -> BootEntry:
        for entry in self.entries():
            if entry.identity == self._release:
                return entry
        raise KlatError(f"the default kernel, {self._release}, is not installed in /lib/modules")

    def check(self) -> None:
        running = self._running()
        if any(word.startswith(OWN_WORD) for word in running):
            raise KlatError("a campaign started this boot; reboot into the default kernel")
        if not self.default().is_running(os.uname().release, running):
            raise KlatError("the running kernel is not the default of the plan; plan again")

    def install(self, own: Sequence[OwnEntry]) -> None:
        pass

    @abstractmethod
    def choose(self, own: OwnEntry) -> None:
        ...

    def started(self) -> str:
        found = (word for word in self._running() if word.startswith(OWN_WORD))
        return next(found, "").removeprefix(OWN_WORD)

    def remove(self) -> None:
        pass

    def files(self) -> Mapping[str, str]:
        return {}

    def _running(self) -> list[str]:
        return (self._root / "proc/cmdline").read_text().split()

    def _entry(self, release: str) -> BootEntry:
        kernel = self._kernel(release)
        title = str(kernel or self._root / "lib/modules" / release)
        return BootEntry(release, title, release, self.default_words, kernel)

    def _is_installed(self, release: str) -> bool:
        return (self._root / "lib/modules" / release / "modules.dep").is_file()

    def _kernel(self, release: str) -> Path | None:
        names = (f"boot/vmlinuz-{release}", f"lib/modules/{release}/vmlinuz")
        return next((self._root / n for n in names if (self._root / n).is_file()), None)
