"""A comparison as a Document. Verdicts and figures are those of klat.compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from klat.compare.comparison import Against, Cell, Comparison
from klat.compare.verdicts import INCONCLUSIVE, NO_REGRESSION, NOT_COMPARABLE, NOT_DELIVERED
from klat.compare.verdicts import REGRESSION, Verdict
from klat.report import limits, over_machines
from klat.report.comparison_columns import in_tables, texts, word_of
from klat.report.document import Block, Captioned, Document, Facts, Item, Judged, Listing, Notes
from klat.report.document import Paragraph, Row, Section, Verdicts, Word
from klat.report.notes import cell_notes, differences, unjudged_lines, nothing_shared
from klat.report.notes import shared_remarks, side_notes, unjudged
from klat.report.text import wording
from klat.report.text.numbers import look_sentence, percent
from klat.report.text.parameters import HIDDEN

if TYPE_CHECKING:
    from klat.compare.figure_data import CellFigures

TONES = {NO_REGRESSION: "same", REGRESSION: "slower", INCONCLUSIVE: "open"}
TONES |= dict.fromkeys((NOT_COMPARABLE, NOT_DELIVERED), "refused")
# For each cell of one NEW: its curves, the reason why there are none, or None for a form without figures.
Curves = Sequence["CellFigures | str | None"]


def document(comparison: Comparison, curves: Sequence[Curves] = ()) -> Document:
    """`curves` of each NEW, for a form that has figures."""
    names = over_machines.machine_names(comparison)
    sections = []
    if comparison.by_machine and not comparison.options.limit:
        sections = [
            over_machines.section(group, comparison, names, bool(curves))
            for group in over_machines.groups(comparison)
        ]
    over = bool(sections)
    for number, against in enumerate(comparison.against):
        of_cells = curves[number] if curves else [None] * len(against.cells)
        detail = over and bool(against.machine)
        sections.append(_section(against, comparison, names[against.machine], of_cells, detail))
    if comparison.options.limit and comparison.left_out_machines:
        sections.append(over_machines.left_out(comparison, names))
    labels = dict.fromkeys(against.new.label for against in comparison.against)
    meanings = _OF_LIMIT if comparison.options.limit else _OF_RATIO
    outcome = Word(wording.conclusion(comparison), TONES[comparison.status])
    return Document(
        f"{', '.join(labels)} against {comparison.against[0].base.label}",
        outcome,
        comparison.status,
        tuple(sections),
        tuple(_terms(comparison)),
        comparison.problems,
        tuple((word_of(verdict), text) for verdict, text in (meanings | _OF_BOTH).items()),
        tuple(_guide(comparison)),
    )


def _section(
    against: Against, comparison: Comparison, machine: str, curves: Curves, detail: bool
) -> Section:
    shared, verdicts = shared_remarks(_verdicts(against, comparison, curves))
    notes = [*(() if detail else side_notes(against)), *shared]
    blocks: list[Block] = [_facts(against, machine), Notes(tuple(notes))]
    if not against.shared:
        blocks.append(Paragraph(nothing_shared(against)))
    blocks.append(verdicts)
    blocks.append(Listing(tuple(limits.of_one_boot(against))))
    if not detail:
        blocks.append(Listing(tuple(unjudged_lines(against))))
        rows = ((d.name, d.a, d.b) for d in against.differences)
        blocks.append(differences(against, rows))
    title = f"{against.new.label} against {against.base.label}"
    title = f"{title}, machine {machine}" if machine else title
    refused = bool(against.refused)
    return Section(title, tuple(blocks), detail, refused, tuple(unjudged(against)))


def _facts(against: Against, machine: str) -> Facts:
    sides = [("BASE", wording.side(against.base)), ("NEW", wording.side(against.new))]
    if machine:
        sides.insert(0, ("Machine", f"{machine}: {against.base.cpu_model}"))
    names = (("BASE", against.base.label), ("NEW", against.new.label))
    return Facts(names, tuple(wording.about_sides(against)), tuple(sides))


def _verdicts(against: Against, comparison: Comparison, curves: Curves) -> Verdicts:
    items = []
    keys = wording.keys(against)
    for cell, names, curve in zip(against.cells, wording.names(against.cells), curves):
        drawn: list[Captioned] = []
        # One machine of several has no figures: they would be too many for a page.
        if curve is not None and not against.machine:
            from klat.report.plot.page_figures import figures

            samples = None if isinstance(curve, str) else curve
            drawn = figures(cell, samples, against, comparison.options)
        worst = {"BASE": cell.base_worst.maximum, "NEW": cell.new_worst.maximum}
        maxima = tuple(
            wording.figure(worst[column.title]) if column.title in worst else ""
            for column in in_tables()
        )
        item = Item(
            wording.setting(cell.key, keys),
            cell.metric,
            *names,
            tuple(_rows(cell, against, comparison)),
            cell.under_test,
            limits.sides_table(cell.limit) if cell.limit else None,
            Row("max", maxima) if cell.results else None,
            tuple(limits.cell_sentences(cell)),
            tuple(cell_notes(cell, against)),
            tuple(drawn),
            curve if isinstance(curve, str) else "",
            wording.identity(cell.key),
        )
        items.append(item)
    unit = against.base.unit
    if comparison.options.limit:
        return Verdicts(limits.COLUMNS, tuple(items), unit, "NEW", rows_alone=False)
    return Verdicts(tuple(in_tables()), tuple(items), unit)


def _rows(cell: Cell, against: Against, comparison: Comparison) -> Iterator[Row]:
    if cell.refused:
        why, noted = (tuple(c.refusal() for c in cs) for cs in (cell.refused, against.refused))
        yield Row("", (), Judged(word_of(Verdict.NOT_COMPARABLE), remarks=why, noted=noted))
    if cell.limit:
        yield limits.row(cell.limit)
    for result in cell.results:
        judgement, judged = result.judgement, None
        if result.tested and result.verdict:
            remarks = tuple(wording.explanations(result, against, comparison))
            reason = judgement.reason if judgement.ratio is None else ""
            part = "part of the verdict over machines" if result.decided_over_machines else ""
            judged = Judged(
                word_of(result.verdict), result.estimand, remarks, reason=reason, part_of=part
            )
        yield Row(wording.estimand(result), tuple(texts(judgement)), judged)


def _terms(comparison: Comparison) -> Iterator[str]:
    limit, unit = comparison.options.limit, comparison.against[0].base.unit
    if not limit:
        if any(judged.judgement for judged in comparison.over_machines):
            yield f"Verdicts of single machines: {wording.counted(comparison.machine_verdicts)}."
        yield from wording.terms(comparison)
        return
    rules = comparison.options.rules
    yield limits.limit_terms(limit, unit, rules, comparison.family)
    if rules.look:
        yield look_sentence(rules.look, rules.alpha)
    if comparison.by_machine:
        yield "With a limit each machine has its own verdict, and there is none over machines."
    yield HIDDEN


_OF_RATIO = {
    Verdict.SAME: "shown to differ by less than the margin",
    Verdict.FASTER: "NEW/BASE is shown to lie below 1 by more than the margin",
    Verdict.SLOWER: "NEW/BASE is shown to lie above 1 by more than the margin",
    Verdict.INCONCLUSIVE: "none of these is shown; the line below says what would show it",
}
_OF_LIMIT = {
    Verdict.WITHIN: "the share above the limit is shown to be small enough",
    Verdict.EXCEEDED: "the share above the limit is shown to be too large",
    Verdict.CANNOT_TELL: "neither is shown; the lines below say how many samples would show it",
}
_OF_BOTH = {
    Verdict.NOT_DELIVERED: "a kernel did not deliver the event, so there is no figure",
    Verdict.NOT_COMPARABLE: "a condition that is not under test differs",
}
# Sentences on how to read a page. `|` ends the words that are bold.
_READING = """\
NEW/BASE| above 1: NEW takes {more}. The verdict is on the {tested}. The margin, {margin}, is the largest change still treated as equal.
The unit of comparison| is the boot, however many samples it has. Where two settings alternated in one boot, the unit is the block.{machines}
Ratio and interval|: an interval inside the band shows that nothing changed by more than the margin; an interval outside the band shows a change; an interval across its edge shows neither.
Shift at every quantile|: a level line means that all samples changed by the same ratio; a line that rises to the right means that slow samples became slower. Each interval is for one quantile, so some miss by chance. No verdict uses them.
Distribution and tail| show all samples that count, from all boots together. The thin lines of the tail are single boots.
Boot by boot, and run by run|: boots that stand apart, or a slope, are reasons to doubt a small difference.
max| has no interval. It is shown with its number of samples."""
_OF_RATIOS = 3  # so many first lines of _READING are on ratios


def _guide(comparison: Comparison) -> Iterator[tuple[str, str]]:
    counted = any(against.base.unit == "instructions" for against in comparison.against)
    chosen = ", ".join(estimand.name for estimand in comparison.options.tested)
    reading = _READING.format(
        more="more instructions" if counted else "longer",
        tested=chosen or "median, and on p99 where the samples support it",
        margin=percent(comparison.options.rules.margin),
        machines=" Over machines, the unit is the machine." if comparison.over_machines else "",
    ).split("\n")
    for line in reading[_OF_RATIOS if comparison.options.limit else 0 :]:
        words, _, rest = line.partition("|")
        yield words, rest
    if comparison.by_machine:
        yield "The curves", " of a machine: compare the sessions of that machine alone."
