"""Functions and their calls, from the executed blocks.

klat decodes no instruction, so the rules hold for every architecture:

- A block at the start of a function is a call from the function of the previous block.
- A block at the return address of a call is a return from this call and from all later ones.
- The instruction that ends an interrupt returns to the interrupted address. This address can be the start
  of a function that was called but has executed nothing yet. The block there is then not a new call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from klat.explain.isa import is_entry, is_return
from klat.explain.symbols import FIRMWARE, Function, Symbols
from klat.explain.trace import Block, Executed, Item, Switched


# The kernel's retpolines. They jump to the function that a pointer points to. This function returns to the
# caller of the retpoline.
_THUNK = "__x86_indirect_"


@dataclass
class Node:
    """A function, called along one chain of callers."""

    function: Function
    calls: int = 0
    own: int = 0  # instructions
    callees: dict[str, Node] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.own + sum(node.total for node in self.callees.values())

    def functions(self) -> Counter[str]:
        """The own instructions of each function below this node, from all its callers."""
        instructions: Counter[str] = Counter()
        for chain, node in self.walk():
            instructions[chain[-1]] += node.own
        return instructions

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
    returns_to: int  # the return address; 0 if the trace does not have the call


@dataclass
class FunctionTotals:
    own: Counter[str] = field(default_factory=Counter)
    with_callees: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)


class CallTree:
    """The calls in a trace. add() takes the items in order. `root` is not a function."""

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols
        self._functions: dict[int, Function] = {}
        self._parts: dict[Block, list[tuple[int, int]]] = {}
        self.root = Node(Function("", "", 0))
        self._stacks: dict[int, list[_Frame]] = {}
        self.task = 0
        self._frames: list[_Frame] = []
        self._end = 0  # the address after the previous instruction
        self._counted = True
        self.path: list[tuple[int, str]] = []

    @property
    def stack(self) -> tuple[str, ...]:
        """The active functions whose calls are known, outermost first."""
        return tuple(frame.node.function.name for frame in self._frames)

    def add(self, items: Iterable[Item], counted: bool = True) -> None:
        """Without `counted`, the items only change which functions are active."""
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
        parts = self._parts_of(step.block)
        if len(parts) == 1:
            self._enter_part(step, 0, step.block.length, step.times)
            return
        for _ in range(step.times):
            for begin, end in parts:
                self._enter_part(step, begin, end, 1)

    def _enter_part(self, step: Executed, begin: int, end: int, times: int) -> None:
        """Instructions `begin` to `end` of a block, as far as the step executed them."""
        first, last = max(begin, step.first), min(end, step.first + step.instructions)
        if first >= last:
            return
        address = step.block.addresses[first]
        if first == begin:
            self._go_to(address)
        elif not self._frames:
            self._push(self._at(address), 0)
        if self._counted:
            self._frames[-1].node.own += (last - first) * times
        self._end = step.block.addresses[last]

    def _parts_of(self, block: Block) -> list[tuple[int, int]]:
        """The instructions of a block by function. A label in assembler code does not end a block, so a block
        can contain code of several functions."""
        parts = self._parts.get(block)
        if parts is None:
            names = [self._at(address) for address in block.addresses[:-1]]
            begins = [0, *(at for at in range(1, len(names)) if names[at] != names[at - 1])]
            parts = self._parts[block] = list(zip(begins, [*begins[1:], len(names)]))
        return parts

    def _at(self, address: int) -> Function:
        function = self._functions.get(address)
        if function is None:
            function = self._functions[address] = self._symbols.at(address)
        return function

    def _end_interrupt(self) -> None:
        frames = self._frames
        for depth in range(len(frames) - 1, 0, -1):
            if is_entry(frames[depth].node.function.name):
                self._end = frames[depth].returns_to
                del frames[depth:]
                return

    def _go_to(self, address: int) -> None:
        function = self._at(address)
        frames = self._frames
        if frames and is_return(frames[-1].node.function.name) and not is_return(function.name):
            self._end_interrupt()
        if frames and frames[-1].node.function.name == function.name:
            # The same function continues, or returns from a call of itself.
            if frames[-1].returns_to == address:
                frames.pop()
            return
        for depth in range(len(frames) - 1, 0, -1):
            if frames[depth].returns_to == address:
                del frames[depth:]
                return
        onwards = address == self._end or address != function.start
        if onwards and frames and self._symbols.next_to(frames[-1].node.function, function):
            # The code continues at the next label, for example in the entry of system calls.
            returns_to = frames.pop().returns_to
            self._push(function, returns_to)
            return
        # The firmware has no names. It is called, or interrupts, and returns to the next instruction.
        if frames and (address == function.start or function.owner == FIRMWARE):
            if frames[-1].node.function.name.startswith(_THUNK):
                returns_to = frames.pop().returns_to
                self._push(function, returns_to)
            else:
                self._push(function, self._end)
            if self._counted:
                frames[-1].node.calls += 1
                self.path.append((len(frames), function.name))
            return
        # A return without a known call, or a return from an interrupt.
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
    """Sums over all callers of a function. A function that calls itself counts once in with_callees."""
    function_totals = FunctionTotals()
    for chain, node in root.walk():
        function_totals.own[chain[-1]] += node.own
        function_totals.calls[chain[-1]] += node.calls
        for name in set(chain):
            function_totals.with_callees[name] += node.own
    return function_totals
