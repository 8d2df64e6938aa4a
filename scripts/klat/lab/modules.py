"""Kernel modules for a guest, with the modules that they depend on.

Packages have no modules.dep. So the dependencies are read from `depends=` in the .modinfo section of a module
(written by scripts/mod/modpost.c of the kernel's source). `softdep=` is ignored: a module works without.
"""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from klat.base.errors import KlatError
from klat.lab.boot_failures import ModuleMissing

_SUFFIXES = (".ko", ".ko.xz", ".ko.zst", ".ko.gz")
_ELF_SECTION = struct.Struct("<IIQQQQIIQQ")


@dataclass(frozen=True)
class Module:
    name: str  # as the kernel shows it, with underscores
    data: bytes  # unpacked
    depends: tuple[str, ...]
    release: str  # of the kernel that it was built for


def normal(name: str) -> str:
    return name.replace("-", "_")


def unpack(path: Path) -> bytes:
    """The unpacked module. KlatError if it is damaged or zstd is missing."""
    data = path.read_bytes()
    try:
        if path.name.endswith(".xz"):
            return lzma.decompress(data)
        if path.name.endswith(".gz"):
            return gzip.decompress(data)
    except (lzma.LZMAError, zlib.error, OSError, EOFError) as error:
        raise KlatError(f"{path}: cannot be unpacked: {error}") from None
    if not path.name.endswith(".zst"):
        return data
    zstd = shutil.which("zstd")
    if not zstd:
        raise KlatError(f"{path}: is packed with zstd, which is not installed: apt install zstd")
    done = subprocess.run([zstd, "-dcq"], input=data, capture_output=True, check=False)
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip()
        raise KlatError(f"{path}: cannot be unpacked: {why}")
    return done.stdout


def information(data: bytes) -> list[tuple[str, str]]:
    """The `name=value` pairs of .modinfo. ValueError if the file is not a module for x86-64."""
    if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:
        raise ValueError("is no 64-bit ELF file")
    if struct.unpack_from("<H", data, 18)[0] != 62:
        raise ValueError("is not for x86-64")
    try:
        (offset,) = struct.unpack_from("<Q", data, 40)
        size, count, names_index = struct.unpack_from("<HHH", data, 58)
        sections = [_ELF_SECTION.unpack_from(data, offset + i * size) for i in range(count)]
        names = data[sections[names_index][4] :]
        for name, _, _, _, start, length, *_ in sections:
            if names[name : name + 9] == b".modinfo\0":
                text = data[start : start + length].decode("utf-8", "replace")
                pairs = (item.partition("=") for item in text.split("\0") if item)
                return [(key, value) for key, _, value in pairs]
    except (struct.error, IndexError):
        raise ValueError("is a damaged ELF file") from None
    raise ValueError("has no .modinfo section")


def read(path: Path) -> Module:
    data = unpack(path)
    try:
        found = information(data)
    except ValueError as error:
        raise KlatError(f"{path}: {error}, so it is no kernel module") from None
    values = dict(reversed(found))
    needed = tuple(normal(name) for name in values.get("depends", "").split(",") if name)
    file = path.name.partition(".")[0]
    words = values.get("vermagic", "").split()
    return Module(normal(values.get("name", file)), data, needed, words[0] if words else "")


class Tree:
    """The modules below a directory: lib/modules/RELEASE, or what holds that."""

    def __init__(self, directory: Path, release: str) -> None:
        if not directory.is_dir():
            raise KlatError(f"{directory}: no such directory of modules")
        self._release = release
        self.directory = next(
            (
                inner
                for inner in (directory / "lib/modules" / release, directory / release)
                if inner.is_dir()
            ),
            directory,
        )
        self._paths: dict[str, Path] = {}
        for folder, names, files in os.walk(self.directory):
            names.sort()
            for file in sorted(files):
                if file.endswith(_SUFFIXES):
                    self._paths.setdefault(normal(file.partition(".")[0]), Path(folder, file))
        if not self._paths:
            raise KlatError(f"{directory}: holds no kernel module (*.ko, also .xz, .zst or .gz)")
        self._built_in = self._read_built_in()

    def _read_built_in(self) -> frozenset[str]:
        try:
            lines = (self.directory / "modules.builtin").read_text().splitlines()
        except OSError:
            return frozenset()
        return frozenset(normal(Path(line).name.partition(".")[0]) for line in lines if line)

    def has(self, name: str) -> bool:
        """Whether the module can be loaded. A built-in one cannot."""
        return normal(name) in self._paths

    def knows(self, name: str) -> bool:
        """Whether the kernel has it, loadable or built in."""
        return self.has(name) or normal(name) in self._built_in

    def closure(self, wanted: Iterable[str]) -> list[Module]:
        """The modules and their dependencies, each after its own. Leaves out what is built into the kernel."""
        found: dict[str, Module] = {}
        for name in wanted:
            self._add(normal(name), (), found)
        return list(found.values())

    def _add(self, name: str, above: Sequence[str], found: dict[str, Module]) -> None:
        if name in found or name in self._built_in:
            return
        if name in above:
            raise KlatError(f"{self.directory}: the module {name} needs itself")
        path = self._paths.get(name)
        if path is None:
            why = f", which {above[-1]} needs" if above else ""
            raise ModuleMissing(f"{self.directory}: there is no module {name}{why}")
        module = read(path)
        if module.release != self._release:
            raise KlatError(
                f"{path}: is of kernel {module.release or 'unknown'}, and the kernel to boot is"
                f" {self._release}; give the modules that were built with it"
            )
        for needed in module.depends:
            self._add(needed, (*above, name), found)
        found[name] = module
