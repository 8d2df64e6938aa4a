"""GRUB: the entries of its menu, and its choice for one boot.

klat adds its entries to custom.cfg, which the grub.cfg of Debian, Ubuntu and Fedora reads, and chooses one by
grub-reboot. GRUB then clears the choice before it starts the kernel. So if the kernel fails, the next boot is
the default one. klat changes neither grub.cfg nor the default.
"""

from __future__ import annotations

import hashlib
import operator
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from klat.base import files
from klat.base.errors import KlatError
from klat.campaign.boot_loader import BootEntry, OwnEntry, run_tool
from klat.campaign.grub_bls import BlsEntry, bls_entries

_DIRECTORIES = ("boot/grub", "boot/grub2")
_MARK = "# klat campaign: do not edit; klat removes this file\n"
_HAD_CHOICE = "# grubenv had a next_entry\n"
_STARTED = "klat_entry"  # the variable in which GRUB records which entry of klat it starts
# GRUB cannot write through these layers or to these file systems, so it could not clear a choice.
_LAYERS = ("lvm", "mdraid", "diskfilter", "luks", "cryptodisk")
_READ_ONLY = ("btrfs", "zfs", "erofs", "squash4")
_MENU = re.compile(r"(menuentry|submenu)\s+(.*)\{\s*$")
_KERNEL = re.compile(r"linux(?:16|efi)?\s")
_RELEASE = re.compile(r"vmlinu[xz]-(\S+)")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_SET = re.compile(r'^\s*set (\w+)="([^"$]*)"', re.MULTILINE)
# What Fedora's GRUB itself writes to grubenv at each boot. The end of the file is padding.
_CHANGES = re.compile(rb"^boot_(?:success|indeterminate)=.*\n|#+\Z", re.MULTILINE)


@dataclass(frozen=True)
class _MenuEntry:
    """An entry of the menu. `names` has the identity, title and number of each submenu on the way to it, and last
    its own. `body` has its lines between the braces."""

    names: tuple[tuple[str, str, str], ...]
    body: tuple[str, ...]

    @property
    def identity(self) -> str:
        return ">".join(identity for identity, _, _ in self.names)

    @property
    def title(self) -> str:
        return self.names[-1][1]

    def is_at(self, path: str) -> bool:
        """Whether GRUB finds this entry at `path`."""
        words = path.split(">")
        return len(words) == len(self.names) and all(map(operator.contains, self.names, words))


