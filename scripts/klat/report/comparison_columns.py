"""The columns of a judgement. Text, Markdown, pages, CSV and JSON take them from here. `_ORDER` of
report/tables/comparison_tables.py has the other columns of CSV, and the order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from klat.compare.comparison import Result
from klat.compare.verdicts import Judgement
from klat.report.text import wording

Value = Callable[[Judgement], Any]


@dataclass(frozen=True)
class Column:
    """What reports show of each result.

    `values` has the columns of CSV and the keys of JSON, by name. They have full precision. A column with
    `heading` is in the tables of text, Markdown and pages too: `text` is its cell there. `has_unit` if its
    figures are in the unit of the metric.
    """

    values: Mapping[str, Value] = field(default_factory=dict)
    heading: str = ""
    text: Callable[[Judgement], str] = lambda _: ""
    has_unit: bool = False

    def title(self, unit: str) -> str:
        """The heading with the unit, for tables that have no other place for it."""
        return f"{self.heading} [{unit}]" if self.has_unit else self.heading


COLUMNS = (
    Column({"verdict": lambda j: j.verdict.value if j.verdict else ""}),
    Column({"base_value": lambda j: j.base.value}, "BASE", lambda j: wording.figure(j.base.value), True),
    Column({"new_value": lambda j: j.new.value}, "NEW", lambda j: wording.figure(j.new.value), True),
    Column({"ratio": lambda j: j.ratio}, "NEW/BASE", lambda j: wording.ratio(j)[0]),
    Column(
        {
            "low": lambda j: j.interval[0] if j.interval else None,
            "high": lambda j: j.interval[1] if j.interval else None,
        },
        "interval",
        lambda j: wording.ratio(j)[1],
    ),
    Column({"p": lambda j: j.p}),
    Column({"p_adjusted": lambda j: j.p_adjusted}, "p adjusted", lambda j: wording.p_value(j.p_adjusted)),
    Column({"p_same": lambda j: j.p_same}),
    Column({"method": lambda j: j.method.value, "freedom": lambda j: j.freedom}),
    Column({"base_units": lambda j: j.base.units, "new_units": lambda j: j.new.units}),
    Column({"base_runs": lambda j: j.base.runs, "new_runs": lambda j: j.new.runs}),
    Column({"settle_verdict": lambda j: j.settle.verdict.value if j.settle else ""}),
    Column({"settle_units": lambda j: j.settle.units if j.settle else None}),
    Column({"settle_runs": lambda j: j.settle.runs if j.settle else None}),
    Column({"reason": lambda j: j.reason}),
    Column({"pooled": lambda j: int(j.pooled)}),
)  # fmt: skip


def names() -> list[str]:
    """The columns of CSV that a judgement fills."""
    return [name for column in COLUMNS for name in column.values]


def in_tables() -> list[Column]:
    return [column for column in COLUMNS if column.heading]


def texts(judgement: Judgement) -> list[str]:
    """The cells of tables, in the order of in_tables()."""
    return [column.text(judgement) for column in in_tables()]


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
