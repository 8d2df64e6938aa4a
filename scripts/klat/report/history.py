"""A history: as text for a terminal of 80 columns, and as a Document for a page. klat.compare.label_history has all
figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from klat.compare.estimands import FINER
from klat.compare.label_history import History, HistorySeries, Step, TrendKind
from klat.report.document import Captioned, Column, Document, Item, Judged, Listing, Paragraph
from klat.report.document import Row, Section, Verdicts, Word
from klat.report.text import wording
from klat.report.text.numbers import percent, plural
from klat.report.text.parameters import HIDDEN
from klat.report.text.columns import wrapped

_COLOURS = {TrendKind.CHANGED: "35", TrendKind.DRIFTS: "33", TrendKind.STEADY: "36"}
_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDEST = 40
_MOST_DIFFERENCES = 6
_WORDS = {
    TrendKind.CHANGED: ("slower", "▲"),
    TrendKind.DRIFTS: ("open", "↗"),
    TrendKind.WITHIN_STEP: ("open", "?"),
    TrendKind.STEADY: ("same", "="),
    TrendKind.TOO_FEW: ("open", "?"),
    TrendKind.NO_FIGURE: ("refused", "×"),
}
_COLUMNS = tuple(Column(title, overview=True) for title in ("over all", "first", "last", "range"))


def history_lines(history: History, colour: bool, blocks: bool) -> Iterator[str]:
    """`blocks`: the terminal can show a series as a row of them."""
    yield from wrapped(heading(history), "")
    for line in history.unmeasurable:
        yield from wrapped(f"note: {line}", "", "    ")
    if all(series.shape is TrendKind.TOO_FEW for series in history.series):
        yield from _too_few(history)
        return
    yield ""
    words = max(len(s.shape.value) for s in history.series)
    for series in history.series:
        word = series.shape.value
        line, *rest = wrapped(
            name(series, history), f"{word:{words}}  {total(series):>8}  ", "    "
        )
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


def _too_few(history: History) -> Iterator[str]:
    """The figures, where no series has the boots for a statement."""
    yield from wrapped(
        f"{plural(len(history.boots), 'boot')}: too few to find a change. For"
        f" {plural(len(history.series), 'series')} at alpha"
        f" {percent(history.options.alpha)}, klat history needs {history.needed} boots.",
        "",
    )
    yield ""
    values = [reach(series) for series in history.series]
    width = min(40, max(map(len, values)))
    for value, series in zip(values, history.series):
        yield from wrapped(name(series, history), f"{value:>{width}}  ", " " * (width + 2))
    yield ""
    yield from wrapped(f"A figure is the {_of_boot(history)}. {HIDDEN}", "")


def _of_boot(history: History) -> str:
    """How a boot gives one figure."""
    name = history.options.estimand.name
    pooled = [series.pooled for series in history.series if series.points]
    why = " or ".join(dict.fromkeys(filter(None, pooled)))
    if pooled and all(pooled):
        return f"{name} of all samples of a boot, because {why}"
    text = f"{name} of a boot, averaged over its runs"
    return f"{text}, or of all its samples if {why}" if why else text


def heading(history: History) -> str:
    boots = history.boots
    kernels = list(dict.fromkeys(boot.kernel for boot in boots))
    ran = f"Linux {kernels[0]}" + (f" to {kernels[-1]}" if len(kernels) > 1 else "")
    span = " to ".join(dict.fromkeys((boots[0].date, boots[-1].date)))
    return f"{history.label}: {plural(len(boots), 'boot')}, {span}; {ran}"


def name(series: HistorySeries, history: History) -> str:
    return f"{series.key[3]}: {setting(series, history)}"


def setting(series: HistorySeries, history: History) -> str:
    """Benchmark, placement and parameters, and what distinguishes the series from others of the measurement."""
    text = wording.setting(series.key, [other.key for other in history.series])
    return ", ".join([text, *(f"{k}: {v}" for k, v in series.apart)])


def signed(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.3g} %"


def total(series: HistorySeries) -> str:
    return "" if series.overall is None else signed(series.overall)


def reach(series: HistorySeries) -> str:
    """First and last, and the range."""
    values = [point.value for point in series.points]
    if len(values) == 1:
        return f"{wording.figure(values[0])} {series.unit}"
    low, high = wording.figure(min(values)), wording.figure(max(values))
    first, last = wording.figure(values[0]), wording.figure(values[-1])
    if low == high:
        return f"{low} {series.unit} in every boot"
    return f"first {first}, last {last} {series.unit}, range {low} to {high}"


def sparkline(values: Sequence[float]) -> str:
    parts = np.array_split(np.array(values), min(len(values), _WIDEST))
    means = np.array([part.mean() for part in parts])
    spread = means.max() - means.min()
    if spread <= 0:
        return _BLOCKS[0] * len(means)
    return "".join(_BLOCKS[int(p)] for p in np.floor((means - means.min()) / spread * 7.999))


def sentences(series: HistorySeries, history: History) -> Iterator[str]:
    """Where the series changed, and what else changed at that boot; or why there is no statement."""
    count = len(series.points)
    if series.shape is TrendKind.NO_FIGURE:
        yield series.reason
    if series.shape is TrendKind.TOO_FEW:
        yield f"{plural(count, 'boot')}: a series needs {history.needed} to find a change"
    for step in series.steps:
        rounded = ""
        if step.resolution:
            low, high = (signed(step.ratio * np.exp(r * step.resolution)) for r in (-1, 1))
            rounded = f"; rounded to the counter's step it may be {low} to {high}"
        yield (
            f"{_place(step, series, history)}, {signed(step.ratio)} (p {wording.p_value(step.p)})"
            f"{rounded}"
        )
        parts = []
        if step.kernels[0] != step.kernels[1]:
            parts.append(f"Linux {step.kernels[0]} | {step.kernels[1]}")
        parts += [f"{c.name}: {c.a} | {c.b}" for c in step.differences[:_MOST_DIFFERENCES]]
        more = len(step.differences) - _MOST_DIFFERENCES
        parts += [f"and {more} more"] if more > 0 else []
        yield "changed with it: " + ("; ".join(parts) if parts else "nothing that was captured")
    for step in series.within_step:
        yield (
            f"{_place(step, series, history)}: rounding to the counter's step can cause this"
            " difference"
        )
    if series.shape is TrendKind.WITHIN_STEP:
        if series.drift:
            yield "there is a drift, but rounding to the counter's step can cause it"
        yield f"to resolve less than a step of the counter, {FINER}"
    if series.shape is TrendKind.DRIFTS and series.drift:
        drift = series.drift
        low, high, slope = (100 * np.expm1(v) for v in (drift.low, drift.high, drift.slope))
        yield (
            f"{slope:+.2g} % a boot (95 %: {low:+.2g} to {high:+.2g} %), p {wording.p_value(drift.p)};"
            " a steady drift fits better than steps, so no single boot is named"
        )


def _place(step: Step, series: HistorySeries, history: History) -> str:
    boot = history.boots[series.points[step.at].boot]
    return (
        f"at boot {step.at + 1} of {len(series.points)}, {boot.date} ({boot.name}):"
        f" {wording.figure(step.before)} to {wording.figure(step.after)} {series.unit}"
    )


def terms(history: History) -> Iterator[str]:
    options = history.options
    count = len(history.series)
    yield (
        f"A point is the {_of_boot(history)}. Changes are found by"
        f" E-divisive, drift by Kendall's tau: {plural(2 * count, 'test')}, each at"
        f" {percent(history.level)} (seed {options.seed}). If nothing changed, the chance of any"
        f" mark is at most {percent(options.alpha)}."
    )
    yield (
        f"A series needs {history.needed} boots"
        + (
            f", and {history.beside} on each side of a change: a change in the last boots is not"
            " found yet."
            if len(history.boots) >= history.needed
            else "."
        )
        + f" A change has no interval, because the data chose its place. {HIDDEN}"
    )


def document(history: History, drawn: Sequence[Captioned | None]) -> Document:
    """`drawn` has the figure of each series that has one."""
    items = tuple(_item(s, history, figure) for s, figure in zip(history.series, drawn))
    head = (Paragraph(heading(history)), Listing(tuple(history.unmeasurable)))
    section = Section("", (*head, Verdicts(_COLUMNS, items, "", "found", rows_alone=False)))
    title, meanings = f"History of {history.label}", tuple(terms(history))
    return Document(title, Word(""), 0, (section,), meanings, history.problems)


def _item(series: HistorySeries, history: History, drawn: Captioned | None) -> Item:
    tone, symbol = _WORDS[series.shape]
    if series.overall is not None and series.overall < 1:
        tone, symbol = {"▲": ("faster", "▼"), "↗": ("open", "↘")}[symbol]
    values = [point.value for point in series.points]
    low_to_high = " to ".join(map(wording.figure, (min(values), max(values)))) if values else ""
    ends = [f"{wording.figure(value)} {series.unit}" for value in (*values[:1], *values[-1:])]
    cells = (total(series) or "n/a", *(ends or ["", ""]), low_to_high)
    where = setting(series, history)
    return Item(
        where,
        series.key[3],
        series.key[3],
        where,
        (Row("", cells, Judged(Word(series.shape.value, tone, symbol))),),
        sentences=tuple(sentences(series, history)),
        figures=(drawn,) if drawn else (),
    )
