"""A Document as text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from klat.record.session import printable
from klat.report.document import Block, Column, Differences, Document, Facts, Folded, Line
from klat.report.document import Listing, Notes, Paragraph, Row, Table, Verdicts, Word
from klat.report.text.columns import WIDTH, column_widths, wrapped

_ROOM = 32  # columns for the text that wraps
_COLOURS = {"same": "36", "faster": "32", "slower": "31", "open": "33", "refused": "35"}


def lines(document: Document, colour: bool) -> Iterator[str]:
    """`colour` only for a terminal."""
    body = [
        line
        for section in document.sections
        for block in (() if section.detail else section.blocks)
        if not (section.refused and isinstance(block, Verdicts))
        for line in block_lines(block, colour)
    ]
    end = [line for term in document.terms for line in wrapped(term)]
    if document.outcome.text:
        end += wrapped(f"{document.outcome.text} (status {document.status})", "", "    ")
    while body and not body[-1] and not end:
        body.pop()
    yield from (*body, *end)


def block_lines(block: Block, colour: bool = False) -> Iterator[str]:
    match block:
        case Facts():
            yield from wrapped(block.title)
            for name, text in block.sentences:
                yield from wrapped(text, f"  {name:<10}" if block.title else f"{name:4}  ")
            yield ""
        case Line():
            yield from _line(block)
        case Table():
            yield from table_lines(block, colour=colour)
            yield ""
        case Notes():
            yield from _notes(block, colour)
        case Paragraph():
            yield from wrapped(block.text)
            yield ""
        case Listing() if block.lines:
            yield from wrapped(f"{block.title}:") if block.title else ()
            for line in block.lines:
                yield from wrapped(line, "  " if block.title else "", "    ")
            yield ""
        case Differences() if block.rows:
            yield f"{block.title} (BASE | NEW)"
            for name, base, new in block.rows:
                yield from wrapped(f"{name}: {base} | {new}", "  ", "    ")
            yield ""
        case Folded():
            yield from wrapped(block.title)
            for inner in block.blocks:
                yield from block_lines(inner, colour)
        case Verdicts():
            yield from _overview(block, colour)
            yield from _items(block, colour)


def _painted(word: Word, colour: bool) -> str:
    if colour and word.tone:
        return f"\033[1;{_COLOURS[word.tone]}m{word.text}\033[0m"
    return word.text


def _headed(text: str, word: Word, first: str, rest: str, colour: bool) -> Iterator[str]:
    """Wrapped text, whose first line begins with the word."""
    line, *more = wrapped(text, first, rest) or [first.rstrip()]
    yield _painted(word, colour) + line[len(word.text) :]
    yield from more


def _notes(block: Notes, colour: bool) -> Iterator[str]:
    refused = [note for note in block.notes if note.tone == "refused"]
    for note in refused:
        word = Word(note.label, "refused")
        yield from _headed(note.text, word, f"{note.label}  ", "    ", colour)
    if refused:
        yield ""
    for note in block.notes:
        if note not in refused:
            yield from wrapped(f"{note.label}: {note.text}", "", "    ")
    if len(block.notes) > len(refused):
        yield ""


def _overview(verdicts: Verdicts, colour: bool) -> Iterator[str]:
    """One line for each verdict, before everything else; only where there are several."""
    brief = [i for i, column in enumerate(verdicts.columns) if column.brief]
    columns = [Column("", left=True), *(verdicts.columns[i] for i in brief)]
    lines: list[tuple[Word, list[str], str]] = []
    for item in verdicts.items:
        # A word without a tone is no verdict.
        judged = [(row, j) for row, j in item.judged if j.word.tone]
        name = " ".join([item.name, item.where])
        reasons = {j.reason for _, j in judged}
        if len(reasons) == 1 and "" not in reasons:
            # Without figures, an item has one reason and takes one line.
            name += f": {reasons.pop()}"
            judged = judged[:1]
        for row, j in judged:
            figures = [str(row.cells[i]) if row.cells else "" for i in brief]
            what = f"{j.name} of {name}" if len(judged) > 1 or verdicts.title else name
            lines.append((j.word, [j.word.text, *figures], what))
    if len(lines) < 2:
        return
    if verdicts.title:
        yield f"{verdicts.title}:"
    if verdicts.word:
        titles = [verdicts.word, *(column.title for column in columns[1:])]
        lines.insert(0, (Word(verdicts.word), titles, ""))
    widths = column_widths([cells for _, cells, _ in lines])
    for word, cells, what in lines:
        first = "  ".join(map(_placed, cells, widths, columns)) + "  "
        yield from _headed(what, word, first, " " * min(len(first), 40), colour)
    yield ""


def _placed(text: str, width: int, column: Column) -> str:
    return text.ljust(width) if column.left else text.rjust(width)


def _items(verdicts: Verdicts, colour: bool) -> Iterator[str]:
    tables = [item.shown_alone(verdicts) for item in verdicts.items]
    alike = [table for item, table in zip(verdicts.items, tables) if table and not item.table]
    widths = column_widths([cells for table in alike for cells in _cells(table)]) if alike else []
    last = ""
    for item, table in zip(verdicts.items, tables):
        if item.setting != last:
            yield from wrapped(item.setting, "", "    ")
            last = item.setting
        for changed in item.changed:
            yield from wrapped(f"under test: {changed}", "  ", "    ")
        for _, judged in item.judged:
            name = ", ".join(filter(None, [item.metric, judged.name]))
            yield f"  {printable(name)}: {_painted(judged.word, colour)}{judged.marks}"
            for remark in judged.shown:
                yield from wrapped(remark, "    ", "      ")
        if table:
            yield from table_lines(table, [] if item.table else widths, colour)
        for text in (*item.sentences, *item.notes):
            yield from wrapped(text, "    ", "      ")
        yield ""


def _cells(table: Table) -> list[list[str]]:
    unit = f"[{printable(table.unit)}]" if table.unit else table.names
    titles = [unit, *(column.title for column in table.columns)]
    rows = [row for row in table.rows if isinstance(row, Row)]
    return [titles, *([printable(row.name), *map(str, row.cells)] for row in rows)]


def table_lines(table: Table, widths: Sequence[int] = (), colour: bool = False) -> Iterator[str]:
    """`widths` are shared by tables that are printed below each other (default: those of this table). A table wider than
    the terminal becomes several, which repeat the names of the rows and the left-aligned columns after them.
    """
    last = len(table.columns)
    labels = next((i for i, column in enumerate(table.columns) if not column.left), 0)
    table_widths = column_widths(_cells(table))
    while not widths and last > labels + 1:
        is_too_wide = 2 * table.level + sum(table_widths[: last + 1]) + last > WIDTH
        if not is_too_wide or table.columns[last - 1].wraps:
            break
        last -= 1
    if last == len(table.columns):
        yield from _table_lines(table, widths or table_widths, colour)
        return
    # The text below the last row is below the last part, all other text below the first one.
    end = max(i for i, row in enumerate(table.rows, 1) if isinstance(row, Row))
    part = _columns(replace(table, rows=table.rows[:end]), range(last))
    yield from _table_lines(part, table_widths[: last + 1], colour)
    rest = [row for row in table.rows[:end] if isinstance(row, Row) or _heads(row)]
    rest_columns = [*range(labels), *range(last, len(table.columns))]
    whole = replace(table, rows=(*rest, *table.rows[end:]))
    yield from table_lines(_columns(whole, rest_columns), (), colour)


def _heads(row: Line | Table) -> bool:
    """Whether the line is a heading of the rows below it."""
    return isinstance(row, Line) and row.level < 2


def _columns(table: Table, places: Sequence[int]) -> Table:
    rows = (
        replace(row, cells=tuple(row.cells[place] for place in places))
        if isinstance(row, Row)
        else row
        for row in table.rows
    )
    columns = tuple(table.columns[place] for place in places)
    return replace(table, columns=columns, rows=tuple(rows))


def _table_lines(table: Table, widths: Sequence[int], colour: bool) -> Iterator[str]:
    indent = "  " * table.level
    columns = (Column("", left=not table.right), *table.columns)
    unwrapped = widths[:-1] if columns[-1].wraps else widths
    gap = "  " if len(indent) + sum(unwrapped) + 2 * (len(widths) - 1) <= WIDTH else " "
    titles, *cells = _cells(table)
    room = WIDTH - len(indent) - sum(width + len(gap) for width in unwrapped)
    if any(titles):
        yield indent + gap.join(map(_placed, titles, widths, columns)).rstrip()
    texts = iter(cells)
    for row in table.rows:
        if isinstance(row, Line):
            yield from _line(row)
        elif isinstance(row, Table):
            yield from table_lines(row, (), colour)
        else:
            placed = list(map(_placed, next(texts), widths, columns))
            for i, cell in enumerate(row.cells, 1):
                if isinstance(cell, Word):
                    placed[i] = placed[i].replace(cell.text, _painted(cell, colour))
            if columns[-1].wraps and room < min(_ROOM, len(placed[-1].rstrip())):
                # There is little room for a long text, so it stands below its row.
                yield f"{indent}{gap.join(placed[:-1])}".rstrip()
                yield from wrapped(placed[-1], f"{indent}    ", f"{indent}    ")
            elif columns[-1].wraps:
                first = indent + gap.join([*placed[:-1], ""])
                yield from wrapped(placed[-1], first, " " * len(first))
            else:
                yield f"{indent}{gap.join(placed)}".rstrip()


def _line(line: Line) -> list[str]:
    return wrapped(line.text, "  " * line.level, "  " * (line.level + 1)) or [""]
