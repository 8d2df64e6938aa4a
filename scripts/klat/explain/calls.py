"""Functions and their calls, from the blocks that were executed.

No instruction is decoded, so it is the same for every architecture: a block that begins where a
function does was called, by the function of the block before; a block that begins where a call
would return to is a return, of all calls since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from klat.explain.symbols import Function, Symbols
from klat.explain.trace import Item, Executed, Switched


# A compiler calls through a pointer by a jump in this code of the kernel (retpolines). The function
# that it jumps to returns to the caller.
_THUNK = "__x86_indirect_thunk_"


@dataclass
class Node:
    """A function as called along one chain of callers."""

    function: Function
    calls: int = 0
    own: int = 0  # instructions
    callees: dict[str, Node] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.own + sum(node.total for node in self.callees.values())

    def callee(self, function: Function) -> Node:
        return self.callees.setdefault(function.name, Node(function))

    def walk(self, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
        """Every chain of names from here on, with its node."""
        for name, node in self.callees.items():
            chain = (*above, name)
            yield chain, node
            yield from node.walk(chain)


@dataclass
class _Frame:
    node: Node
    returns_to: int  # 0 if its call was not seen


@dataclass
class FunctionTotals:
    own: Counter[str] = field(default_factory=Counter)
    with_callees: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)


class CallTree:
    """Fed with what was executed, in order. `root` has no function of its own."""

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols
        self._functions: dict[int, Function] = {}
        self.root = Node(Function("", "", 0))
        self._stacks: dict[int, list[_Frame]] = {}
        self.task = 0
        self._frames: list[_Frame] = []
        self._end = 0  # of the block before
        self._counted = True
        self.path: list[tuple[int, str]] = []

    @property
    def stack(self) -> tuple[str, ...]:
        """The functions that are active, outermost first, as far as their calls were seen."""
        return tuple(frame.node.function.name for frame in self._frames)

    def add(self, items: Iterable[Item], counted: bool = True) -> None:
        """Uncounted items show only which functions are active."""
        self._counted = counted
        for item in items:
            if isinstance(item, Executed):
                self._enter(item)
            elif isinstance(item, Switched):
                self._switch(item.task)

    def _switch(self, task: int) -> None:
        if task == self.task:
            return
        self._stacks[self.task] = self._frames
        self._frames = self._stacks.pop(task, [])
        self.task = task

    def _enter(self, step: Executed) -> None:
        address = step.block.address
        if not step.first:
            self._go_to(address)
        elif not self._frames:
            self._push(self._at(address), 0)
        if self._counted:
            self._frames[-1].node.own += step.total
        self._end = address + step.block.size

    def _at(self, address: int) -> Function:
        found = self._functions.get(address)
        if found is None:
            found = self._functions[address] = self._symbols.at(address)
        return found

    def _go_to(self, address: int) -> None:
        function = self._at(address)
        frames = self._frames
        if frames and frames[-1].node.function.name == function.name:
            # On within the function, or back from its own call of itself.
            if frames[-1].returns_to == address:
                frames.pop()
            return
        for depth in range(len(frames) - 1, 0, -1):
            if frames[depth].returns_to == address:
                del frames[depth:]
                return
        onwards = address == self._end or address != function.start
        if onwards and frames and self._symbols.next_to(frames[-1].node.function, function):
            # On to a label of the same code, as in the entry of system calls.
            returns_to = frames.pop().returns_to
            self._push(function, returns_to)
            return
        if address == function.start and frames:
            if frames[-1].node.function.name.startswith(_THUNK):
                returns_to = frames.pop().returns_to
                self._push(function, returns_to)
            else:
                self._push(function, self._end)
            if self._counted:
                frames[-1].node.calls += 1
                self.path.append((len(frames), function.name))
            return
        # A return whose call was not seen, or one from an interrupt to the middle of a function.
        for depth in range(len(frames) - 1, -1, -1):
            if frames[depth].node.function.name == function.name:
                del frames[depth + 1 :]
                return
        frames.clear()
        self._push(function, 0)

    def _push(self, function: Function, returns_to: int) -> None:
        above = self._frames[-1].node if self._frames else self.root
        self._frames.append(_Frame(above.callee(function), returns_to))


def totals(root: Node) -> FunctionTotals:
    """By function, wherever it was called. A function that calls itself counts once in with_callees."""
    found = FunctionTotals()
    for chain, node in root.walk():
        found.own[chain[-1]] += node.own
        found.calls[chain[-1]] += node.calls
        for name in set(chain):
            found.with_callees[name] += node.own
    return found
