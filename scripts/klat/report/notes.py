"""What a report says of BASE and one NEW beside the table. A remark that verdicts share is said once, above it."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from klat.base.grouping import grouped
from klat.compare.comparison import Against, Cell, Result
from klat.compare.dataset import Key
from klat.compare.verdicts import Judgement, Spread, Verdict
from klat.record.environment import ABSENT
from klat.record.session import NOT_MEASURABLE
from klat.report.document import Differences, Item, Judged, Note, Row, Verdicts, Word
from klat.report.text import wording
from klat.report.text.numbers import MISSING, percent


# A remark on this number of verdicts becomes a numbered note.
_MANY = 3


def side_notes(against: Against, can_allow: bool = True) -> Iterator[Note]:
    """The differences that refuse the comparison, those that the user allowed, and the cautions. `can_allow`: the command
    has the option --allow."""
    for condition in against.refused:
        yield Note(condition.refusal(can_allow), Verdict.NOT_COMPARABLE.value, "refused")
    for condition in against.accepted:
        yield Note(condition.sentence(), "allowed, though it differs")
    yield from map(Note, against.cautions)


def unjudged_lines(against: Against) -> Iterator[str]:
    """The measurements that are in no cell."""
    yield from wording.unmeasurable(against)
    yield from (wording.uncompared(left, against) for left in against.uncompared)


def unjudged(against: Against) -> Iterator[Item]:
    """The measurements that are in no cell, as items with their reason."""
    for sides, key in against.unmeasurable:
        yield _unjudged(key, Verdict.NOT_COMPARABLE.value, f"{NOT_MEASURABLE} ({sides})")
    for left in against.uncompared:
        yield _unjudged(left.key, left.what, wording.uncompared_reason(left))
    if not (against.cells or against.unmeasurable or against.uncompared):
        nothing = ("anything in common", "", "", "")
        yield _unjudged(nothing, Verdict.NOT_COMPARABLE.value, nothing_shared(against))


def _unjudged(key: Key, word: str, why: str) -> Item:
    row = Row("", (), Judged(Word(word, "refused"), remarks=(why,)))
    return Item(wording.setting(key), key[3], "", "", (row,), id=wording.identity(key))


def differences(against: Against, rows: Iterable[tuple[str, str, str]]) -> Differences:
    """What else differs: (name, in BASE, in NEW)."""
    kernel = (
        "Besides the kernel's release. Differences in the kernel's configuration are listed and refuse"
        " nothing."
    )
    note = kernel if against.subject == "kernel" else "In the first session of each side."
    return Differences("BASE and NEW also differ in", note, tuple(_in_few_rows(rows)))


def _in_few_rows(rows: Iterable[tuple[str, str, str]]) -> Iterator[tuple[str, str, str]]:
    """Many files of one directory that one side lacks are one row."""
    for (directory, *are_absent), group in itertools.groupby(rows, _directory_and_absence):
        files = list(group)
        if not directory or not any(are_absent) or len(files) <= _MANY:
            yield from files
            continue
        base, new = (ABSENT if is_absent else "present" for is_absent in are_absent)
        yield f"{directory}, {len(files)} files", base, new


def _directory_and_absence(row: tuple[str, str, str]) -> tuple[str, bool, bool]:
    """The directory has at most four parts, for example sys/kernel/mm/transparent_hugepage."""
    name, base, new = row
    return "/".join(name.split("/")[:-1][:4]), base == ABSENT, new == ABSENT


def nothing_shared(against: Against) -> str:
    """Why there is no cell, and for each program of both sides what differs."""
    if against.unmeasurable:
        return f"All that BASE and NEW have in common is {NOT_MEASURABLE}."
    nothing = "BASE and NEW have no benchmark, params, placement and metric in common."
    different = "; ".join(_differences(against))
    return f"{nothing} {different}: measure both with the same options." if different else nothing


def _differences(against: Against) -> Iterator[str]:
    base_keys = [cell.key for cell in against.cells]
    new_keys = [left.key for left in against.uncompared if not left.neither]
    for benchmark in dict.fromkeys(key[0] for key in base_keys):
        base, new = _words(benchmark, base_keys), _words(benchmark, new_keys)
        only_base = ", ".join(word for word in base if word not in new)
        only_new = ", ".join(word for word in new if word not in base)
        if only_base and only_new:
            yield f"{benchmark} has {only_base} in BASE alone, and {only_new} in NEW alone"


def _words(benchmark: str, keys: list[Key]) -> list[str]:
    """The params, placements and metrics of one program."""
    words = (
        word
        for program, params, placement, metric in keys
        if program == benchmark
        for word in (*params.split(";"), placement, metric)
    )
    return list(dict.fromkeys(words))


def shared_remarks(verdicts: Verdicts) -> tuple[list[Note], Verdicts]:
    """Returns the notes, and the verdicts. `noted` of a verdict has its remarks that became notes. A note without a number
    applies to all verdicts. If it begins with the word of a verdict, it applies to the verdicts with this word. A
    numbered note applies to the verdicts that carry its number."""
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
        for row_remarks in remarks
        for remark in row_remarks
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
        above = [r for r in judged.remarks if judged.word in general.get(r, ())]
        numbered = [r for r in judged.remarks if r in marks and r not in above]
        noted = (*judged.noted, *above, *numbered)
        return replace(judged, noted=noted, marks="".join(marks[r] for r in numbered))

    items = []
    for item in verdicts.items:
        rows = (replace(r, judged=marked(r.judged)) if r.judged else r for r in item.rows)
        items.append(replace(item, rows=tuple(rows)))
    return list(map(Note, notes)), replace(verdicts, items=tuple(items))


def cell_notes(cell: Cell, against: Against) -> Iterator[str]:
    """What a report says below the figures of a cell."""
    if cell.results:
        yield from _figure_notes(cell, against)
    if not cell.results and not cell.limit:
        return
    for condition in cell.accepted:
        if condition not in against.accepted:
            yield f"allowed, though it differs: {condition.sentence()}"
    for name, runs in (("BASE", cell.base_runs), ("NEW", cell.new_runs)):
        if not wording.all_ok(runs):
            yield f"{cell.run_noun}s of {name}: {runs}"


def _figure_notes(cell: Cell, against: Against) -> Iterator[str]:
    base, new = cell.base_worst, cell.new_worst
    yield f"max of {base.samples:,} and {new.samples:,} samples"
    first = cell.results[0].judgement
    if first.base.units and first.new.units and not first.pooled:
        yield from _spreads(first, against.unit_noun, cell.run_noun)
    for result in cell.results:
        if result.tested and (text := wording.method(result.judgement, result.judgement.noun)):
            yield f"{result.estimand}: {text}"
        if text := wording.single_run(result, cell.run_noun):
            yield text
    yield from _pooled(cell.results)


def _pooled(results: Iterable[Result]) -> Iterator[str]:
    pooled = [r for r in results if r.judgement.pooled and r.judgement.ratio is not None]
    reasons = grouped(pooled, lambda r: (r.judgement.noun, r.judgement.pooled_because))
    for (noun, why), alike in reasons.items():
        names = ", ".join(result.estimand for result in alike)
        yield f"pooled: {names} of all samples of a {noun} together, because {why}"


def _spreads(j: Judgement, noun: str, run: str) -> list[str]:
    """T and S of Kalibera and Jones. T is the variation that a level adds. S is the variation seen at
    a level, with all levels below. Standard deviations of logs, so they are relative. The two are
    equal for runs, which have no level below. `run` is the
    word for a run."""
    sides = (("BASE", j.base), ("NEW", j.new))
    runs = [(name, _deviation(spread.run.own if spread.run else None)) for name, spread in sides]
    units = [(name, _unit_deviation(spread, run)) for name, spread in sides]
    return [
        f"variation between {level}s: {_of_sides(parts)}"
        for level, parts in ((run, runs), (noun, units))
        if any(text != MISSING for _, text in parts)
    ]


def _unit_deviation(spread: Spread, run: str) -> str:
    if spread.unit is None or spread.unit.own is None:
        return MISSING
    without, observed = _deviation(spread.unit.own), _deviation(spread.unit.observed)
    return without if without == observed else f"{without} ({observed} with the {run}s' own)"


def _of_sides(parts: Sequence[tuple[str, str]]) -> str:
    texts = {text for _, text in parts}
    return texts.pop() if len(texts) == 1 else ", ".join(f"{name} {text}" for name, text in parts)


def _deviation(value: float | None) -> str:
    if value is None:
        return MISSING
    return percent(math.sqrt(value)) if value > 0 else "none"
