"""The tails of metrics extrapolated to a horizon, as text for a terminal of 80 columns."""

from __future__ import annotations

import math
from collections.abc import Iterator

from klat.compare.dataset import Dataset
from klat.compare.extrapolation import LabelHorizons, MeasuredTail
from klat.compare.settings import of_setting
from klat.report.text.columns import wrapped
from klat.report.text.numbers import plural, with_time
from klat.report.text.parameters import title
from klat.record.session import printable
from klat.stats.extremes import Extrapolation

_DIGITS = 3
_NAMES = 14  # columns
# If none of n samples is of a kind, its share is at most this over n, at 95 %.
_RULE_OF_THREE = 3


def horizon_lines(label: Dataset, horizons: LabelHorizons) -> Iterator[str]:
    """The tail of every metric of a label."""
    text = horizons.horizon.text
    samples = "" if horizons.horizon.samples is None else " samples"
    yield from wrapped(
        f"horizon {text}{samples}: the level that one of its samples exceeds, on average"
    )
    for setting in label.settings:
        found = list(of_setting(setting, horizons.found))
        if not found:
            continue
        yield from wrapped(title(setting), "  ", "    ")
        for measurement, tail in found:
            yield from wrapped(f"{printable(measurement.metric)}{_asked(tail)}", "    ", "      ")
            for name, value in _items(label, tail):
                first = f"      {name:<{_NAMES}}"
                yield from wrapped(value, first, " " * len(first))
    yield ""
    yield from wrapped(_terms(label))


def _asked(tail: MeasuredTail) -> str:
    if tail.horizon is None:
        return ""
    times = tail.horizon / tail.samples
    return f": {significant(tail.horizon)} samples, {significant(times)} times those measured"


def _items(label: Dataset, tail: MeasuredTail) -> Iterator[tuple[str, str]]:
    of = f"of {plural(tail.samples, 'sample')} in {plural(tail.boots, 'boot')}"
    yield "measured", f"max {with_time(label, tail.largest)} {of}"
    found = tail.found
    if found is None:
        yield "return level", "the maximum above: the horizon is not longer than the measurement"
        return
    if found.threshold is not None and found.above is not None and found.peaks is not None:
        peaks = f"{plural(found.peaks, 'peak')} of {plural(found.above, 'sample')}"
        yield "peaks", f"{peaks} over {_value(label, found.threshold)}"
        yield "clustering", f"extremal index {found.index:.2f}"
    elif found.blocks is not None:
        yield "block maxima", f"of {plural(found.blocks, 'segment')}"
    if found.shape is not None and found.scale is not None:
        yield "fit", f"shape {found.shape:.2f}, scale {_value(label, found.scale)}"
    yield from _answer(label, tail, found)


def _answer(label: Dataset, tail: MeasuredTail, found: Extrapolation) -> Iterator[tuple[str, str]]:
    if found.level is None or found.interval is None or tail.horizon is None:
        yield "return level", f"no extrapolation: {found.refusal}"
        return
    low, high = (_value(label, end) for end in found.interval)
    yield "return level", f"{_value(label, found.level)}, 95 % interval {low} to {high}"
    unseen = math.ceil(_RULE_OF_THREE * tail.horizon / tail.samples)
    yield (
        "assumes",
        f"one cause. A cause without a sample so far can have up to {unseen:,} samples in the horizon",
    )


def _value(label: Dataset, value: float) -> str:
    """With three digits, because the fit is not more precise."""
    unit, time = label.unit, label.nanoseconds(value)
    text = f"{significant(value)} {unit}"
    return text if time is None else f"{text} ({significant(time)} ns)"


def significant(value: float) -> str:
    """With three digits, and no exponent below 10^15."""
    if value == 0 or not math.isfinite(value) or abs(value) >= 1e15:
        return f"{value:.{_DIGITS}g}"
    decimals = _DIGITS - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, decimals):,.{max(0, decimals)}f}"


def _terms(label: Dataset) -> str:
    boots = f"these {label.boots} boots" if label.boots > 1 else "this boot"
    return (
        f"return level: an estimate for the states that {boots} showed, not a guarantee. It does not"
        " cover a cause that did not act during the measurement, and often not one with fewer than 10"
        " samples: docs/tail.md."
    )
