"""Counts an instruction that causes a page fault once, as QEMU's clock does.

The plugin counts an instruction when it starts. After a page fault, the kernel's handler returns to the
instruction, which starts again. If the page of a jump's target is missing, the jump is complete and does
not start again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np

from klat.explain import isa
from klat.explain.symbols import Symbols
from klat.explain.trace import IDLE, INSTRUCTIONS, PATH, REPEAT, SWITCH, Edit, Executed, Span, Trace
from klat.explain.trace import Words, items_of

_KERNEL = 1 << 63  # the first address of the kernel


def counted_once(trace: Trace, names: Symbols) -> Trace:
    """The trace without the first start of each such instruction. Paths that the plugin did not write stay
    as they are."""
    words = _FaultWords(
        entries=_words_of(trace, names, isa.is_fault_entry),
        faults=_words_of(trace, names, isa.PAGE_FAULTS.__contains__),
        returns=_words_of(trace, names, isa.is_return, anywhere=True),
    )
    edits, removed = {}, np.zeros(len(trace.places) + 2, dtype=np.int64)
    for number in trace.numbers:
        path = trace.words(number)
        if np.isin(path, list(words.faults)).any():
            edits[number] = [_shortened(trace, path, s) for s in _restarted(trace, path, words)]
            removed[number] = len(edits[number])
    stamps = trace.stamps.copy()
    stamps[:, INSTRUCTIONS] -= removed[stamps[:, PATH]]
    return replace(trace, edits=edits, stamps=stamps)


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


def _restarted(trace: Trace, words: Words, kinds: _FaultWords) -> list[Span]:
    """The items whose last instruction starts again after a page fault.

    Only a fault ends a block early before the handler. If the block is whole, the address to which the
    handler returns decides."""
    starts = items_of(words)
    first_words = words[starts]
    returns = np.isin(first_words, list(kinds.returns))
    returned = ~returns & (first_words != IDLE) & np.insert(returns[:-1], 0, False)
    deciding = np.isin(first_words, [*kinds.entries, *kinds.faults, SWITCH]) | returned
    ends = np.append(starts[1:], len(words))
    restarts: list[Span] = []
    entered: dict[int, Span] = {}  # the item before the last entry, by task
    undecided: dict[int, list[Span]] = {}  # by task
    task = 0
    for number in np.flatnonzero(deciding).tolist():
        word = int(first_words[number])
        span = int(starts[number]), int(ends[number])
        if word == SWITCH:
            task = int(words[span[0] + 1]) | int(words[span[0] + 2]) << 32
            continue
        if returned[number] and task in undecided:
            address = _executed(trace, words, span).address
            waiting = undecided.pop(task)
            restarted = [s for s in waiting if _executed(trace, words, s).last == address]
            restarts += restarted
            if address >= _KERNEL:
                undecided[task] = [s for s in waiting if s not in restarted]
        is_after_code = number and first_words[number - 1] not in (IDLE, SWITCH)
        if is_after_code and word in kinds.entries:
            entered[task] = int(starts[number - 1]), span[0]
        if task in entered and word in kinds.faults:
            faulted = entered.pop(task)
            item = _executed(trace, words, faulted)
            if item.first + item.instructions < item.block.length:
                restarts.append(faulted)
            else:
                undecided.setdefault(task, []).append(faulted)
    return sorted(restarts)


def _executed(trace: Trace, words: Words, span: Span) -> Executed:
    item = trace.item(words[slice(*span)].tolist())
    assert isinstance(item, Executed)
    return item


def _shortened(trace: Trace, words: Words, span: Span) -> Edit:
    """The item without its last instruction."""
    item = _executed(trace, words, span)
    block = int(words[span[0]]) >> 1
    shortened = (2 * block,) if item.times > 1 else ()
    shortened += (REPEAT, item.times - 2) if item.times > 2 else ()
    left = item.instructions - 1
    shortened += (2 * block + 1, item.first << 16 | left) if left else ()
    return Edit(span, shortened)
