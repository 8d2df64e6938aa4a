"""systemd-boot: the entries of the Boot Loader Specification, and its choice for one boot.

klat adds its entries as files beside those of the user, with a counter of tries in the name. systemd-boot
decrements the counter before it starts the kernel, so the name shows which entry was started. It also clears
the choice of `bootctl set-oneshot` before it starts the kernel. So if the kernel fails, the next boot is the
default one.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from klat.base import files
from klat.base.errors import KlatError
from klat.campaign import kernel_image
from klat.campaign.boot_loader import BootEntry, BootLoader, OwnEntry, digests, file_bytes
from klat.campaign.boot_loader import file_text, run_tool
from klat.campaign.efi import EfiVariables, utf16

_MARK = "# klat campaign: do not edit; klat removes this file\n"
# Without sort keys, systemd-boot lists entries by descending names, so that klat's come after all others.
_OWN = "a-klat-"
_MADE = re.compile(r"^# klat made (/.*)$", re.MULTILINE)
_UNTRIED = "+1"
# choose() names an entry by its number and a pattern. An identity would not do: in version 252, bootctl and
# systemd-boot disagree on whether the counter is part of it.
_OWN_FILE = re.compile(rf"{_OWN}(\d+)-(.+?)(?:\+\d+(?:-\d+)?)?\.conf")
_UNKNOWN = re.compile(
    r"^[ \t]*(?:profile|extra)\s.*", re.MULTILINE
)  # a copy starts the image by another key
_LINE_BREAK, _BLANKS = re.compile(r"[\r\n]+"), re.compile(r"[ \t]+")  # of systemd-boot
_CONTROLS = re.compile(r"[\x00-\x1f]+")
_COUNTED = re.compile(r"\+\d+(?:-\d+)?\.efi$", re.IGNORECASE)
_COUNTER = re.compile(r"\+\d+(?:-\d+)?(?=\.\w+$)")
_VENDOR = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"  # of the variables of the Boot Loader Interface
_COUNTS_TRIES, _CHOOSES_ONCE = 1 << 4, 1 << 3  # of LoaderFeatures


class SystemdBoot(BootLoader):
    name = "systemd-boot"
    # A real-time kernel has UEFI variables only with this word.
    own_words = ("efi=runtime",)
    tools = ("bootctl",)

    def __init__(self, root: Path = Path("/")) -> None:
        self._variables = EfiVariables(_VENDOR, root)

    def has_booted(self) -> bool:
        """Whether systemd-boot started this boot."""
        there = self._variables.are_there()
        return there and utf16(self._variables.read("LoaderInfo")).startswith("systemd-boot")

    def entries(self) -> list[BootEntry]:
        return [
            _entry(identity, fields)
            for identity, fields in self._listed().items()
            if not _OWN_FILE.fullmatch(fields["id"]) and not _doubt(fields)
        ]

    def left_out(self) -> Mapping[str, str]:
        doubts = {
            fields.get("showTitle", name): _doubt(fields) for name, fields in self._listed().items()
        }
        return {title: doubt for title, doubt in doubts.items() if doubt}

    def why_left_out(self, name: str) -> str:
        fields = self._listed().get(name)
        return _doubt(fields) if fields else super().why_left_out(name)

    def default(self) -> BootEntry:
        identity = self._default_identity()
        return self.entry(
            identity,
            f"the default of systemd-boot, {identity!r}, is not an entry that boots Linux from a file in"
            " loader/entries; choose one with bootctl set-default",
        )

    def booted(self) -> str:
        """In some versions, the variable has the counter of tries."""
        name = utf16(self._variables.read("LoaderEntrySelected"))
        name = _COUNTER.sub("", name).lower()
        return next((identity for identity in self._listed() if identity.lower() == name), "")

    def check(self) -> None:
        features = int.from_bytes(self._variables.read("LoaderFeatures"), "little")
        if not features & _CHOOSES_ONCE or not features & _COUNTS_TRIES:
            raise KlatError(
                "this systemd-boot cannot boot an entry once, or count tries; run bootctl update"
            )
        defaults = (("default", "LoaderEntryDefault"), ("preferred", "LoaderEntryPreferred"))
        if any(self._default_pattern(*setting) == "@saved" for setting in defaults):
            raise KlatError(
                "the default of systemd-boot is the entry that was started last (@saved), so a kernel that"
                " fails would boot again and again; choose a default with bootctl set-default"
            )
        timeout = utf16(self._variables.read("LoaderConfigTimeout")) or self._configured("timeout")
        if timeout == "menu-force":
            raise KlatError(
                "with the timeout menu-force, systemd-boot waits for a key; run bootctl set-timeout 3"
            )
        if self._variables.read("LoaderEntryOneShot"):
            raise KlatError(
                "an entry is already chosen for the next boot; boot it, or run bootctl set-oneshot ''"
            )

    def install(self, copies: Sequence[OwnEntry]) -> None:
        self.remove()
        sources = self._listed()
        default = self._default_identity()
        for number, copy in enumerate(copies, start=1):
            source = sources[copy.entry.identity]
            file = _directory(source) / f"{_OWN}{number}-{copy.name}{_UNTRIED}.conf"
            with _made_directories(file.parent) as made:
                text = _MARK + made + "".join(_copy_lines(source, copy))
                files.write_whole(file, text.encode(errors="surrogateescape"), give=False)
        os.sync()
        now = self._default_identity()
        if now != default:
            self.remove()
            raise KlatError(
                f"with klat's entries, systemd-boot's default would be {now!r}, not {default!r};"
                " choose the default with bootctl set-default"
            )

    def choose(self, copy: OwnEntry) -> None:
        numbers = {}
        for file, number, name in self._copy_files():
            file.rename(file.with_name(f"{_OWN}{number}-{name}{_UNTRIED}.conf"))
            numbers[name] = number
        if copy.name not in numbers:
            raise KlatError(f"klat's entry {copy.name!r} is gone from systemd-boot's menu")
        os.sync()
        run_tool("bootctl", "set-oneshot", f"{_OWN}{numbers[copy.name]}-*")

    def started(self) -> str:
        tried = (name for file, _, name in self._copy_files() if not file.stem.endswith(_UNTRIED))
        return next(tried, "")

    def remove(self) -> None:
        made = []
        for file, _, _ in self._copy_files():
            made += _MADE.findall(file_text(file))
            file.unlink()
        _remove_empty(map(Path, made))
        if utf16(self._variables.read("LoaderEntryOneShot")).startswith(_OWN):
            run_tool("bootctl", "set-oneshot", "")
        os.sync()

    def files(self) -> Mapping[str, str]:
        names = [
            *(file for directory in self._directories() for file in directory.glob("*.conf")),
            _configuration(),
            *(self._variables.path(name) for name in ("LoaderEntryDefault", "LoaderEntryOneShot")),
        ]
        return digests((path, file_bytes(path)) for path in names if path.is_file())

    def _listed(self) -> dict[str, dict[str, Any]]:
        """The entries with a file, including klat's: a file in loader/entries, or a unified kernel image. The key is
        their identifier, or the path if an earlier entry has the identifier."""
        text = run_tool("bootctl", "list", "--json=short")
        try:
            objects = list(_objects(text))
        except ValueError as error:
            raise KlatError(f"bootctl list --json=short: {error}") from error
        listed: dict[str, dict[str, Any]] = {}
        for fields in objects:
            path = fields.get("path", "")
            if path.endswith(".conf") or path and _is_linux(fields):
                listed[path if fields["id"] in listed else fields["id"]] = fields
        return listed

    def _default_identity(self) -> str:
        """The identity of the default entry, from text: the JSON of bootctl has it only since version 254."""
        titles = {fields["id"]: fields.get("showTitle", "") for fields in self._listed().values()}
        title = ""
        for line in run_tool("bootctl", "list").splitlines():
            key, _, value = line.strip().partition(": ")
            if key == "title":
                title = value
            # The title itself can contain the mark.
            elif key == "id" and "(default)" in title.removeprefix(titles.get(value, "")):
                return value
        raise KlatError("bootctl list shows no default entry")

    def _directories(self) -> list[Path]:
        return list(dict.fromkeys(_directory(fields) for fields in self._listed().values()))

    def _default_pattern(self, key: str, variable: str) -> str:
        """The variable overrides loader.conf if an entry matches it."""
        chosen = utf16(self._variables.read(variable)).lower()
        names = [fields["id"].lower() for fields in self._listed().values()]
        overrides = chosen == "@saved" or (chosen and fnmatch.filter(names, chosen))
        return chosen if overrides else self._configured(key).lower()

    def _configured(self, key: str) -> str:
        file = _configuration()
        text = file_text(file) if file.is_file() else ""
        values = re.findall(rf'^[ \t]*{key}[ \t]+"?([^\s"]+)', text, re.MULTILINE)
        return "".join(values[-1:])

    def _copy_files(self) -> list[tuple[Path, str, str]]:
        """The files of klat's entries, each with its number and name."""
        files_found = (f for d in self._directories() for f in sorted(d.glob(f"{_OWN}*.conf")))
        named = ((file, _OWN_FILE.fullmatch(file.name)) for file in files_found)
        return [
            (file, match[1], match[2])
            for file, match in named
            if match and file_text(file).startswith(_MARK)
        ]


