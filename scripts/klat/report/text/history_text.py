"""A history as text for a terminal of 100 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from klat.compare.trend import History, HistorySeries, TrendKind
from klat.report.text import wording
from klat.report.text.numbers import plural
from klat.report.text.comparison_text import wrapped

_COLOURS = {TrendKind.CHANGED: "35", TrendKind.DRIFTS: "33", TrendKind.STEADY: "36"}
_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDEST = 40
_MOST_DIFFERENCES = 6


def history_lines(history: History, colour: bool, blocks: bool) -> Iterator[str]:
    """`blocks`: the terminal can show a series as a row of them."""
    yield from wrapped(heading(history), "")
    for line in history.unmeasurable:
        yield from wrapped(f"note: {line}", "", "    ")
    yield ""
    words = max(len(s.shape.value) for s in history.series)
    for series in history.series:
        word = series.shape.value
        line, *rest = wrapped(name(series), f"{word:{words}}  {total(series):>8}  ", "    ")
        paint = _COLOURS.get(series.shape)
        yield (f"\033[1;{paint}m{word}\033[0m{line[len(word):]}" if colour and paint else line)
        yield from rest
        if blocks and len(series.points) > 1:
            yield f"    {sparkline([p.value for p in series.points])}  {reach(series)}"
        elif series.points:
            yield from wrapped(reach(series), "    ")
        for sentence in sentences(series, history):
            yield from wrapped(sentence, "    ", "      ")
    yield ""
    for line in terms(history):
        yield from wrapped(line, "")


def heading(history: History) -> str:
    boots = history.boots
    kernels = list(dict.fromkeys(boot.kernel for boot in boots))
    ran = f"Linux {kernels[0]}" + (f" to {kernels[-1]}" if len(kernels) > 1 else "")
    span = boots[0].date + (f" to {boots[-1].date}" if len(boots) > 1 else "")
    return f"{history.label}: {plural(len(boots), 'boot')}, {span}; {ran}"


def name(series: HistorySeries) -> str:
    return f"{series.key[3]}: {setting(series)}"


def setting(series: HistorySeries) -> str:
    """With what tells it from other series of the same measurement."""
    return ", ".join([wording.setting(series.key), *(f"{k}: {v}" for k, v in series.apart)])


def signed(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.3g} %"


def total(series: HistorySeries) -> str:
    return "" if series.overall is None else signed(series.overall)


def reach(series: HistorySeries) -> str:
    """First and last, and between what."""
    values = [point.value for point in series.points]
    if len(values) == 1:
        return f"{wording.figure(values[0])} {series.unit}"
    low, high = wording.figure(min(values)), wording.figure(max(values))
    first, last = wording.figure(values[0]), wording.figure(values[-1])
    return f"{first} ... {last} {series.unit}, from {low} to {high}"


def sparkline(values: Sequence[float]) -> str:
    parts = np.array_split(np.array(values), min(len(values), _WIDEST))
    means = np.array([part.mean() for part in parts])
    spread = means.max() - means.min()
    if spread <= 0:
        return _BLOCKS[0] * len(means)
    return "".join(_BLOCKS[int(p)] for p in np.floor((means - means.min()) / spread * 7.999))


def sentences(series: HistorySeries, history: History) -> Iterator[str]:
    """Where it changed and what else did there; or why nothing is said."""
    count = len(series.points)
    if series.shape is TrendKind.NO_FIGURE:
        yield series.reason
    if series.shape is TrendKind.TOO_FEW:
        yield f"{plural(count, 'boot')}: fewer than {history.needed} cannot tell"
    for step in series.steps:
        boot = history.boots[series.points[step.at].boot]
        yield (
            f"at boot {step.at + 1} of {count}, {boot.date} ({boot.name}):"
            f" {wording.figure(step.before)} to {wording.figure(step.after)} {series.unit},"
            f" {signed(step.ratio)} (p {wording.p_value(step.p)})"
        )
        told = []
        if step.kernels[0] != step.kernels[1]:
            told.append(f"Linux {step.kernels[0]} | {step.kernels[1]}")
        told += [f"{d.name}: {d.a} | {d.b}" for d in step.differences[:_MOST_DIFFERENCES]]
        more = len(step.differences) - _MOST_DIFFERENCES
        told += [f"and {more} more"] if more > 0 else []
        yield "differs there: " + ("; ".join(told) if told else "nothing that was captured")
    if series.shape is TrendKind.DRIFTS and series.drift:
        d = series.drift
        low, high, slope = (100 * np.expm1(v) for v in (d.low, d.high, d.slope))
        yield (
            f"{slope:+.2g} % a boot (95 %: {low:+.2g} to {high:+.2g} %), p {wording.p_value(d.p)};"
            " a line tells more than steps, so that no one boot is to blame"
        )


def terms(history: History) -> Iterator[str]:
    o = history.options
    count = len(history.series)
    yield (
        f"A point is the {o.estimand.name} of a boot, averaged over its runs. Changes by E-divisive,"
        f" drift by Kendall's tau; {plural(2 * count, 'test')}, each at"
        f" {wording.percent(history.level)}, so that where nothing changed the chance of any mark is"
        f" at most {wording.percent(o.alpha)}; seed {o.seed}."
    )
    yield (
        f"It takes {history.needed} boots to tell anything"
        + (
            f", and {history.beside} on either side of a change: one at the very end is not seen yet."
            if len(history.boots) >= history.needed
            else "."
        )
        + " A change has no interval, for the data chose its place."
    )
