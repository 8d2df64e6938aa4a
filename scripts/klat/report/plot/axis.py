"""The axis that latencies are drawn on: its unit, and where its tics go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from klat.base.errors import KlatError
from klat.compare.dataset import Dataset
from klat.report.plot.gnuplot import Figure, quoted, tics


_RATES = {"mb_per_s": "throughput (MB/s)"}


@dataclass(frozen=True)
class Axis:
    """Microseconds where time means something, else the counter's unit."""

    unit: str

    def scale(self, label: Dataset) -> float:
        """The factor for values of the label."""
        return 1e3 / label.khz if label.khz else 1.0

    def figure_title(self, name: str, is_time: bool) -> str:
        """The title of an axis of a metric, or of a count that is a figure."""
        return self.title(name or "time") if is_time else _RATES.get(name, name)

    def title(self, what: str) -> str:
        return f"{what} ({self.unit})"

    @property
    def samples(self) -> str:
        """The title of an axis of samples."""
        return self.unit if self.unit == "instructions" else self.title("latency")

    def figure(self, value: float) -> str:
        """A value with its digits that matter, without its unit."""
        if self.unit != "us":
            return f"{value:,.0f}"
        digits = 2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0
        return f"{value:,.{digits}f}"


def common_axis(labels: Sequence[Dataset]) -> Axis:
    """The axis that all the labels share. KlatError names two labels that cannot share one."""
    units = [("us" if label.khz else label.unit) for label in labels]
    for label, unit in zip(labels, units):
        if unit != units[0]:
            raise KlatError(
                f"label {labels[0].name} is in {units[0]} (mode {labels[0].mode}) and label"
                f" {label.name} in {unit} (mode {label.mode}), so they share no axis;"
                " plot them one by one"
            )
    return Axis(units[0])


def apart(low: float, high: float) -> tuple[float, float]:
    """The ends of an axis. If both are equal in the ten digits that gnuplot gets, they are moved apart."""
    largest = max(abs(low), abs(high))
    room = 0.0 if high - low > 1e-8 * largest else 0.1 * largest or 1.0
    return low - room, high + room


def plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 1e6 else f"{value:,.10g}"


def linear_tics(low: float, high: float, most: int = 9) -> str:
    """Round numbers, at most about `most` of them."""
    return _multiples(low, high, most, (1, 2, 2.5, 5, 10))


def whole_tics(low: float, high: float, most: int = 9) -> str:
    """The same for counts, which have no fractions."""
    if high - low < most:
        return tics((float(i), plain(i)) for i in range(math.ceil(low), math.floor(high) + 1))
    return _multiples(low, high, most, (1, 2, 5, 10))


def _multiples(low: float, high: float, most: int, steps: Sequence[float]) -> str:
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step for step in steps if step * power >= rough * 0.999999) * power
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tics((i * step, plain(i * step)) for i in range(first, last + 1))


def logarithmic_tics(low: float, high: float, most: int = 9) -> str:
    """Decades, with tics between them where there are few decades. Fewer tics if `most` is less
    than 9."""
    decades = math.log10(high / low)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    narrow = most < 9
    steps: Sequence[float] = (1.0, 2.0, 5.0)
    if decades < 1:
        steps = (1.0, 1.5, 2.0, 3.0, 5.0) if narrow else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    elif narrow and decades >= 1.5:
        steps = (1.0, 3.0)
    every = 1
    if decades >= 2.5:
        steps, every = (1.0,), math.ceil((last - first + 1) / (most - 1))
    places = [step * 10.0**e for e in range(first, last + 1, every) for step in steps]
    return tics((p, plain(p)) for p in places if low <= p <= high)


# A range from a value to this many times the value needs a logarithmic axis.
_WIDE = 8.0


def is_wide(low: float, high: float) -> bool:
    return high > _WIDE * low > 0


def padded(low: float, high: float, room: float, logarithmic: bool = False) -> tuple[float, float]:
    """The ends of an axis with this share of room at each. A linear axis does not go below 0."""
    if logarithmic:
        margin = (high / low) ** room
        return low / margin, high * margin
    low, high = apart(low, high)
    margin = (high - low) * room
    return max(0.0, low - margin), high + margin


def padded_axis(
    figure: Figure, name: str, low: float, high: float, room: float, logarithmic: bool, most: int
) -> None:
    """An axis with room at its ends, and at most about `most` tics."""
    low, high = padded(low, high, room, logarithmic)
    places = (logarithmic_tics if logarithmic else linear_tics)(low, high, most)
    figure.axis(name, low, high, places, logarithmic)


def sample_axis(
    figure: Figure, axis: Axis, low: float, high: float, logarithmic: bool, most: int
) -> None:
    """The axis of samples, with at most about `most` tics."""
    padded_axis(figure, "x", *apart(low, high), 0.02, logarithmic, most)
    figure.add(f"set xlabel {quoted(axis.samples)}")
