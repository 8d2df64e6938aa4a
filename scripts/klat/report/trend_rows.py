"""A trend of kernels as CSV and as JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, TextIO

from klat.compare.trend import Trend
from klat.report.comparison_columns import values
from klat.report.text import wording
from klat.report.text.columns import cells
from klat.report.trend import Change

_FIELDS = (
    "benchmark params placement metric unit kernel release median ratio_to_first before verdict ratio low high"
    " p_adjusted reason explained_before explained windows functions explanation"
).split()


def rows(trend: Trend, changes: Sequence[Change]) -> Iterator[dict[str, Any]]:
    """One for each measurement and kernel."""
    by_step = {(c.metric.key, c.step.new): c for c in changes}
    for metric in trend.series:
        benchmark, params, placement, name = metric.key
        for kernel, (label, release) in enumerate(zip(trend.labels, trend.releases)):
            step = metric.steps.get(kernel)
            judged = values(step.result.judgement) if step and step.result else {}
            first = metric.values.get(trend.first_of(metric, kernel))
            value = metric.values.get(kernel)
            refused = (
                "; ".join(c.refusal(can_allow=False) for c in step.cell.refused) if step else ""
            )
            row = {
                "benchmark": benchmark,
                "params": params,
                "placement": placement,
                "metric": name,
                "unit": trend.comparison.against[0].base.unit,
                "kernel": label,
                "release": release,
                "median": _rounded(value),
                "ratio_to_first": _rounded(value / first if value and first else None),
                "before": trend.labels[step.base] if step else "",
                **{n: judged.get(n) for n in ("verdict", "ratio", "low", "high", "p_adjusted")},
                "reason": judged.get("reason") or refused or metric.reasons.get(kernel, ""),
            }
            if change := by_step.get((metric.key, kernel)):
                row["explained_before"], row["explained"] = change.samples
                row["windows"] = change.base.windows
                row["functions"] = dict(change.functions)
                row["explanation"] = change.why
            yield row


def _rounded(value: float | None) -> float | None:
    """Without the error of the logarithms, whose mean the value is from."""
    return float(f"{value:.12g}") if value is not None else None


def write_csv(trend: Trend, changes: Sequence[Change], out: TextIO) -> None:
    writer = csv.DictWriter(out, _FIELDS, lineterminator="\n")
    writer.writeheader()
    for row in rows(trend, changes):
        functions = row.get("functions", {}).items()
        row["functions"] = ";".join(f"{name}={count:+}" for name, count in functions)
        writer.writerow(cells(row))


def write_json(trend: Trend, changes: Sequence[Change], out: TextIO) -> None:
    facts = {
        "status": trend.status,
        "meaning": wording.MEANINGS[trend.status],
        "margin": trend.comparison.options.rules.margin,
        "alpha": trend.comparison.options.rules.alpha,
        "tests": trend.comparison.family,
        "kernels": [
            {"label": label, "release": release}
            for label, release in zip(trend.labels, trend.releases)
        ],
        "failures": dict(trend.failures),
        "chains": [[trend.labels[kernel] for kernel in chain] for chain in trend.chains],
        "differences": [
            {"before": a.base.label, "kernel": a.new.label, "values": [*map(asdict, a.differences)]}
            for a in trend.comparison.against
        ],
        "rows": list(rows(trend, changes)),
    }
    json.dump(facts, out, indent=2, allow_nan=False)
    out.write("\n")
