"""A comparison for other programs, and for a page: JSON, CSV, Markdown."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from enum import Enum
from fractions import Fraction
from typing import Any, TextIO

from klat.compare.comparison import Against, Cell, CellLimit, Comparison, OverMachines, Result
from klat.report.comparison_columns import in_tables, names, result_values, texts, values
from klat.report.text import wording
from klat.report.text.comparison_text import terms
from klat.report.text.limit_text import above_text, bounds_text
from klat.report.text.machines_text import (
    left_out_machine,
    machine_names,
    over_machines_explanations,
)
from klat.report.text.shared_sentences import SharedSentences, shared_sentences
from klat.report.text.comparison_text import nothing_shared
from klat.report.tables.cells import cells
from klat.record.session import NOT_MEASURABLE, printable
from klat.compare.dataset import Key
from klat.compare.verdicts import Judgement, Verdict

# The order of CSV's columns. Columns that are not in this list come last.
_ORDER = (
    "base new benchmark params placement metric unit estimand tested verdict ratio"
    " low high p p_adjusted p_same method freedom base_value new_value base_units"
    " new_units base_runs new_runs base_max new_max base_samples new_samples base_samples_above"
    " new_samples_above settle_verdict settle_units settle_runs over_boots_ratio over_boots_low"
    " over_boots_high reason under_test pooled"
    " limit base_share_low base_share_high base_verdict new_share_low new_share_high difference"
    " machine machines between_machines next_machine_low next_machine_high"
).split()

# In the column `machine`.
OVER_MACHINES = "over machines"


def write_json(comparison: Comparison, out: TextIO) -> None:
    """The dataclasses of klat.compare.comparison, key by key, with verdicts counted and the status. A judgement
    has the columns of CSV as well."""
    document = {
        "status": comparison.status,
        "meaning": wording.meaning_of(comparison),
        "verdicts": {v.value: n for v in Verdict if (n := comparison.verdicts[v])},
        **plain(comparison),
    }
    json.dump(document, out, indent=2, allow_nan=False)
    out.write("\n")


def plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        columns = values(value) if isinstance(value, Judgement) else {}
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {name: plain(item) for name, item in (columns | fields).items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_csv(comparison: Comparison, out: TextIO) -> None:
    """One line per estimand of a cell; a cell that is not comparable is one line with its
    reasons. Then a line for each estimand over machines, and for each machine that is left out."""
    writer = csv.DictWriter(
        out, dict.fromkeys([*_ORDER, *names()]), restval="", lineterminator="\n"
    )
    writer.writeheader()
    for against in comparison.against:
        for cell in against.cells:
            shared = _cell(against, cell)
            if cell.refused:
                reasons = "; ".join(condition.refusal() for condition in cell.refused)
                refused = {"verdict": Verdict.NOT_COMPARABLE.value, "reason": reasons}
                writer.writerow(cells(shared | refused))
            if cell.limit:
                writer.writerow(cells(shared | _limit(comparison, cell.limit)))
            for result in cell.results:
                writer.writerow(cells(shared | result_values(result)))
        for _, key in against.unmeasurable:
            writer.writerow(cells(_left_out(against, key) | {"verdict": NOT_MEASURABLE}))
        for left in against.uncompared:
            outcome = {"verdict": left.what, "reason": wording.uncompared_reason(left)}
            writer.writerow(cells(_left_out(against, left.key) | outcome))
    base = comparison.against[0].base.label
    for over in comparison.over_machines:
        writer.writerow(cells({"base": base} | _over_machines(over)))
    for alone in comparison.left_out_machines:
        outcome = {"verdict": "left out", "reason": printable(alone.reason)}
        writer.writerow(cells({"base": base, "machine": alone.machine} | outcome))


def _cell(against: Against, cell: Cell) -> dict[str, Any]:
    return {
        "base": against.base.label,
        "new": against.new.label,
        "benchmark": cell.benchmark,
        "params": cell.params,
        "placement": cell.placement,
        "metric": cell.metric,
        "unit": cell.unit,
        "base_max": cell.base_worst.maximum,
        "new_max": cell.new_worst.maximum,
        "base_samples": cell.base_worst.samples,
        "new_samples": cell.new_worst.samples,
        "under_test": "; ".join(cell.under_test),
        "machine": against.machine,
    }


def _limit(comparison: Comparison, judged: CellLimit) -> dict[str, Any]:
    """The verdict is NEW's, p is that of the difference, and values are shares."""
    assert comparison.options.limit
    row: dict[str, Any] = {
        "estimand": "share above the limit",
        "tested": 1,
        "verdict": judged.verdict.value,
        "limit": comparison.options.limit.value,
        "difference": judged.difference.value,
        "p": judged.p,
        "p_adjusted": judged.p_adjusted,
        "base_verdict": judged.base.verdict.value if judged.base else "",
        "reason": judged.reason,
    }
    for name, side in (("base", judged.base), ("new", judged.new)):
        if side:
            row |= {
                f"{name}_value": side.share,
                f"{name}_units": side.boots,
                f"{name}_runs": side.runs,
                f"{name}_samples_above": side.above,
                f"{name}_share_low": side.low,
                f"{name}_share_high": side.high,
            }
    return row


