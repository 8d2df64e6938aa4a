"""Streams as klat's plugin for QEMU writes them, made by hand."""

import struct
from collections.abc import Sequence
from pathlib import Path

from klat.explain import trace
from klat.explain.trace import IDLE, REPEAT, SWITCH, Trace

BEGIN, END = 0, 1  # numbers of stamps
NOT_KEPT_HALTED = 0xFFFFFFFF  # instead of a path's number


class MadeTrace:
    def __init__(self) -> None:
        self.records: list[bytes] = [struct.pack("<II", 0x74616C6B, 2)]
        self.blocks = self.paths = self.stamps = 0

    def _add(self, kind: bytes, *words: int) -> None:
        self.records.append(struct.pack(f"<{1 + len(words)}I", kind[0], *words))

    def block(self, address: int, instructions: int | bytes) -> int:
        """A block of instructions with these sizes, or of this many instructions with one byte each."""
        sizes = bytes([1] * instructions) if isinstance(instructions, int) else instructions
        padded = sizes + bytes(-len(sizes) % 4)
        words = struct.unpack(f"<{len(padded) // 4}I", padded)
        self._add(b"B", *_halves(address), len(sizes), *words)
        self.blocks += 1
        return self.blocks

    def path(self, *words: int) -> int:
        self._add(b"P", len(words), *words)
        self.paths += 1
        return self.paths

    def stamp(self, site: int, path: int, instructions: int, times: int = 1) -> None:
        self._add(b"S", site, path, *_halves(instructions), *_halves(times))
        self.stamps += times

    def window(self, instructions: int, path: int = 0) -> None:
        """A window: after a pause, a stamp that begins it, and a stamp that ends it."""
        self.stamp(BEGIN, 0, 0)
        self.stamp(END, path, instructions)

    def stream(self) -> list[bytes]:
        """By record."""
        end = struct.pack("<5I", ord("E"), self.blocks, self.paths, *_halves(self.stamps))
        return [*self.records, end]

    def read(self, place: Path) -> Trace:
        file = place / "trace"
        file.write_bytes(b"".join(self.stream()))
        return trace.read(file)


def _halves(value: int) -> tuple[int, int]:
    return value & 0xFFFFFFFF, value >> 32


def whole(block: int, times: int = 1) -> Sequence[int]:
    return (2 * block,) if times == 1 else (2 * block, REPEAT, times - 1)


def part(block: int, skipped: int, executed: int) -> Sequence[int]:
    return 2 * block + 1, skipped << 16 | executed


def switch(task: int, comm: str) -> Sequence[int]:
    return SWITCH, *_halves(task), *struct.unpack("<4I", comm.encode().ljust(16, b"\0"))


def idle() -> Sequence[int]:
    return (IDLE,)
