"""What ran during a sample, in order: which task, and for which interrupt."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from klat.explain.calls import CallTree
from klat.explain.isa import is_interrupt
from klat.explain.symbols import Symbols
from klat.explain.trace import Idle, Item, Executed, Switched
from klat.explain.windows import Content

# ttwu_do_activate() makes a task runnable. If a kernel has inlined this function, klat uses its caller
# try_to_wake_up(). This function is also called for tasks that are already runnable.
_WAKES = ("ttwu_do_activate", "try_to_wake_up")
_IDLE_TASK = "swapper/"


@dataclass
class Stretch:
    """Consecutive instructions of one task, or of one interrupt in this task."""

    task: int  # 0: not known
    name: str  # of the task
    interrupt: str  # its entry function; "" if the task itself runs
    within: tuple[str, ...]  # the functions active during the whole stretch
    last: tuple[str, ...] = ()  # the functions active at its end
    window: int = 0  # the number of the sample's window, from 0
    instructions: int = 0
    idle: bool = False  # the CPU halted in this stretch, or before it in the window
    wakes: int = 0
    functions: Counter[str] = field(default_factory=Counter)  # own instructions


def tell(symbols: Symbols, contents: Iterable[Content]) -> list[Stretch]:
    """The stretches of all windows."""
    tree = CallTree(symbols)
    wakes = next((name for name in _WAKES if symbols.has(name)), "")
    names: dict[int, str] = {}
    stretches: list[Stretch] = []
    for window, content in enumerate(contents):
        _note(names, content.before)
        tree.add(content.before)
        last, halted = None, False
        for item in content.items:
            _note(names, [item])
            tree.add([item])
            if isinstance(item, Idle):
                halted = True
                if last:
                    last.idle = True
            if not isinstance(item, Executed):
                continue
            stack = tree.stack
            interrupt = next(filter(is_interrupt, reversed(stack)), "")
            if last is None or (last.task, last.interrupt) != (tree.task, interrupt):
                name = names.get(tree.task, "")
                idle = halted and last is None
                last = Stretch(tree.task, name, interrupt, stack, window=window, idle=idle)
                stretches.append(last)
            last.within = tuple(os.path.commonprefix([last.within, stack]))
            last.last = stack
            last.instructions += item.total
            last.functions[stack[-1]] += item.total
            if stack[-1] == wakes and item.block.address == symbols.at(item.block.address).start:
                last.wakes += 1
    return stretches


@dataclass(frozen=True)
class Holdup:
    """Instructions of a task that continued to run while the sample's thread waited."""

    instructions: int
    name: str  # of the task
    since: str
    until: str  # a function; "" if not known
    within: str  # the innermost function that was active all the time; "" if there is none


def holdups(stretches: Sequence[Stretch], from_deadline: bool) -> list[Holdup]:
    """The holdups of a sample, the longest first."""
    delays: list[Holdup] = []
    for window in dict.fromkeys(stretch.window for stretch in stretches):
        inside = [stretch for stretch in stretches if stretch.window == window]
        first, after = inside[0], inside[1] if len(inside) > 1 else None
        if from_deadline and after and after.interrupt and not first.interrupt and not first.idle:
            delays.append(_holdup([first], "the deadline", after.interrupt))
        delays += _since_wakeups(inside)
    return sorted(delays, key=lambda holdup: -holdup.instructions)


def _since_wakeups(stretches: Sequence[Stretch]) -> Iterator[Holdup]:
    """Tasks that continued to run after a wakeup, until the scheduler switched to another task.

    Leaves out tasks of the program that ends the sample, and the idle task. Interrupts in between do not
    count."""
    woken = False
    ran: list[Stretch] = []
    for stretch, after in pairwise(stretches):
        if woken and not stretch.interrupt:
            ran.append(stretch)
        woken = woken or stretch.wakes > 0
        if after.task == stretch.task:
            continue
        # Another thread of the same program is part of the event. The idle task switches at once.
        other = stretch.name != stretches[-1].name and not stretch.name.startswith(_IDLE_TASK)
        if ran and other:
            yield _holdup(ran, "a wakeup", stretch.interrupt or None)
        woken, ran = False, []


def _holdup(ran: Sequence[Stretch], since: str, until: str | None) -> Holdup:
    """If `until` is None, the holdup ends with the last function that `within` called."""
    within = os.path.commonprefix([stretch.within for stretch in ran])
    if until is None:
        until = (*ran[-1].last, "")[len(within)]
    total = sum(stretch.instructions for stretch in ran)
    return Holdup(total, ran[0].name, since, until, within[-1] if within else "")


def _note(names: dict[int, str], items: Iterable[Item]) -> None:
    names.update((item.task, item.name) for item in items if isinstance(item, Switched))
