"""Remarks that verdicts share. A report says them once, above its table."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from klat.report.document import Judged, Note, Verdicts, Word

# A remark on this number of verdicts becomes a numbered note.
_MANY = 3


def shared_remarks(verdicts: Verdicts) -> tuple[list[Note], Verdicts]:
    """The notes, and the verdicts without the remarks that became notes. A note without a number is on all verdicts
    with the words that it begins with, or on all. The number of a numbered note marks the verdicts that it is on.
    """
    by_word: dict[Word, list[tuple[str, ...]]] = {}
    for item in verdicts.items:
        for row, judged in item.judged:
            if row.cells and not judged.reason:
                by_word.setdefault(judged.word, []).append(judged.remarks)
    general: dict[str, list[Word]] = {}  # the words whose verdicts all have the remark
    for word, remarks in by_word.items():
        if len(remarks) > 1 and (len(by_word) == 1 or word.tone != "same"):
            for remark in remarks[0]:
                if all(remark in others for others in remarks):
                    general.setdefault(remark, []).append(word)
    counts = Counter(
        remark
        for word, remarks in by_word.items()
        for some in remarks
        for remark in some
        if word not in general.get(remark, ())
    )
    many = (remark for remark, count in counts.items() if count >= _MANY)
    marks = {remark: f" [{number}]" for number, remark in enumerate(many, 1)}
    notes = [
        remark if len(words) == len(by_word) else f"{', '.join(map(str, words))}: {remark}"
        for remark, words in general.items()
    ]
    notes += [f"{mark[1:]} ({counts[r]} results) {r}" for r, mark in marks.items()]

    def marked(judged: Judged) -> Judged:
        own = [r for r in judged.remarks if judged.word not in general.get(r, ())]
        rest = tuple(remark for remark in own if remark not in marks)
        return replace(judged, remarks=rest, marks="".join(marks.get(r, "") for r in own))

    items = []
    for item in verdicts.items:
        rows = (replace(r, judged=marked(r.judged)) if r.judged else r for r in item.rows)
        items.append(replace(item, rows=tuple(rows)))
    return list(map(Note, notes)), replace(verdicts, items=tuple(items))
