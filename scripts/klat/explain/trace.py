"""Reads the stream that lab/plugin/ writes. It says what a guest executed between stamps.

A word has 32 bits, little-endian. `name(2)` is a number of 64 bits in two words, the low half first. The
first two words are the magic "klat" and the format's number. Records follow:

    B address(2) length sizes... a block of `length` instructions, numbered from 1, and the size of each
                                 instruction in bytes: four in a word, the first one lowest
    P count words...             a path of `count` words, numbered from 1
    S site path instructions(2) times(2)
                                 `times` stamps at the same site, each `instructions` after the previous
                                 stamp. Paths 0 and 0xffffffff were not written. In path 0xffffffff the
                                 CPU halted.
    E blocks paths stamps(2)     the end, with three counts. A stream without this record is cut off.

A path consists of:

    2 * block                                    a whole block
    2 * block + 1, skipped << 16 | executed      `executed` instructions of a block, after `skipped`
    REPEAT, count                                the previous block, `count` more times
    IDLE                                         the CPU halted
    SWITCH, address(2), comm(4)                  the scheduler switched to the task with this comm;
                                                 `address` lies in its task_struct
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from klat.base.errors import KlatError

_HEAD = (0x74616C6B, 2)
_BLOCK, _PATH, _STAMP, _END = b"BPSE"
IDLE, SWITCH, REPEAT = 0xFFFFFFF0, 0xFFFFFFF1, 0xFFFFFFF2
_NOT_KEPT_HALTED = 0xFFFFFFFF

Words = NDArray[np.uint32]


@dataclass(frozen=True)
class Block:
    address: int
    sizes: bytes  # of its instructions

    @property
    def length(self) -> int:
        return len(self.sizes)

    @cached_property
    def addresses(self) -> list[int]:
        """The address of each instruction, and that after the last."""
        return list(accumulate(self.sizes, initial=self.address))


@dataclass(frozen=True)
class Executed:
    """Executed instructions of a block. `first` is the number of the first one, from 0. The guest executed
    them `times` times."""

    block: Block
    first: int
    instructions: int
    times: int = 1

    @property
    def total(self) -> int:
        return self.instructions * self.times

    @property
    def address(self) -> int:
        return self.block.addresses[self.first]

    @property
    def last(self) -> int:
        """The address of the last instruction."""
        return self.block.addresses[self.first + self.instructions - 1]


@dataclass(frozen=True)
class Idle:
    """The CPU halted until an interrupt."""


@dataclass(frozen=True)
class Switched:
    """The scheduler switched to another task."""

    task: int  # an address within its task_struct; it identifies the task
    name: str  # the task's comm; "" if unknown


Item = Executed | Idle | Switched


# The columns of Trace.stamps. Instructions are those since the previous stamp.
SITE, PATH, INSTRUCTIONS, TIMES = range(4)


@dataclass(frozen=True)
class Trace:
    blocks: list[Block]
    paths: list[Words]
    # Equal consecutive stamps share one row. The plugin did not write paths 0 and -1. In path -1 the CPU halted.
    stamps: NDArray[np.int64]

    @cached_property
    def shapes(self) -> list[int]:
        """A number for each path, from path 0 on. Paths that differ only in their tasks have the same
        number."""
        known: dict[bytes, int] = {}
        return [0, *(known.setdefault(_without_tasks(p), len(known) + 1) for p in self.paths)]

    @cached_property
    def halts(self) -> NDArray[np.int64]:
        """How often the CPU halted in each path, from path 0 on. The last entry is path -1."""
        counts = map(_halts, self.paths)
        return np.array([0, *counts, 1], dtype=np.int64)

    def items(self, path: int) -> Iterator[Item]:
        """The items of a path, in order."""
        words = self.paths[path - 1].tolist()
        for begin, end in spans(words):
            yield self.item(words[begin:end])

    def item(self, words: Sequence[int]) -> Item:
        word = words[0]
        if word == IDLE:
            return Idle()
        if word == SWITCH:
            comm = struct.pack("<4I", *words[3:7]).split(b"\0")[0]
            return Switched(words[1] | words[2] << 32, comm.decode(errors="replace"))
        block = self.blocks[(word >> 1) - 1]
        if word & 1:
            return Executed(block, words[1] >> 16, words[1] & 0xFFFF)
        return Executed(block, 0, block.length, 1 + words[2] if len(words) > 1 else 1)


def spans(words: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where each item of a path begins and ends in its words."""
    at, end = 0, len(words)
    while at < end:
        begin = at
        word = words[at]
        if word == IDLE:
            at += 1
        elif word == SWITCH:
            at += 7
        elif word & 1:
            at += 2
        else:
            at += 3 if at + 1 < end and words[at + 1] == REPEAT else 1
        yield begin, at


def _halts(words: Words) -> int:
    """How often the CPU halted in the path. A word in a task's address or comm can equal IDLE: this is not a halt."""
    idle = np.flatnonzero(words == IDLE)
    tasks = np.flatnonzero(words == SWITCH)[:, None] + np.arange(1, 7)
    return len(np.setdiff1d(idle, tasks)) if len(idle) else 0


def _without_tasks(words: Words) -> bytes:
    """A hash of the path, with each task replaced by a number in the order of first switches."""
    copied = words.copy()
    tasks: dict[tuple[int, int], int] = {}
    for at in np.flatnonzero(words == SWITCH):
        task = (int(words[at + 1]), int(words[at + 2]))
        copied[at + 1 : at + 7] = (tasks.setdefault(task, len(tasks)), 0, 0, 0, 0, 0)
    return hashlib.sha256(copied.tobytes()).digest()


def read(file: Path) -> Trace:
    """Reads a stream. KlatError if the file is not such a stream, or is cut off."""
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
        elif kind == _BLOCK and at + 4 <= end:
            low, high, length = words[at + 1 : at + 4].tolist()
            at += 4
            sizes = words[at : at + (length + 3) // 4]
            blocks.append(Block(low | high << 32, sizes.tobytes()[:length]))
            at += (length + 3) // 4
        elif kind == _PATH and at + 2 <= end:
            count = int(words[at + 1])
            paths.append(words[at + 2 : at + 2 + count])
            at += 2 + count
        elif kind == _END and at + 5 == end:
            fields = words[at + 1 : at + 5].tolist()
            total = sum(stamp[3] for stamp in stamps)
            if fields == [len(blocks), len(paths), total & 0xFFFFFFFF, total >> 32]:
                return Trace(blocks, paths, np.array(stamps, dtype=np.int64).reshape(-1, 4))
            break
        else:
            break
    raise KlatError(
        f"{file}: the plugin's output is cut off or damaged after {4 * at} bytes", status=1
    )
