"""A Document as a page of HTML: sections with an overview of their verdicts, then item by item."""

from __future__ import annotations

from typing import Any

from klat.report.document import Column, Document, Item, Verdicts
from klat.report.html import page


def page_of(environment: Any, document: Document) -> str:
    return page.render(
        environment,
        "document.html",
        document=document,
        several=len(document.sections) > 1,
        blocks_of=lambda section: [(type(part).__name__, part) for part in section.parts()],
        columns_of=lambda table, row: zip(table.columns, row.cells),
        shown_alone=_shown_alone,
        drawings=page.drawings,
        two_lines=_two_lines,
    )


def _shown_alone(verdicts: Verdicts) -> list[tuple[int, Item]]:
    """The items, with their numbers, that have more than their line in the overview."""
    numbered = enumerate(verdicts.items, 1)
    return [(n, item) for n, item in numbered if item.table or any(r.cells for r in item.rows)]


def _two_lines(columns: tuple[Column, ...]) -> list[tuple[int, Column, str]]:
    """The columns of an overview: the place in a row, the column, and the title of the one below it."""
    following = [*(c.title if c.below and c.overview else "" for c in columns[1:]), ""]
    numbered = enumerate(zip(columns, following))
    return [(i, c, second) for i, (c, second) in numbered if c.overview and not c.below]
