"""Remarks that verdicts share. A report says them once, above its table."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from klat.report.document import Item, Judged, Note, Verdicts, Word

# A remark on this number of verdicts becomes a numbered note.
_MANY = 3


def shared_remarks(verdicts: Verdicts) -> tuple[list[Note], Verdicts]:
    """The notes, and the verdicts without the remarks that became notes. A note without a number is on all verdicts
    with one word. The number of a numbered note marks the verdicts that the note is on."""
    by_word: dict[Word, list[tuple[str, ...]]] = {}
    for item in verdicts.items:
        for row, judged in item.judged:
            if row.cells and not judged.reason:
                by_word.setdefault(judged.word, []).append(judged.remarks)
    general = {
        remark: remark if len(by_word) == 1 else f"{word}: {remark}"
        for word, remarks in by_word.items()
        for remark in remarks[0]
        if len(remarks) > 1 and all(remark in others for others in remarks)
        if len(by_word) == 1 or word.tone != "same"
    }
    counts = Counter(r for remarks in by_word.values() for some in remarks for r in some)
    many = [r for r, count in counts.items() if count >= _MANY and r not in general]
    marks = dict.fromkeys(general, "") | {r: f" [{n}]" for n, r in enumerate(many, 1)}
    notes = [*general.values(), *(f"{marks[r][1:]} ({counts[r]} results) {r}" for r in many)]
    items = tuple(_marked(item, marks) for item in verdicts.items)
    return list(map(Note, notes)), replace(verdicts, items=items)


def _marked(item: Item, marks: dict[str, str]) -> Item:
    def marked(judged: Judged | None) -> Judged | None:
        if judged is None:
            return None
        rest = tuple(remark for remark in judged.remarks if remark not in marks)
        numbers = "".join(marks.get(remark, "") for remark in judged.remarks)
        return replace(judged, remarks=rest, marks=numbers)

    return replace(item, rows=tuple(replace(r, judged=marked(r.judged)) for r in item.rows))
