"""Icicle graphs of call trees: callers above, callees below. Computes only the places of the boxes.
klat.explain.explanation computes the instructions and differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from klat.explain.calls import Node
from klat.explain.explanation import FunctionDifference, Side

# A page with this many boxes on each side stays below 1 MB.
MOST_BOXES = 1000
# The assumed widths of a graph and of a letter of its labels, in pixels.
_PIXELS = 1200
_LETTER = 6.7

Chain = tuple[str, ...]
_IDLE = ("",)  # the chain of skipped idle time


@dataclass(frozen=True)
class Amounts:
    """The instructions and calls of a function along one chain of callers."""

    own: int = 0
    with_callees: int = 0
    calls: int = 0


@dataclass(frozen=True)
class Box:
    name: str
    chain: Chain
    key: int  # equal on both sides for the same chain
    start: int  # in instructions from the left edge
    here: Amounts
    other: Amounts  # the same chain on the other side
    folded: int  # number of callees without a box

    @property
    def depth(self) -> int:
        return len(self.chain)

    def label(self, scale: int) -> str:
        room = int((self.here.with_callees / scale * _PIXELS - 6) / _LETTER)
        if len(self.name) <= room:
            return self.name
        return f"{self.name[: room - 1]}…" if room > 2 else ""


@dataclass(frozen=True)
class Icicle:
    """The graph of one side. The first box is the whole sample. If idle time was skipped, the last box is
    the idle time."""

    boxes: list[Box]
    folded: int  # number of boxes that are too narrow to draw
    widest: int  # instructions of the widest one that is not drawn

    @property
    def levels(self) -> int:
        return 1 + max(box.depth for box in self.boxes)


def icicles(sides: Sequence[Side]) -> list[Icicle]:
    amounts = [_amounts(side) for side in sides]
    keys = {chain: key for key, chain in enumerate(dict.fromkeys(c for a in amounts for c in a))}
    return [
        _Drawing(side, here, other, keys).icicle()
        for side, here, other in zip(sides, amounts, reversed(amounts))
    ]


def _amounts(side: Side) -> dict[Chain, Amounts]:
    sample = side.sample
    amounts: dict[Chain, Amounts] = {(): Amounts(0, sample.tree.total + sample.idle)}
    for chain, node in sample.tree.walk():
        amounts[chain] = Amounts(node.own, node.total, node.calls)
    if sample.idle:
        amounts[_IDLE] = Amounts(sample.idle, sample.idle)
    return amounts


class _Drawing:
    def __init__(
        self,
        side: Side,
        here: dict[Chain, Amounts],
        other: dict[Chain, Amounts],
        keys: dict[Chain, int],
    ) -> None:
        self._tree = side.sample.tree
        self._here, self._other, self._keys = here, other, keys
        widths = sorted((amount.with_callees for amount in here.values()), reverse=True)
        self._least = widths[MOST_BOXES] + 1 if len(widths) > MOST_BOXES else 1

    def icicle(self) -> Icicle:
        boxes = [self._box("all", (), 0, self._tree), *self._callees(self._tree, (), 0)]
        if _IDLE in self._here:
            boxes.append(self._box("idle time, skipped", _IDLE, self._tree.total, None))
        left_out = [a.with_callees for a in self._here.values() if self._folds(a.with_callees)]
        return Icicle(boxes, len(left_out), max(left_out, default=0))

    def _folds(self, width: int) -> bool:
        return 0 < width < self._least

    def _callees(self, node: Node, above: Chain, start: int) -> Iterator[Box]:
        """The boxes of the callees, from the left, in the order of their first call."""
        for name, callee in node.callees.items():
            chain = (*above, name)
            width = self._here[chain].with_callees
            if width >= self._least:
                yield self._box(name, chain, start, callee)
                yield from self._callees(callee, chain, start)
                start += width

    def _box(self, name: str, chain: Chain, start: int, node: Node | None) -> Box:
        callees = node.callees if node else ()
        folded = sum(self._folds(self._here[(*chain, callee)].with_callees) for callee in callees)
        other = self._other.get(chain, Amounts())
        return Box(name, chain, self._keys[chain], start, self._here[chain], other, folded)


@dataclass(frozen=True)
class Shade:
    """The colour of functions whose difference is from `low` to `high` instructions."""

    kind: str  # the class of its colour
    low: int
    high: int


class Shades:
    """Three shades for functions with fewer instructions in NEW, and three for functions with more. Each
    shade begins at a share of the largest difference."""

    def __init__(self, differences: Iterable[FunctionDifference]) -> None:
        self._by_name = {f.name: f.difference for f in differences}
        largest = max((abs(n) for n in self._by_name.values()), default=0)
        starts = [1, max(1, -(-largest // 10)), max(1, -(-largest // 3)), largest + 1]
        self._ranges = [(n, a, b - 1) for n, (a, b) in enumerate(zip(starts, starts[1:]), 1)]

    def of(self, name: str) -> str:
        difference = self._by_name.get(name, 0)
        for number, low, high in self._ranges:
            if low <= abs(difference) <= high:
                return f"{'more' if difference > 0 else 'less'}{number}"
        return "equal"

    def legend(self) -> list[Shade]:
        """The shades, from the largest decrease to the largest increase."""
        ranges = [(n, low, high) for n, low, high in self._ranges if low <= high]
        less = [Shade(f"less{n}", -high, -low) for n, low, high in reversed(ranges)]
        more = [Shade(f"more{n}", low, high) for n, low, high in ranges]
        return [*less, Shade("equal", 0, 0), *more]
