"""A history as a page of HTML. Computes nothing: klat.compare.label_history has all figures."""

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
    TrendKind.WITHIN_STEP: ("?", "open"),
    TrendKind.STEADY: ("=", "same"),
    TrendKind.TOO_FEW: ("?", "open"),
    TrendKind.NO_FIGURE: ("×", "refused"),
}


@dataclass(frozen=True)
class SeriesSection:
    anchor: str
    series: HistorySeries
    badge: Badge
    drawing: page.Drawing | None


def history_page(environment: Any, history: History) -> str:
    shown = [series_figure(f"s{i}", s, history, False) for i, s in enumerate(history.series)]
    drawn = iter(page.drawings([figure for figure in shown if figure is not None]))
    sections = []
    for number, (series, figure) in enumerate(zip(history.series, shown), 1):
        symbol, kind = _SYMBOLS[series.shape]
        if series.overall is not None and series.overall < 1:
            symbol, kind = {"▲": ("▼", "faster"), "↗": ("↘", "open")}[symbol]
        badge = Badge(symbol, series.shape.value, kind)
        drawing = next(drawn) if figure else None
        sections.append(SeriesSection(f"s{number}", series, badge, drawing))
    return page.render(
        environment,
        "history.html",
        history=history,
        sections=sections,
        words=history_text,
        figure=wording.figure,
    )
