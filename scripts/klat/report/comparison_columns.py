"""The columns of a judgement. Text, Markdown, pages, CSV and JSON take them from here. `_ORDER` of
report/tables/comparison_tables.py has the other columns of CSV, and the order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from klat.compare.comparison import Result
from klat.compare.verdicts import Judgement, Verdict
from klat.report.document import Column, Word
from klat.report.text import wording

Value = Callable[[Judgement], Any]


@dataclass(frozen=True)
class ResultColumn:
    """What reports show of each result.

    `values` has the columns of CSV and the keys of JSON, by name. They have full precision. A column with
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
