"""UEFI: its variables, and kernels that the firmware itself starts, without a boot loader, by their EFI stub.

The kernel shows the variables as files. A boot option of the firmware (UEFI specification, "Boot Manager") names a kernel
file and its command line. klat adds copies with its own words, outside the firmware's boot order. BootNext chooses one.
The firmware removes BootNext before it starts the kernel, so if the kernel fails, the next boot is the default one.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from klat.base.bounded_read import read_named
from klat.base.errors import KlatError
from klat.base.files import explained
from klat.campaign import kernel_image
from klat.campaign.boot_loader import BootEntry, OWN_WORD, OwnEntry, digests, run_tool
from klat.campaign.without_menu import WithoutMenu
from klat.lab.architectures import HOST
from klat.lab.kernel_formats import LARGEST

GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"  # the vendor of the specification's own variables
_ATTRIBUTES = 4
# The variable outlives a reboot, and the firmware and the kernel can read it.
_KEPT = struct.pack("<I", 1 | 2 | 4)


class EfiVariables:
    """The variables of one vendor."""

    def __init__(self, vendor: str, root: Path = Path("/")) -> None:
        self._vendor = vendor
        self._directory = root / "sys/firmware/efi/efivars"

    def are_there(self) -> bool:
        """Whether the running kernel shows UEFI variables."""
        return self._directory.is_dir()

    def path(self, name: str) -> Path:
        return self._directory / f"{name}-{self._vendor}"

    def names(self, pattern: str) -> list[str]:
        """The names that match the pattern, sorted."""
        paths = self._directory.glob(f"{pattern}-{self._vendor}")
        return sorted(path.name.removesuffix(f"-{self._vendor}") for path in paths)

    def read(self, name: str) -> bytes:
        """The value; empty if there is no such variable. KlatError if it cannot be read."""
        if self.are_there():
            with explained("read", self.path(name)), suppress(FileNotFoundError):
                return self.path(name).read_bytes()[_ATTRIBUTES:]
            return b""
        raise KlatError(
            "this kernel has no UEFI variables, which klat needs to choose the next boot; boot another"
            " kernel, or this one with efi=runtime on its command line"
        )

    def write(self, name: str, value: bytes) -> None:
        with explained("write", self.path(name)):
            self.path(name).write_bytes(_KEPT + value)

    def remove(self, name: str) -> None:
        with explained("remove", self.path(name)):
            self.path(name).unlink(missing_ok=True)


def utf16(value: bytes) -> str:
    """A text in UTF-16, without the zero at its end."""
    return value.decode("utf-16-le", "replace").rstrip("\0")


_ACTIVE = 1  # the attribute of an option that can be booted
_HEADER = struct.Struct("<IH")  # attributes, and the length of the path of the kernel
_NODE = struct.Struct("<BBH")  # of such a path: type, subtype, length
_PARTITION, _FILE = (4, 1), (4, 4)
_BY_GUID = 2  # how a node names a partition
_NUMBER = struct.Struct("<H")


@dataclass(frozen=True)
class BootOption:
    """A variable Boot####. `path` has the kernel's partition and file, in the firmware's format."""

    title: str
    path: bytes
    line: str  # the command line
    is_active: bool = True

    @classmethod
    def read(cls, data: bytes) -> BootOption:
        """ValueError if the data are cut off. `line` is empty if no text follows the path."""
        if len(data) < _HEADER.size:
            raise ValueError("cut off")
        attributes, length = _HEADER.unpack_from(data)
        begin = end = _HEADER.size
        while data[end : end + 2] not in (b"\0\0", b""):
            end += 2
        path, line = data[end + 2 : end + 2 + length], data[end + 2 + length :]
        if len(path) < length:
            raise ValueError("cut off")
        is_text = len(line) % 2 == 0
        return cls(utf16(data[begin:end]), path, utf16(line) * is_text, bool(attributes & _ACTIVE))

    def data(self) -> bytes:
        title, line = (f"{text}\0".encode("utf-16-le") for text in (self.title, self.line))
        return _HEADER.pack(_ACTIVE, len(self.path)) + title + self.path + line

    def file(self) -> tuple[uuid.UUID, str]:
        """The GUID of the partition, and the file on it. ValueError if the path names no such file."""
        partition, name, at = None, "", 0
        while at + _NODE.size <= len(self.path):
            kind, subkind, length = _NODE.unpack_from(self.path, at)
            node = self.path[at : at + length]
            if (kind, subkind) == _PARTITION and length == 42 and node[41] == _BY_GUID:
                partition = uuid.UUID(bytes_le=node[24:40])
            elif (kind, subkind) == _FILE:
                name += utf16(node[_NODE.size :])
            at += max(length, _NODE.size)
        if partition is None or not name:
            raise ValueError("names no file on a partition")
        return partition, name.replace("\\", "/").lstrip("/")


