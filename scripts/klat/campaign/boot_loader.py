"""What a campaign needs of a boot loader."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from klat.base.bounded_read import read_named
from klat.base.errors import KlatError, printable

# The start of klat's own word on the command line. The label follows. It distinguishes klat's entry from the
# user's, also without a setting.
OWN_WORD = "klat.campaign="
_LARGEST = 1 << 21  # bytes of a file
_SHOWN = 300  # characters of words; the file of a campaign takes no long reason
_SECONDS = 120  # a busy disk can take long to sync


@dataclass(frozen=True)
class BootEntry:
    """A line of the boot menu. `words` is the kernel's command line in this entry."""

    identity: str  # as the boot loader names it
    title: str
    release: str  # of the kernel; empty if neither its file nor its name shows it
    words: tuple[str, ...]
    kernel: Path | None = None  # its file; None if it is not known
    image: str = ""  # the kernel's path for the boot loader
    is_release_read: bool = True  # from the kernel's file; else only its name shows it
    doubt: str = ""  # why the boot loader may not find one of its files

    @property
    def is_rescue(self) -> bool:
        """Fedora keeps the first kernel as vmlinuz-0-rescue-MACHINE, or as MACHINE/0-rescue/linux."""
        return "0-rescue" in f"{self.identity} {self.image} {self.kernel}"

    def is_running(self, release: str, words: Sequence[str]) -> bool:
        """Whether the running kernel, of this release and with this command line, is that of this entry."""
        return not self.difference(release, words)

    def difference(self, release: str, words: Sequence[str]) -> str:
        """How the running kernel differs from the entry's; empty if it is that of this entry.
        A word that holds a variable, for example Ubuntu's $vt_handoff, stands for any number of words, but
        not for klat's own.
        BOOT_IMAGE= and initrd= come from the boot loader. BOOT_IMAGE= is the path of the kernel, which
        distinguishes two kernels of one release."""
        if self.release and self.is_release_read and self.release != release:
            return f"the release is {release}, not {self.release}"
        images = [word for word in words if word.startswith("BOOT_IMAGE=")]
        if self.image and images and path_on_partition(images[0].partition("=")[2]) != self.image:
            return f"it has {images[0]}, but that of the entry is {self.image}"
        entry_words, running_words = without_loader_words(self.words), without_loader_words(words)
        patterns = (
            rf"((?!{OWN_WORD})\S+ )*" if "$" in w else f"{re.escape(w)} " for w in entry_words
        )
        if re.fullmatch("".join(patterns), "".join(f"{word} " for word in running_words)):
            return ""
        running_counts, entry_counts = Counter(running_words), Counter(entry_words)
        missing = [word for word in entry_counts - running_counts if "$" not in word]
        parts = [
            f"{verb} {printable(' '.join(differing))[:_SHOWN]}"
            for verb, differing in (("has", running_counts - entry_counts), ("lacks", missing))
            if differing
        ]
        return f"the command line {' and '.join(parts) or 'has the same words in another order'}"


def path_on_partition(path: str) -> str:
    """The path without the device that GRUB writes before it, for example (hd0,gpt2)."""
    return path.partition(")")[2] if path.startswith("(") else path


def is_of_campaign(words: Iterable[str]) -> bool:
    """Whether klat's word is on this command line."""
    return any(word.startswith(OWN_WORD) for word in words)


def without_loader_words(words: Iterable[str]) -> tuple[str, ...]:
    """The command line without the words that a boot loader adds. An entry can have such words, too."""
    return tuple(word for word in words if not word.startswith(("BOOT_IMAGE=", "initrd=")))


@dataclass(frozen=True)
class OwnEntry:
    """An entry that klat adds: a copy of `entry`, with words appended to the command line."""

    name: str
    entry: BootEntry
    append: tuple[str, ...]

    @property
    def booted(self) -> BootEntry:
        """The entry as a boot of it shows it: with the appended words."""
        return replace(self.entry, words=(*self.entry.words, *self.append))


class BootLoader(ABC):
    """If the boot loader cannot do something, its method raises KlatError with the reason and the remedy."""

    name = ""
    own_words: tuple[str, ...] = ()  # added to the command line of each entry of klat
    reboot_verb = "reboot"  # of systemctl, for the boot that was chosen
    tools: Sequence[str] = ()  # that klat starts after each boot

    @abstractmethod
    def entries(self) -> list[BootEntry]:
        """Every entry that boots Linux, in the menu's order, without klat's own."""

    def entry(self, identity: str, problem: str) -> BootEntry:
        """KlatError if there is no such entry: with the reason if klat left the entry out, or else with this problem."""
        for entry in self.entries():
            if entry.identity == identity:
                return entry
        why = self.why_left_out(identity)
        raise KlatError(f"klat cannot boot {identity}: {why}" if why else problem)

    def left_out(self) -> Mapping[str, str]:
        """Titles of entries that may boot Linux, but that klat cannot boot, with the reasons."""
        return {}

    def why_left_out(self, name: str) -> str:
        """Why klat cannot boot the entry with this title or identity; empty if there is no reason."""
        return self.left_out().get(name, "")

    @abstractmethod
    def default(self) -> BootEntry:
        """The entry that boots if nothing is chosen. klat never changes it."""

    def booted(self) -> str:
        """The identity of the entry that was started in this boot; empty if the boot loader does not record it."""
        return ""

    @abstractmethod
    def check(self) -> None:
        """KlatError if the boot loader cannot boot an entry once."""

    def install(self, copies: Sequence[OwnEntry]) -> None:
        """Replace klat's entries by these. On return they are on disk."""

    @abstractmethod
    def choose(self, copy: OwnEntry) -> None:
        """Choose this entry of klat for the next boot, and for no other."""

    @abstractmethod
    def started(self) -> str:
        """The name of klat's entry that was started since choose(); empty if none. Without a menu, only the
        running kernel is known."""

    def remove(self) -> None:
        """Remove klat's entries and its choice. Does nothing if there are none."""

    def files(self) -> Mapping[str, str]:
        """For each file that decides what boots: its path and its SHA-256."""
        return {}


def file_bytes(path: Path) -> bytes:
    """KlatError if this file of the boot loader is too large or cannot be read."""
    try:
        return read_named(path, _LARGEST)
    except PermissionError:
        raise KlatError(f"only root may read {path}; use sudo") from None
    except OSError as error:
        raise KlatError(f"cannot read {path}: {error.strerror}") from error


def file_text(path: Path, errors: str = "replace") -> str:
    return file_bytes(path).decode(errors=errors)


def digests(contents: Iterable[tuple[Path, bytes]]) -> dict[str, str]:
    return {str(path): hashlib.sha256(data).hexdigest() for path, data in contents}


def run(
    *command: str, seconds: float = _SECONDS, output: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """Run a command. Its status is 127 if it cannot be started, and 124 if it does not end in time."""
    # SYSTEMD_COLORS=1 and the like change what bootctl prints, SYSTEMD_ESP_PATH what it reads.
    inherited = {key: v for key, v in os.environ.items() if not key.startswith("SYSTEMD_")}
    environment = {**inherited, "LC_ALL": "C", "SYSTEMD_COLORS": "0"}
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            text=True,
            errors="backslashreplace",
            env=environment,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        why = f"did not end within {seconds:g} s"
        return subprocess.CompletedProcess(command, 124, "", why)
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, "", error.strerror or "")


def run_tool(*command: str) -> str:
    """Run a tool of the boot loader, and return what it prints. KlatError if it fails."""
    done = run(*command)
    if done.returncode:
        why = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise KlatError(f"{shlex.join(command)}: {printable(why[-1])}")
    return done.stdout
