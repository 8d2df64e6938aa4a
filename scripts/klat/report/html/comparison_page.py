"""A comparison as a page of HTML. Computes nothing: verdicts and figures are those of
klat.compare.comparison, curves those of klat.compare.figure_data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from klat.compare.comparison import Against, Cell, Comparison, Result
from klat.compare.matching import compared_runs
from klat.compare.figure_data import detail
from klat.report.html import page
from klat.report.text import wording
from klat.report.html.page_figures import figures
from klat.report.text.uncompared import uncompared
from klat.record.session import SessionError
from klat.compare.dataset import Dataset
from klat.compare.verdicts import Verdict

# A shape beside each word, for those who do not see its colour; and the name of that colour.
SYMBOLS = {
    Verdict.SAME: ("=", "same"),
    Verdict.FASTER: ("▼", "faster"),
    Verdict.SLOWER: ("▲", "slower"),
    Verdict.INCONCLUSIVE: ("?", "open"),
    Verdict.UNATTRIBUTABLE: ("?", "open"),
    Verdict.NOT_DELIVERED: ("–", "refused"),
    Verdict.NOT_COMPARABLE: ("×", "refused"),
}
_STATUS = {0: "same", 1: "slower", 3: "open", 4: "refused", 5: "refused"}


@dataclass(frozen=True)
class Badge:
    symbol: str
    word: str
    kind: str


@dataclass(frozen=True)
class VerdictLine:
    """A line of the first table."""

    anchor: str
    name: str  # benchmark and metric
    where: str  # placement, and what else tells it from the other lines
    estimand: str
    badge: Badge
    ratio: str
    interval: str
    values: tuple[str, str]
    why: tuple[str, ...]


@dataclass(frozen=True)
class EstimandRow:
    """A line of the table of one metric."""

    estimand: str
    tested: bool
    values: tuple[str, str]
    ratio: str
    interval: str
    p: str


@dataclass(frozen=True)
class Section:
    """One metric."""

    anchor: str
    setting: str
    metric: str
    unit: str
    badges: tuple[tuple[str, Badge], ...]  # with the estimand that each is on
    why: tuple[str, ...]
    rows: tuple[EstimandRow, ...]
    worst: tuple[str, str]
    notes: tuple[str, ...]
    drawings: tuple[page.Drawing, ...]
    missing: str  # why there are no curves


@dataclass(frozen=True)
class AgainstPart:
    """BASE against one NEW."""

    anchor: str
    against: Against
    about: tuple[tuple[str, str, str], ...]  # what heads a report of a side, by name
    unit: str
    why: tuple[str, ...]  # said once where it holds for every line
    lines: tuple[VerdictLine, ...]
    sections: tuple[Section, ...]
    uncompared: tuple[str, ...]
    unmeasurable: tuple[str, ...]
    nothing: str  # said where the sides have nothing in common


def comparison_page(
    environment: Any, comparison: Comparison, base: Dataset, news: Sequence[Dataset]
) -> str:
    parts = tuple(
        _part(f"n{number}", against, comparison, base, new)
        for number, (against, new) in enumerate(zip(comparison.against, news), 1)
    )
    labels = [against.new.label for against in comparison.against]
    return page.render(
        environment,
        "comparison.html",
        title=f"{', '.join(labels)} against {comparison.against[0].base.label}",
        comparison=comparison,
        parts=parts,
        conclusion=wording.conclusion(comparison),
        kind=_STATUS[comparison.status],
        terms=list(wording.terms(comparison)),
        legend=_legend(),
        counted=any(against.base.unit == "instructions" for against in comparison.against),
        margin=wording.percent(comparison.options.rules.margin),
        tested=_tested(comparison),
    )


def _tested(comparison: Comparison) -> str:
    chosen = [estimand.name for estimand in comparison.options.tested]
    return ", ".join(chosen) or "median, and on p99 where the samples support it"


def _legend() -> list[tuple[Badge, str]]:
    meanings = {
        Verdict.SAME: "shown to differ by less than the margin",
        Verdict.FASTER: "shown to take less time, by more than the margin",
        Verdict.SLOWER: "shown to take more time, by more than the margin",
        Verdict.INCONCLUSIVE: "none of these is shown; the line below says what would show it",
        Verdict.NOT_DELIVERED: "a kernel did not deliver the event, so there is no figure",
        Verdict.NOT_COMPARABLE: "a condition differs that was not under test",
    }
    return [(_badge(verdict, verdict.value), text) for verdict, text in meanings.items()]


def _badge(verdict: Verdict, word: str) -> Badge:
    symbol, kind = SYMBOLS[verdict]
    return Badge(symbol, word, kind)


def _part(
    anchor: str, against: Against, comparison: Comparison, base: Dataset, new: Dataset
) -> AgainstPart:
    sections: list[Section] = []
    lines: list[VerdictLine] = []
    runs = compared_runs(base, new, comparison.options)
    names = wording.names(against.cells)
    for number, (cell, named) in enumerate(zip(against.cells, names), 1):
        name = f"{anchor}m{number}"
        missing = ""
        found = None
        try:
            found = detail(cell, *runs.of(cell), comparison.options.rules)
        except SessionError as error:
            missing = str(error)
        shown = figures(name, cell, found, against, comparison.options.rules)
        drawn = tuple(page.drawings(shown))
        told = list(_lines(name, named, cell, against, comparison))
        sections.append(_section(name, cell, against, comparison, told, drawn, missing))
        lines += told
    return AgainstPart(
        anchor=anchor,
        against=against,
        about=tuple(_about(against)),
        unit=against.base.unit,
        why=wording.shared_reasons(against, comparison),
        lines=tuple(lines),
        sections=tuple(sections),
        uncompared=tuple(uncompared(left, against) for left in against.uncompared),
        unmeasurable=tuple(wording.unmeasurable(against)),
        nothing="" if against.shared else wording.nothing_shared(against),
    )


def _about(against: Against) -> Iterator[tuple[str, str, str]]:
    for name, of in (
        ("kernel", lambda info: info.kernel),
        ("preemption", lambda info: info.preemption),
        ("CPU", lambda info: info.cpu_model),
        ("mode", wording.how_measured),
        ("measured in", wording.boots_of),
        ("runs", lambda info: info.runs),
    ):
        yield name, of(against.base), of(against.new)


def _values(result: Result) -> tuple[str, str]:
    j = result.judgement
    return wording.figure(j.base.value), wording.figure(j.new.value)


def _lines(
    anchor: str, named: tuple[str, str], cell: Cell, against: Against, comparison: Comparison
) -> Iterator[VerdictLine]:
    where = (anchor, *named)
    shared = wording.shared_reasons(against, comparison)
    if cell.refused:
        # What refuses the whole comparison is said above the table, once.
        own = tuple(c.refusal() for c in cell.refused if c not in against.refused)
        badge = _badge(Verdict.NOT_COMPARABLE, Verdict.NOT_COMPARABLE.value)
        yield VerdictLine(*where, "", badge, "", "", ("", ""), own)
    for result in cell.results:
        j = result.judgement
        if result.tested and j.verdict:
            badge = _badge(j.verdict, wording.verdict(j))
            reasons = wording.explanations(result, against, comparison)
            why = tuple(reason for reason in reasons if reason not in shared)
            values = _values(result)
            yield VerdictLine(*where, result.estimand, badge, *wording.ratio(j), values, why)


def _section(
    anchor: str,
    cell: Cell,
    against: Against,
    comparison: Comparison,
    lines: Sequence[VerdictLine],
    drawn: tuple[page.Drawing, ...],
    missing: str,
) -> Section:
    rows = tuple(
        EstimandRow(
            r.estimand,
            r.tested,
            _values(r),
            *wording.ratio(r.judgement),
            wording.p_value(r.judgement.p_adjusted),
        )
        for r in cell.results
    )
    worst = [wording.figure(side.maximum) for side in (cell.base_worst, cell.new_worst)]
    return Section(
        anchor=anchor,
        setting=wording.setting(cell.key, wording.keys(against)),
        metric=cell.metric,
        unit=cell.unit,
        badges=tuple((line.estimand, line.badge) for line in lines),
        why=tuple(dict.fromkeys(why for line in lines for why in line.why)),
        rows=rows,
        worst=(worst[0], worst[1]),
        notes=tuple(_notes(cell, against, comparison)),
        drawings=drawn,
        missing=missing,
    )


def _notes(cell: Cell, against: Against, comparison: Comparison) -> Iterator[str]:
    """What the terminal says below a table, in the same words."""
    if not cell.results:
        return
    base, new = cell.base_worst, cell.new_worst
    for changed in cell.under_test:
        yield f"under test: {changed}"
    yield f"max of {base.samples:,} and {new.samples:,} samples"
    threshold = comparison.options.threshold
    if threshold is not None:
        for name, found in (("BASE", base), ("NEW", new)):
            limit = f"above {wording.figure(threshold)} {cell.unit}, {name}"
            yield f"{limit}: {wording.exceedance(found)}"
    first = cell.results[0].judgement
    if first.base.units and first.new.units:
        yield from wording.spreads(first, against.unit_noun)
    for result in cell.results:
        if result.tested and (text := wording.method(result.judgement, against.unit_noun)):
            yield f"{result.estimand}: {text}"
        if result.base_within or result.new_within:
            told = [wording.within(found) for found in (result.base_within, result.new_within)]
            yield f"{result.estimand} of a single run, 95 %: BASE {told[0]}; NEW {told[1]}"
    for condition in cell.accepted:
        if condition not in against.accepted:
            yield f"allowed, though it differs: {condition.sentence()}"
    for name, runs in (("BASE", cell.base_runs), ("NEW", cell.new_runs)):
        yield f"runs of {name}: {runs}"