def _over_machines(over: OverMachines) -> dict[str, Any]:
    """Its units are the machines."""
    low, high = over.next_machine or (None, None)
    return {
        "new": over.new,
        "benchmark": over.benchmark,
        "params": over.params,
        "placement": over.placement,
        "metric": over.metric,
        "unit": over.unit,
        "under_test": "; ".join(over.under_test),
        "estimand": over.estimand,
        "tested": int(over.judgement is not None),
        **(values(over.judgement) if over.judgement else {"reason": over.reason}),
        "machine": OVER_MACHINES,
        "machines": len(over.machines),
        "between_machines": over.spread,
        "next_machine_low": low,
        "next_machine_high": high,
    }


def _left_out(against: Against, key: Key) -> dict[str, Any]:
    benchmark, params, placement, metric = key
    return {
        "base": against.base.label,
        "new": against.new.label,
        "machine": against.machine,
        "benchmark": benchmark,
        "params": params,
        "placement": placement,
        "metric": metric,
    }


def markdown(comparison: Comparison) -> Iterator[str]:
    """The lines: a verdict table for each NEW, then what was refused, and what differs."""
    names = machine_names(comparison)
    yield from _over_machines_rows(comparison, names)
    for against in comparison.against:
        on = f", machine {names[against.machine]}" if against.machine else ""
        yield f"## {_cellular(against.base.label)} against {_cellular(against.new.label)}{on}"
        yield ""
        yield f"- BASE {_cellular(wording.side(against.base))}"
        yield f"- NEW {_cellular(wording.side(against.new))}"
        for condition in against.refused:
            yield f"- **not comparable**: {_cellular(condition.refusal())}"
        for condition in against.accepted:
            yield f"- allowed, though it differs: {_cellular(condition.sentence())}"
        for caution in against.cautions:
            yield f"- note: {_cellular(caution)}"
        shared = shared_sentences(against, comparison)
        for note in shared.notes():
            yield f"- note: {_cellular(note)}"
        yield ""
        if not against.shared:
            yield _cellular(nothing_shared(against))
            yield ""
        if against.cells:
            unit = _cellular(against.base.unit)
            titles = [column.title(unit) for column in in_tables()]
            if comparison.options.limit:
                titles = ["BASE above", "NEW above", "difference", "share of NEW"]
            yield f"| benchmark | metric | estimand | {' | '.join(titles)} | verdict |"
            yield f"|---|---|---|{'---:|' * len(titles)}---|"
            for cell in against.cells:
                yield from _rows(cell, against, shared, len(titles))
            yield ""
        for line in wording.unmeasurable(against):
            yield f"- {_cellular(line)}"
        for left in against.uncompared:
            yield f"- {_cellular(wording.uncompared(left, against))}"
        if against.unmeasurable or against.uncompared:
            yield ""
        if against.differences:
            yield "BASE and NEW differ in:"
            yield ""
            for difference in against.differences:
                yield f"- {_cellular(difference.name)}: {_cellular(difference.a)} / {_cellular(difference.b)}"
            yield ""
    yield from terms(comparison)
    yield ""
    yield f"**{wording.conclusion(comparison)}** (status {comparison.status})"


def _over_machines_rows(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    if comparison.over_machines:
        yield "## Over machines"
        yield ""
        yield "| benchmark | metric | estimand | machines | NEW/BASE | interval | verdict |"
        yield "|---|---|---|---:|---:|---|---|"
    for over in comparison.over_machines:
        what = ", ".join([wording.setting(over.key), *over.under_test])
        if len({other.new_path for other in comparison.over_machines}) > 1:
            what = f"{over.new}: {what}"
        texts = [what, over.metric, over.estimand, str(len(over.machines))]
        figures, word = ("", ""), "none"
        if j := over.judgement:
            figures, word = wording.ratio(j), wording.verdict(j)
        why = "; ".join(over_machines_explanations(over, comparison))
        said = f"**{word}**{f': {_cellular(why)}' if why else ''}"
        yield f"| {' | '.join([*map(_cellular, texts), *figures, said])} |"
    for left in comparison.left_out_machines:
        yield ""
        yield f"- left out: {_cellular(left_out_machine(left, names))}"
    if comparison.over_machines or comparison.left_out_machines:
        yield ""


def _rows(cell: Cell, against: Against, shared: SharedSentences, figures: int) -> Iterator[str]:
    """`figures` is the number of columns between the estimand and the verdict."""
    what = ", ".join([wording.setting(cell.key, wording.keys(against)), *cell.under_test])
    where = [_cellular(what), _cellular(cell.metric)]
    if cell.refused:
        why = "; ".join(condition.refusal() for condition in cell.refused)
        refusal = f"**not comparable**: {_cellular(why)}"
        yield f"| {' | '.join([*where, '', *([''] * figures), refusal])} |"
    if limit := cell.limit:
        above = [above_text(side) for side in (limit.base, limit.new)]
        bounds = bounds_text(limit.new) if limit.new else ""
        said = [*above, limit.difference.value, bounds, f"**{limit.verdict.value}**"]
        yield f"| {' | '.join([*where, 'share above the limit', *said])} |"
    for result in cell.results:
        j = result.judgement
        word = wording.verdict(j)
        why = "; ".join(shared.rest(result))
        marks = _cellular(shared.marks(result))
        verdict = f"**{word}**{marks}{f': {_cellular(why)}' if why else ''}" if word else ""
        yield f"| {' | '.join([*where, wording.estimand(result), *texts(j), verdict])} |"


def _cellular(text: str) -> str:
    """Text that breaks no table and starts no markup."""
    shown = printable(text)
    for mark in "\\`*_|<>[]":
        shown = shown.replace(mark, f"\\{mark}")
    return shown
