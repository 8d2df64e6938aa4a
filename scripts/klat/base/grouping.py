"""Groups of items."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key")


def grouped(items: Iterable[Item], by: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """The items of each key, in the order of the first item of each."""
    groups: dict[Key, list[Item]] = defaultdict(list)
    for item in items:
        groups[by(item)].append(item)
    return dict(groups)


def neighbours(
    items: Iterable[Item], size: Callable[[Item], float], least: float
) -> list[list[Item]]:
    """Groups of neighbours, each with a total size of at least `least`. The last group takes the rest."""
    groups: list[list[Item]] = []
    pending: list[Item] = []
    total = 0.0
    for item in items:
        pending.append(item)
        total += size(item)
        if total >= least:
            groups.append(pending)
            pending, total = [], 0.0
    if not groups:
        return [pending] if pending else []
    return [*groups[:-1], groups[-1] + pending]
