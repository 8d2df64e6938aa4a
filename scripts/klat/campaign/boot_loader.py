"""What a campaign needs of a boot loader."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from klat.base.errors import KlatError, printable

_SECONDS = 120  # a busy disk can take long to sync


@dataclass(frozen=True)
class BootEntry:
    """A line of the boot menu. `words` are those of the kernel's command line, from the entry."""

    identity: str  # as the boot loader names it
    title: str
    release: str  # of the kernel; empty if the entry does not show it
    words: tuple[str, ...]
    kernel: Path | None = None  # its file; None if it is not known

    def is_running(self, release: str, words: Sequence[str]) -> bool:
        """Whether this entry gives this release and this command line. The boot loader replaces a word
        with a variable, as Ubuntu's $vt_handoff, by any number of words, and adds its own before the
        others."""
        if self.release and self.release != release:
            return False
        wanted = (r"(\S+ )*" if "$" in word else f"{re.escape(word)} " for word in self.words)
        own = (word for word in words if not word.startswith(("BOOT_IMAGE=", "initrd=")))
        return re.fullmatch("".join(wanted), "".join(f"{word} " for word in own)) is not None


@dataclass(frozen=True)
class OwnEntry:
    """An entry that klat adds: a copy of `entry`, with words appended to the command line."""

    name: str
    entry: BootEntry
    append: tuple[str, ...]

    @property
    def booted(self) -> BootEntry:
        """What a boot of it shows."""
        return replace(self.entry, words=(*self.entry.words, *self.append))


class BootLoader(Protocol):
    """Raises KlatError if the boot loader cannot do what is asked, with the reason and the remedy."""

    name: str
    own_words: tuple[str, ...]  # that klat's entries need on the command line

    def entries(self) -> list[BootEntry]:
        """Every entry that boots Linux, in the menu's order, without klat's own."""

    def default(self) -> BootEntry:
        """The entry that boots if nothing is chosen. klat never changes it."""

    def check(self) -> None:
        """KlatError if the boot loader cannot boot an entry once."""

    def install(self, own: Sequence[OwnEntry]) -> None:
        """Add klat's entries, in place of those it added before. They are on disk afterwards."""

    def choose(self, name: str) -> None:
        """The next boot, and only that one, boots klat's entry of this name."""

    def started(self) -> str:
        """The name of klat's entry that the boot loader has started since choose(); empty if none."""

    def remove(self) -> None:
        """Remove klat's entries and its choice. Does nothing if there are none."""

    def files(self) -> Mapping[str, str]:
        """The SHA-256 of each file that decides what boots, by its path."""


def run_tool(*command: str) -> str:
    """What a tool of the boot loader prints. KlatError if it fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise KlatError(f"{shlex.join(command)}: did not end within {_SECONDS} s") from None
    except OSError as error:
        raise KlatError(f"{shlex.join(command)}: {error.strerror}") from None
    if done.returncode:
        why = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise KlatError(f"{shlex.join(command)}: {printable(why[-1])}")
    return done.stdout
