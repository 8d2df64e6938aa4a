"""Names of a guest's functions. Names of the kernel and its modules come from /proc/kallsyms, names of a
program from its ELF file. Source lines come from a kernel's debug information."""

from __future__ import annotations

import os.path
import re
import subprocess
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from klat.base.errors import KlatError, too_many_damaged
from klat.explain.isa import VECTOR_BYTES
from klat.explain.trace import Executed
from klat.explain.windows import Content

# Suffixes that compilers give to parts and copies of a function, for example to cold code.
_PARTS = re.compile(r"\.(?:isra|part|cold|constprop|llvm|lto_priv)(?:\.\d+)*(?=\.|$)")
# Symbols that mark code and data, and not functions (ELF for the Arm Architecture, "Mapping symbols"; RISC-V
# ELF Specification, the same), and labels of an assembler, which files for RISC-V keep.
_MAPPING = re.compile(r"\$[adtx]|\.L")
# A static program has no code above its own but this.
_VDSO = "[vdso]"
FIRMWARE = "firmware"  # the name and owner of all code of the firmware
# Names that mark the beginning or end of a section. A function can have the same address.
_MARKS = re.compile(r"_(?:start|end|begin)$")
_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Function:
    name: str  # without a compiler's suffixes
    owner: str  # "kernel", or the name of a module or program
    start: int


class Symbols:
    def __init__(self, functions: Iterable[Function]) -> None:
        by_start: dict[int, Function] = {}
        for function in functions:
            # If an address has several names, use the last one that is not a mark.
            if function.start not in by_start or not _MARKS.search(function.name):
                by_start[function.start] = function
        self._functions = [by_start[start] for start in sorted(by_start)]
        self._starts = [function.start for function in self._functions]
        self._by_name = {function.name: function for function in self._functions}

    def at(self, address: int) -> Function:
        """The function that contains the address. If the address is below all functions: "?"."""
        place = bisect_right(self._starts, address) - 1
        return self._functions[place] if place >= 0 else Function("?", "?", 0)

    def next_to(self, function: Function, other: Function) -> bool:
        """Whether `other` is one of the next two names by address. Assembler code has names for labels
        within a function."""
        place = bisect_right(self._starts, function.start)
        return other in self._functions[place : place + 2]

    def has(self, name: str) -> bool:
        return name in self._by_name

    def start_of(self, name: str) -> int | None:
        """The start of the last function with this name. None if there is no such function."""
        return self._by_name[name].start if name in self._by_name else None


def folded(name: str) -> str:
    return _PARTS.sub("", name)


def of_kernel(kallsyms: str, vectors: Mapping[str, Sequence[str]]) -> list[Function]:
    """The functions in the text of /proc/kallsyms. Each entry of a table of `vectors` (isa.Isa) belongs to
    its function. KlatError if the kernel hides the addresses (kernel.kptr_restrict), or if too many lines are
    damaged."""
    functions = []
    damaged = []
    lines = kallsyms.splitlines()
    for line in lines:
        try:
            address, kind, name, *module = line.split()
            start = int(address, 16)
        except ValueError:
            damaged.append(line)
            continue
        if kind in "tTwW" and not _MAPPING.match(name):
            owner = module[0].strip("[]") if module else "kernel"
            functions.append(Function(folded(name), owner, start))
            for number, entered in enumerate(vectors.get(name, ())):
                functions.append(Function(entered, owner, start + number * VECTOR_BYTES))
    if too_many_damaged(len(damaged), len(lines)):
        raise KlatError(
            f"the guest's /proc/kallsyms is damaged in {len(damaged):,} of {len(lines):,} lines, the first:"
            f" {damaged[0][:80]!r}",
            status=1,
        )
    if not any(function.start for function in functions):
        raise KlatError(
            "the guest's /proc/kallsyms has no addresses (kernel.kptr_restrict is 2)", status=1
        )
    return functions


def of_program(path: Path) -> list[Function]:
    """The functions of a static program, and what lies above its code."""
    functions = []
    end = max((section.address + section.size for section in code_of(path)), default=0)
    for line in binutils("nm", "--defined-only", str(path)).splitlines():
        address, kind, name = line.split()[:3]
        start = int(address, 16)
        if kind in "tTwWiu" and start < end and not _MAPPING.match(name):
            functions.append(Function(folded(name), path.name, start))
    return [*functions, Function(_VDSO, _VDSO, end)]


