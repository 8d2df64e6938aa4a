"""GRUB: the entries of its menu, and its choice for one boot.

klat adds its entries to custom.cfg, which the grub.cfg of Debian, Ubuntu and Fedora reads, and chooses one by
grub-reboot. GRUB then clears the choice before it starts the kernel. So if the kernel fails, the next boot is
the default one. klat changes neither grub.cfg nor the default.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from klat.base import files
from klat.base.errors import KlatError
from klat.campaign import kernel_image
from klat.campaign.boot_loader import BootEntry, OwnEntry, path_on_partition, run_tool
from klat.campaign.grub_default import CURE, default_item, identified
from klat.campaign.grub_menu import LINUX, OTHERS, OWN_FILE, GrubMenu, LoadCommand, MenuItem
from klat.campaign.grub_script import commands, text_of

_DIRECTORIES = ("boot/grub", "boot/grub2")
_MARK = "# klat campaign: do not edit; klat removes this file\n"
_HAD_CHOICE = "# grubenv had a next_entry\n"
_STARTED = "klat_entry"  # the variable in which GRUB records which entry of klat it starts
# GRUB cannot write through these layers or to these file systems, so it could not clear a choice.
_LAYERS = ("lvm", "mdraid", "diskfilter", "luks", "cryptodisk")
_READ_ONLY = ("btrfs", "zfs", "erofs", "squash4")
# A guess, for a kernel that klat cannot read: its file can have any name.
_RELEASE = re.compile(r"[-_](\d+\.\d[^/]*)$")
# What Fedora's GRUB itself writes to grubenv at each boot. The end of the file is padding.
_CHANGES = re.compile(rb"^boot_(?:success|indeterminate)=.*\n|#+\Z", re.MULTILINE)


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
        return [entry for entry, _ in self._read()[0]]

    def left_out(self) -> Mapping[str, str]:
        return self._read()[1]

    def default(self) -> BootEntry:
        menu = self._menu()
        entries, left_out = self._read(menu)
        if not entries:
            raise KlatError(
                "; ".join((f"{self._config} has no entry that boots Linux", *left_out.values()))
            )
        chosen = self._default_item(menu)
        for entry, item in entries:
            if item is chosen:
                return entry
        why = left_out.get(chosen.title) or f"{chosen.place()}: {chosen.title!r}"
        raise KlatError(
            f"the default of GRUB, {menu.variables.get('default')!r}, is not an entry that boots Linux ({why});"
            f" {CURE}"
        )

    def check(self) -> None:
        for tool in self._tools.values():
            if not shutil.which(tool):
                raise KlatError(f"{tool} is missing; install GRUB's tools")
        self._check_choice()
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
        items = {entry.identity: item for entry, item in self._read()[0]}
        text = _MARK
        if "next_entry" in self._environment():
            text += _HAD_CHOICE
        for each in own:
            if each.entry.identity not in items:
                raise KlatError(f"GRUB no longer has the entry {each.entry.identity!r}; plan again")
            name = shlex.quote(_identity(each.name))
            text += f"menuentry {shlex.quote(f'klat: {each.name}')} --unrestricted --id {name} {{\n"
            text += f"set {_STARTED}={name}\nsave_env {_STARTED}\n"
            text += f"{_copy(items[each.entry.identity], each.append)}\n}}\n"
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

    def _menu(self, choice: str = "", with_own: bool = False) -> GrubMenu:
        """The menu, if `choice` is chosen for the next boot."""
        firmware = self._root / "sys/firmware"
        menu = GrubMenu(
            self._directory,
            {**self._environment(), "next_entry": choice},
            self._file,
            self._bls,
            "pc" if firmware.is_dir() and not (firmware / "efi").is_dir() else "efi",
            with_own,
        )
        menu.execute()
        return menu

    def _default_item(self, menu: GrubMenu) -> MenuItem:
        default = menu.variables.get("default", "")
        if default is None:
            raise KlatError(f"{self._config}: GRUB's default is known only during the boot; {CURE}")
        return default_item(menu.items, default, menu.has_bls or self._is_of_fedora())

    def _is_of_fedora(self) -> bool:
        try:
            text = (self._root / "etc/os-release").read_text(errors="replace")
        except OSError:
            return False
        return re.search(r"^ID(_LIKE)?=.*\b(fedora|rhel)\b", text, re.MULTILINE) is not None

    def _check_choice(self) -> None:
        """KlatError if GRUB would not boot an entry of klat once, and then the default again."""
        menu = self._menu(choice="klat-once")
        if menu.variables.get("default") != "klat-once":
            raise KlatError(f"{self._config} cannot boot an entry once: it does not use next_entry")
        if menu.variables.get("next_entry") != "" or "next_entry" not in menu.saved:
            raise KlatError(
                f"{self._config} cannot boot an entry once: it does not clear next_entry and save it in"
                " grubenv, so GRUB would boot the entry again and again"
            )
        if not menu.own_file:
            raise KlatError(
                f"{self._config} does not read {OWN_FILE}; restore /etc/grub.d/41_custom, and make"
                " grub.cfg again"
            )
        menus = self._menu(), self._menu(with_own=True)
        before, after = (self._default_item(menu) for menu in menus)
        if before != after:
            raise KlatError(
                f"{menu.own_file}: klat's entries come before the default of GRUB and change its number, and"
                f" GRUB names the default by its number; {CURE}"
            )

    def _read(
        self, menu: GrubMenu | None = None
    ) -> tuple[list[tuple[BootEntry, MenuItem]], Mapping[str, str]]:
        """The entries that klat can boot, with their items, and the others, with the reasons."""
        menu = menu or self._menu()
        entries, left_out = [], dict(menu.left_out)
        for identity, item in identified(menu.items):
            entry = self._entry(identity, item, menu.loaded(item))
            if isinstance(entry, BootEntry):
                entries.append((entry, item))
            elif entry:
                left_out[item.title] = entry
        return entries, left_out

    def _entry(
        self, identity: str, item: MenuItem, loads: Sequence[LoadCommand]
    ) -> BootEntry | str:
        """Why klat cannot boot the item, if it cannot. Empty if the item boots no Linux."""
        other = next((load for load in loads if OTHERS.fullmatch(load.command)), None)
        kernels = [load for load in loads if LINUX.fullmatch(load.command) and load.words]
        if other:
            return f"{item.place(other.line)}: klat cannot measure what {other.command} starts"
        if not kernels:
            return ""
        unsure = next((load for load in loads if not load.sure), None)
        if unsure:
            return f"{item.place(unsure.line)}: it is known only during the boot whether GRUB executes {unsure.command}"
        if not item.sure:
            return f"{item.place()}: it is known only during the boot whether this entry is in the menu"
        image = path_on_partition(kernels[-1].words[0])
        kernel = self._file(image)
        release = kernel_image.release(kernel) if kernel else ""
        guess = _RELEASE.search(image)
        return BootEntry(
            identity,
            item.title,
            release or (guess[1] if guess else ""),
            _command_line(kernels[-1].words[1:]),
            kernel,
            "" if "$" in image else image,
            bool(release),
        )

    def _file(self, name: str) -> Path | None:
        """A file by its path for GRUB. This path begins at the partition, which can be mounted at /boot, or at
        the top of a btrfs or ZFS file system."""
        parts = [part for part in path_on_partition(name).split("/") if part]
        tops = ("boot", "") if os.path.ismount(self._root / "boot") else ("", "boot")
        paths = (
            self._root.joinpath(top, *parts[first:]) for first in range(len(parts)) for top in tops
        )
        return next((path for path in paths if path.is_file()), None)

    def _environment(self) -> dict[str, str]:
        text = self._run("editenv", str(self._directory / "grubenv"), "list")
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def _edit(self, *words: str) -> None:
        self._run("editenv", str(self._directory / "grubenv"), *words)

    def _probe(self, kind: str) -> list[str]:
        return self._run("probe", f"--target={kind}", str(self._directory)).split()

    def _run(self, tool: str, *words: str) -> str:
        return run_tool(self._tools[tool], *words)


def _command_line(words: Sequence[str]) -> tuple[str, ...]:
    """The words of /proc/cmdline that GRUB makes of its arguments (grub-core/lib/cmdline.c)."""
    quoted = (re.sub(r"\\(?!x[0-9a-fA-F]{2})|['\"]", r"\\\g<0>", word) for word in words)
    return tuple(" ".join(f'"{word}"' if " " in word else word for word in quoted).split())


def _copy(item: MenuItem, words: Sequence[str]) -> str:
    """The commands of an item, with these words added to the kernel's command line."""
    text = item.body.text
    for command in reversed(list(commands(item.body.statements))):
        if LINUX.fullmatch(text_of(command.words[0])):
            end = command.end - item.body.start
            text = " ".join((text[:end], *words)) + text[end:]
    return item.before + text.strip("\n").rstrip()


def _identity(name: str) -> str:
    return f"klat-{name}"
