"""Kernel modules for a guest, with the modules that they depend on.

Packages have no modules.dep. So the dependencies are read from `depends=` in the .modinfo section of a module
(written by scripts/mod/modpost.c of the kernel's source). `softdep=` is ignored: a module works without.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from klat.base.bounded_read import read_named
from klat.base.errors import KlatError
from klat.lab import elf, kernel_formats
from klat.lab.guest import ModuleMissing

_SUFFIXES = (".ko", ".ko.xz", ".ko.zst", ".ko.gz")


@dataclass(frozen=True)
class Module:
    name: str  # as the kernel shows it, with underscores
    data: bytes  # unpacked
    depends: tuple[str, ...]
    release: str  # of the kernel that it was built for


def normal(name: str) -> str:
    return name.replace("-", "_")


def information(data: bytes) -> list[tuple[str, str]]:
    """The `name=value` pairs of .modinfo. ValueError if the file is not a module."""
    text = elf.section(data, b".modinfo").decode("utf-8", "replace")
    pairs = (item.partition("=") for item in text.split("\0") if item)
    return [(key, value) for key, _, value in pairs]


def read(path: Path) -> Module:
    try:
        data = kernel_formats.decompress(read_named(path, kernel_formats.LARGEST))
        values = dict(reversed(information(data)))
    except OSError as error:
        raise KlatError(f"{path}: cannot read the kernel module: {error.strerror}") from None
    except ValueError as error:
        raise KlatError(f"{path}: cannot be used as a kernel module: it {error}") from None
    needed = tuple(normal(name) for name in values.get("depends", "").split(",") if name)
    file = path.name.partition(".")[0]
    words = values.get("vermagic", "").split()
    return Module(normal(values.get("name", file)), data, needed, words[0] if words else "")


class Tree:
    """The modules below a directory: lib/modules/RELEASE or usr/lib/modules/RELEASE, or one of its parents."""

    def __init__(self, directory: Path, release: str) -> None:
        if not directory.is_dir():
            raise KlatError(f"{directory}: no such directory of modules")
        self._release = release
        places = (directory / above / release for above in ("lib/modules", "usr/lib/modules", ""))
        self.directory = next((place for place in places if place.is_dir()), directory)
        self._paths: dict[str, Path] = {}
        self._modules: dict[Path, Module] = {}  # read once: all guests have what was checked
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
        """The modules with their dependencies, each after the modules that it needs. Leaves out
        modules that are built into the kernel."""
        ordered: dict[str, Module] = {}
        for name in wanted:
            self._add(normal(name), (), ordered)
        return list(ordered.values())

    def _add(self, name: str, above: Sequence[str], ordered: dict[str, Module]) -> None:
        if name in ordered or name in self._built_in:
            return
        if name in above:
            raise KlatError(f"{self.directory}: the module {name} needs itself")
        path = self._paths.get(name)
        if path is None:
            why = f", which {above[-1]} needs" if above else ""
            raise ModuleMissing(f"{self.directory}: there is no module {name}{why}")
        module = self._modules[path] = self._modules.get(path) or read(path)
        if module.release != self._release:
            raise KlatError(
                f"{path}: is of kernel {module.release or 'unknown'}, and the kernel to boot is"
                f" {self._release}; give the modules that were built with it"
            )
        for needed in module.depends:
            self._add(needed, (*above, name), ordered)
        ordered[name] = module
