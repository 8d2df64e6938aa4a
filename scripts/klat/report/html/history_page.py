"""A history as a page of HTML. Computes nothing: all is of klat.compare.label_history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from klat.compare.label_history import History, HistorySeries, TrendKind
from klat.report.html import page
from klat.report.text import history_text, wording
from klat.report.html.comparison_page import Badge
from klat.report.plot.history_figures import series_figure

_SYMBOLS = {
    TrendKind.CHANGED: ("▲", "slower"),
    TrendKind.DRIFTS: ("↗", "open"),
    TrendKind.STEADY: ("=", "same"),
    TrendKind.TOO_FEW: ("?", "open"),
    TrendKind.NO_FIGURE: ("×", "refused"),
}


@dataclass(frozen=True)
class SeriesLine:
    anchor: str
    metric: str
    setting: str
    badge: Badge
    total: str
    reach: tuple[str, str, str]  # first, last, range
    why: tuple[str, ...]
    drawing: page.Drawing | None


def _reach(series: HistorySeries) -> tuple[str, str, str]:
    if not series.points:
        return "", "", ""
    values = [point.value for point in series.points]
    first, last, low, high = (
        wording.figure(value) for value in (values[0], values[-1], min(values), max(values))
    )
    return f"{first} {series.unit}", f"{last} {series.unit}", f"{low} to {high}"


def history_page(environment: Any, history: History) -> str:
    shown = [series_figure(f"s{i}", s, history, False) for i, s in enumerate(history.series)]
    drawn = iter(page.drawings([one for one in shown if one is not None]))
    lines = []
    for number, (series, figure) in enumerate(zip(history.series, shown), 1):
        symbol, kind = _SYMBOLS[series.shape]
        if series.overall is not None and series.overall < 1:
            symbol, kind = {"▲": ("▼", "faster"), "↗": ("↘", "open")}[symbol]
        lines.append(
            SeriesLine(
                f"s{number}",
                series.key[3],
                history_text.setting(series, history),
                Badge(symbol, series.shape.value, kind),
                history_text.total(series),
                _reach(series),
                tuple(history_text.sentences(series, history)),
                next(drawn) if figure else None,
            )
        )
    return page.render(
        environment,
        "history.html",
        history=history,
        heading=history_text.heading(history),
        lines=lines,
        terms=list(history_text.terms(history)),
    )
