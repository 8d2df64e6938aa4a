"""The words for machines and for verdicts over machines."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from klat.compare.comparison import (
    Against,
    Comparison,
    LeftOutMachine,
    OverMachines,
    Result,
    SideInfo,
)
from klat.compare.verdicts import Judgement, Verdict
from klat.record.session import printable
from klat.report.text import wording
from klat.report.text.columns import column_widths, wrapped
from klat.report.text.numbers import percent, plural, ratio_digits


Paint = Callable[[str, Verdict], str]
# The verdict of a row, if it has one, and the texts of its columns. The last text is the verdict's word.
_Row = tuple[Verdict | None, list[str]]


def machine_lines(comparison: Comparison, paint: Paint) -> Iterator[str]:
    """The whole report, except the terms and the conclusion."""
    names = machine_names(comparison)
    for path in dict.fromkeys(against.new.path for against in comparison.against):
        group = [against for against in comparison.against if against.new.path == path]
        over = [judged for judged in comparison.over_machines if judged.new_path == path]
        yield from _head(group, comparison, names)
        yield from _notes(group, over, names, paint)
        yield from _overview(over, paint)
        yield from _metrics(group, over, comparison, names, paint)
        yield from _rest(group, names)
    if any(judged.judgement for judged in comparison.over_machines):
        yield f"Verdicts of single machines: {wording.counted(comparison.machine_verdicts)}."


def _head(
    group: Sequence[Against], comparison: Comparison, names: Mapping[str, str]
) -> Iterator[str]:
    yield from wrapped(_side([against.base for against in group]), "BASE  ")
    yield from wrapped(_side([against.new for against in group]), "NEW   ")
    yield ""
    yield f"{plural(len(group), 'machine')} with both sides (boots of BASE and NEW):"
    for against in group:
        boots = f"{against.base.boots} and {against.new.boots}"
        text = f"{names[against.machine]}  {boots}  {against.base.cpu_model}"
        yield from wrapped(text, "  ", "    ")
        for name, info in (("BASE", against.base), ("NEW", against.new)):
            if not wording.all_ok(info.runs):
                yield from wrapped(f"{info.run_noun}s of {name}: {info.runs}", "    ", "      ")
    alone = [m for m in comparison.left_out_machines if m.new_path == group[0].new.path]
    for left in alone:
        yield from wrapped(f"left out: {left_out_machine(left, names)}", "", "    ")
    yield ""


def _side(infos: Sequence[SideInfo]) -> str:
    described = (
        f"Linux {info.kernel}, preemption {info.model}; {wording.how_measured(info)}"
        for info in infos
    )
    return f"{infos[0].label}: {' | '.join(dict.fromkeys(described))}"


def _notes(
    group: Sequence[Against],
    over: Sequence[OverMachines],
    names: Mapping[str, str],
    paint: Paint,
) -> Iterator[str]:
    refused = [
        (against.machine, text)
        for against in group
        for text in [
            *(condition.refusal() for condition in against.refused),
            *(
                f"{wording.setting(cell.key)} {cell.metric}: {condition.refusal()}"
                for cell in against.cells
                for condition in cell.refused
                if condition not in against.refused
            ),
        ]
    ]
    word = Verdict.NOT_COMPARABLE.value
    lines = [line for text in _grouped(refused, group, names) for line in _hanging(word, text)]
    for line in lines:
        yield paint(word, Verdict.NOT_COMPARABLE) + line[len(word) :] if line.startswith(
            word
        ) else line
    notes = [
        (a.machine, f"allowed, though it differs: {c.sentence()}")
        for a in group
        for c in a.accepted
    ]
    notes += [(a.machine, f"note: {caution}") for a in group for caution in a.cautions]
    texts = list(_grouped(notes, group, names))
    texts += [f"note: {reason}" for reason in _shared(over)]
    for text in texts:
        yield from wrapped(text, "", "    ")
    if lines or texts:
        yield ""


def _hanging(word: str, text: str) -> list[str]:
    return wrapped(text, f"{word}  ", "    ")


def _grouped(
    texts: Iterable[tuple[str, str]], group: Sequence[Against], names: Mapping[str, str]
) -> Iterator[str]:
    """Each text once, with its machines in brackets. Without brackets it is for all machines."""
    machines_of: dict[str, dict[str, None]] = {}
    for machine, text in texts:
        machines_of.setdefault(printable(text), {})[names[machine]] = None
    for text, machines in machines_of.items():
        yield text if len(machines) == len(group) else f"{text} [{', '.join(machines)}]"


def _shared(over: Sequence[OverMachines]) -> list[str]:
    """The reason for no verdict over machines, if it is the same for all metrics."""
    reasons = {judged.reason for judged in over}
    return [reason for reason in reasons if reason] if len(reasons) == 1 else []


def _overview(over: Sequence[OverMachines], paint: Paint) -> Iterator[str]:
    """One line for each verdict over machines, if there are several."""
    judged = [
        (over_machines, over_machines.judgement)
        for over_machines in over
        if over_machines.judgement
    ]
    if len(judged) < 2:
        return
    yield "Over machines:"
    rows = [[wording.verdict(j), *wording.ratio(j)] for _, j in judged]
    widths = column_widths(rows)
    for (over_machines, j), (word, ratio, interval) in zip(judged, rows):
        first = f"{word:{widths[0]}}  {ratio:>{widths[1]}}  {interval:>{widths[2]}}  "
        what = f"{over_machines.estimand} of {over_machines.benchmark} {over_machines.metric} {over_machines.placement}"
        line, *more = wrapped(what, first, " " * min(len(first), 40))
        yield _painted(line, word, j, paint)
        yield from more
    yield ""


def _painted(line: str, word: str, judgement: Judgement, paint: Paint) -> str:
    """The line with a colour for its verdict, whose word is at the start of the line."""
    return paint(word, judgement.verdict) + line[len(word) :] if judgement.verdict else line


def _metrics(
    group: Sequence[Against],
    over: Sequence[OverMachines],
    comparison: Comparison,
    names: Mapping[str, str],
    paint: Paint,
) -> Iterator[str]:
    keys = [judged.key for judged in over]
    shared = _shared(over)
    last = ""
    for judged in over:
        title = wording.setting(judged.key, keys)
        if title != last:
            yield from wrapped(title, "", "    ")
            last = title
        for changed in judged.under_test:
            yield from wrapped(f"under test: {changed}", "  ", "    ")
        yield printable(f"  {judged.metric}, {judged.estimand} [{judged.unit}]")
        yield from _table(group, judged, names, paint)
        explained = {against.machine for against, _ in results_of(group, judged)}
        sentences = [
            *over_machines_explanations(judged, comparison, explained),
            *_alone(group, judged, comparison, names),
        ]
        for sentence in sentences:
            if sentence not in shared:
                yield from wrapped(sentence, "    ", "      ")
        yield ""


def _table(
    group: Sequence[Against], judged: OverMachines, names: Mapping[str, str], paint: Paint
) -> Iterator[str]:
    rows: list[_Row] = [(None, ["machine", "BASE", "NEW/BASE", "interval", "verdict"])]
    for against, result in results_of(group, judged):
        j = result.judgement
        rows.append((j.verdict, _columns(names[against.machine], wording.figure(j.base.value), j)))
    if over := judged.judgement:
        what = f"over {plural(over.base.units, 'machine')}"
        rows.append((over.verdict, _columns(what, "", over)))
    widths = column_widths([texts for _, texts in rows])
    for verdict, (name, *figures, word) in rows:
        numbers = "  ".join(text.rjust(width) for text, width in zip(figures, widths[1:]))
        said = paint(word, verdict) if verdict else word
        yield f"    {name:{widths[0]}}  {numbers}  {said}"


def _columns(name: str, base: str, j: Judgement) -> list[str]:
    return [name, base, *wording.ratio(j), wording.verdict(j)]


def _alone(
    group: Sequence[Against],
    judged: OverMachines,
    comparison: Comparison,
    names: Mapping[str, str],
) -> Iterator[str]:
    """Explains the verdicts of single machines that no verdict over machines includes. If requested, also
    says how well single runs resolve the figure."""
    for against, result in results_of(group, judged):
        if single := wording.single_run(result, against.run_noun):
            yield f"{names[against.machine]}: {single}"
        why = "; ".join(wording.explanations(result, against, comparison))
        if why and not result.decided_over_machines:
            yield f"{names[against.machine]}: {why}"


def _rest(group: Sequence[Against], names: Mapping[str, str]) -> Iterator[str]:
    left = [(a.machine, line) for a in group for line in wording.unmeasurable(a)]
    left += [
        (a.machine, wording.uncompared(left_out, a)) for a in group for left_out in a.uncompared
    ]
    texts = list(_grouped(left, group, names))
    for text in texts:
        yield from wrapped(text, "", "    ")
    differ = [(a.machine, f"{d.name}: {d.a} | {d.b}") for a in group for d in a.differences]
    if differ:
        yield "BASE and NEW also differ in (BASE | NEW)"
        for text in _grouped(differ, group, names):
            yield from wrapped(text, "  ", "    ")
    if texts or differ:
        yield ""


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
    """The results of the machines that have the figure of `found`."""
    for against in group:
        for cell in against.cells:
            if (cell.key, cell.under_test) != (over.key, over.under_test):
                continue
            for result in cell.results:
                if result.tested and result.estimand == over.estimand:
                    yield against, result
