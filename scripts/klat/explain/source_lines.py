"""The source lines of a sample, from a kernel's debug information."""

from __future__ import annotations

import os.path
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from klat.explain import symbols
from klat.explain.symbols import Function, Symbols
from klat.explain.trace import Executed
from klat.explain.windows import Content

_INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\t", re.MULTILINE)
_PLACE = re.compile(r"^(.+):(\d+)(?: \(.*\))?$")


def by_function(
    vmlinux: Path,
    booted: Path,
    names: Symbols,
    contents: Iterable[Content],
    functions: Collection[str],
) -> dict[str, Counter[str]]:
    """The instructions of each `file:line`, by function of the kernel. A line of an inlined function is
    that function's. `booted` is the kernel without debug information: its code is disassembled."""
    executed: dict[Function, Counter[tuple[int, int, int]]] = {}
    for content in contents:
        for item in content.items:
            if not isinstance(item, Executed):
                continue
            function = names.at(item.block.address)
            if function.owner == "kernel" and function.name in functions:
                held = executed.setdefault(function, Counter())
                for at in range(item.first, item.first + item.instructions):
                    held[item.block.address, item.block.size, at] += item.times
    found: dict[str, Counter[int]] = {}
    for function, instructions in executed.items():
        own = found.setdefault(function.name, Counter())
        addresses = _addresses(booted, {(start, size) for start, size, _ in instructions})
        for (start, size, at), count in instructions.items():
            inside = addresses[start, size]
            # Code that the kernel changed when it booted can have more instructions than its file.
            own[inside[min(at, len(inside) - 1)]] += count
    lines = _lines(vmlinux, sorted({address for held in found.values() for address in held}))
    return {name: _summed(held, lines) for name, held in found.items()}


def _addresses(
    booted: Path, blocks: Collection[tuple[int, int]]
) -> dict[tuple[int, int], list[int]]:
    """Of the instructions in each block."""
    first, last = min(blocks)[0], max(start + size for start, size in blocks)
    words = ("objdump", "-d", f"--start-address={first:#x}", f"--stop-address={last:#x}")
    text = symbols.binutils(*words, str(booted))
    every = [int(address, 16) for address in _INSTRUCTION.findall(text)]
    return {
        (start, size): [start, *(each for each in every if start < each < start + size)]
        for start, size in blocks
    }


def _lines(vmlinux: Path, addresses: Sequence[int]) -> dict[int, str]:
    """Where the compiler knew the line."""
    if not addresses:
        return {}
    text = symbols.binutils("addr2line", "-e", str(vmlinux), *map(hex, addresses))
    places = {}
    for address, line in zip(addresses, text.splitlines()):
        match = _PLACE.match(line)
        if match and match[1] != "??":
            places[address] = (os.path.normpath(match[1]), match[2])
    files = {file for file, _ in places.values() if os.path.isabs(file)}
    # The names of a kernel's files are those below its source tree.
    tree = os.path.commonpath([os.path.dirname(file) for file in files]) if files else ""
    return {
        address: f"{os.path.relpath(file, tree) if file in files else file}:{line}"
        for address, (file, line) in places.items()
    }


def _summed(instructions: Counter[int], lines: dict[int, str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for address, count in instructions.items():
        if address in lines:
            found[lines[address]] += count
    return found