def of_firmware(addresses: range) -> list[Function]:
    """One name for all code of the firmware. The vDSO lies above it."""
    if not addresses:
        return []
    firmware = Function(FIRMWARE, FIRMWARE, addresses.start)
    return [firmware, Function(_VDSO, _VDSO, addresses.stop)]


@dataclass(frozen=True)
class CodeSection:
    address: int
    offset: int  # in the file
    size: int


def code_of(path: Path) -> list[CodeSection]:
    """The sections with instructions."""
    sections = []
    rows = binutils("objdump", "--section-headers", "--wide", str(path)).splitlines()
    for row in rows:
        words = row.split()
        if words and words[0].isdecimal() and "CODE" in row:
            sections.append(CodeSection(int(words[3], 16), int(words[5], 16), int(words[2], 16)))
    return sections


def inlined(path: Path, addresses: Sequence[int]) -> Mapping[int, tuple[str, ...]]:
    """The functions that contain the source line of each address, innermost first."""
    if not addresses:
        return {}
    words = ["addr2line", "-aifs", "-e", str(path), *map(hex, addresses)]
    names_by_address: dict[int, list[str]] = {}
    address = 0
    lines = iter(binutils(*words).splitlines())
    for line in lines:
        if line.startswith("0x"):
            address = int(line, 16)
            names_by_address[address] = []
        else:
            names_by_address[address].append(line)
            next(lines)  # the file and line
    return {at: tuple(names) for at, names in names_by_address.items()}


def binutils(*words: str) -> str:
    """The output of a binutils program. KlatError if the program fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError:
        raise KlatError(f"{words[0]} is missing, and klat needs it: apt install binutils") from None
    except subprocess.TimeoutExpired:
        raise KlatError(f"{' '.join(words[:2])} timed out after {_SECONDS} s") from None
    if done.returncode:
        raise KlatError(f"{words[0]} failed: {done.stderr.strip()}")
    return done.stdout


_PLACE = re.compile(r"^(.+):(\d+)(?: \(.*\))?$")
# A function of every kernel, and its file in the source tree.
_KNOWN, _ITS_FILE = "start_kernel", "init/main.c"


def lines_by_function(
    vmlinux: Path, names: Symbols, contents: Iterable[Content], functions: Collection[str]
) -> dict[str, Counter[str]]:
    """The instructions of each `file:line`, by function of the kernel.

    Instructions of an inlined function have the line of the inlined function. `vmlinux` has the debug
    information."""
    executed: Counter[int] = Counter()
    for content in contents:
        for item in content.items:
            if isinstance(item, Executed):
                for address in item.block.addresses[item.first : item.first + item.instructions]:
                    executed[address] += item.times
    by_function: dict[str, Counter[int]] = {}
    for address, count in executed.items():
        function = names.at(address)
        if function.owner == "kernel" and function.name in functions:
            by_function.setdefault(function.name, Counter())[address] = count
    addresses = sorted({address for counts in by_function.values() for address in counts})
    lines = _lines(vmlinux, addresses, names.start_of(_KNOWN))
    return {name: _summed(counts, lines) for name, counts in by_function.items()}


def _lines(vmlinux: Path, addresses: Sequence[int], known: int | None) -> dict[int, str]:
    """The line of each address. Leaves out addresses without a line.

    Paths are relative to the kernel's source tree. The file of the function at `known` shows where the
    tree is."""
    if not addresses:
        return {}
    asked = [*addresses, *([known] if known else [])]
    text = binutils("addr2line", "-e", str(vmlinux), *map(hex, asked))
    places = {}
    for address, line in zip(asked, text.splitlines()):
        match = _PLACE.match(line)
        if match and match[1] != "??":
            places[address] = (os.path.normpath(match[1]), match[2])
    file, _ = places.get(known or 0, ("", ""))
    tree = file.removesuffix(_ITS_FILE) if file.endswith(_ITS_FILE) else ""
    return {a: f"{_in_tree(places[a][0], tree)}:{places[a][1]}" for a in addresses if a in places}


def _in_tree(file: str, tree: str) -> str:
    if file.startswith(tree):
        return file.removeprefix(tree)
    # After a build in another directory, assembler code can have another path to the tree.
    _, arch, rest = file.rpartition("/arch/")
    return f"arch/{rest}" if arch else file


def _summed(instructions: Counter[int], lines: dict[int, str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for address, count in instructions.items():
        if address in lines:
            counts[lines[address]] += count
    return counts
