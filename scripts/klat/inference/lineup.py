"""Whether there are enough units that chance cannot line them up, all of one side on one level and
all of the other on another. Student's t does not see this: units that never vary within a side have
no variance, however few they are."""

from __future__ import annotations

import math


def by_arrangement(a: int, b: int, pairs: bool = False) -> float:
    """The chance that equal units, dealt to two sides of a and b, come out in order: two of all ways
    to deal them. Of a pairs, that all differences have one sign."""
    ways: int = 2 ** a if pairs else math.comb(a + b, a)
    return 2 / ways


def by_states(a: int, b: int) -> float:
    """The chance that a units on one side are all in one of two states and b on the other all in the
    other, at most: for the share of states at which this is likeliest. With a = b that is 2 / 4^a.
    """
    share = a / (a + b)
    chance: float = 2 * share**a * (1 - share) ** b
    return min(1.0, chance)


def fewest(alpha: float, pairs: bool = False) -> int:
    """Units on each side, or pairs, from which on chance lines them up in at most alpha."""
    units = 2
    while by_arrangement(units, units, pairs) > alpha:
        units += 1
    return units