def started_directories(root: Path) -> list[Path]:
    """Possible paths of the directory of the EFI program that the firmware started in this boot."""
    variables = EfiVariables(GLOBAL, root)
    number = variables.read("BootCurrent") if variables.are_there() else b""
    try:
        option = BootOption.read(variables.read(_name(*_NUMBER.unpack(number))))
        directory = Path(option.file()[1]).parent
    except (ValueError, struct.error):
        return []
    return [root / top / directory for top in ("boot/efi", "efi", "boot")]


class EfiStub(WithoutMenu):
    name = "the firmware"
    # A real-time kernel has UEFI variables only with this word.
    own_words = ("efi=runtime",)

    def __init__(
        self, release: str = "", words: Sequence[str] | None = None, root: Path = Path("/")
    ) -> None:
        super().__init__(release, words, root)
        self._variables = EfiVariables(GLOBAL, root)

    def has_booted(self) -> bool:
        """Whether the firmware itself started the running kernel."""
        if not self._variables.are_there():
            return False
        current = self._number("BootCurrent")
        return any(entry.identity == current for entry in self.entries())

    def entries(self) -> list[BootEntry]:
        options = self._options().items()
        entries = (self._entry_of(name, o) for name, o in options if OWN_WORD not in o.line)
        return [entry for entry in entries if entry]

    def default(self) -> BootEntry:
        order = self._variables.read("BootOrder")
        names = [_name(number) for (number,) in _NUMBER.iter_unpack(order[: len(order) & ~1])]
        options = self._options()
        first = next((name for name in names if name in options and options[name].is_active), "")
        return self.entry(
            first,
            f"the first entry of the firmware's boot order, {first!r}, is not a kernel with a command"
            " line on a mounted partition; choose one with efibootmgr --bootorder",
        )

    def check(self) -> None:
        super().check()
        if self._variables.read("BootNext"):
            raise KlatError(
                "an entry is already chosen for the next boot; boot it, or run efibootmgr"
                " --delete-bootnext"
            )

    def install(self, copies: Sequence[OwnEntry]) -> None:
        self.remove()
        options = self._options()
        free = (n for n in map(_name, range(0x10000)) if not self._variables.read(n))
        for copy in copies:
            source = options[copy.entry.identity]
            line = " ".join((source.line or " ".join(copy.entry.words), *copy.append))
            option = BootOption(f"klat: {copy.name}", source.path, line)
            self._variables.write(next(free), option.data())

    def choose(self, copy: OwnEntry) -> None:
        for name, option in self._copies():
            if f"{OWN_WORD}{copy.name}" in option.line.split():
                self._variables.write("BootNext", _NUMBER.pack(int(name[4:], 16)))
                return
        raise KlatError(f"klat's entry {copy.name!r} is gone from the firmware's boot entries")

    def remove(self) -> None:
        chosen = self._number("BootNext")
        for name, _ in self._copies():
            if name == chosen:
                self._variables.remove("BootNext")
            self._variables.remove(name)

    def files(self) -> Mapping[str, str]:
        names = [*self._numbered(), "BootOrder", "BootNext"]
        values = ((self._variables.path(name), self._variables.read(name)) for name in names)
        return digests((path, value) for path, value in values if value)

    def _numbered(self) -> list[str]:
        return self._variables.names("Boot" + 4 * "[0-9A-F]")

    def _options(self) -> dict[str, BootOption]:
        options = {}
        for name in self._numbered():
            with suppress(ValueError):
                options[name] = BootOption.read(self._variables.read(name))
        return options

    def _copies(self) -> list[tuple[str, BootOption]]:
        return [(name, o) for name, o in self._options().items() if OWN_WORD in o.line]

    def _number(self, variable: str) -> str:
        """The boot option that the variable names; empty if there is none."""
        value = self._variables.read(variable)
        return _name(*_NUMBER.unpack(value)) if len(value) == _NUMBER.size else ""

    def _entry_of(self, name: str, option: BootOption) -> BootEntry | None:
        """None if the option is inactive, its partition is not mounted, or its file is no kernel."""
        if not option.is_active:
            return None
        try:
            partition, file = option.file()
            at = run_tool("findmnt", "-nro", "TARGET", "--source", f"PARTUUID={partition}")
            kernel = self._root / at.splitlines()[0].lstrip("/") / file
            texts = kernel_image.unified_texts(kernel)
            release = kernel_image.release(kernel)
            if texts is None:
                release = HOST.format.version(read_named(kernel, LARGEST)).split()[0]
        except (ValueError, KlatError, OSError, IndexError):
            return None
        line = option.line or (texts or {}).get(".cmdline", "")
        return BootEntry(name, option.title, release, tuple(line.split()), kernel)


def _name(number: int) -> str:
    return f"Boot{number:04X}"
