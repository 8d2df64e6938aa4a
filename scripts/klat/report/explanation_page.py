"""An explanation as an HTML page, with a table of the functions and call trees as icicle graphs: callers above,
callees below. Only the places of boxes are computed here; klat.explain.explanation has the instructions."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from klat.explain.calls import Node
from klat.explain.explanation import calls_in_order
from klat.explain.explanation import Explanation, FunctionDifference, Side, differences
from klat.base.errors import printable
from klat.report.document import Block
from klat.report import explanation as words
from klat.report.renderers import html, terminal

_SCRIPT = "explanation.js"
_MOST_CALLS = 4000
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


@dataclass(frozen=True)
class SidePart:
    name: str  # BASE, NEW, or empty
    side: Side
    icicle: Icicle


def explanation_page(
    environment: Any, explanation: Explanation, story: Iterable[Block] = ()
) -> str:
    """The page. `story` is what ran during the sample."""
    sides = explanation.sides
    two = len(sides) > 1
    differing = differences(sides[0], sides[-1])
    by_name = {function.name: function for function in differing} if two else {}
    parts = [
        SidePart(*values)
        for values in zip(("BASE", "NEW") if two else ("",), sides, icicles(sides))
    ]
    script = environment.get_template(_SCRIPT).render()
    calls = calls_in_order(sides)
    return html.render(
        environment,
        "explanation.html",
        explanation=explanation,
        parts=parts,
        two=two,
        functions=differing,
        scale=max(1, *(part.icicle.boxes[0].here.with_callees for part in parts)),
        shades=Shades(differing),
        tip=lambda part, box: _tip(part, box, by_name, two),
        calls=list(islice(calls, _MOST_CALLS)),
        more_calls=sum(1 for _ in calls),
        story=[line for block in story for line in terminal.block_lines(block)],
        words=words,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _tip(part: SidePart, box: Box, by_name: Mapping[str, FunctionDifference], two: bool) -> str:
    here, other = box.here, box.other
    lines = [
        printable(box.name),
        f"own {here.own:,}, with callees {here.with_callees:,}, calls {here.calls:,}",
    ]
    if two:
        sign = 1 if part.name == "NEW" else -1
        count, with_callees, calls = (
            sign * (a - b)
            for a, b in zip(
                (here.own, here.with_callees, here.calls),
                (other.own, other.with_callees, other.calls),
            )
        )
        lines.append(f"NEW-BASE: own {count:+,}, with callees {with_callees:+,}, calls {calls:+,}")
    function = by_name.get(box.name)
    if function:
        base, new = function.own
        lines.append(
            f"own from all callers: BASE {base:,}, NEW {new:,}, NEW-BASE {function.difference:+,}"
        )
    if box.folded:
        lines.append(f"{box.folded} of its callees {'is' if box.folded == 1 else 'are'} not drawn")
    return "\n".join(lines)
