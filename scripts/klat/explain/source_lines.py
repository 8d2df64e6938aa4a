"""The source lines of a sample, from a kernel's debug information."""

from __future__ import annotations

import os.path
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from klat.explain import symbols
from klat.explain.symbols import Symbols
from klat.explain.trace import Executed
from klat.explain.windows import Content

_PLACE = re.compile(r"^(.+):(\d+)(?: \(.*\))?$")
# A function of every kernel, and its file in the source tree.
_KNOWN, _ITS_FILE = "start_kernel", "init/main.c"


def by_function(
    vmlinux: Path,
    names: Symbols,
    contents: Iterable[Content],
    functions: Collection[str],
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
    found: dict[str, Counter[int]] = {}
    for address, count in executed.items():
        function = names.at(address)
        if function.owner == "kernel" and function.name in functions:
            found.setdefault(function.name, Counter())[address] = count
    addresses = sorted({address for held in found.values() for address in held})
    lines = _lines(vmlinux, addresses, names.start_of(_KNOWN))
    return {name: _summed(held, lines) for name, held in found.items()}


def _lines(vmlinux: Path, addresses: Sequence[int], known: int | None) -> dict[int, str]:
    """The line of each address. Leaves out addresses without a line.

    Paths are relative to the kernel's source tree. The file of the function at `known` shows where the
    tree is."""
    if not addresses:
        return {}
    asked = [*addresses, *([known] if known else [])]
    text = symbols.binutils("addr2line", "-e", str(vmlinux), *map(hex, asked))
    places = {}
    for address, line in zip(asked, text.splitlines()):
        match = _PLACE.match(line)
        if match and match[1] != "??":
            places[address] = (os.path.normpath(match[1]), match[2])
    file, _ = places.get(known or 0, ("", ""))
    tree = file.removesuffix(_ITS_FILE) if file.endswith(_ITS_FILE) else ""
    return {
        address: f"{_in_tree(places[address][0], tree)}:{places[address][1]}"
        for address in addresses
        if address in places
    }


def _in_tree(file: str, tree: str) -> str:
    if file.startswith(tree):
        return file.removeprefix(tree)
    # After a build in another directory, assembler code can have another path to the tree.
    _, arch, rest = file.rpartition("/arch/")
    return f"arch/{rest}" if arch else file


def _summed(instructions: Counter[int], lines: dict[int, str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for address, count in instructions.items():
        if address in lines:
            found[lines[address]] += count
    return found