def _configuration() -> Path:
    """The file loader.conf. Entries can also be on another partition, of which systemd-boot reads no loader.conf."""
    return Path(run_tool("bootctl", "--print-esp-path").strip(), "loader/loader.conf")


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The objects that bootctl prints: an array, or before version 253 one after the other."""
    decoder = json.JSONDecoder()
    text = text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        yield from value if isinstance(value, list) else [value]
        text = text[end:].lstrip()


def _entry(identity: str, fields: Mapping[str, str]) -> BootEntry:
    kernel, title = _kernel(fields), fields.get("showTitle", fields["id"])
    release = kernel_image.release(kernel) or _release(fields)
    return BootEntry(identity, title, release, tuple(_options(fields).split()), kernel)


def _release(fields: Mapping[str, str]) -> str:
    """The kernel's release, if kernel-install made the file: the version then ends its name. In other files
    the version can be any text, so the release is not known."""
    version = fields.get("version", "")
    return version if fields["id"].endswith(f"-{version}.conf") else ""


def _is_unified(fields: Mapping[str, Any]) -> bool:
    """Whether the entry starts a unified kernel image, with or without a file in loader/entries."""
    return kernel_image.unified_texts(_kernel(fields)) is not None


def _kernel(fields: Mapping[str, Any]) -> Path:
    """The file that the entry starts; if it names none, the file of the entry."""
    named = next((fields[key] for key in ("linux", "uki", "efi") if key in fields), None)
    return _file(fields, named) if named else Path(fields["path"])


def _file(fields: Mapping[str, Any], name: str) -> Path:
    """The file that the entry names so. For systemd-boot, a backslash is a slash."""
    return Path(fields.get("root", "/"), name.replace("\\", "/").lstrip("/"))


def _is_linux(fields: Mapping[str, Any]) -> bool:
    """Whether the entry starts Linux. The key efi can name any program."""
    if {"linux", "uki"} & fields.keys() or _is_unified(fields):
        return True
    return bool(kernel_image.release(_kernel(fields)))


def _options(fields: Mapping[str, Any]) -> str:
    """The command line. systemd-boot passes that of the entry; if it is empty, the image has its own."""
    texts = {} if fields.get("options") else kernel_image.unified_texts(_kernel(fields)) or {}
    return str(fields.get("options") or texts.get(".cmdline", ""))


def _doubt(fields: Mapping[str, Any]) -> str:
    """Why klat cannot boot the entry; empty if it can."""
    for name in fields.get("initrd", ()):
        if not _file(fields, name).is_file():
            return f"{fields['path']}: the initramfs {name} is missing"
    source, kernel = Path(fields["path"]), _kernel(fields)
    if not _is_linux(fields):
        return f"{source}: {kernel} is not a kernel that klat knows"
    text = file_text(source) if source.suffix == ".conf" and source.is_file() else ""
    if match := _UNKNOWN.search(text):
        return f"{source}: klat cannot copy the line {match[0]!r}"
    if not _is_unified(fields):
        return ""
    if _COUNTED.search(kernel.name):
        return f"{kernel}: systemd-boot counts its tries and renames it at a boot; boot it once, so that it gets its name"
    if "@" in fields["id"] and not fields["id"].endswith("@0"):
        return f"{kernel}: klat can boot only the first profile of a unified kernel image"
    places = [kernel.with_name(f"{kernel.name}.extra.d")]
    places.append(Path(fields.get("root", "/"), "loader/addons"))
    # A file system of EFI does not distinguish capital letters.
    files = (file for place in places for file in place.glob("*"))
    addons = [file for file in files if file.name.lower().endswith(".addon.efi")]
    return f"{addons[0]} adds parameters that klat does not know" if addons else ""


def _directory(fields: Mapping[str, Any]) -> Path:
    """The directory for klat's copy of the entry."""
    path = Path(fields["path"])
    return path.parent if path.suffix == ".conf" else Path(fields["root"], "loader/entries")


