"""The change since the first kernel, in colours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from klat.compare.dataset import Key
from klat.compare.trend import MetricSeries, Trend
from klat.report.document import HeatMap, Word
from klat.report.text.numbers import whole

Marks = Mapping[str, str]  # by the reason why a kernel has no value
Links = Mapping[tuple[Key, int], str]  # by metric and kernel: the place of a jump's functions

# Ratios to the first kernel: from each of them on, a cell has the next shade.
_SHADES = (1.02, 1.1, 1.3)


def heat_maps(
    trend: Trend, names: list[str], labels: list[str], marks: Marks, links: Links
) -> Iterator[HeatMap]:
    """A map for each chain: the ratio of each kernel to the first kernel that has the metric."""
    more = _ranges([f"{100 * (start - 1):+.0f}" for start in _SHADES], "more")
    less = _ranges([f"{100 * (1 / start - 1):+.0f}" for start in _SHADES], "less")
    legend = (*reversed(less), Word("between", "equal"), *more)
    unit = trend.comparison.against[0].base.unit
    for chain in trend.chains:
        if len(chain) < 3:
            continue
        rows = [
            (name, tuple(_cell(trend, metric, kernel, marks, links) for kernel in chain))
            for metric, name in zip(trend.series, names)
        ]
        title = (
            f"{labels[chain[0]]} to {labels[chain[-1]]}: {unit} of the first kernel that has the metric, then the change"
            " since this kernel in percent"
        )
        title += ". A click on an underlined cell opens the functions of its jump" if links else ""
        yield HeatMap(title, "metric", tuple(labels[k] for k in chain), tuple(rows), legend)


def _ranges(starts: list[str], tone: str) -> list[Word]:
    texts = [f"{a} to {b} %" for a, b in zip(starts, starts[1:])] + [f"beyond {starts[-1]} %"]
    return [Word(text, f"{tone}{number}") for number, text in enumerate(texts, 1)]


def _cell(trend: Trend, metric: MetricSeries, kernel: int, marks: Marks, links: Links) -> Word:
    if kernel not in metric.values:
        why = metric.reasons[kernel]
        return Word(marks[why], hint=why)
    first = trend.first_of(metric, kernel)
    if kernel == first:
        return Word(whole(metric.values[first]), "equal")
    ratio = metric.values[kernel] / metric.values[first]
    percent = round(100 * (ratio - 1))
    number = sum(max(ratio, 1 / ratio) > start for start in _SHADES)
    tone = f"{'more' if ratio > 1 else 'less'}{number}" if number else "equal"
    link = links.get((metric.key, kernel), "")
    return Word(f"{percent:+}" if percent else "0", tone, link=link)
