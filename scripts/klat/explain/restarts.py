"""Counts an instruction that causes a page fault once, as QEMU's clock does.

The plugin counts an instruction when it starts. After a page fault, the kernel's handler returns to the
instruction, which starts again. If the page of a jump's target is missing, the jump is complete and does
not start again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from klat.explain import isa
from klat.explain.symbols import Symbols
from klat.explain.trace import (
    IDLE,
    INSTRUCTIONS,
    PATH,
    REPEAT,
    SWITCH,
    Executed,
    Trace,
    Words,
    spans,
)

_KERNEL = 1 << 63  # the first address of the kernel

Span = tuple[int, int]  # where an item begins and ends in the words of its path


def counted_once(trace: Trace, names: Symbols) -> Trace:
    """The trace without the first start of each such instruction. Paths that the plugin did not write stay
    as they are."""
    words = _FaultWords(
        entries=_words_of(trace, names, isa.is_fault_entry),
        faults=_words_of(trace, names, isa.PAGE_FAULTS.__contains__),
        returns=_words_of(trace, names, isa.is_return, anywhere=True),
    )
    paths, removed = list(trace.paths), np.zeros(len(trace.paths) + 2, dtype=np.int64)
    for number, path in enumerate(trace.paths, 1):
        if np.isin(path, list(words.faults)).any():
            restarted = _restarted(trace, path.tolist(), words)
            paths[number - 1] = _without(trace, path, restarted)
            removed[number] = len(restarted)
    stamps = trace.stamps.copy()
    stamps[:, INSTRUCTIONS] -= removed[stamps[:, PATH]]
    return replace(trace, paths=paths, stamps=stamps)


@dataclass(frozen=True)
class _FaultWords:
    """The words of whole and partial blocks, by what these blocks do."""

    entries: Collection[int]  # enter the kernel, for example because of a page fault
    faults: Collection[int]  # handle a page fault
    returns: Collection[int]  # belong to a function whose last instruction returns from the kernel


def _words_of(
    trace: Trace, names: Symbols, wanted: Callable[[str], bool], anywhere: bool = False
) -> set[int]:
    """The words of the blocks at the start of these functions, or `anywhere` in them."""
    matching = set()
    for number, block in enumerate(trace.blocks, 1):
        function = names.at(block.address)
        if (anywhere or function.start == block.address) and wanted(function.name):
            matching |= {2 * number, 2 * number + 1}
    return matching


def _restarted(trace: Trace, words: Sequence[int], kinds: _FaultWords) -> list[Span]:
    """The items whose last instruction starts again after a page fault.

    Only a fault ends a block early before the handler. If the block is whole, the address to which the
    handler returns decides."""
    restarts: list[Span] = []
    entered: dict[int, Span] = {}  # the item before the last entry, by task
    undecided: dict[int, list[Span]] = {}  # by task
    task = 0
    before: Span | None = None  # the previous item, if it is executed instructions
    for span in spans(words):
        word = words[span[0]]
        if word == SWITCH:
            task = words[span[0] + 1] | words[span[0] + 2] << 32
        if word in (IDLE, SWITCH):
            before = None
            continue
        returned = before and words[before[0]] in kinds.returns and word not in kinds.returns
        if returned and task in undecided:
            address = _executed(trace, words, span).address
            waiting = undecided.pop(task)
            restarted = [s for s in waiting if _executed(trace, words, s).last == address]
            restarts += restarted
            if address >= _KERNEL:
                undecided[task] = [s for s in waiting if s not in restarted]
        if before and word in kinds.entries:
            entered[task] = before
        if task in entered and word in kinds.faults:
            faulted = entered.pop(task)
            item = _executed(trace, words, faulted)
            if item.first + item.instructions < item.block.length:
                restarts.append(faulted)
            else:
                undecided.setdefault(task, []).append(faulted)
        before = span
    return sorted(restarts)


def _executed(trace: Trace, words: Sequence[int], span: Span) -> Executed:
    item = trace.item(words[slice(*span)])
    assert isinstance(item, Executed)
    return item


def _without(trace: Trace, path: Words, restarted: Sequence[Span]) -> Words:
    """The path without the last instruction of these items."""
    pieces, at = [], 0
    for begin, end in restarted:
        item = _executed(trace, path[begin:end].tolist(), (0, end - begin))
        pieces += [path[at:begin], _one_fewer(item, int(path[begin]) >> 1)]
        at = end
    return np.concatenate([*pieces, path[at:]])


def _one_fewer(item: Executed, block: int) -> Words:
    """The words of an item without its last instruction."""
    shortened = [2 * block] if item.times > 1 else []
    shortened += [REPEAT, item.times - 2] if item.times > 2 else []
    left = item.instructions - 1
    shortened += [2 * block + 1, item.first << 16 | left] if left else []
    return np.array(shortened, dtype=np.uint32)
