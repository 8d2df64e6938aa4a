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
    base_keys = [cell.key for cell in against.cells]
    new_keys = [left.key for left in against.uncompared if not left.neither]
    for benchmark in dict.fromkeys(key[0] for key in base_keys):
        base, new = _words(benchmark, base_keys), _words(benchmark, new_keys)
        only_base = ", ".join(word for word in base if word not in new)
        only_new = ", ".join(word for word in new if word not in base)
        if only_base and only_new:
            yield printable(
                f"{benchmark} has {only_base} in BASE alone, and {only_new} in NEW alone"
            )


def _words(benchmark: str, keys: list[Key]) -> list[str]:
    """The params, placements and metrics of one program."""
    words = (
        word
        for program, params, placement, metric in keys
        if program == benchmark
        for word in (*params.split(";"), placement, metric)
    )
    return list(dict.fromkeys(words))
