"""Says why BASE and NEW have no measurement in common."""

from __future__ import annotations

from collections.abc import Iterator

from klat.compare.comparison import Against
from klat.compare.dataset import Key
from klat.record.session import NOT_MEASURABLE, printable


def nothing_shared(against: Against) -> str:
    """Why there is no cell, and for each program of both sides what differs."""
    if against.unmeasurable:
        return f"All that BASE and NEW have in common is {NOT_MEASURABLE}."
    nothing = "BASE and NEW have no benchmark, params, placement and metric in common."
    different = "; ".join(_differences(against))
    return f"{nothing} {different}: measure both with the same options." if different else nothing


def _differences(against: Against) -> Iterator[str]:
    base = [cell.key for cell in against.cells]
    new = [left.key for left in against.uncompared if not left.neither]
    for benchmark in dict.fromkeys(key[0] for key in base):
        words = [_words(benchmark, keys) for keys in (base, new)]
        alone = [
            ", ".join(word for word in one if word not in two) for one, two in (words, words[::-1])
        ]
        if all(alone):
            yield printable(
                f"{benchmark} has {alone[0]} in BASE alone, and {alone[1]} in NEW alone"
            )


def _words(benchmark: str, keys: list[Key]) -> list[str]:
    """The params, placements and metrics of one program."""
    own = [key for key in keys if key[0] == benchmark]
    found = (
        word
        for _, params, placement, metric in own
        for word in (*params.split(";"), placement, metric)
    )
    return list(dict.fromkeys(found))
