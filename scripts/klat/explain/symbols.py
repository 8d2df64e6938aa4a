"""Names of a guest's functions: the kernel's and its modules' from /proc/kallsyms, a program's from its
ELF file."""

from __future__ import annotations

import re
import subprocess
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from klat.base.errors import KlatError

# What a compiler makes of one function: parts, copies for constant arguments, cold code.
_PARTS = re.compile(r"\.(?:isra|part|cold|constprop|llvm|lto_priv)(?:\.\d+)*(?=\.|$)")
# Names for the ends of a section, which can lie where a function begins.
_MARKS = re.compile(r"_(?:start|end|begin)$")
_SECONDS = 60


@dataclass(frozen=True)
class Function:
    name: str  # without a compiler's suffixes
    owner: str  # "kernel", a module's name, or a program's
    start: int


class Symbols:
    def __init__(self, functions: Iterable[Function]) -> None:
        by_start: dict[int, Function] = {}
        for function in functions:
            # Of several names for one place, the last, but rather a function's than a mark's.
            if function.start not in by_start or not _MARKS.search(function.name):
                by_start[function.start] = function
        self._functions = [by_start[start] for start in sorted(by_start)]
        self._starts = [function.start for function in self._functions]
        self._names = {function.name for function in self._functions}

    def at(self, address: int) -> Function:
        """The function that holds an address. Below the first, one without a name."""
        place = bisect_right(self._starts, address) - 1
        return self._functions[place] if place >= 0 else Function("?", "?", 0)

    def next_to(self, function: Function, other: Function) -> bool:
        """Whether `other` begins at most two names behind: a label within assembler code is a name."""
        place = bisect_right(self._starts, function.start)
        return other in self._functions[place : place + 2]

    def has(self, name: str) -> bool:
        return name in self._names


def folded(name: str) -> str:
    return _PARTS.sub("", name)


def of_kernel(kallsyms: str) -> list[Function]:
    """KlatError where the addresses are hidden (kernel.kptr_restrict), or a line is no symbol."""
    found = []
    for line in kallsyms.splitlines():
        try:
            address, kind, name, *module = line.split()
            start = int(address, 16)
        except ValueError:
            raise KlatError(
                f"the guest's /proc/kallsyms is damaged: {line[:80]!r}", status=1
            ) from None
        if kind in "tTwW":
            owner = module[0].strip("[]") if module else "kernel"
            found.append(Function(folded(name), owner, start))
    if not any(function.start for function in found):
        raise KlatError(
            "the guest's /proc/kallsyms has no addresses (kernel.kptr_restrict is 2)", status=1
        )
    return found


def of_program(path: Path) -> list[Function]:
    found = []
    for line in binutils("nm", "--defined-only", str(path)).splitlines():
        address, kind, name = line.split()[:3]
        if kind in "tTwWiu":
            found.append(Function(folded(name), path.name, int(address, 16)))
    return found


@dataclass(frozen=True)
class CodeSection:
    address: int
    offset: int  # in the file
    size: int


def code_of(path: Path) -> list[CodeSection]:
    """The sections with instructions."""
    found = []
    rows = binutils("objdump", "--section-headers", "--wide", str(path)).splitlines()
    for row in rows:
        words = row.split()
        if words and words[0].isdecimal() and "CODE" in row:
            found.append(CodeSection(int(words[3], 16), int(words[5], 16), int(words[2], 16)))
    return found


def inlined(path: Path, addresses: Sequence[int]) -> Mapping[int, tuple[str, ...]]:
    """By address: the functions that its source line is in, innermost first, from debug information."""
    if not addresses:
        return {}
    words = ["addr2line", "-aifs", "-e", str(path), *map(hex, addresses)]
    found: dict[int, list[str]] = {}
    address = 0
    lines = iter(binutils(*words).splitlines())
    for line in lines:
        if line.startswith("0x"):
            address = int(line, 16)
            found[address] = []
        else:
            found[address].append(line)
            next(lines)  # the file and line
    return {at: tuple(names) for at, names in found.items()}


def binutils(*words: str) -> str:
    """What a program of binutils prints. KlatError if it fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError:
        raise KlatError(
            f"{words[0]} is not here, and names functions: apt install binutils"
        ) from None
    except subprocess.TimeoutExpired:
        raise KlatError(f"{' '.join(words[:2])} did not end within {_SECONDS} s") from None
    if done.returncode:
        raise KlatError(f"{words[0]} failed: {done.stderr.strip()}")
    return done.stdout
