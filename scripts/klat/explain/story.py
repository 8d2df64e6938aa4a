"""What ran during a sample, in order: which task, and for which interrupt."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from klat.explain.calls import CallTree
from klat.explain.isa import INTERRUPTS
from klat.explain.symbols import Symbols
from klat.explain.trace import Idle, Item, Executed, Switched
from klat.explain.windows import Content

_WAKES = "try_to_wake_up"


@dataclass
class Stretch:
    """What one task executed, or an interrupt that came to it, without a break."""

    task: int  # 0: not known
    name: str  # of the task
    interrupt: str  # "" for the task itself
    within: tuple[str, ...]  # the functions that were active from its begin to its end
    until: str = ""  # the function that `within` called at its end
    instructions: int = 0
    idle: bool = False  # the CPU halted in it
    wakes: int = 0
    functions: Counter[str] = field(default_factory=Counter)  # own instructions


def tell(symbols: Symbols, contents: Iterable[Content]) -> list[Stretch]:
    """The stretches of all windows."""
    tree = CallTree(symbols)
    names: dict[int, str] = {}
    found: list[Stretch] = []
    for content in contents:
        _note(names, content.before)
        tree.add(content.before)
        last = None
        for item in content.items:
            _note(names, [item])
            tree.add([item])
            if isinstance(item, Idle) and last:
                last.idle = True
            if not isinstance(item, Executed):
                continue
            stack = tree.stack
            interrupt = next((name for name in reversed(stack) if name.startswith(INTERRUPTS)), "")
            if last is None or (last.task, last.interrupt) != (tree.task, interrupt):
                last = Stretch(tree.task, names.get(tree.task, ""), interrupt, stack)
                found.append(last)
            last.within = tuple(os.path.commonprefix([last.within, stack]))
            last.until = (*stack, "")[len(last.within)]
            last.instructions += item.total
            last.functions[stack[-1]] += item.total
            if stack[-1] == _WAKES and item.block.address == symbols.at(item.block.address).start:
                last.wakes += 1
    return found


def _note(names: dict[int, str], items: Iterable[Item]) -> None:
    names.update((item.task, item.name) for item in items if isinstance(item, Switched))
