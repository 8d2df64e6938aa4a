"""A comparison as text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from klat.compare.comparison import Against, Cell, Comparison
from klat.compare.dataset import Key
from klat.compare.verdicts import Verdict
from klat.record.session import NOT_MEASURABLE, printable
from klat.report.comparison_columns import in_tables, texts
from klat.report.text import wording
from klat.report.text.columns import aligned, column_widths, wrapped
from klat.report.text.limit_text import cell_lines, limit_terms, one_boot
from klat.report.text.look_text import look_sentence
from klat.report.text.machines_text import left_out_machine, machine_lines, machine_names
from klat.report.text.numbers import MISSING
from klat.report.text.parameters import HIDDEN
from klat.report.text.shared_sentences import SharedSentences, shared_sentences


_COLOURS = {
    Verdict.SAME: "36",
    Verdict.FASTER: "32",
    Verdict.SLOWER: "31",
    Verdict.INCONCLUSIVE: "33",
    Verdict.UNATTRIBUTABLE: "33",
    Verdict.WITHIN: "32",
    Verdict.EXCEEDED: "31",
    Verdict.CANNOT_TELL: "33",
    Verdict.NOT_DELIVERED: "35",
    Verdict.NOT_COMPARABLE: "35",
}


def verdicts(comparison: Comparison, colour: bool) -> Iterator[str]:
    """The lines; `colour` only for a terminal."""
    if comparison.by_machine and not comparison.options.limit:
        yield from machine_lines(comparison, partial(_paint, colour=colour))
    else:
        names = machine_names(comparison)
        for against in comparison.against:
            if against.machine:
                yield from wrapped(f"Machine {names[against.machine]}: {against.base.cpu_model}")
            yield from _against(against, comparison, colour)
        for left in comparison.left_out_machines:
            yield from wrapped(f"left out: {left_out_machine(left, names)}", "", "    ")
    for line in terms(comparison):
        yield from wrapped(line, "")
    yield f"{wording.conclusion(comparison)} (status {comparison.status})"


def terms(comparison: Comparison) -> Iterator[str]:
    limit, unit = comparison.options.limit, comparison.against[0].base.unit
    if not limit:
        yield from wording.terms(comparison)
        return
    rules = comparison.options.rules
    yield limit_terms(limit, printable(unit), rules, comparison.family)
    if rules.look:
        yield look_sentence(rules.look, rules.alpha)
    if comparison.by_machine:
        yield "With a limit each machine has its own verdict, and there is none over machines."
    yield HIDDEN


def _paint(text: str, verdict: Verdict, colour: bool) -> str:
    return f"\033[1;{_COLOURS[verdict]}m{text}\033[0m" if colour else text


def _against(against: Against, comparison: Comparison, colour: bool) -> Iterator[str]:
    yield from wrapped(wording.side(against.base), "BASE  ")
    yield from wrapped(wording.side(against.new), "NEW   ")
    yield ""
    for condition in against.refused:
        line, *more = wrapped(condition.refusal(), "not comparable  ", "    ")
        word = "not comparable"
        yield _paint(word, Verdict.NOT_COMPARABLE, colour) + line[len(word) :]
        yield from more
    if against.refused:
        yield ""
    for condition in against.accepted:
        yield from wrapped(f"allowed, though it differs: {condition.sentence()}", "", "    ")
    for caution in against.cautions:
        yield from wrapped(f"note: {caution}", "", "    ")
    shared = shared_sentences(against, comparison)
    for note in shared.notes():
        yield from wrapped(f"note: {note}", "", "    ")
    if against.accepted or against.cautions or shared.notes():
        yield ""
    if not against.shared:
        yield from wrapped(nothing_shared(against), "", "")
        yield ""
    if not against.refused:
        overview = _limit_overview if comparison.options.limit else _overview
        yield from overview(against, colour)
        yield from _cells(against, colour, shared)
    rest = [
        *wording.unmeasurable(against),
        *(wording.uncompared(left, against) for left in against.uncompared),
    ]
    for line in rest:
        yield from wrapped(line, "", "    ")
    if against.differences:
        yield "BASE and NEW also differ in (BASE | NEW)"
        for difference in against.differences:
            yield from wrapped(f"{difference.name}: {difference.a} | {difference.b}", "  ", "    ")
    if rest or against.differences:
        yield ""


def _overview(against: Against, colour: bool) -> Iterator[str]:
    """One line for each verdict, before everything else; only where there are several."""
    lines: list[tuple[Verdict, str, tuple[str, str], str]] = []
    for cell, names in zip(against.cells, wording.names(against.cells)):
        name = " ".join(names)
        if cell.refused:
            refused = Verdict.NOT_COMPARABLE
            lines.append((refused, refused.value, ("", ""), name))
        tested = [r for r in cell.results if r.tested and r.verdict]
        reasons = {r.judgement.reason for r in tested}
        if tested and len(reasons) == 1 and all(r.judgement.ratio is None for r in tested):
            # Without figures, a metric has one reason and takes one line.
            name += f": {reasons.pop()}"
            tested = tested[:1]
        for result in tested:
            j = result.judgement
            what = f"{result.estimand} of {name}" if len(tested) > 1 else name
            assert j.verdict
            lines.append((j.verdict, wording.verdict(j), wording.ratio(j), what))
    if len(lines) < 2:
        return
    widths = [max(map(len, column)) for column in ([w for _, w, _, _ in lines],
              [r[0] for *_, r, _ in lines], [r[1] for *_, r, _ in lines])]  # fmt: skip
    for verdict, word, (ratio, interval), name in lines:
        figures = f"{ratio:>{widths[1]}}  {interval:>{widths[2]}}  "
        first = f"{word:{widths[0]}}  {figures}"
        line, *rest = wrapped(name, first, " " * min(len(first), 40))
        yield _paint(word, verdict, colour) + line[len(word) :]
        yield from rest
    yield ""


def _limit_overview(against: Against, colour: bool) -> Iterator[str]:
    """One line for each metric; only where there are several."""
    lines: list[tuple[Verdict | None, list[str], str]] = [
        (None, ["NEW", "BASE", "NEW to BASE"], ""),
    ]
    for cell, names in zip(against.cells, wording.names(against.cells)):
        judged = cell.limit
        verdict = judged.verdict if judged else Verdict.NOT_COMPARABLE
        base = judged.base.verdict.value if judged and judged.base else MISSING
        difference = judged.difference.value if judged else MISSING
        lines.append((verdict, [verdict.value, base, difference], " ".join(names)))
    if len(lines) < 3:
        return
    widths = column_widths([texts for _, texts, _ in lines])
    for word, texts, name in lines:
        first = "  ".join(text.ljust(width) for text, width in zip(texts, widths)) + "  "
        line, *rest = wrapped(name, first, " " * len(first)) or [first.rstrip()]
        yield (_paint(texts[0], word, colour) if word else texts[0]) + line[len(texts[0]) :]
        yield from rest
    yield ""


def _cells(against: Against, colour: bool, shared: SharedSentences) -> Iterator[str]:
    tables = [_table(cell) for cell in against.cells]
    rows = [row for table in tables for row in table]
    widths = column_widths(rows) if rows else []
    last = ""
    keys = wording.keys(against)
    for cell, table in zip(against.cells, tables):
        title = wording.setting(cell.key, keys)
        if title != last:
            yield from wrapped(title, "", "    ")
            last = title
        for changed in cell.under_test:
            yield from wrapped(f"under test: {changed}", "  ", "    ")
        yield from _cell(cell, colour, shared)
        for row in table:
            yield "    " + aligned(row, widths, left=1)
        if cell.limit:
            yield from cell_lines(cell.limit, printable(cell.unit))
        for note in wording.notes(cell, against):
            yield from wrapped(note, "    ", "      ")
        yield ""
    for name in ("base", "new"):
        sides = [getattr(cell.limit, name) for cell in against.cells if cell.limit]
        if sentence := one_boot([side for side in sides if side]):
            yield from wrapped(f"{name.upper()}: {sentence}", "", "    ")
            yield ""


def _cell(cell: Cell, colour: bool, shared: SharedSentences) -> Iterator[str]:
    metric = printable(cell.metric)
    if cell.refused:
        refused = Verdict.NOT_COMPARABLE
        yield f"  {metric}: {_paint(refused.value, refused, colour)}"
        for condition in cell.refused:
            yield from wrapped(condition.refusal(), "    ", "      ")
        return
    if cell.limit:
        of_limit = cell.limit.verdict
        yield f"  {metric}: {_paint(of_limit.value, of_limit, colour)}"
    for result in (r for r in cell.results if r.tested):
        verdict = result.verdict
        assert verdict is not None
        word = _paint(wording.verdict(result.judgement), verdict, colour)
        yield f"  {metric}, {result.estimand}: {word}{shared.marks(result)}"
        for sentence in shared.rest(result):
            yield from wrapped(sentence, "    ", "      ")


def _table(cell: Cell) -> list[list[str]]:
    """The headings, a row for each result, and the maxima."""
    if not cell.results:
        return []
    worst = {"BASE": cell.base_worst.maximum, "NEW": cell.new_worst.maximum}
    figures = [column.heading for column in in_tables()]
    return [
        [f"[{printable(cell.unit)}]", *figures],
        *([wording.estimand(result), *texts(result.judgement)] for result in cell.results),
        ["max", *(wording.figure(worst[name]) if name in worst else "" for name in figures)],
    ]


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
            yield printable(
                f"{benchmark} has {only_base} in BASE alone, and {only_new} in NEW alone"
            )


def _words(benchmark: str, keys: list[Key]) -> list[str]:
    """The params, placements and metrics of one program."""
    words = (
        word
        for program, params, placement, metric in keys
        if program == benchmark
        for word in (*params.split(";"), placement, metric)
    )
    return list(dict.fromkeys(words))
