"""A comparison as a page of HTML. Computes nothing: verdicts and figures are those of
klat.compare.comparison, curves those of klat.compare.figure_data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from klat.compare.comparison import Against, Cell, Comparison, Options, OverMachines, Result
from klat.compare.figure_data import CellFigures
from klat.report.comparison_columns import in_tables
from klat.report.html import page
from klat.report.text import limit_text, wording
from klat.report.text.comparison_text import terms
from klat.report.text.machines_text import (
    left_out_machine,
    machine_names,
    over_machines_explanations,
    results_of,
)
from klat.report.text.shared_sentences import shared_sentences
from klat.report.text.comparison_text import nothing_shared
from klat.report.html.page_figures import figures, forest
from klat.compare.verdicts import Verdict

# A shape beside each word, for those who do not see its colour; and the name of that colour.
SYMBOLS = {
    Verdict.SAME: ("=", "same"),
    Verdict.FASTER: ("▼", "faster"),
    Verdict.SLOWER: ("▲", "slower"),
    Verdict.INCONCLUSIVE: ("?", "open"),
    Verdict.UNATTRIBUTABLE: ("?", "open"),
    Verdict.WITHIN: ("=", "faster"),
    Verdict.EXCEEDED: ("▲", "slower"),
    Verdict.CANNOT_TELL: ("?", "open"),
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
class Section:
    """One metric."""

    anchor: str
    cell: Cell
    name: str  # benchmark and metric
    where: str  # placement, and what else distinguishes it from the other sections
    drawings: tuple[page.Drawing, ...]
    missing: str  # why there are no curves


@dataclass(frozen=True)
class AgainstPart:
    """BASE against one NEW, on one machine if there are several."""

    anchor: str
    name: str
    against: Against
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class MachinesSection:
    """One estimand of a metric on all machines."""

    name: str
    found: OverMachines
    results: tuple[tuple[str, Result], ...]  # by the machine's name
    drawings: tuple[page.Drawing, ...]
    sentences: tuple[str, ...]


def comparison_page(
    environment: Any,
    comparison: Comparison,
    figures_of: Sequence[Sequence[CellFigures | str]],
) -> str:
    """`figures_of` has those of each cell of each of Comparison.against, or why there are none."""
    names = machine_names(comparison)
    parts = tuple(
        _part(f"n{number}", names[against.machine], against, comparison.options, cell_figures)
        for number, (against, cell_figures) in enumerate(zip(comparison.against, figures_of), 1)
    )
    labels = dict.fromkeys(against.new.label for against in comparison.against)
    return page.render(
        environment,
        "comparison.html",
        title=f"{', '.join(labels)} against {comparison.against[0].base.label}",
        comparison=comparison,
        parts=parts,
        machines=list(_machines_sections(comparison, names)),
        left_out=[left_out_machine(left, names) for left in comparison.left_out_machines],
        words=wording,
        columns=in_tables(),
        nothing_shared=nothing_shared,
        shared_sentences=shared_sentences,
        badge_of=_badge,
        kind=_STATUS[comparison.status],
        terms=list(terms(comparison)),
        limits=limit_text,
        legend=_legend(comparison),
        counted=any(against.base.unit == "instructions" for against in comparison.against),
        tested=_tested(comparison),
    )


def _tested(comparison: Comparison) -> str:
    chosen = [estimand.name for estimand in comparison.options.tested]
    return ", ".join(chosen) or "median, and on p99 where the samples support it"


def _legend(comparison: Comparison) -> list[tuple[Verdict, str]]:
    meanings = {
        Verdict.SAME: "shown to differ by less than the margin",
        Verdict.FASTER: "NEW/BASE is shown to lie below 1 by more than the margin",
        Verdict.SLOWER: "NEW/BASE is shown to lie above 1 by more than the margin",
        Verdict.INCONCLUSIVE: "none of these is shown; the line below says what would show it",
        Verdict.WITHIN: "the share above the limit is shown to be small enough",
        Verdict.EXCEEDED: "the share above the limit is shown to be too large",
        Verdict.CANNOT_TELL: "neither is shown; the lines below say how many samples would show it",
        Verdict.NOT_DELIVERED: "a kernel did not deliver the event, so there is no figure",
        Verdict.NOT_COMPARABLE: "a condition that is not under test differs",
    }
    limits = (Verdict.WITHIN, Verdict.EXCEEDED, Verdict.CANNOT_TELL)
    refused = (Verdict.NOT_DELIVERED, Verdict.NOT_COMPARABLE)
    of_limit = comparison.options.limit is not None
    return [
        (verdict, text)
        for verdict, text in meanings.items()
        if verdict in refused or (verdict in limits) == of_limit
    ]


def _badge(verdict: Verdict) -> Badge:
    symbol, kind = SYMBOLS[verdict]
    return Badge(symbol, verdict.value, kind)


def _machines_sections(
    comparison: Comparison, names: Mapping[str, str]
) -> Iterator[MachinesSection]:
    keys = [over.key for over in comparison.over_machines]
    several = len({against.new.path for against in comparison.against}) > 1
    for number, over in enumerate(comparison.over_machines, 1):
        group = [a for a in comparison.against if a.new.path == over.new_path]
        results = tuple((names[a.machine], r) for a, r in results_of(group, over))
        judged = [(name, result.judgement) for name, result in results]
        shown = forest(f"m{number}-machines", judged, over, comparison.options.rules)
        what = f"{over.metric}, {over.estimand}: {wording.setting(over.key, keys)}"
        yield MachinesSection(
            ", ".join([f"{over.new}: {what}" if several else what, *over.under_test]),
            over,
            results,
            tuple(page.drawings([shown] if shown else [])),
            tuple(over_machines_explanations(over, comparison)),
        )


def _part(
    anchor: str,
    machine: str,
    against: Against,
    options: Options,
    figures_of: Sequence[CellFigures | str],
) -> AgainstPart:
    sections: list[Section] = []
    names = wording.names(against.cells)
    for number, (cell, (name, where), cell_figures) in enumerate(
        zip(against.cells, names, figures_of), 1
    ):
        place = f"{anchor}m{number}"
        missing = cell_figures if isinstance(cell_figures, str) else ""
        known = None if isinstance(cell_figures, str) else cell_figures
        # One machine of several has no figures: they would be too many for a page.
        shown = [] if against.machine else figures(place, cell, known, against, options)
        sections.append(Section(place, cell, name, where, tuple(page.drawings(shown)), missing))
    name = f"{against.new.label}, machine {machine}" if machine else against.new.label
    return AgainstPart(anchor, name, against, tuple(sections))
