"""A Document as Markdown: one table of verdicts for each section."""

from __future__ import annotations

from collections.abc import Iterator

from klat.record.session import printable
from klat.report.document import Block, Differences, Document, Facts, Folded, Item, Line
from klat.report.document import Listing, Notes, Paragraph, Row, Table, Verdicts


def lines(document: Document) -> Iterator[str]:
    for section in document.sections:
        yield f"## {_escaped(section.title)}"
        yield ""
        blocks = [written for block in section.parts() if (written := list(_block(block)))]
        for block, after in zip(blocks, [*blocks[1:], [""]]):
            yield from block
            # A list that follows another continues it.
            if not (block[-1].startswith("- ") and after[0].startswith("- ")):
                yield ""
    yield from document.terms
    yield ""
    if document.outcome.text:
        yield f"**{document.outcome.text}** (status {document.status})"


def _block(block: Block) -> Iterator[str]:
    match block:
        case Facts():
            yield from (f"- {name}: {_escaped(text)}" for name, text in block.sentences)
        case Notes():
            for note in block.notes:
                label = f"**{note.label}**" if note.tone == "refused" else note.label
                yield f"- {label}: {_escaped(note.text)}"
        case Paragraph():
            yield _escaped(block.text)
        case Line() if block.text:
            yield f"- {_escaped(block.text)}" if block.level else f"**{_escaped(block.text)}**"
        case Table():
            unit = _escaped(block.unit)
            titles = [_escaped(block.names), *(c.heading(unit) for c in block.columns)]
            yield f"| {' | '.join(titles)} |"
            yield f"|---|{''.join('---|' if c.left else '---:|' for c in block.columns)}"
            for row in block.rows:
                if isinstance(row, Row):
                    yield f"| {' | '.join(_escaped(str(c)) for c in (row.name, *row.cells))} |"
        case Listing() if block.lines:
            yield from [f"{_escaped(block.title)}:", ""] if block.title else ()
            yield from (f"- {_escaped(line)}" for line in block.lines)
        case Differences() if block.rows:
            yield from [f"{block.title} (BASE / NEW):", ""]
            for name, base, new in block.rows:
                yield f"- {_escaped(name)}: {_escaped(base)} / {_escaped(new)}"
        case Folded():
            yield f"**{_escaped(block.title)}**"
            for inner in block.parts():
                yield from ["", *_block(inner)]
        case Verdicts() if block.items:
            yield from _table(block)


def _table(verdicts: Verdicts) -> Iterator[str]:
    titles = [column.heading(_escaped(verdicts.unit)) for column in verdicts.columns]
    yield f"| benchmark | metric | estimand | {' | '.join(titles)} | verdict |"
    yield f"|---|---|---|{'---:|' * len(titles)}---|"
    for item in verdicts.items:
        for row in item.rows:
            yield _row(item, row, len(titles))


def _row(item: Item, row: Row, columns: int) -> str:
    verdict = ""
    if judged := row.judged:
        why = _escaped("; ".join(judged.shown))
        verdict = f"**{judged.word.text}**{_escaped(judged.marks)}{f': {why}' if why else ''}"
    cells = [_escaped(str(cell)) for cell in row.cells] or [""] * columns
    named = [_escaped(item.what), _escaped(item.metric), row.name]
    return f"| {' | '.join([*named, *cells, verdict])} |"


def _escaped(text: str) -> str:
    """Text that breaks no table and starts no markup."""
    shown = printable(text)
    for mark in "\\`*_|<>[]&~":
        shown = shown.replace(mark, f"\\{mark}")
    return shown
