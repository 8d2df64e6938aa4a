"""A history as a Document, for a page. klat.compare.label_history has all figures."""

from __future__ import annotations

from klat.compare.label_history import History, HistorySeries, TrendKind
from klat.report.document import Column, Document, Item, Judged, Listing, Paragraph, Row, Section
from klat.report.document import Verdicts, Word
from klat.report.plot.history_figures import series_figure
from klat.report.text import history_text, wording

_WORDS = {
    TrendKind.CHANGED: ("slower", "▲"),
    TrendKind.DRIFTS: ("open", "↗"),
    TrendKind.WITHIN_STEP: ("open", "?"),
    TrendKind.STEADY: ("same", "="),
    TrendKind.TOO_FEW: ("open", "?"),
    TrendKind.NO_FIGURE: ("refused", "×"),
}
_COLUMNS = tuple(Column(title, overview=True) for title in ("over all", "first", "last", "range"))


def document(history: History) -> Document:
    items = tuple(_item(series, history) for series in history.series)
    section = Section(
        "",
        (
            Paragraph(history_text.heading(history)),
            Listing(tuple(history.unmeasurable)),
            Verdicts(_COLUMNS, items, "", "found", rows_alone=False),
        ),
    )
    return Document(
        f"History of {history.label}",
        Word(""),
        0,
        (section,),
        tuple(history_text.terms(history)),
        history.problems,
    )


def _item(series: HistorySeries, history: History) -> Item:
    tone, symbol = _WORDS[series.shape]
    if series.overall is not None and series.overall < 1:
        tone, symbol = {"▲": ("faster", "▼"), "↗": ("open", "↘")}[symbol]
    values = [point.value for point in series.points]
    low_to_high = " to ".join(map(wording.figure, (min(values), max(values)))) if values else ""
    ends = [f"{wording.figure(value)} {series.unit}" for value in (*values[:1], *values[-1:])]
    cells = (history_text.total(series) or "n/a", *(ends or ["", ""]), low_to_high)
    drawn = series_figure("series", series, history, False)
    setting = history_text.setting(series, history)
    return Item(
        setting,
        series.key[3],
        series.key[3],
        setting,
        (Row("", cells, Judged(Word(series.shape.value, tone, symbol))),),
        sentences=tuple(history_text.sentences(series, history)),
        figures=(drawn,) if drawn else (),
    )
