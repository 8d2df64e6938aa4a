"""The text of a figure has only the digits that the counter's granularity supports. Sentences say what the number of
boots or blocks means."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from klat.stats.power import fewest_of_tests

if TYPE_CHECKING:
    from klat.compare.dataset import Dataset
    from klat.stats.multiplicity import Look

MISSING = "n/a"


def one_in(power: int) -> str:
    """`1/100` for 2, `1/10^4` for 4; 1 for 0."""
    return "1" if not power else f"1/{10**power:,}" if power < 4 else f"1/10^{power}"


def whole(value: float | None) -> str:
    """Ticks or instructions. A sample is an int, and exact. A float above 2^53 has no exact last digit."""
    if isinstance(value, float) and abs(value) >= 1e15:
        return f"{value:.12g}"
    return MISSING if value is None else f"{round(value):,}"


def nanoseconds(label: Dataset, value: float | None, sample: bool) -> str:
    """A sample's time, rounded to the decade of the granularity (26 ticks of 10 ns: tens). An average of many
    samples resolves more, and is rounded to the nanosecond."""
    time = None if value is None else label.nanoseconds(value)
    if time is None:
        return MISSING
    step = 1
    if sample:
        granularity = label.nanoseconds(label.quantum) or 1.0
        # 5 % of tolerance: a granularity calibrated as 9.9998 ns is one of 10.
        step = 10 ** max(0, math.floor(math.log10(granularity * 1.05)))
    return whole(time) if time >= 1e15 else f"{round(time / step) * step:,}"


def with_time(label: Dataset, value: float | None) -> str:
    """`26 ticks (10 ns)`, for a value that is a sample."""
    if value is None:
        return MISSING
    text = plural(round(value), label.unit.removesuffix("s"))
    return f"{text} ({nanoseconds(label, value, True)} ns)" if label.khz else text


def sample_figure(label: Dataset, value: float | None) -> str:
    """A sample without its unit: in nanoseconds, or in ticks or instructions where time has no meaning."""
    return nanoseconds(label, value, True) if label.khz else whole(value)


def duration(seconds: float) -> str:
    """`45 s`, `6.25 min`, `8 h`: three digits at most, unless there are more days."""
    for size, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s")):
        amount = seconds / size
        if amount >= 2 or unit == "s":
            break
    return f"{amount:,.0f} {unit}" if amount >= 100 else f"{amount:.3g} {unit}"


def boots(counts: Sequence[int]) -> str:
    """`4 boots`, or `2 to 4 boots, by metric` of metrics that were measured in different numbers of
    boots."""
    if len(set(counts)) < 2:
        return plural(max(counts, default=0), "boot")
    return f"{min(counts):,} to {max(counts):,} boots, by metric"


def reaches_margin(interval: tuple[float, float], margin: float) -> bool:
    """Whether a part of an interval of ratios is within the margin."""
    return interval[0] < 1 + margin and interval[1] > 1 / (1 + margin)


def ratio_digits(low: float, high: float) -> int:
    """Decimals for a ratio and its interval: 3, or 4 if half the interval is below 0.001. An interval without
    width, of figures that are equal in every run, needs no more than 3. A ratio above 100 has 1."""
    if high >= 100:
        return 1
    half = (high - low) / 2
    return 4 if 1e-9 < half < 0.001 else 3


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 or noun.endswith('series') else 's'}"


def confidence(alpha: float) -> str:
    """1 - alpha, with digits that show a small alpha."""
    return f"{100 * (1 - alpha):.5g} %"


def percent(share: float) -> str:
    """0.02 as `2 %`, with the digits that matter."""
    if 0 < share < 1e-5:
        return "<0.001 %"
    return f"{100 * share:,.0f} %" if share >= 10 else f"{100 * share:.3g} %"


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
    """Why the level of a look is not the alpha that the user asked for."""
    which = f"look {look.number} of {len(look.planned)}" if look.number else "an unplanned look"
    return (
        f"This is {which}, after {look.units} of {look.planned[-1]} rounds: its level is"
        f" {percent(level)}, so that all looks together err in at most {percent(look.alpha)}."
    )