class Grub:
    name = "grub"
    own_words: tuple[str, ...] = ()
    reboot_verb = "reboot"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        found = [root / name for name in _DIRECTORIES if (root / name / "grub.cfg").is_file()]
        if not found:
            raise KlatError(f"there is no grub.cfg in {root}boot/grub or {root}boot/grub2")
        self._directory = found[0]
        suffix = self._directory.name.removeprefix("grub")
        self._tools = {name: f"grub{suffix}-{name}" for name in ("reboot", "editenv", "probe")}

    def entries(self) -> list[BootEntry]:
        return [entry for entry, _ in self._menu()]

    def default(self) -> BootEntry:
        menu = self._menu()
        if not menu:
            raise KlatError(f"{self._config} has no entry that boots Linux")
        chosen = self._default_name()
        for entry, source in menu:
            last = entry.identity.rpartition(">")[2]
            if source.is_at(chosen) or chosen in (entry.title, last):
                return entry
        raise KlatError(
            f"the default of GRUB, {chosen!r}, is not an entry that boots Linux; choose one with"
            " GRUB_DEFAULT in /etc/default/grub, or if that is saved, with grub-set-default"
        )

    def check(self) -> None:
        text = self._text()
        for tool in self._tools.values():
            if not shutil.which(tool):
                raise KlatError(f"{tool} is missing; install GRUB's tools")
        if "next_entry" not in text:
            raise KlatError(f"{self._config} cannot boot an entry once: it does not use next_entry")
        if "custom.cfg" not in text:
            raise KlatError(
                f"{self._config} does not read custom.cfg; restore /etc/grub.d/41_custom, and make"
                " grub.cfg again"
            )
        own = self._own
        if own.exists() and _MARK not in own.read_text(errors="replace"):
            raise KlatError(f"{own} is not klat's; move its entries to /etc/grub.d/40_custom")
        chosen = self._environment().get("next_entry", "")
        if chosen and not chosen.startswith(_identity("")):
            raise KlatError(
                f"GRUB's entry {chosen!r} is already chosen for the next boot; boot it, or run"
                f" {self._tools['editenv']} {self._directory / 'grubenv'} unset next_entry"
            )
        for kind, refused in (("abstraction", _LAYERS), ("fs", _READ_ONLY)):
            for found in self._probe(kind):
                if found in refused:
                    raise KlatError(
                        f"{self._directory} is on {found}, where GRUB cannot write, so it could not"
                        " clear the choice of a boot; put /boot on a plain partition with ext4"
                    )

    # GRUB reads the disk, not the page cache, so each change ends with a sync.

    def install(self, own: Sequence[OwnEntry]) -> None:
        self.remove()
        bodies = {entry.identity: source.body for entry, source in self._menu()}
        text = _MARK
        if "next_entry" in self._environment():
            text += _HAD_CHOICE
        for each in own:
            if each.entry.identity not in bodies:
                raise KlatError(f"GRUB no longer has the entry {each.entry.identity!r}; plan again")
            lines = [_appended(line, each.append) for line in bodies[each.entry.identity]]
            name = shlex.quote(_identity(each.name))
            notes = [f"set {_STARTED}={name}", f"save_env {_STARTED}"]
            text += f"menuentry {shlex.quote(f'klat: {each.name}')} --unrestricted --id {name} {{\n"
            text += "".join(f"{line}\n" for line in [*notes, *lines]) + "}\n"
        files.write_whole(self._own, text.encode(), give=False)
        os.sync()

    def choose(self, own: OwnEntry) -> None:
        self._edit("unset", _STARTED)
        self._run("reboot", f"--boot-directory={self._directory.parent}", _identity(own.name))
        os.sync()

    def started(self) -> str:
        return self._environment().get(_STARTED, "").removeprefix(_identity(""))

    def remove(self) -> None:
        text = self._own.read_text(errors="replace") if self._own.exists() else ""
        if _MARK in text:
            self._edit("unset", _STARTED)
            self._edit(
                *(("set", "next_entry=") if _HAD_CHOICE in text else ("unset", "next_entry"))
            )
            self._own.unlink()
        os.sync()

    def files(self) -> Mapping[str, str]:
        names = (
            *(self._directory / name for name in ("grub.cfg", "grubenv", "custom.cfg")),
            self._root / "etc/default/grub",
            *self._bls.glob("*.conf"),
        )
        found = {str(p): p.read_bytes() for p in names if p.is_file()}
        return {
            name: hashlib.sha256(_CHANGES.sub(b"", data)).hexdigest()
            for name, data in found.items()
        }

    @property
    def _config(self) -> Path:
        return self._directory / "grub.cfg"

    @property
    def _bls(self) -> Path:
        return self._root / "boot/loader/entries"

    @property
    def _own(self) -> Path:
        return self._directory / "custom.cfg"

    def _text(self) -> str:
        try:
            return self._config.read_text(errors="replace")
        except PermissionError:
            raise KlatError(f"only root may read {self._config}; use sudo") from None
        except OSError as error:
            raise KlatError(f"cannot read {self._config}: {error.strerror}") from error

    def _menu(self) -> list[tuple[BootEntry, _MenuEntry]]:
        found = []
        text = self._text()
        for entry in _entries(text.splitlines(), bls_entries(self._bls)):
            kernel = next((line for line in entry.body if _KERNEL.match(line.strip())), None)
            words = _words(kernel) if kernel else []
            if len(words) < 2:
                continue
            release = _RELEASE.search(words[1])
            shown = release[1] if release else ""
            rest = words[2:]
            if "$" in "".join(rest):
                variables = dict(_SET.findall(text)) | self._environment()
                rest = list(_expanded(rest, variables))
            kernel_file = self._file(words[1])
            boots = BootEntry(entry.identity, entry.title, shown, tuple(rest), kernel_file)
            found.append((boots, entry))
        return found

    def _file(self, name: str) -> Path | None:
        """The file of a kernel. GRUB's path begins at the partition, which can be mounted at /boot."""
        paths = (self._root / top / name.lstrip("/") for top in ("", "boot"))
        return next((path for path in paths if path.is_file()), None)

    def _environment(self) -> dict[str, str]:
        text = self._run("editenv", str(self._directory / "grubenv"), "list")
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def _edit(self, *words: str) -> None:
        self._run("editenv", str(self._directory / "grubenv"), *words)

    def _default_name(self) -> str:
        """The default as grub.cfg names it: the saved entry, or an identity, title or place."""
        found = re.findall(r'^\s*set default="([^"]*)"', self._text(), re.MULTILINE)
        named: list[str] = [name for name in found if name != "${next_entry}"]
        if "${saved_entry}" in named:
            return self._environment().get("saved_entry") or "0"
        return named[-1] if named else "0"

    def _probe(self, kind: str) -> list[str]:
        return self._run("probe", f"--target={kind}", str(self._directory)).split()

    def _run(self, tool: str, *words: str) -> str:
        return run_tool(self._tools[tool], *words)


