"""Explanations that results of a report share. A report prints them once, above its table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from klat.compare.comparison import Against, Comparison, Result
from klat.compare.verdicts import Verdict
from klat.report.text import wording

# An explanation of this many results becomes a numbered note.
_MANY = 3


@dataclass(frozen=True)
class SharedSentences:
    """`general`: explanations of all results with one verdict, with the text of the note. `numbered`: other
    explanations of three or more results, with the number of the note. `counts`: the number of results of each.
    """

    comparison: Comparison
    against: Against
    general: dict[str, str]
    numbered: dict[str, int]
    counts: Counter[str]

    def notes(self) -> list[str]:
        """The notes above the table."""
        return [
            *self.general.values(),
            *(
                f"[{number}] ({self.counts[sentence]} results) {sentence}"
                for sentence, number in self.numbered.items()
            ),
        ]

    def marks(self, result: Result) -> str:
        """The numbers of the notes on a result: ` [1] [2]`; empty if there are none."""
        sentences = self._sentences(result)
        return "".join(f" [{self.numbered[s]}]" for s in sentences if s in self.numbered)

    def rest(self, result: Result) -> list[str]:
        """The explanations of a result that are in no note."""
        sentences = self._sentences(result)
        return [s for s in sentences if s not in self.general and s not in self.numbered]

    def _sentences(self, result: Result) -> list[str]:
        if not result.tested:
            return []
        return list(wording.explanations(result, self.against, self.comparison))


def shared_sentences(against: Against, comparison: Comparison) -> SharedSentences:
    by_verdict: dict[str, list[list[str]]] = {}
    for result in (r for cell in against.cells for r in cell.results):
        if result.tested and result.judgement.ratio is not None:
            sentences = list(wording.explanations(result, against, comparison))
            by_verdict.setdefault(wording.verdict(result.judgement), []).append(sentences)
    general = {
        sentence: sentence if len(by_verdict) == 1 else f"{word}: {sentence}"
        for word, explained in by_verdict.items()
        for sentence in explained[0]
        if len(explained) > 1 and all(sentence in other for other in explained)
        if len(by_verdict) == 1 or word != Verdict.SAME.value
    }
    counts = Counter(
        sentence
        for explained in by_verdict.values()
        for sentences in explained
        for sentence in sentences
        if sentence not in general
    )
    many = [sentence for sentence, count in counts.items() if count >= _MANY]
    return SharedSentences(
        comparison, against, general, {s: n for n, s in enumerate(many, 1)}, counts
    )