@contextmanager
def _made_directories(directory: Path) -> Iterator[str]:
    """Make the directory and its parent if they are missing. Yields the lines by which remove() knows them. If the
    block fails, they are removed."""
    missing = [path for path in (directory, directory.parent) if not path.exists()]
    try:
        with files.explained("make", directory):
            directory.mkdir(parents=True, exist_ok=True)
        yield "".join(f"# klat made {path}\n" for path in missing)
    except BaseException:
        _remove_empty(missing)
        raise


def _remove_empty(directories: Iterable[Path]) -> None:
    for directory in directories:
        with suppress(OSError):
            directory.rmdir()


def _copy_lines(fields: Mapping[str, Any], copy: OwnEntry) -> Iterator[str]:
    """The lines of klat's entry. systemd-boot joins all lines of options to one command line. Without a sort-key, the
    entry comes after those that have one, so it does not become the default."""
    source = Path(fields["path"])
    lines = [f"title {copy.name}", f"linux /{_kernel(fields).relative_to(fields['root'])}"]
    if source.suffix == ".conf":
        lines = _LINE_BREAK.split(file_text(source, "surrogateescape"))
    for line in filter(None, lines):
        key, *value = _BLANKS.split(line.strip(" \t"), 1)
        if key == "title":
            yield f"title klat: {copy.name}\n"
        elif key == "sort-key":
            continue
        elif key in ("efi", "uki") and value:  # systemd-boot counts no tries of an entry with efi
            yield f"linux {value[0]}\n"
        else:
            yield f"{line}\n"
    is_of_image = source.suffix != ".conf" or not fields.get("options")
    # systemd-boot removes quotes around a whole line, and the kernel takes a line break for a blank.
    words = _CONTROLS.sub(" ", _options(fields)).split(" ") if is_of_image else ()
    yield f"options {' '.join((*words, *copy.append))}\n"
