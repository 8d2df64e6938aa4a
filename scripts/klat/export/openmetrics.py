"""OpenMetrics 1.0 text exposition, for Prometheus and what reads its format.

A metric's samples of all usable runs of a label are one summary: in seconds if they are times, else
in a family of their own in ticks or instructions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import BinaryIO

from klat.export.exported_runs import ExportedRuns, MetricRuns, info, load_of, require_distinct
from klat.export.exported_runs import run_params
from klat.compare.dataset import Dataset
from klat.record.session import STATUSES, printable
from klat.stats.descriptive import P50, P90, P99, P999

_QUANTILES = (P50, P90, P99, P999)
_UNITS = {"ns": "seconds"}
_WHAT = {
    "seconds": "What the kernel took",
    "ticks": "Ticks of an emulated counter, which are no time, that the kernel took",
    "instructions": "Instructions that the kernel took",
}

Pairs = list[tuple[str, str]]


def write(exported: ExportedRuns, out: BinaryIO) -> None:
    require_distinct(exported, "openmetrics", lambda series: tuple(_series_pairs(series)))
    lines: list[str] = []
    for name in dict.fromkeys(series.unit for series in exported.series):
        lines += _samples([s for s in exported.series if s.unit == name], _UNITS.get(name, name))
    lines += _runs(exported)
    lines += _labels(exported)
    lines.append("# EOF")
    out.write("".join(f"{line}\n" for line in lines).encode())


def _family(name: str, kind: str, unit_name: str, help_text: str) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    if unit_name:
        yield f"# UNIT {name} {unit_name}"
    yield f"# HELP {name} {_escaped(help_text)}"


def _samples(chosen: list[MetricRuns], unit_name: str) -> Iterator[str]:
    summary = f"klat_sample_{unit_name}"
    smallest: list[tuple[Pairs, float]] = []
    largest: list[tuple[Pairs, float]] = []
    yield from _family(summary, "summary", unit_name, f"{_WHAT[unit_name]}, over all samples.")
    for series in chosen:
        values = series.distribution()
        divisor = 1e9 if unit_name == "seconds" else 1.0
        pairs = _series_pairs(series)
        for q in _QUANTILES:
            at_quantile = values.quantile(q)
            if at_quantile is not None:
                shown = [*pairs, ("quantile", _number(float(q)))]
                yield f"{summary}{_pairs(shown)} {_number(at_quantile / divisor)}"
        yield f"{summary}_count{_pairs(pairs)} {values.n}"
        yield f"{summary}_sum{_pairs(pairs)} {_number(values.total() / divisor)}"
        smallest.append((pairs, values.min / divisor))
        largest.append((pairs, values.max / divisor))
    for which, extremes in (("min", smallest), ("max", largest)):
        name = f"klat_sample_{which}_{unit_name}"
        yield from _family(name, "gauge", unit_name, f"{_WHAT[unit_name]}, {which} of all samples.")
        for pairs, value in extremes:
            yield f"{name}{_pairs(pairs)} {_number(value)}"


def _runs(exported: ExportedRuns) -> Iterator[str]:
    yield from _family("klat_runs", "gauge", "", "Runs by status; ok and disturbed are usable.")
    counts: dict[tuple[tuple[str, str], ...], Counter[str]] = {}
    for label in exported.labels:
        for source in label.sources:
            for row in source.session.worst_rows():
                if row.benchmark in (exported.benchmarks or (row.benchmark,)):
                    params = run_params(source, row)
                    pairs = _label_pairs(label) + _setting_pairs(
                        row.benchmark, row.placement, params
                    )
                    counts.setdefault(tuple(pairs), Counter())[row.status] += 1
    for shared, statuses in counts.items():
        for status in STATUSES:
            yield f"klat_runs{_pairs([*shared, ('status', status)])} {statuses[status]}"


def _labels(exported: ExportedRuns) -> Iterator[str]:
    yield from _family("klat_boots", "gauge", "", "Boots in which a metric was measured.")
    for series in exported.series:
        yield f"klat_boots{_pairs(_series_pairs(series))} {series.measurement.boots}"
    yield from _family("klat_label", "info", "", "What a label was measured on.")
    pools: dict[str, None] = {}
    for label in exported.labels:
        more = [(key, info(label, key)) for key in ("preemption", "architecture")]
        more.append(("unit", _UNITS.get(label.figure_unit, label.figure_unit)))
        pools[f"klat_label_info{_pairs([*_label_pairs(label), *more])} 1"] = None
    yield from pools


def _label_pairs(label: Dataset) -> Pairs:
    """The labels of a pool of sessions."""
    return [
        ("label", label.name),
        ("kernel", info(label, "kernel_release")),
        ("kernel_version", info(label, "kernel_version")),
        ("machine", info(label, "machine_id")),
        ("cpu", info(label, "cpu_model")),
        ("mode", label.mode),
        *load_of(label).items(),
    ]


def _setting_pairs(benchmark: str, placement: str, params: dict[str, str]) -> Pairs:
    others = ";".join(f"{key}={value}" for key, value in params.items() if key != "policy")
    measured = [("benchmark", benchmark), ("placement", placement)]
    return [*measured, ("policy", params.get("policy", "")), ("params", others)]


def _series_pairs(series: MetricRuns) -> Pairs:
    setting = series.setting
    pairs = _label_pairs(series.label)
    pairs += _setting_pairs(setting.benchmark, setting.placement, series.params)
    return [*pairs, ("metric", series.metric)]


def _pairs(pairs: Pairs) -> str:
    return "{" + ",".join(f'{key}="{_escaped(printable(text))}"' for key, text in pairs) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return repr(float(f"{value:.12g}"))
