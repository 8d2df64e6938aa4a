"""The calls of two samples in order, as a diff."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from klat.explain.explanation import Side

Call = tuple[str, int, str]  # "-" only BASE, "+" only NEW, " " both; depth; function


def calls_in_order(sides: Sequence[Side]) -> Iterator[Call]:
    """Of one side, or of BASE and NEW."""
    paths = [side.sample.path for side in sides]
    old, new = paths[0], paths[-1]
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for _, a, b, c, d in matcher.get_opcodes():
        same = old[a:b] == new[c:d]
        yield from (("" if same else "-", *call) for call in old[a:b])
        yield from (("+", *call) for call in new[c:d] if not same)