def _entries(lines: Sequence[str], bls: Sequence[BlsEntry]) -> Iterator[_MenuEntry]:
    """The entries of all menus. GRUB names an entry of a submenu by the path to it, and numbers the entries
    and submenus of a menu from 0. `bls` has the entries that the command blscfg adds."""
    menus: list[tuple[tuple[str, str, str], int]] = []  # names and depth of each open submenu
    counts = [0]  # of entries and submenus so far, in each open menu
    depth = 0
    at = 0
    while at < len(lines):
        line = lines[at].strip()
        at += 1
        menu = _MENU.match(line)
        if menu:
            title, identity = _named(menu[2])
            names = identity, title, str(counts[-1])
            counts[-1] += 1
            if menu[1] == "submenu":
                menus.append((names, depth))
                counts.append(0)
                depth += 1
                continue
            body, at = _body(lines, at)
            yield _MenuEntry((*(above for above, _ in menus), names), body)
            continue
        if line == "blscfg":
            for number, each in enumerate(bls, start=counts[-1]):
                yield _MenuEntry(((each.identity, each.title, str(number)),), each.body)
            counts[-1] += len(bls)
        depth += _braces(line)
        while menus and depth <= menus[-1][1]:
            menus.pop()
            counts.pop()


def _body(lines: Sequence[str], at: int) -> tuple[tuple[str, ...], int]:
    """The lines up to the closing brace, and the index of the line after it."""
    depth = 1
    begun = at
    while at < len(lines):
        depth += _braces(lines[at].strip())
        at += 1
        if depth <= 0:
            return tuple(lines[begun : at - 1]), at
    return tuple(lines[begun:]), at


def _braces(line: str) -> int:
    if line.startswith("#"):
        return 0
    bare = re.sub(r"\$\{[^}]*\}|'[^']*'|\"[^\"]*\"", "", line)
    return bare.count("{") - bare.count("}")


def _named(header: str) -> tuple[str, str]:
    """Title and identity of a menu entry, from its line."""
    words = _words(header)
    title = words[0] if words else ""
    for option in ("$menuentry_id_option", "--id"):
        if option in words[:-1]:
            return title, words[words.index(option) + 1]
    return title, title


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=False)
    except ValueError:
        return line.split()


def _expanded(words: Sequence[str], variables: Mapping[str, str]) -> Iterator[str]:
    """The words, with the values of known variables in their place."""
    for word in words:
        variable = _VARIABLE.fullmatch(word)
        if variable and variable[1] in variables:
            yield from _words(variables[variable[1]])
        else:
            yield word


def _appended(line: str, words: Sequence[str]) -> str:
    return " ".join([line, *words]) if _KERNEL.match(line.strip()) else line


def _identity(name: str) -> str:
    return f"klat-{name}"
