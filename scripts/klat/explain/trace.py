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
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

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


@dataclass(frozen=True, slots=True)
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


Span = tuple[int, int]  # where an item begins and ends in the words of its path


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces the words of an item."""

    span: Span
    words: tuple[int, ...]


class _OpenFile:
    """A file that stays readable as long as its trace exists, also after it was removed."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, offset)


@dataclass(frozen=True)
class Trace:
    """Paths have numbers from 1 on. Their words can be hundreds of megabytes, so each path is read from `file` when
    it is needed."""

    file: _OpenFile
    blocks: list[Block]
    # Of each path: its offset in the file, and the number of its words.
    places: list[tuple[int, int]]
    # Equal consecutive stamps share one row. The plugin did not write paths 0 and -1. In path -1 the CPU halted.
    stamps: NDArray[np.int64]
    edits: Mapping[int, Sequence[Edit]] = field(default_factory=dict)  # by path, in order

    @property
    def numbers(self) -> range:
        """The numbers of all paths."""
        return range(1, len(self.places) + 1)

    def words(self, path: int) -> Words:
        offset, count = self.places[path - 1]
        words = np.frombuffer(self.file.read(offset, 4 * count), dtype="<u4")
        pieces, at = [], 0
        for edit in self.edits.get(path, ()):
            begin, end = edit.span
            pieces += [words[at:begin], np.array(edit.words, dtype=np.uint32)]
            at = end
        return np.concatenate([*pieces, words[at:]])

    @cached_property
    def shapes(self) -> list[int]:
        """A number for each path, from path 0 on. Paths that differ only in their tasks have the same
        number."""
        known: dict[bytes, int] = {}
        keys = (_without_tasks(self.words(number)) for number in self.numbers)
        return [0, *(known.setdefault(key, len(known) + 1) for key in keys)]

    @cached_property
    def halts(self) -> NDArray[np.int64]:
        """How often the CPU halted in each path, from path 0 on. The last entry is path -1."""
        counts = (_halts(self.words(number)) for number in self.numbers)
        return np.array([0, *counts, 1], dtype=np.int64)

    def items(self, path: int) -> list[Item]:
        """The items of a path, in order. Equal ones are one object: a path can have a million."""
        words = self.words(path)
        if not len(words):
            return []
        starts = items_of(words)
        ends = np.append(starts[1:], len(words))
        first = words[starts].astype(np.uint64)
        last = words[ends - 1].astype(np.uint64)
        # An item has one word, or two, or three with REPEAT between. A switch has more and is equal to no other.
        keys = first | np.where(ends - starts > 1, last + 1, 0).astype(np.uint64) << np.uint64(32)
        keys[first == SWITCH] = np.uint64(SWITCH) | starts[first == SWITCH].astype(
            np.uint64
        ) << np.uint64(32)
        _, examples, kinds = np.unique(keys, return_index=True, return_inverse=True)
        spans = zip(starts[examples].tolist(), ends[examples].tolist())
        items = [self.item(words[begin:end].tolist()) for begin, end in spans]
        return [items[kind] for kind in kinds]

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


def items_of(words: Words) -> NDArray[np.intp]:
    """Where each item of a path begins in its words."""
    # Whether a word continues an item.
    continues = np.zeros(len(words), dtype=bool)
    end = 0
    for at in np.flatnonzero(words == SWITCH).tolist():
        if at >= end:  # a word of a task's address or comm can have any value
            end = at + 7
            continues[at + 1 : end] = True
    repeats = np.flatnonzero((words == REPEAT) & ~continues)
    continues[repeats] = continues[repeats[repeats + 1 < len(words)] + 1] = True
    # In a row of odd words, each second word ends the item that the word before it began.
    odd = (words & 1).astype(bool) & ~continues & (words != SWITCH)
    places = np.arange(len(words))
    since_even = places - np.maximum.accumulate(np.where(odd, -1, places))
    halves = np.flatnonzero(odd & (since_even % 2 == 1)) + 1
    continues[halves[halves < len(words)]] = True
    return np.flatnonzero(~continues)


def _halts(words: Words) -> int:
    """How often the CPU halted in the path."""
    if not (words == IDLE).any():
        return 0
    return int((words[items_of(words)] == IDLE).sum())


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
        with file.open("rb") as stream:
            if stream.read(8) != struct.pack("<2I", *_HEAD):
                raise KlatError(f"{file}: is not the output of klat's plugin", status=1)
            return _read_records(file, stream)
    except OSError as error:
        raise KlatError(f"{file}: cannot read the trace: {error.strerror}") from None


def _read_records(file: Path, stream: BinaryIO) -> Trace:
    size = os.fstat(stream.fileno()).st_size
    blocks: list[Block] = []
    places: list[tuple[int, int]] = []
    stamps: list[tuple[int, int, int, int]] = []
    try:
        while True:
            at = stream.tell()
            (kind,) = _words(stream, 1)
            if kind == _STAMP:
                site, path, low, high, times, more = _words(stream, 6)
                path = -1 if path == _NOT_KEPT_HALTED else path
                stamps.append((site, path, low | high << 32, times | more << 32))
            elif kind == _BLOCK:
                low, high, length = _words(stream, 3)
                sizes = stream.read((length + 3) // 4 * 4)
                blocks.append(Block(low | high << 32, sizes[:length]))
            elif kind == _PATH:
                (count,) = _words(stream, 1)
                places.append((stream.tell(), count))
                stream.seek(4 * count, os.SEEK_CUR)
            elif kind == _END:
                total = sum(stamp[3] for stamp in stamps)
                counts = (len(blocks), len(places), total & 0xFFFFFFFF, total >> 32)
                if _words(stream, 4) == counts and stream.tell() == size:
                    return Trace(
                        _OpenFile(file), blocks, places, np.array(stamps, np.int64).reshape(-1, 4)
                    )
                break
            else:
                break
    except (EOFError, OverflowError):  # a number of a damaged file can be too large
        pass
    raise KlatError(f"{file}: the plugin's output is cut off or damaged after {at} bytes", status=1)


def _words(stream: BinaryIO, count: int) -> tuple[int, ...]:
    data = stream.read(4 * count)
    if len(data) < 4 * count:
        raise EOFError
    return struct.unpack(f"<{count}I", data)
