"""What the number of boots or blocks means, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from klat.report.text.numbers import percent
from klat.stats.power import fewest_of_tests

if TYPE_CHECKING:
    from klat.stats.multiplicity import Look

_ALPHA = 0.05  # the default of klat compare


def too_few_units(
    option: str, units: int, sides: int, sets: Iterable[tuple[str, Sequence[str]]], pairs: bool
) -> Iterator[str]:
    """A warning if klat compare can call nothing slower or faster with so few boots or blocks. It
    tests the median of each metric, and p99 where a run has 500 samples, the default."""
    estimands = sum(2 - any("--iterations" in word for word in words) for _, words in sets)
    tests = estimands * (sides - 1)
    needed = fewest_of_tests(tests, _ALPHA, pairs)
    if tests and units < needed:
        yield (
            f"with {option} {units}, klat compare cannot call anything slower or faster: its"
            f" {tests} or more tests need {option} {needed}"
        )


def look_sentence(look: Look, level: float) -> str:
    """Why alpha is not the one that the user asked for."""
    which = f"look {look.number} of {len(look.planned)}" if look.number else "an unplanned look"
    return (
        f"This is {which}, after {look.units} of {look.planned[-1]} rounds: its level is"
        f" {percent(level)}, so that all looks together err in at most {percent(look.alpha)}."
    )
