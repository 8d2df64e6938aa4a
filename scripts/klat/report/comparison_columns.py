"""The columns of a judgement, for text, Markdown, pages, CSV and JSON; and a comparison as CSV and as JSON."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any, TextIO

from klat.compare.comparison import Against, Cell, CellLimit, Comparison, OverMachines, Result
from klat.compare.dataset import Key
from klat.compare.verdicts import Judgement, Verdict
from klat.record.session import NOT_MEASURABLE, printable
from klat.report.document import Column, Word
from klat.report.text import wording
from klat.report.text.columns import cells

Value = Callable[[Judgement], Any]


@dataclass(frozen=True)
class ResultColumn:
    """What reports show of each result.

    `values` has the columns of CSV and the keys of JSON, by name. They have full precision.
    With `shown`, the tables of text, Markdown and pages have the column, too: `text` returns its cell.
    """

    values: Mapping[str, Value] = field(default_factory=dict)
    shown: Column | None = None
    text: Callable[[Judgement], str] = lambda _: ""


COLUMNS = (
    ResultColumn({"verdict": lambda j: j.verdict.value if j.verdict else ""}),
    ResultColumn({"base_value": lambda j: j.base.value}, Column("BASE", True, overview=True), lambda j: wording.figure(j.base.value)),
    ResultColumn({"new_value": lambda j: j.new.value}, Column("NEW", True, overview=True), lambda j: wording.figure(j.new.value)),
    ResultColumn({"ratio": lambda j: j.ratio}, Column("NEW/BASE", overview=True, brief=True), lambda j: wording.ratio(j)[0]),
    ResultColumn(
        {
            "low": lambda j: j.interval[0] if j.interval else None,
            "high": lambda j: j.interval[1] if j.interval else None,
        },
        Column("interval", overview=True, brief=True, below=True),
        lambda j: wording.ratio(j)[1],
    ),
    ResultColumn({"p": lambda j: j.p}),
    ResultColumn({"p_adjusted": lambda j: j.p_adjusted}, Column("p adjusted"), lambda j: wording.p_value(j.p_adjusted)),
    ResultColumn({"p_same": lambda j: j.p_same}),
    ResultColumn({"method": lambda j: j.method.value, "freedom": lambda j: j.freedom}),
    ResultColumn({"base_units": lambda j: j.base.units, "new_units": lambda j: j.new.units}),
    ResultColumn({"base_runs": lambda j: j.base.runs, "new_runs": lambda j: j.new.runs}),
    ResultColumn({"settle_verdict": lambda j: j.settle.verdict.value if j.settle else ""}),
    ResultColumn({"settle_units": lambda j: j.settle.units if j.settle else None}),
    ResultColumn({"settle_runs": lambda j: j.settle.runs if j.settle else None}),
    ResultColumn({"reason": lambda j: j.reason}),
    ResultColumn({"pooled": lambda j: int(j.pooled)}),
)  # fmt: skip

# The colour of a verdict, and a shape for readers who do not see the colour.
_WORDS = {
    Verdict.SAME: ("same", "="),
    Verdict.FASTER: ("faster", "▼"),
    Verdict.SLOWER: ("slower", "▲"),
    Verdict.INCONCLUSIVE: ("open", "?"),
    Verdict.UNATTRIBUTABLE: ("open", "?"),
    Verdict.WITHIN: ("faster", "="),
    Verdict.EXCEEDED: ("slower", "▲"),
    Verdict.CANNOT_TELL: ("open", "?"),
    Verdict.NOT_DELIVERED: ("refused", "–"),
    Verdict.NOT_COMPARABLE: ("refused", "×"),
}


def word_of(verdict: Verdict) -> Word:
    return Word(verdict.value, *_WORDS[verdict])


def names() -> list[str]:
    """The columns of CSV that a judgement fills."""
    return [name for column in COLUMNS for name in column.values]


def in_tables() -> list[Column]:
    return [column.shown for column in COLUMNS if column.shown]


def texts(judgement: Judgement) -> list[str]:
    """The cells of tables, in the order of in_tables()."""
    return [column.text(judgement) for column in COLUMNS if column.shown]


def values(judgement: Judgement) -> dict[str, Any]:
    """The values for CSV and JSON, by name."""
    return {name: value(judgement) for column in COLUMNS for name, value in column.values.items()}


def result_values(result: Result) -> dict[str, Any]:
    """values() of the result's judgement, with its estimand and the ratio over boots."""
    over = result.over_boots
    low, high = (over.interval if over else None) or (None, None)
    return {
        "estimand": result.estimand,
        "tested": int(result.tested),
        **values(result.judgement),
        "over_boots_ratio": over.ratio if over else None,
        "over_boots_low": low,
        "over_boots_high": high,
    }


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
            writer.writerow(cells(_named(against, key) | {"verdict": NOT_MEASURABLE}))
        for left in against.uncompared:
            outcome = {"verdict": left.what, "reason": wording.uncompared_reason(left)}
            writer.writerow(cells(_named(against, left.key) | outcome))
    base = comparison.against[0].base.label
    for over in comparison.over_machines:
        writer.writerow(cells({"base": base} | _over_machines(over)))
    for alone in comparison.left_out_machines:
        outcome = {"verdict": "left out", "reason": printable(alone.reason)}
        writer.writerow(cells({"base": base, "machine": alone.machine} | outcome))


def _cell(against: Against, cell: Cell) -> dict[str, Any]:
    return _named(against, cell.key) | {
        "unit": cell.unit,
        "base_max": cell.base_worst.maximum,
        "new_max": cell.new_worst.maximum,
        "base_samples": cell.base_worst.samples,
        "new_samples": cell.new_worst.samples,
        "under_test": "; ".join(cell.under_test),
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
    return _of_key(over.key) | {
        "new": over.new,
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


def _named(against: Against, key: Key) -> dict[str, Any]:
    sides = {"base": against.base.label, "new": against.new.label, "machine": against.machine}
    return sides | _of_key(key)


def _of_key(key: Key) -> dict[str, Any]:
    return dict(zip(("benchmark", "params", "placement", "metric"), key))
