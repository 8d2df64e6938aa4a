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
