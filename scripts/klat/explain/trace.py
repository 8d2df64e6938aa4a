"""The stream that lab/plugin/ writes: what a guest executed between stamps.

Words are 32 bits, little-endian; numbers of 64 bits have their low half first. The first two words
are the magic "klat" and the format's number. Records follow:

    B address(2) length size         a block, numbered from 1: its instructions, its bytes
    P count words...                 a path, numbered from 1
    S site path instructions(2) times(2)
                                     a stamp that came `times` times in a row, each after so many
                                     instructions; path 0 was not kept, nor path 0xffffffff, in which
                                     the CPU halted
    E blocks paths stamps(2)         the end; a stream without it is cut off

The words of a path: 2 * block, all of it; 2 * block + 1 and skipped << 16 | executed, part of it;
REPEAT and a count, the block before it so often again; IDLE, the CPU halted; SWITCH, an address (2)
and a name (4), the scheduler's switch to a task, the address of a field of it, and its comm.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from klat.base.errors import KlatError

_HEAD = (0x74616C6B, 1)
_BLOCK, _PATH, _STAMP, _END = b"BPSE"
IDLE, SWITCH, REPEAT = 0xFFFFFFF0, 0xFFFFFFF1, 0xFFFFFFF2
_NOT_KEPT_HALTED = 0xFFFFFFFF

Words = NDArray[np.uint32]


@dataclass(frozen=True)
class Block:
    address: int
    length: int  # instructions
    size: int  # bytes


@dataclass(frozen=True)
class Executed:
    """`instructions` of a block, from the one numbered `first` on, the whole of it `times` times."""

    block: Block
    first: int
    instructions: int
    times: int = 1

    @property
    def total(self) -> int:
        return self.instructions * self.times


@dataclass(frozen=True)
class Idle:
    """The CPU halted until an interrupt."""


@dataclass(frozen=True)
class Switched:
    """The scheduler went over to another task."""

    task: int  # an address within its task_struct, the same for each of its switches
    name: str  # the task's comm; "" if it is not known


Item = Executed | Idle | Switched


@dataclass(frozen=True)
class Trace:
    blocks: list[Block]
    paths: list[Words]
    # One row for stamps that came `times` times in a row alike: site, path, instructions since the
    # stamp before, times. Path 0 was not kept; -1 was not kept, and the CPU halted in it.
    stamps: NDArray[np.int64]

    @cached_property
    def shapes(self) -> list[int]:
        """By number of a path, 0 included: the same for paths that differ in their tasks alone."""
        known: dict[bytes, int] = {}
        return [0, *(known.setdefault(_without_tasks(p), len(known) + 1) for p in self.paths)]

    @cached_property
    def halts(self) -> NDArray[np.int64]:
        """By number of a path, 0 and -1 included: how often the CPU halted in it."""
        counts = [
            sum(isinstance(item, Idle) for item in self.items(number + 1))
            for number in range(len(self.paths))
        ]
        return np.array([0, *counts, 1], dtype=np.int64)

    def items(self, path: int) -> Iterator[Item]:
        """What a path consists of, in order."""
        words = self.paths[path - 1].tolist()
        at = 0
        while at < len(words):
            word = words[at]
            at += 1
            if word == IDLE:
                yield Idle()
            elif word == SWITCH:
                comm = struct.pack("<4I", *words[at + 2 : at + 6]).split(b"\0")[0]
                yield Switched(words[at] | words[at + 1] << 32, comm.decode(errors="replace"))
                at += 6
            elif word & 1:
                skipped, executed = words[at] >> 16, words[at] & 0xFFFF
                yield Executed(self.blocks[(word >> 1) - 1], skipped, executed)
                at += 1
            else:
                block = self.blocks[(word >> 1) - 1]
                times = 1
                if at < len(words) and words[at] == REPEAT:
                    times += words[at + 1]
                    at += 2
                yield Executed(block, 0, block.length, times)


def _without_tasks(words: Words) -> bytes:
    """The path with tasks numbered in the order in which they come."""
    found = words.copy()
    tasks: dict[tuple[int, int], int] = {}
    for at in np.flatnonzero(words == SWITCH):
        task = (int(words[at + 1]), int(words[at + 2]))
        found[at + 1 : at + 7] = (tasks.setdefault(task, len(tasks)), 0, 0, 0, 0, 0)
    return found.tobytes()


def read(file: Path) -> Trace:
    """KlatError where the stream is cut off or is none."""
    try:
        words = np.fromfile(file, dtype="<u4")
    except OSError as error:
        raise KlatError(f"{file}: cannot read the trace: {error.strerror}") from None
    if tuple(words[:2]) != _HEAD:
        raise KlatError(f"{file}: is not the output of klat's plugin", status=1)
    blocks: list[Block] = []
    paths: list[Words] = []
    stamps: list[tuple[int, int, int, int]] = []
    at, end = 2, len(words)
    while at < end:
        kind = words[at]
        if kind == _STAMP and at + 7 <= end:
            site, path, low, high, times, more = words[at + 1 : at + 7].tolist()
            path = -1 if path == _NOT_KEPT_HALTED else path
            stamps.append((site, path, low | high << 32, times | more << 32))
            at += 7
        elif kind == _BLOCK and at + 5 <= end:
            low, high, length, size = words[at + 1 : at + 5].tolist()
            blocks.append(Block(low | high << 32, length, size))
            at += 5
        elif kind == _PATH and at + 2 <= end:
            count = int(words[at + 1])
            paths.append(words[at + 2 : at + 2 + count])
            at += 2 + count
        elif kind == _END and at + 5 == end:
            held = words[at + 1 : at + 5].tolist()
            total = sum(stamp[3] for stamp in stamps)
            if held == [len(blocks), len(paths), total & 0xFFFFFFFF, total >> 32]:
                return Trace(blocks, paths, np.array(stamps, dtype=np.int64).reshape(-1, 4))
            break
        else:
            break
    raise KlatError(
        f"{file}: the plugin's output is cut off or damaged after {4 * at} bytes", status=1
    )
