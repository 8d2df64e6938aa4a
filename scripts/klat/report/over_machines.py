"""Sides with sessions of several machines: the section on all machines together."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from klat.base.grouping import grouped
from klat.compare.comparison import Against, Comparison, LeftOutMachine, OverMachines, Result
from klat.compare.comparison import SideInfo
from klat.compare.verdicts import Judgement, Verdict
from klat.record.session import printable
from klat.report.comparison_columns import in_tables, texts, word_of
from klat.report.document import Block, Column, Facts, Item, Judged, Listing, Note, Notes, Row
from klat.report.document import Section, Table, Verdicts, Word
from klat.report.notes import differences, unjudged_lines, shared_remarks, side_notes
from klat.report.text import wording
from klat.report.text.numbers import percent, plural, ratio_digits

_Said = TypeVar("_Said", bound=Hashable)


def groups(comparison: Comparison) -> list[list[Against]]:
    """The machines of each NEW that has some in common with BASE."""
    paths = dict.fromkeys(against.new.path for against in comparison.against if against.machine)
    return [[a for a in comparison.against if a.new.path == path] for path in paths]


def section(
    group: Sequence[Against], comparison: Comparison, names: Mapping[str, str], drawn: bool
) -> Section:
    """BASE against one NEW. A text that several machines share is there once, with their names in brackets. A text
    without names is on all machines."""
    base, new = group[0].base, group[0].new
    over = [judged for judged in comparison.over_machines if judged.new_path == new.path]
    left = [m for m in comparison.left_out_machines if m.new_path == new.path]
    shared, verdicts = shared_remarks(_verdicts(group, over, comparison, names, drawn))
    notes = [
        Note(f"{note.text}{machines}", note.label, note.tone)
        for note, machines in _merged(_notes(group), names, len(group))
    ]
    unmatched = ((a.machine, line) for a in group for line in unjudged_lines(a))
    differ = ((a.machine, (d.name, d.a, d.b)) for a in group for d in a.differences)
    differing = _merged(differ, names, len(group))
    blocks: list[Block] = [
        Facts(
            (), (), (("BASE", _side(a.base for a in group)), ("NEW", _side(a.new for a in group)))
        ),
        Listing(
            (*_machines(group, names), *_left_out_lines(left, names)),
            f"{plural(len(group), 'machine')} with both sides (boots of BASE and NEW)",
        ),
        Notes((*notes, *shared)),
        verdicts,
        Listing(tuple("".join(said) for said in _merged(unmatched, names, len(group)))),
        differences(group[0], ((n, a, f"{b}{machines}") for (n, a, b), machines in differing)),
    ]
    return Section(f"{new.label} against {base.label}, over machines", tuple(blocks))


def _side(infos: Iterable[SideInfo]) -> str:
    labels, described = [], []
    for info in infos:
        labels.append(info.label)
        how = wording.how_measured(info)
        described.append(f"Linux {info.kernel}, preemption {info.model}; {how}")
    return f"{labels[0]}: {' | '.join(dict.fromkeys(described))}"


def _machines(group: Sequence[Against], names: Mapping[str, str]) -> Iterator[str]:
    for against in group:
        boots = f"{against.base.boots} and {against.new.boots}"
        not_ok = [
            f"{info.run_noun}s of {side}: {info.runs}"
            for side, info in (("BASE", against.base), ("NEW", against.new))
            if not wording.all_ok(info.runs)
        ]
        yield "; ".join([f"{names[against.machine]}  {boots}  {against.base.cpu_model}", *not_ok])


def left_out(comparison: Comparison, names: Mapping[str, str]) -> Section:
    """The machines of all NEWs, for a report without a section over machines."""
    of_new = grouped(comparison.left_out_machines, lambda left: left.new_path)
    labels = {against.new.path: against.new.label for against in comparison.against}
    blocks = (
        Listing(_left_out_lines(machines, names), labels[path] if len(labels) > 1 else "")
        for path, machines in of_new.items()
    )
    return Section("Machines", tuple(blocks))


def _left_out_lines(
    machines: Iterable[LeftOutMachine], names: Mapping[str, str]
) -> tuple[str, ...]:
    return tuple(f"left out: {left_out_machine(left, names)}" for left in machines)


def _notes(group: Sequence[Against]) -> Iterator[tuple[str, Note]]:
    """All notes, each with its machine; also the refusals of single metrics."""
    for against in group:
        yield from ((against.machine, note) for note in side_notes(against))
        for cell in against.cells:
            for condition in cell.refused:
                if condition not in against.refused:
                    text = f"{wording.setting(cell.key)} {cell.metric}: {condition.refusal()}"
                    yield against.machine, Note(text, Verdict.NOT_COMPARABLE.value, "refused")


def _merged(
    said: Iterable[tuple[str, _Said]], names: Mapping[str, str], machines: int
) -> Iterator[tuple[_Said, str]]:
    """Each text once, with its machines: ` [a, b]`, or an empty text if it is on all of the number `machines`."""
    names_of: dict[_Said, dict[str, None]] = {}
    for machine, what in said:
        names_of.setdefault(what, {})[names[machine]] = None
    for what, named in names_of.items():
        yield what, "" if len(named) == machines else f" [{', '.join(named)}]"


def _verdicts(
    group: Sequence[Against],
    over: Sequence[OverMachines],
    comparison: Comparison,
    names: Mapping[str, str],
    drawn: bool,
) -> Verdicts:
    keys = [judged.key for judged in over]
    brief = [column for column in in_tables() if column.brief]
    items = []
    for judged, (name, where) in zip(over, wording.names(over)):
        results = [(names[a.machine], a, result) for a, result in results_of(group, judged)]
        plot = None
        if drawn:
            from klat.report.plot.page_figures import forest

            ratios = [(machine, result.judgement) for machine, _, result in results]
            plot = forest(ratios, judged, comparison.options.rules)
        explained = {against.machine for _, against, _ in results}
        remarks = over_machines_explanations(judged, comparison, explained)
        word = Word("none")
        figures = [""] * len(brief)
        if j := judged.judgement:
            word = word_of(j.verdict) if j.verdict else word
            figures = _texts(j, "brief")
        why = Judged(word, judged.estimand, tuple(remarks))
        items.append(
            Item(
                wording.setting(judged.key, keys),
                judged.metric,
                name,
                where,
                (Row(judged.estimand, (str(len(judged.machines)), *figures), why),),
                judged.under_test,
                _table(results, judged),
                sentences=tuple(_of_machines(results, comparison)),
                figures=(plot,) if plot else (),
                id=wording.identity(judged.key),
            )
        )
    columns = (Column("machines", overview=True), *brief)
    return Verdicts(columns, tuple(items), group[0].base.unit, title="Over machines")


def _table(results: Sequence[tuple[str, Against, Result]], over: OverMachines) -> Table:
    """A row for each machine, and one for all."""
    columns = [column for column in in_tables() if column.overview]
    rows = []
    for name, _, result in results:
        verdict = result.verdict
        word = word_of(verdict) if verdict else Word("")
        rows.append(Row(name, (*_texts(result.judgement, "overview"), word)))
    if (j := over.judgement) and j.verdict:
        figures = ["" if c.has_unit else t for c, t in zip(columns, _texts(j, "overview"))]
        rows.append(Row(f"over {plural(j.base.units, 'machine')}", (*figures, word_of(j.verdict))))
    return Table(over.unit, (*columns, Column("verdict", left=True)), tuple(rows), "machine")


def _texts(j: Judgement, flag: str) -> list[str]:
    """The texts of the columns that have this flag."""
    return [text for column, text in zip(in_tables(), texts(j)) if getattr(column, flag)]


def _of_machines(
    results: Sequence[tuple[str, Against, Result]], comparison: Comparison
) -> Iterator[str]:
    """Explains the verdicts of single machines that no verdict over machines includes. If requested, also
    says how well single runs resolve the figure."""
    for name, against, result in results:
        if single := wording.single_run(result, against.run_noun):
            yield f"{name}: {single}"
        why = "; ".join(wording.explanations(result, against, comparison))
        if why and not result.decided_over_machines:
            yield f"{name}: {why}"


def machine_names(comparison: Comparison) -> dict[str, str]:
    """A short name for each machine id: its first 8 characters, or more if names would be equal."""
    ids = {against.machine for against in comparison.against}
    ids |= {left.machine for left in comparison.left_out_machines}
    length = 8
    while len({machine[:length] for machine in ids}) < len(ids):
        length += 1
    return {machine: printable(machine[:length]) for machine in ids}


def left_out_machine(left: LeftOutMachine, names: Mapping[str, str]) -> str:
    """`machine 6d61a2b4 (only in BASE)`."""
    what = f"machine {names[left.machine]}" if left.machine else "sessions"
    return f"{what} ({printable(left.reason)})"


def over_machines_explanations(
    over: OverMachines, comparison: Comparison, explained: Collection[str] = ()
) -> Iterator[str]:
    """Sentences below a verdict over machines. `explained` are the machines with a verdict of their own in
    the report, which says why they are left out."""
    if over.reason:
        yield printable(over.reason)
    if over.judgement:
        yield from wording.in_doubt(over.judgement, comparison, "on average NEW", "run")
    if over.spread is not None and over.next_machine:
        yield _between_machines(over.spread, over.next_machine)
    for left in over.left_out:
        if left.machine not in explained:
            yield f"left out: {left_out_machine(left, machine_names(comparison))}"


def _between_machines(spread: float, next_machine: tuple[float, float]) -> str:
    low, high = next_machine
    if high - low < 1e-9:
        return "the ratio is the same on all machines"
    noted = "the variation within machines explains all variation between machines"
    if spread:
        share = percent(math.expm1(spread))
        noted = f"between machines the ratio varies by {share} (standard deviation)"
    digits = ratio_digits(low, high)
    reach = f"between {low:.{digits}f} and {high:.{digits}f}"
    return f"{noted}; the expected ratio of one more machine, measured alike, is {reach}"


def results_of(group: Sequence[Against], over: OverMachines) -> Iterator[tuple[Against, Result]]:
    """The results of the machines that have the figure of `over`."""
    for against in group:
        for cell in against.cells:
            if (cell.key, cell.under_test) != (over.key, over.under_test):
                continue
            for result in cell.results:
                if result.tested and result.estimand == over.estimand:
                    yield against, result
