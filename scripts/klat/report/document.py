"""The contents of a report, in no form. A module for each kind of result fills a Document once. The renderers
(klat.report.renderers) write it as text, Markdown, HTML, JUnit or KTAP. They know only the classes of this module."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klat.report.icicles import Picture
    from klat.report.plot.gnuplot import Figure


@dataclass(frozen=True)
class Word:
    """A verdict in words. `tone` is the name of its colour. `symbol` is a shape beside the word, for readers
    who do not see the colour. In a page, the word is a link to the Folded with the id `link`, and a pointer on it shows
    `hint`."""

    text: str
    tone: str = ""  # same, faster, slower, open, refused
    symbol: str = ""
    link: str = ""
    hint: str = ""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Column:
    """A column of a table. An overview has only the columns with `overview`, and that of a terminal only those with
    `brief`. `below`: in a form whose cells have two lines, the text is the second line of the column before.
    `wraps`, only for the last column: a terminal wraps its text, and does not split the table.
    """

    title: str
    has_unit: bool = False
    left: bool = False
    overview: bool = False
    brief: bool = False
    below: bool = False
    wraps: bool = False

    def heading(self, unit: str) -> str:
        """The title with the unit, for tables that have no other place for it."""
        return f"{self.title} [{unit}]" if self.has_unit else self.title


@dataclass(frozen=True)
class Judged:
    """The verdict on a row. `name` is the estimand that is judged, if the item can have several verdicts. `remarks`
    explain it. Those in `noted` are also notes of the section, and `marks` are the numbers of these notes. `reason`
    says why the row has no figure. `part_of` names the verdict that includes this one."""

    word: Word
    name: str = ""
    remarks: tuple[str, ...] = ()
    marks: str = ""
    reason: str = ""
    noted: tuple[str, ...] = ()
    part_of: str = ""

    @property
    def shown(self) -> list[str]:
        """The remarks that are in no note."""
        return [remark for remark in self.remarks if remark not in self.noted]


@dataclass(frozen=True)
class Row:
    """A row of a table: its first cell, which is its name, and its other cells. In a page, the name is a link to the
    Folded with the id `link`."""

    name: str
    cells: tuple[str | Word, ...]
    judged: Judged | None = None
    link: str = ""


@dataclass(frozen=True)
class Line:
    """A line of text, alone or between rows. A terminal indents it by two columns for each level. An empty text
    is a gap in a terminal."""

    text: str
    level: int = 0


@dataclass(frozen=True)
class Table:
    """`columns` leaves out the first one, which names the rows. The title of that column is `names`, or in a terminal the
    unit, if there is one. A terminal indents the table by two columns for each level. `right`: the names are aligned
    right. A Table among the rows has columns of its own.
    """

    unit: str
    columns: tuple[Column, ...]
    rows: tuple[Row | Line | Table, ...]
    names: str
    level: int = 2
    right: bool = False

    def parts(self) -> Iterator[Line | Table]:
        """For a renderer whose tables cannot contain text: the Lines, and Tables of the rows between them."""
        rows: list[Row] = []
        for row in self.rows:
            if isinstance(row, Row):
                rows.append(row)
                continue
            if rows:
                yield replace(self, rows=tuple(rows))
            rows = []
            yield from row.parts() if isinstance(row, Table) else [row]
        if rows:
            yield replace(self, rows=tuple(rows))


@dataclass(frozen=True)
class Captioned:
    """A figure with the text that stands above it."""

    figure: Figure
    title: str
    note: str


@dataclass(frozen=True)
class Figures:
    """Figures beside each other."""

    drawn: tuple[Captioned, ...]


@dataclass(frozen=True)
class Item:
    """A measurement with one or more rows, which can have verdicts. `name` and `where` distinguish it from the other
    items of this document, `id` from those of all documents. The first part of `id` names a group of items. Below the
    overview, each item is shown alone: there, `table` replaces its rows, and `last` is a further row.
    """

    setting: str
    metric: str
    name: str
    where: str
    rows: tuple[Row, ...]
    changed: tuple[str, ...] = ()
    table: Table | None = None
    last: Row | None = None
    sentences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    figures: tuple[Captioned, ...] = ()
    without_curves: str = ""  # the reason
    id: tuple[str, str] = ("", "")

    @property
    def what(self) -> str:
        return ", ".join([self.setting, *self.changed])

    @property
    def remarks(self) -> list[str]:
        """The remarks of all verdicts, each once."""
        return list(dict.fromkeys(text for _, judged in self.judged for text in judged.shown))

    @property
    def below(self) -> list[str]:
        """The lines at the end of the item."""
        return [*(f"under test: {changed}" for changed in self.changed), *self.notes]

    @property
    def judged(self) -> list[tuple[Row, Judged]]:
        return [(row, row.judged) for row in self.rows if row.judged]

    def shown_alone(self, verdicts: Verdicts) -> Table | None:
        """Its table, where it is shown alone."""
        rows = (*self.rows, *([self.last] if self.last else []))
        if self.table or not verdicts.rows_alone or not any(row.cells for row in rows):
            return self.table
        return Table(verdicts.unit, verdicts.columns, rows, "estimand")


@dataclass(frozen=True)
class Verdicts:
    """The items of a section: first in an overview, then each alone. `title` is that of the overview in a terminal;
    each item then has one verdict. `word` is the title of the column of verdicts; without it, the overview of a
    terminal has no titles. `rows_alone`: an item that is shown alone has its rows again, as a table.
    """

    columns: tuple[Column, ...]
    items: tuple[Item, ...]
    unit: str
    word: str = ""
    title: str = ""
    rows_alone: bool = True


@dataclass(frozen=True)
class Facts:
    """Facts of two sides. `names` has (role, label) of each side. `rows` has (name, value of the first side, value of
    the second). `sentences` says the same in short: (role, text). With a title, the sentences are (name, value).
    """

    names: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, str, str], ...]
    sentences: tuple[tuple[str, str], ...]
    title: str = ""


@dataclass(frozen=True)
class Note:
    text: str
    label: str = "note"
    tone: str = "open"  # or refused

    @property
    def labelled(self) -> str:
        """The text with its label, for a form whose layout marks notes and refusals: these need no label."""
        plain = self.label == "note" or self.tone == "refused"
        return self.text if plain else f"{self.label}: {self.text}"


@dataclass(frozen=True)
class Notes:
    notes: tuple[Note, ...]


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Listing:
    lines: tuple[str, ...]
    title: str = ""


@dataclass(frozen=True)
class Differences:
    """Values of two sides that differ: (name, value of the first side, value of the second)."""

    title: str
    note: str
    rows: tuple[tuple[str, str, str], ...]

    @property
    def table(self) -> Table:
        sides = (Column("BASE", left=True), Column("NEW", left=True))
        return Table("", sides, tuple(Row(name, (a, b)) for name, a, b in self.rows), "name")


@dataclass(frozen=True)
class HeatMap:
    """Figures with colours. `rows` has the name and the cells of each row. The tone of a cell is equal, less1 to less3 or
    more1 to more3, or empty; `legend` has the range of each tone."""

    title: str
    names: str  # title of the first column
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Word, ...]], ...]
    legend: tuple[Word, ...]


@dataclass(frozen=True)
class Icicles:
    """Call trees of one sample, or of BASE and NEW."""

    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class Folded:
    """Blocks below a title. A page shows them after a click on the title, or on a link to `id`."""

    title: str
    blocks: tuple[Block, ...]
    id: str = ""

    def parts(self) -> Iterator[Block]:
        yield from _parts(self.blocks)


_Text = Facts | Notes | Paragraph | Line | Listing | Table | Verdicts | Differences
# A terminal and Markdown have no figures, heat maps or icicles: tables have their numbers.
Block = _Text | Figures | HeatMap | Icicles | Folded


def _parts(blocks: tuple[Block, ...]) -> Iterator[Block]:
    """The blocks, for a form that has no text between the rows of a table."""
    for block in blocks:
        yield from block.parts() if isinstance(block, Table) else [block]


@dataclass(frozen=True)
class Section:
    """`detail`: a terminal leaves the section out. `refused`: nothing in it could be judged; its notes have the reasons.
    `unjudged` are items without a verdict, of which a block has a line."""

    title: str
    blocks: tuple[Block, ...]
    detail: bool = False
    refused: bool = False
    unjudged: tuple[Item, ...] = ()

    def parts(self) -> Iterator[Block]:
        yield from _parts(self.blocks)

    def verdicts(self) -> Iterator[Verdicts]:
        yield from (block for block in self.blocks if isinstance(block, Verdicts))


@dataclass(frozen=True)
class Document:
    """`guide` says how to read the words and figures: (word, meaning), or ("", sentence)."""

    title: str
    outcome: Word
    status: int
    sections: tuple[Section, ...]
    terms: tuple[str, ...]
    problems: tuple[str, ...] = ()
    legend: tuple[tuple[Word, str], ...] = ()
    guide: tuple[tuple[str, str], ...] = ()
