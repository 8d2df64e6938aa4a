"""Call trees as icicle graphs: callers above, callees below. Only the places of boxes are computed here;
klat.explain has the instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from klat.base.errors import printable
from klat.explain.calls import Node

# A page with this many boxes on each side stays below 1 MB.
MOST_BOXES = 1000
_WIDE = 1200  # the assumed width of a graph, in pixels
_LETTER = 6.7  # and of a letter of its labels


class Sample(Protocol):
    """`idle` is the idle time that was skipped, in instructions."""

    @property
    def tree(self) -> Node:
        ...

    @property
    def idle(self) -> int:
        ...


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

    def label(self, scale: int, pixels: int) -> str:
        room = int((self.here.with_callees / scale * pixels - 6) / _LETTER)
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


@dataclass(frozen=True)
class Drawn:
    """A box as a page draws it: places in percent of the width, text, and the class of its colour."""

    box: Box
    left: float
    width: float
    label: str
    tip: str
    shade: str


@dataclass(frozen=True)
class Picture:
    """An icicle graph. `name` is that of the side, or empty; `title` says what the first box is."""

    name: str
    title: str
    icicle: Icicle
    boxes: tuple[Drawn, ...]


def pictures(
    samples: Sequence[Sample], titles: Sequence[str], most: int = MOST_BOXES, pixels: int = _WIDE
) -> list[Picture]:
    """The graphs of one sample, or of BASE and NEW on one scale. At most `most` boxes each, in a width of `pixels`."""
    two = len(samples) > 1
    names = ("BASE", "NEW") if two else ("",)
    graphs = icicles(samples, most)
    scale = max(1, *(graph.boxes[0].here.with_callees for graph in graphs))
    base, new = samples[0].tree.functions(), samples[-1].tree.functions()
    both = {name: (base[name], new[name]) for name in {**base, **new}} if two else {}
    shades = Shades({name: after - before for name, (before, after) in both.items()})
    drawn = [
        tuple(_drawn(name, box, (scale, pixels), shades, both) for box in graph.boxes)
        for name, graph in zip(names, graphs)
    ]
    return list(map(Picture, names, titles, graphs, drawn))


def _drawn(
    name: str, box: Box, size: tuple[int, int], shades: Shades, both: Mapping[str, tuple[int, int]]
) -> Drawn:
    scale, pixels = size
    left, width = 100 * box.start / scale, 100 * box.here.with_callees / scale
    tip = _tip(name, box, both)
    return Drawn(box, left, width, box.label(scale, pixels), tip, shades.of(box.name))


def icicles(samples: Sequence[Sample], most: int = MOST_BOXES) -> list[Icicle]:
    amounts = [_amounts(sample) for sample in samples]
    keys = {chain: key for key, chain in enumerate(dict.fromkeys(c for a in amounts for c in a))}
    return [
        _Drawing(sample.tree, here, other, keys, most).icicle()
        for sample, here, other in zip(samples, amounts, reversed(amounts))
    ]


def _amounts(sample: Sample) -> dict[Chain, Amounts]:
    amounts: dict[Chain, Amounts] = {(): Amounts(0, sample.tree.total + sample.idle)}
    for chain, node in sample.tree.walk():
        amounts[chain] = Amounts(node.own, node.total, node.calls)
    if sample.idle:
        amounts[_IDLE] = Amounts(sample.idle, sample.idle)
    return amounts


class _Drawing:
    def __init__(
        self,
        tree: Node,
        here: dict[Chain, Amounts],
        other: dict[Chain, Amounts],
        keys: dict[Chain, int],
        most: int,
    ) -> None:
        self._tree = tree
        self._here, self._other, self._keys = here, other, keys
        widths = sorted((amount.with_callees for amount in here.values()), reverse=True)
        self._least = widths[most] + 1 if len(widths) > most else 1

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

    def __init__(self, differences: Mapping[str, int]) -> None:
        self._by_name = differences
        largest = max((abs(n) for n in differences.values()), default=0)
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


def _tip(name: str, box: Box, both: Mapping[str, tuple[int, int]]) -> str:
    here, other = box.here, box.other
    counts = f"own {here.own:,}, with callees {here.with_callees:,}, calls {here.calls:,}"
    lines = [printable(box.name), counts]
    if name:
        sign = 1 if name == "NEW" else -1
        count, with_callees, calls = (
            sign * (a - b)
            for a, b in zip(
                (here.own, here.with_callees, here.calls),
                (other.own, other.with_callees, other.calls),
            )
        )
        lines.append(f"NEW-BASE: own {count:+,}, with callees {with_callees:+,}, calls {calls:+,}")
    if box.name in both:
        base, new = both[box.name]
        lines.append(f"own from all callers: BASE {base:,}, NEW {new:,}, NEW-BASE {new - base:+,}")
    if box.folded:
        lines.append(f"{box.folded} of its callees {'is' if box.folded == 1 else 'are'} not drawn")
    return "\n".join(lines)
