"""A Document as a page of HTML: sections with an overview of their verdicts, then item by item. A page is one file that
fetches nothing, and the same for the same input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klat.base import files
from klat.base.errors import KlatError, installing
from klat.record.session import printable
from klat.report.document import Captioned, Column, Document, Figures, Item, Section, Verdicts
from klat.report.plot.gnuplot import CURE, MARKS, inline, is_installed

_TEMPLATES = Path(__file__).parent / "templates"


def templates() -> Any:
    """The templates of pages. KlatError if a package for pages is missing: the user learns it before any sample is
    read."""
    try:
        import jinja2
    except ModuleNotFoundError as error:
        raise KlatError(
            f"--html needs jinja2 for {sys.executable}: {installing('jinja2')}"
        ) from error
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _shown(value: Any) -> Any:
    """A value of a template. Texts of a record are without control characters. Markup is no plain `str`."""
    return "\n".join(map(printable, value.split("\n"))) if type(value) is str else value


@dataclass(frozen=True)
class Drawing:
    """A figure in a page: its SVG, which gnuplot has escaped, and the text beside it."""

    svg: Any  # Markup
    title: str
    note: str


def drawings(shown: Sequence[Captioned]) -> list[Drawing]:
    from markupsafe import Markup

    drawn = inline([s.figure for s in shown]) if shown else []
    return [Drawing(Markup(svg), s.title, s.note) for svg, s in zip(drawn, shown)]


def render(environment: Any, name: str, **values: Any) -> str:
    from markupsafe import Markup

    text: str = environment.get_template(name).render(marks=Markup(MARKS), **values)
    return text


def missing_figures(document: Document) -> str:
    """A sentence if the page has no figures because gnuplot is missing, else an empty text."""
    if is_installed() or not any(_has_figures(section) for section in document.sections):
        return ""
    return f"The page has no figures, because gnuplot is not installed; {CURE}."


def _has_figures(section: Section) -> bool:
    return any(isinstance(block, Figures) for block in section.blocks) or any(
        item.figures for verdicts in section.verdicts() for item in verdicts.items
    )


def page_of(environment: Any, document: Document) -> str:
    without_figures = missing_figures(document)
    return render(
        environment,
        "document.html",
        document=document,
        without_figures=without_figures,
        several=len(document.sections) > 1,
        blocks_of=lambda section: [(type(part).__name__, part) for part in section.parts()],
        columns_of=lambda table, row: zip(table.columns, row.cells),
        shown_alone=_shown_alone,
        drawings=(lambda shown: []) if without_figures else drawings,
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


def write(path: Path, text: str) -> None:
    """Write the whole page or nothing: the old file stays until the new one is complete."""
    with files.output(path) as out:
        out.write(text.encode("utf-8", "backslashreplace"))
