"""How much of a difference the granularity of a counter can hide."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from klat.stats.hierarchy import mean

# Of normal noise with a deviation of 0.7 steps or more so many values lie outside of the two fullest
# steps beside each other, and what rounding does to their mean is below 0.0001 of a step.
_SCATTERED = 0.2
# Steps without a value between those that one noise spreads.
_GAP = 3


def hidden(values: Sequence[float], step: float) -> float:
    """How far, as a log, steps of that size may have rounded all the values together. Noise that
    carries values across steps makes their mean resolve more than a step. A run that strayed from the
    others does not, nor do two states with nothing between them."""
    if not values or not step:
        return 0.0
    rounded = _stuck_share(values, step) * step / 2 / mean(values)
    return -math.log1p(-min(0.5, rounded))  # downwards, where a step is longer


def _stuck_share(values: Sequence[float], step: float) -> float:
    """The share of values that lie together and that no noise spreads over the steps there. One by
    itself is spread, unless it is all there is."""
    low = min(values)
    places = sorted(round((value - low) / step) for value in values)
    if len(places) == 1:
        return 1.0
    stuck = 0
    for group in _together(places):
        held = Counter(group)
        fullest = max(held[place] + held[place + 1] for place in group)
        if len(group) > 1 and len(group) - fullest <= _SCATTERED * len(group):
            stuck += len(group)
    return stuck / len(places)


def _together(places: Sequence[int]) -> Iterator[list[int]]:
    """Ascending numbers in groups without a wide gap."""
    group: list[int] = []
    for place in places:
        if group and place - group[-1] > _GAP + 1:
            yield group
            group = []
        group.append(place)
    if group:
        yield group
