"""GRUB: the entries of its menu, and its choice for one boot.

klat adds its entries to custom.cfg, which the grub.cfg of Debian, Ubuntu and Fedora reads, and chooses one by
grub-reboot. GRUB then clears the choice before it starts the kernel. So if the kernel fails, the next boot is
the default one. klat changes neither grub.cfg nor the default.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from klat.base import files
from klat.base.errors import KlatError
from klat.campaign import grub_files, kernel_image
from klat.campaign.boot_loader import BootEntry, BootLoader, OwnEntry, digests, file_bytes
from klat.campaign.boot_loader import file_text, path_on_partition, run_tool
from klat.campaign.efi import started_directories
from klat.campaign.grub_item import CURE, LINUX, OTHERS, STARTED, LoadCommand, MenuItem
from klat.campaign.grub_item import command_line, copied_body, default_item, identified
from klat.campaign.grub_bls import BLS
from klat.campaign.grub_files import GRUBENV, variables
from klat.campaign.grub_execution import ARGUMENTS, shown
from klat.campaign.grub_menu import OWN_FILE, GrubMenu
from klat.campaign.grub_script import Variables, parse_block

_DIRECTORIES = ("boot/grub", "boot/grub2")
_MARK = "# klat campaign: do not edit; klat removes this file\n"
_HAD_CHOICE = "# grubenv had a next_entry\n"
_ONCE = "klat-once"  # stands for an entry of klat that is chosen for one boot
_BOOTS = 3  # in these, what GRUB counts in grubenv shows its effect
# GRUB cannot write through these layers or to these file systems, so it could not clear a choice. It cannot write to
# btrfs either, but openSUSE's GRUB can save variables in a block that btrfs reserves: save_env -f.
_CANNOT_WRITE = "lvm mdraid diskfilter luks cryptodisk zfs erofs squash4".split()
# Its numbers are in Documentation/arch/x86/boot.rst. With EFI, GRUB can start the kernel as an EFI program.
_BOOTED_BY, _GRUB_OR_EFI = "proc/sys/kernel/bootloader_type", (0x72, *range(0x20, 0x30))
# A guess, for a kernel that klat cannot read: its file can have any name.
_RELEASE = re.compile(r"[-_](\d+\.\d[^/]*)$")
# Linux's boot protocol also starts these programs.
_NO_LINUX = re.compile(r"[^/]*(?:memtest|memdisk|ipxe|netboot\.xyz|\.lkrn$)[^/]*$")
_ENTRIES = re.compile(r"^[ \t]*(?:menuentry|submenu|blscfg)\b", re.MULTILINE)
_ARGUMENT = re.compile(r"\$(?:" + "|".join(map(re.escape, ARGUMENTS)) + ")")
# What Fedora's GRUB itself writes to grubenv at each boot. The end of the file is padding.
_CHANGES = re.compile(rb"^boot_(?:success|indeterminate)=.*\n|#+\Z", re.MULTILINE)


class Grub(BootLoader):
    name = "grub"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        directories = [root / name for name in _DIRECTORIES if (root / name / "grub.cfg").is_file()]
        if not directories:
            raise KlatError(f"there is no grub.cfg in {root}boot/grub or {root}boot/grub2")
        # A machine may have files of a second GRUB without its tools.
        self._directory = next(
            (d for d in directories if shutil.which(f"{d.name}-reboot")), directories[0]
        )
        names = ("grub.cfg", "custom.cfg", GRUBENV)
        self._config, self._custom, self._grubenv = (self._directory / name for name in names)
        self.tools = [self._tool(name) for name in ("reboot", "editenv", "probe")]

    def entries(self) -> list[BootEntry]:
        return [entry for entry, _ in self._read()[0]]

    def left_out(self) -> Mapping[str, str]:
        return self._read()[1]

    def default(self) -> BootEntry:
        menu = self._menu()
        entries, left_out = self._read(menu)
        if not entries:
            untitled = (item for item in menu.items if not item.title)
            unread = [f"{item.place()}: {item.why or 'klat cannot read it'}" for item in untitled]
            whys = (f"{self._config} has no entry that boots Linux", *left_out.values(), *unread)
            raise KlatError("; ".join(whys))
        chosen = self._default_item(menu)
        if default := next((entry for entry, item in entries if item is chosen), None):
            return default
        why = left_out.get(chosen.title) or f"{chosen.place()}: {chosen.title!r}"
        raise KlatError(
            f"the default of GRUB, {menu.variables.get('default')!r}, is not an entry that boots Linux ({why});"
            f" {CURE}"
        )

    def check(self) -> None:
        for tool in self.tools:
            if not shutil.which(tool):
                raise KlatError(f"{tool} is missing; install GRUB's tools")
        self._check_start()
        if not self._grubenv.is_file():
            create = f"{self._tool('editenv')} {self._grubenv} create"
            raise KlatError(
                f"{self._grubenv} is missing, so GRUB cannot boot an entry once; run {create}"
            )
        self._check_file_system(*_CANNOT_WRITE)
        self._check_timeout()
        saved = self._check_choice()
        if self._custom.exists() and _MARK not in file_text(self._custom):
            raise KlatError(
                f"{self._custom} is not klat's; move its entries to /etc/grub.d/40_custom"
            )
        chosen = self._environment().get("next_entry", "")
        if chosen and not chosen.startswith(_identity("")):
            raise KlatError(
                f"GRUB's entry {chosen!r} is already chosen for the next boot; boot it, or run"
                f" {self._tool('editenv')} {self._grubenv} unset next_entry"
            )
        if "env_block" not in saved:
            self._check_file_system("btrfs")

    # GRUB reads the disk, not the page cache, so each change ends with a sync.

    def install(self, copies: Sequence[OwnEntry]) -> None:
        self.remove()
        items = {entry.identity: item for entry, item in self._read()[0]}
        environment = self._environment()
        text = _MARK + (_HAD_CHOICE if "next_entry" in environment else "")
        for copy in copies:
            name = shlex.quote(_identity(copy.name))
            text += f"menuentry {shlex.quote(f'klat: {copy.name}')} --unrestricted --id {name} {{\n"
            text += copied_body(name, items[copy.entry.identity], copy.append, environment)
            text += "\n}\n"
        files.write_whole(self._custom, text.encode(), give=False)
        os.sync()

    def choose(self, copy: OwnEntry) -> None:
        self._edit("unset", STARTED)
        self._run("reboot", f"--boot-directory={self._directory.parent}", _identity(copy.name))
        os.sync()

    def started(self) -> str:
        return self._environment().get(STARTED, "").removeprefix(_identity(""))

    def remove(self) -> None:
        text = file_text(self._custom) if self._custom.exists() else ""
        if _MARK in text:
            self._edit("unset", STARTED)
            had_choice = _HAD_CHOICE in text
            self._edit(*(("set", "next_entry=") if had_choice else ("unset", "next_entry")))
            self._custom.unlink()
        os.sync()

    def files(self) -> Mapping[str, str]:
        names = (
            *(self._config, self._custom, self._grubenv, self._root / "etc/default/grub"),
            *(self._root / BLS).glob("*.conf"),
        )
        return digests((p, _CHANGES.sub(b"", file_bytes(p))) for p in names if p.is_file())

    def _menu(self, grubenv: Variables | None = None, with_own: bool = False) -> GrubMenu:
        """The menu with these variables in grubenv. No entry is chosen for the next boot, unless by next_entry."""
        environment: Variables = {**self._environment(), "next_entry": "", **(grubenv or {})}
        menu = GrubMenu(self._directory, environment, self._root, self._is_of_fedora(), with_own)
        menu.execute()
        return menu

    def _default_item(self, menu: GrubMenu) -> MenuItem:
        default = menu.variables.get("default", "")
        if default is None:
            place = menu.set_at.get("default", str(self._config))
            raise KlatError(f"{place}: GRUB's default is known only during the boot; {CURE}")
        return default_item(menu.items, default, menu.is_of_fedora)

    def _is_of_fedora(self) -> bool:
        path = self._root / "etc/os-release"
        if not path.exists():
            return self._directory.name == "grub2"
        text = file_text(path)
        return re.search(r"^ID(_LIKE)?=.*\b(fedora|rhel)\b", text, re.MULTILINE) is not None

    def _check_start(self) -> None:
        """KlatError if GRUB did not start the running kernel, or reads another grub.cfg."""
        line, kind = (self._root / name for name in ("proc/cmdline", _BOOTED_BY))
        why = ""
        if line.exists() and not re.search(r"(^|\s)BOOT_IMAGE=", line.read_text()):
            why = "the running kernel has no BOOT_IMAGE= on its command line"
        elif (
            kind.exists() and int(kind.read_text()) not in _GRUB_OR_EFI
        ):  # LILO and SYSLINUX also write BOOT_IMAGE=
            why = f"{kind} is {kind.read_text().strip()}"
        if why:
            raise KlatError(
                f"{why}, so GRUB did not start the running kernel from {self._config}; reboot by GRUB, or give --kexec or --boot-command"
            )
        for config in (directory / "grub.cfg" for directory in started_directories(self._root)):
            if config.is_file() and _ENTRIES.search(file_text(config)):
                raise KlatError(
                    f"the firmware starts a GRUB with the menu of {config}, but klat can change only that of"
                    f" {self._config}; make {config} read {self._config} by configfile"
                )

    def _check_file_system(self, *refused: str) -> None:
        """KlatError if GRUB's directory is on one of these file systems or layers."""
        for kind in ("abstraction", "fs"):
            for name in self._run("probe", f"--target={kind}", str(self._directory)).split():
                if name in refused:
                    raise KlatError(
                        f"{self._directory} is on {name}, where GRUB cannot write, so it could not"
                        " clear the choice of a boot; put /boot on a plain partition with ext4"
                    )

    def _check_choice(self) -> Variables:
        """The variables that GRUB saves. KlatError if in one of the next boots it would not boot an entry of klat once,
        and then the default again."""
        home = self._default_item(self._menu())
        grubenv: Variables = {}
        boots = []
        for _ in range(_BOOTS):
            menu = self._menu({**grubenv, "next_entry": _ONCE})
            names = ", ".join(sorted(grubenv.keys() - {"next_entry"}))
            if menu.variables.get("default") != _ONCE:
                cure = "add the lines of /etc/grub.d/00_header that use next_entry, or give --kexec or --boot-command"
                if menu.environment.get("boot_counter"):
                    cure = f"run {self._tool('editenv')} {self._grubenv} unset boot_counter"
                raise KlatError(
                    f"{menu.set_at.get('default', self._config)}: GRUB cannot boot an entry once: this default does not"
                    f" use next_entry{f', after a boot that sets {names} in grubenv' if names else ''}; {cure}"
                )
            if not menu.own_file:
                raise KlatError(
                    f"{self._config} does not read {OWN_FILE}; restore /etc/grub.d/41_custom, and make grub.cfg again,"
                    " or add this line at its end (in NixOS by boot.loader.grub.extraEntries):"
                    f" source ${{config_directory}}/{OWN_FILE}"
                )
            grubenv = {**grubenv, **menu.saved}
            boots.append((menu, grubenv))
        for menu, left in boots:
            self._check_return(menu, {"next_entry": _ONCE, **left}, home)
        menus = self._menu(), self._menu(with_own=True)
        before, after = (self._default_item(menu) for menu in menus)
        if before != after:
            raise KlatError(
                f"{menu.own_file}: klat's entries come before the default of GRUB and change its number, and"
                f" GRUB names the default by its number; {CURE}"
            )
        if before.restricted and "superusers" in menus[0].variables:
            raise KlatError(
                f"{before.place()}: GRUB asks for a password before it boots the default, {before.title!r}; add"
                " --unrestricted to this entry, and to the submenu that it is in"
            )
        return grubenv

    def _check_return(self, menu: GrubMenu, grubenv: Variables, home: MenuItem) -> None:
        """KlatError if GRUB would not boot its default after it has started a copy of an entry. `menu` leaves
        `grubenv`."""
        ends = [grubenv]
        menu.variables["chosen"] = _ONCE
        for entry, item in self._read(menu)[0]:
            if entry.doubt:
                continue
            menu.saved = dict(grubenv)
            body = parse_block(copied_body(_ONCE, item, (), menu.environment))
            menu.loaded(replace(item, above=(), body=body))
            if menu.saved.get(STARTED) != _ONCE:
                raise KlatError(
                    f"{self._config}: an entry of klat cannot save {STARTED} in {self._grubenv}; do not"
                    " change the variable prefix"
                )
            ends += [menu.saved] if menu.saved not in ends else []
        for end in ends:
            after = self._menu(end)
            changed = ", ".join(f"{n}={end[n]}" for n in sorted(end) if n != STARTED and end[n])
            if after.variables.get("default") == _ONCE:
                raise KlatError(
                    f"{self._config}: GRUB leaves {changed} in grubenv, so it would boot a kernel that failed once more;"
                    " make grub.cfg with grub-mkconfig, without GRUB_FORCE_PARTUUID"
                )
            item = self._default_item(after)
            if item != home:
                raise KlatError(
                    f"{after.set_at.get('default', self._config)}: a boot of klat leaves {changed} in grubenv;"
                    f" the default would then be {item.title!r}, not {home.title!r}; {CURE}"
                )

    def _check_timeout(self) -> None:
        """KlatError if GRUB would wait for a key: in a boot of klat, of the default, or after a failure."""
        for name, value in (("next_entry", _ONCE), ("next_entry", ""), ("recordfail", "1")):
            menu = self._menu({name: value})
            if place := menu.waits_at():
                timeout = shown("timeout", menu.variables.get("timeout", "")) or "(none)"
                raise KlatError(
                    f"{place}: with timeout={timeout}, GRUB waits for a key; set GRUB_TIMEOUT in"
                    " /etc/default/grub, in Ubuntu also GRUB_RECORDFAIL_TIMEOUT, and make grub.cfg again"
                )

    def _read(
        self, menu: GrubMenu | None = None
    ) -> tuple[list[tuple[BootEntry, MenuItem]], Mapping[str, str]]:
        """The entries that klat can boot, with their items, and the others, with the reasons."""
        menu = menu or self._menu()
        entries, left_out = [], dict(menu.left_out)
        for identity, item in identified(menu.items):
            try:
                entry = self._entry(identity, item, menu.loaded(item))
            except KlatError as error:
                entry = str(error)
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
        if unsure and unsure.command == "read":
            return f"{item.place(unsure.line)}: GRUB waits for a key at read"
        if unsure:
            return f"{item.place(unsure.line)}: it is known only during the boot whether GRUB executes {unsure.command}"
        if not item.sure:
            return f"{item.place()}: it is known only during the boot whether this entry is in the menu"
        unclear = next((load for load in loads if any(map(_ARGUMENT.search, load.words))), None)
        if unclear:
            return f"{item.place(unclear.line)}: the words of {unclear.command} depend on the arguments of the entry"
        words = command_line(kernels[-1].words[1:])
        doubt = next(filter(None, (self._doubt(item, load) for load in loads)), "")
        image = path_on_partition(kernels[-1].words[0])
        # A file of that path can be another system's.
        kernel = None if doubt else grub_files.find(self._root, image)[0]
        release = kernel_image.release(kernel) if kernel else ""
        guess = _RELEASE.search(image)
        if not release and (
            _NO_LINUX.search(image) or (kernel and not guess and _has_text(kernel))
        ):
            return (
                f"{item.place(kernels[-1].line)}: klat finds no Linux kernel in {kernel or image}"
            )
        release, is_read = release or (guess[1] if guess else ""), bool(release)
        image = "" if "$" in image else image
        return BootEntry(identity, item.title, release, words, kernel, image, is_read, doubt)

    def _doubt(self, item: MenuItem, load: LoadCommand) -> str:
        """Why GRUB may not find a file of the command; empty if there is no reason."""
        for name in load.files():
            why = "" if "$" in path_on_partition(name) else grub_files.doubt(self._root, name)
            if why:
                return f"{item.place(load.line)}: {why}"
        return ""

    def _environment(self) -> dict[str, str]:
        return variables(self._edit("list")) if self._grubenv.is_file() else {}

    def _edit(self, *words: str) -> str:
        return self._run("editenv", str(self._grubenv), *words)

    def _run(self, tool: str, *words: str) -> str:
        return run_tool(self._tool(tool), *words)

    def _tool(self, name: str) -> str:
        return f"{self._directory.name}-{name}"


def _has_text(file: Path) -> bool:
    return os.access(file, os.R_OK) and file.stat().st_size > 0


def _identity(name: str) -> str:
    return f"klat-{name}"
