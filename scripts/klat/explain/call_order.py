"""The calls of two samples in order, as a diff."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from klat.explain.explanation import Side

Call = tuple[str, int, str]  # "-" only BASE, "+" only NEW, " " both; depth; function
_MANY = 2000


def calls_in_order(sides: Sequence[Side]) -> Iterator[Call]:
    """The calls of one side, or of BASE and NEW."""
    if len(sides) == 1:
        yield from ((" ", *call) for call in sides[0].sample.path)
        return
    old, new = (side.sample.path for side in sides)
    # difflib's autojunk heuristic. Without it, the time grows with the square of a call's repetitions.
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=len(new) > _MANY)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            yield from ((" ", *call) for call in old[a:b])
        else:
            yield from (("-", *call) for call in old[a:b])
            yield from (("+", *call) for call in new[c:d])
