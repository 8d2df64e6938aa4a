"""The menu that GRUB makes of grub.cfg. klat executes the script as GRUB does: grub-core/script/execute.c and
grub-core/commands/menuentry.c in GRUB's source.

None stands for the value of a variable, or the status of a command, that is known only during the boot."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from klat.base.errors import KlatError
from klat.campaign.boot_loader import file_text
from klat.campaign.grub_bls import BLS, bls_entries, doubt_of_grub
from klat.campaign.grub_files import GRUBENV, SIGNATURE, environment_words, find
from klat.campaign.grub_files import is_uuid_of_partition, on_partition, searched, target, variables
from klat.campaign.grub_execution import NUMBER, Truth, number_of
from klat.campaign.grub_execution import ARGUMENTS, Execution, Shown, shown
from klat.campaign.grub_item import INITRAMFS, LINUX, OTHERS, LoadCommand, MenuItem
from klat.campaign.grub_script import Command, GrubBlock, GrubSyntaxError, Variables, expanded
from klat.campaign.grub_script import menu_options, parse, parse_block, without_commands

OWN_FILE = "custom.cfg"
_ITEMS = ("menuentry", "submenu")
# klat does not know the effect of these commands on the menu.
_UNREAD = re.compile(r"uki|hiddenentry|legacy_\w+|syslinux_\w+|extract_\w+|exit|eval|normal")
_ENDS = re.compile(r"exit|boot|halt|reboot|normal_exit")  # the rest is not executed
# Keys beside the variables of a script, which cannot have such names. _WAITS is "no" if the timeout counts down. _AT_ROOT
# is "yes" if $root is the partition of GRUB's directory.
_WAITS, _AT_ROOT = "timeout waits", "GRUB's directory is at $root"
_NAME = re.compile(r"\$\{?([A-Za-z_]\w*)")
_NOTHING = GrubBlock((), "", 0)
_ITEM_COMMANDS = 10_000
# Variables that GRUB or its modules set: the device it came from, the network, the date (datehook), and verifiers.
_OF_THE_BOOT = (
    "root cmdpath net_default_interface net_default_ip net_default_mac net_default_server pxe_default_gateway"
    " pxe_default_server YEAR MONTH DAY HOUR MINUTE SECOND WEEKDAY"
).split()
_OF_SECURE_BOOT = ("lockdown", "shim_lock")
# What every GRUB 2.00 and later can do (grub-core/normal/main.c).
_FEATURES = [
    f"feature_{name}"
    for name in "chainloader_bpb ntldr platform_search_hint default_font_path all_video_module"
    " menuentry_id menuentry_options 200_final nativedisk_cmd timeout_style".split()
]


@dataclass
class GrubMenu(Execution):
    """`environment` has the variables of grubenv. `root` is the root directory of the system.

    After execute(), `items` has the menu, `variables` what GRUB knows, `saved` what it writes to grubenv, `set_at` where
    variables are set, and `own_file` where the top menu reads klat's file. `left_out` has the files of the Boot
    Loader Specification from which GRUB makes no entry, with the reasons."""

    directory: Path
    environment: Mapping[str, str | None]
    root: Path
    is_of_fedora: bool = False
    with_own: bool = False  # put an item in the place of klat's entries
    items: list[MenuItem] = field(default_factory=list)
    saved: Variables = field(default_factory=dict)
    own_file: str = ""
    left_out: dict[str, str] = field(default_factory=dict)
    _loads: list[LoadCommand] = field(default_factory=list)
    _exported: set[str | None] = field(default_factory=set)
    _ended: bool = False
    _in_item: bool = False
    _read_files: set[Path | None] = field(default_factory=set)  # by load_env, without grubenv

    def execute(self) -> None:
        """KlatError if grub.cfg, or a file that it reads, is no script of GRUB."""
        here = str(self.directory)
        cpu, _, platform = target(self.root).rpartition("-")
        self.variables = {
            **{"prefix": here, "config_directory": here, "grub_platform": platform},
            **{"menuentry_id_option": "--id", "grub_cpu": cpu},
            **dict.fromkeys(_OF_THE_BOOT),
            **dict.fromkeys(_OF_SECURE_BOOT if platform == "efi" else ()),
            **dict.fromkeys(_FEATURES, "y"),
        }
        self._exported |= self.variables.keys() - {"config_directory"}
        self._source(self.directory / "grub.cfg")
        for item in self.items:
            self._open(item, ())

    def loaded(self, item: MenuItem) -> list[LoadCommand]:
        """What GRUB loads if it starts the item. KlatError if its commands exceed a limit."""
        self._loads, self._ended, self._sure = [], False, True
        self._loop_depth, self._call_depth, self._commands_left = 0, 0, _ITEM_COMMANDS
        self._inside(item)
        return self._loads

    def _inside(self, item: MenuItem) -> list[MenuItem]:
        """Execute the commands of an item. Returns the items that they add to its submenu."""
        outer = self.items, self.variables, self._exported, self._functions, self.own_file
        self.variables, self._exported = dict(self.variables), set(self._exported)
        self._functions = dict(self._functions)
        self._in_item = True
        try:
            return self._executed(item)
        finally:
            self.items, self.variables, self._exported, self._functions, self.own_file = outer

    def _executed(self, item: MenuItem) -> list[MenuItem]:
        self._path = item.path
        bodies = [*map(parse, item.above), item.body.statements]
        names = sorted({*_NAME.findall("".join(item.above) + item.body.text)})
        item.before = ""
        for number, statements in enumerate(bodies, 1):
            opens_menu = number < len(bodies) or item.items is not None
            # grub-core/normal/context.c. Fedora's exports all variables.
            if opens_menu and not self.is_of_fedora:
                item.before += "".join(f"unset {n}\n" for n in names if n not in self._exported)
                self.variables = {n: v for n, v in self.variables.items() if n in self._exported}
            self.variables |= dict.fromkeys(ARGUMENTS)  # klat's copy has others
            self.items = []
            if opens_menu:
                self.variables.pop("default", None)
            self._run(statements)
            item.before += "".join(item.above[number - 1 : number])
        item.default = self.variables.get("default", "") if item.items is not None else ""
        return self.items

    def _open(self, item: MenuItem, above: tuple[str, ...]) -> None:
        """Make the menu of a submenu."""
        item.above = above
        if item.items is not None:
            item.items = self._inside(item)
            for inner in item.items:
                inner.restricted |= item.restricted
                self._open(inner, (*above, without_commands(item.body, _ITEMS)))

    def _source(self, path: Path) -> None:
        """Execute a file."""
        try:
            statements = parse(file_text(path).replace("\r", ""))
        except GrubSyntaxError as error:
            raise KlatError(f"{path}, {error}") from None
        outer, self._path = self._path, path
        try:
            self._run(statements)
        finally:
            self._path = outer

    def _named(self, arguments: Sequence[str | None], command: Command) -> Truth:
        name, rest = "".join(filter(None, arguments[:1])), arguments[1:]
        if LINUX.fullmatch(name) or INITRAMFS.fullmatch(name) or OTHERS.fullmatch(name):
            words = expanded(command.words[1:], Shown(self.variables)) or []
            sure = self._sure and not self._ended
            self._loads.append(LoadCommand(name, tuple(words), command.line, sure))
        ends = bool(_ENDS.fullmatch(name)) or (name == "fwsetup" and not rest)
        if (name == "read" or ends) and not self._in_item:
            raise KlatError(
                f"{self._place(command)}: {name} stops GRUB before its menu, so a campaign would end there"
            )
        if name == "read":
            self._loads.append(LoadCommand("read", (), command.line, False))
        self._ended |= ends or (name == "return" and not self._call_depth)
        if name in _ITEMS:
            self._add(name, command)
        elif name == "export":
            self._exported |= set(rest)
        elif name == "unset":
            self._exported -= set(rest[:1])
            for key in filter(None, rest[:1]):
                self._set(key, "", command)
                del self.variables[key]
        elif name in ("load_env", "save_env"):
            return self._transfer(name, command)
        elif name == "search":
            return self._search(rest, command)
        elif name in ("source", "."):
            self._read(rest[0] if rest else None, command)
        elif name == "configfile":
            self._open_menu(rest[0] if rest else None, command)
        elif name in ("blscfg", "bls_import"):
            self._add_bls(rest, command)
        elif _UNREAD.fullmatch(name):
            self._add_unread(
                command, f"klat does not know what the command {name} adds to the menu"
            )
        else:
            return super()._named(arguments, command)
        return True

    def _set(self, name: str, value: str | None, command: Command) -> None:
        super()._set(name, value, command)
        if name == "root":
            self.variables[_AT_ROOT] = "no"
        if name == "timeout":
            number = NUMBER.match(value or "")
            waits = not number or number_of(number) & 1 << 31  # an int, to GRUB
            self.variables[_WAITS] = "yes" if waits else "no"
            if waits:
                self.set_at[_WAITS] = self._place(command)

    def waits_at(self) -> str:
        """Where a timeout may be set with which GRUB waits for a key; empty if it would not wait."""
        waits = self.variables.get(_WAITS, "yes") != "no"
        return self.set_at.get(_WAITS, str(self.directory / "grub.cfg")) if waits else ""

    def _add(self, kind: str, command: Command) -> None:
        words = expanded(command.words[1:], {k: shown(k, v) for k, v in self.variables.items()})
        options, titles = menu_options(words or [])
        if command.block is None or not titles:
            self._add_unread(command)
            return
        identity, place = options.get("id", titles[0]), (self._path, command.line)
        item = MenuItem(titles[0], identity, *place, self._sure, command.block)
        item.restricted = "users" in options or "unrestricted" not in options
        item.items = [] if kind == "submenu" else None
        self.items.append(item)

    def _add_unread(self, command: Command, why: str = "") -> None:
        """A line that may add entries to the menu."""
        self.items.append(MenuItem("", "", self._path, command.line, False, _NOTHING, why=why))

    def _add_bls(self, arguments: Sequence[str | None], command: Command) -> None:
        """The entries of the directory that klat reads. Its path for GRUB can begin with a btrfs subvolume."""
        blsdir = self.variables.get("blsdir", "/loader/entries") or "(unknown)"
        entries = bls_entries(self.root / BLS, self.variables, self.is_of_fedora)
        why = ""
        if arguments or not blsdir.endswith("/loader/entries"):
            why = f" in {blsdir}"
        elif not self.is_of_fedora:
            doubt = doubt_of_grub(self.root, self.directory, self.variables, entries)
            why = doubt and f": {doubt}; use menu entries"
        if why:
            self._add_unread(command, f"klat cannot read the entries of blscfg{why}")
            return
        for entry in entries:
            try:
                body = parse_block("\n".join(entry.body))
            except GrubSyntaxError as error:
                self.left_out[entry.title] = f"{entry.path}: {str(error).partition(': ')[2]}"
                continue
            if not entry.body:
                self.left_out[entry.title or entry.identity] = entry.why
                continue
            item = MenuItem(entry.title, entry.identity, entry.path, 0, self._sure, body)
            item.restricted = entry.restricted
            self.items.append(item)

    def _search(self, words: Sequence[str | None], command: Command) -> Truth:
        self._forget(command, words)
        variable, name = searched([word or "" for word in words])
        if variable:
            self._set(variable, None, command)
        if variable == "root" and is_uuid_of_partition(self.root, self.directory, name):
            self.variables[_AT_ROOT] = "yes"
        return None

    def _transfer(self, name: str, command: Command) -> Truth:
        """Load variables from grubenv, or save them there. They can be in the block that grubenv names."""
        words = expanded(command.words[1:], Shown(self.variables)) or []
        file, names = environment_words(words)
        path = self._path_of(
            file or f"{shown('prefix', self.variables.get('prefix', ''))}/{GRUBENV}"
        )
        block = self.environment.get("env_block")
        in_block = block and file.endswith((block, "$env_block"))
        is_known = in_block or path == self.directory / GRUBENV
        if name == "load_env":
            values = self.environment
            if not is_known:
                if path is None:
                    raise KlatError(
                        f"{self._place(command)}: klat cannot find the file {file}, which load_env reads; mount its"
                        " partition, or remove this command"
                    )
                text = file_text(path) if path.is_file() else ""
                if not text.startswith(SIGNATURE):
                    return False
                self._read_files.add(path)
                values = variables(text)
            for key in names or values:
                if key in values:
                    self._set(key, values[key], command)
        elif is_known:
            self.saved |= {k: self.variables.get(k, "") if self._sure else None for k in names}
            self.saved |= {"env_block": block} if in_block else {}
        elif path in self._read_files:
            raise KlatError(
                f"{self._place(command)}: klat cannot follow the variables of {file} from boot to boot"
            )
        return True

    def _is_file(self, name: str) -> Truth:
        """klat's own file counts as present: klat writes it before a boot."""
        path = self._path_of(name)
        if path is None or path.is_dir():  # -d and -e
            return None
        return path == self.directory / OWN_FILE or path.is_file()

    def _open_menu(self, name: str | None, command: Command) -> None:
        """GRUB makes another menu of the file, with the exported variables."""
        if self.items and self._sure:
            raise KlatError(
                f"{self._place(command)}: configfile opens another menu in place of the entries above;"
                " use source"
            )
        if not self.is_of_fedora:
            self.variables = {n: v for n, v in self.variables.items() if n in self._exported}
        self._read(name, command)

    def _path_of(self, name: str) -> Path | None:
        """The file, which may be missing. None if the partition is not known or not mounted."""
        if Path(name).parent == self.directory:
            return Path(name)
        at_root = self.variables.get(_AT_ROOT) == "yes"
        place = on_partition(self.root, self.directory, name) if at_root else None
        return place or find(self.root, name)[0]

    def _read(self, name: str | None, command: Command) -> None:
        path = None if name is None else self._path_of(name)
        if path is None:
            self._add_unread(command)
        elif path == self.directory / OWN_FILE:
            self.own_file = self._place(command) if self._sure else self.own_file
            if self.with_own:
                place = self._path, command.line
                self.items.append(MenuItem("klat", "klat", *place, self._sure, _NOTHING))
        elif path.is_file():
            self._source(path)
