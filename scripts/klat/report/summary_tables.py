"""The summary for other programs: one CSV line per metric, or one JSON object."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from klat.compare.dataset import Dataset
from klat.compare.limits import LabelLimits
from klat.compare.sweep_shapes import Shootdown, shootdowns
from klat.compare.settings import Setting
from klat.compare.runs import Runs
from klat.compare.soaks import Delay, SoakReport, soak_reports, soaks_together
from klat.compare.sweeps import Sweep, SweepLine, SweepPoint, sweeps
from klat.record.session import STATUSES
from klat.report.comparison_columns import plain
from klat.report.text.columns import cells


_SAMPLES = ("min", "median", "p90", "p99", "p999", "max")
_AVERAGES = ("average", "stdev")
_INTERVAL = ("median_low", "median_high")
_FIGURES = (*_AVERAGES, *_SAMPLES, *_INTERVAL)

COLUMNS = (
    "label conditions kernel_release mode tsc_khz sessions boots benchmark params placement runs".split()
    + list(STATUSES)
    + "metric unit measurable usable_runs samples floor".split()
    + list(_FIGURES)
    + [f"{name}_ns" for name in ("floor", *_FIGURES)]
)

# Only with a limit. It is in ns where the mode measures time.
LIMIT_COLUMNS = "limit above share share_low share_high verdict".split()


def figures(
    label: Dataset, setting: Setting, measurement: Runs, failed: Callable[[str], None]
) -> dict[str, Any]:
    """Every figure of one metric; None if it is not supported. `_ns` only if the unit is a time."""
    statistics = measurement.readable_statistics(failed)
    row: dict[str, Any] = {"floor": setting.floor}
    for name in (*_AVERAGES, *_SAMPLES):
        row[name] = getattr(statistics, name, None)
    for name in _AVERAGES:
        row[name] = None if row[name] is None else round(row[name], 3)
    interval = statistics.median_interval if statistics else None
    row |= dict(zip(_INTERVAL, interval or (None, None)))
    if label.khz:
        row |= {
            f"{name}_ns": None if value is None else round(label.nanoseconds(value) or 0.0, 3)
            for name, value in list(row.items())
        }
    return {
        "usable_runs": statistics.runs if statistics else None,
        "samples": statistics.samples if statistics else None,
    } | row


def write_csv(
    labels: Sequence[Dataset],
    out: TextIO,
    failed: Callable[[str], None],
    limits: LabelLimits | None = None,
) -> None:
    soaked = any(setting.is_soak for label in labels for setting in label.settings)
    columns = (*COLUMNS, *(SOAK_COLUMNS if soaked else ()), *(LIMIT_COLUMNS if limits else ()))
    writer = csv.DictWriter(out, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for label in labels:
        of_label = {
            "label": label.name,
            "conditions": label.apart_text,
            "kernel_release": label.kernel,
            "mode": label.mode,
            "tsc_khz": label.khz,
            "sessions": len(label.sessions),
            "boots": label.boots,
            "unit": label.unit,
        }
        for setting in label.settings:
            values = _setting(label, setting, failed, limits)
            params = ";".join(f"{k}={v}" for k, v in setting.params.items())
            runs = sum(setting.statuses.values())
            shared = of_label | values | values["runs"] | {"params": params, "runs": runs}
            shared |= {"floor": setting.floor}
            for metric in values["metrics"]:
                flat = {"measurable": int(metric["measurable"])}
                flat |= _soak_cells(metric.get("soaks", ())) | _limit_cells(
                    metric.get("limit"), limits
                )
                writer.writerow(cells(shared | metric | flat))
            if not values["metrics"]:
                writer.writerow(cells(shared))


def _limit_cells(side: dict[str, Any] | None, limits: LabelLimits | None) -> dict[str, Any]:
    if not limits or not side:
        return {}
    row = {"limit": limits.limit.value, "verdict": side["verdict"]}
    row |= {name: side[name] for name in ("above", "share")}
    return row | {"share_low": side["low"], "share_high": side["high"]}


def write_json(
    labels: Sequence[Dataset],
    problems: Sequence[str],
    out: TextIO,
    failed: Callable[[str], None],
    limits: LabelLimits | None = None,
) -> None:
    answers = [_label(label, failed, limits) for label in labels]
    document: dict[str, Any] = {"labels": answers, "problems": list(problems)}
    if limits:
        document |= {"limit": plain(limits.limit), "status": limits.status}
    json.dump(document, out, indent=2, allow_nan=False)
    out.write("\n")


def _label(
    label: Dataset, failed: Callable[[str], None], limits: LabelLimits | None
) -> dict[str, Any]:
    return {
        "label": label.sessions[0].label,
        "conditions": dict(label.apart),
        "kernel_release": label.info.get("kernel_release"),
        "mode": label.mode,
        "unit": label.unit,
        "tsc_khz": label.khz,
        "quantum": label.quantum,
        "sessions": [str(session.path) for session in label.sessions],
        "boots": label.boots,
        "settings": [_setting(label, setting, failed, limits) for setting in label.settings],
        "shootdowns": [_shootdown(sweep) for sweep in shootdowns(label.settings)],
        "sweeps": [_sweep(sweep) for sweep in sweeps([label], [label.name])],
        "together": together_json(label, failed),
    }


def _setting(
    label: Dataset, setting: Setting, failed: Callable[[str], None], limits: LabelLimits | None
) -> dict[str, Any]:
    metrics = [m for m in setting.measurements.values() if m.runs or m.is_unmeasurable]
    return {
        "benchmark": setting.benchmark,
        "params": setting.params,
        "placement": setting.placement,
        "runs": {status: setting.statuses[status] for status in STATUSES},
        "reasons": [
            {"status": status, "reason": reason, "count": count}
            for status, reason, count in setting.grouped_reasons()
        ],
        "metrics": [_metric(label, setting, m, failed, limits) for m in metrics],
        "evidence": {name: [low, high] for name, low, high in setting.evidence_ranges()},
    }


def _metric(
    label: Dataset,
    setting: Setting,
    measurement: Runs,
    failed: Callable[[str], None],
    limits: LabelLimits | None,
) -> dict[str, Any]:
    metric = {
        "metric": measurement.metric,
        "measurable": not measurement.is_unmeasurable,
        "boots": measurement.boots,
        **figures(label, setting, measurement, failed),
        "tail": _tail(measurement, failed),
    }
    if soaks := soaks_json(label, measurement, failed):
        metric["soaks"] = soaks
    if side := limits.sides.get(measurement) if limits else None:
        metric["limit"] = plain(side) | {"share": side.share}
    return metric


def _tail(measurement: Runs, failed: Callable[[str], None]) -> list[list[float]]:
    """Pairs of a share and the sample that this share of the samples exceeds at most."""
    statistics = measurement.readable_statistics(failed)
    tail = statistics.tail if statistics else ()
    return [[10.0**-power, value] for power, value in enumerate(tail, 1)]


def _shootdown(sweep: Shootdown) -> dict[str, Any]:
    fit = sweep.fit
    return {
        "metric": sweep.metric,
        "params": sweep.params,
        "points": [
            {"responders": int(p.x), "runs": len(p.runs), "time": p.value} for p in sweep.points
        ],
        "base": sweep.base,
        "slope": fit.slope if fit else None,
        "slope_interval": list(fit.interval) if fit and fit.interval else None,
    }


def _point(sweep: Sweep, line: SweepLine, point: SweepPoint) -> dict[str, Any]:
    interval = line.interval(point)
    return {
        "x": sweep.text(point.x) if sweep.choices else point.x,
        "runs": len(point.runs),
        "value": point.value,
        "interval": list(interval) if interval else None,
    }


def _sweep(sweep: Sweep) -> dict[str, Any]:
    """Times are in the label's unit."""
    return {
        "benchmark": sweep.benchmark,
        "option": sweep.option,
        "quantity": sweep.name or None,
        "by": list(sweep.by),
        "params": sweep.params,
        "lines": [
            {
                "name": line.name,
                "points": [_point(sweep, line, point) for point in line.points],
                "published_ns": [
                    {"x": x, "value": figure.nanoseconds} for x, figure in line.published
                ],
            }
            for line in sweep.lines
        ],
    }


_DRIFTS = {"median": "median", "p99.9": "p999", "max": "max"}
_ENDS = tuple(f"{name}_{end}" for name in _DRIFTS.values() for end in ("first", "last"))
# Of a soak, and of its longest sample. Only if something soaked.
SOAK_COLUMNS = (
    "soaked_s asked_s segments".split()
    + [*_ENDS, *(f"{name}_ns" for name in _ENDS)]
    + "longest_time_ns longest_cpu longest_segment longest_samples".split()
)


def _soak_cells(soaks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Empty if the line is of no soak, or of several."""
    if len(soaks) != 1:
        return {}
    (soak,) = soaks
    row = {column: soak[column] for column in ("soaked_s", "asked_s", "segments")}
    for drift in soak["drift"]:
        name = _DRIFTS[drift["figure"]]
        row |= {f"{name}_{end}": value for end, value in drift.items()}
    for longest in (soak["longest"] or ())[:1]:
        for column in ("time_ns", "cpu", "segment", "samples"):
            row[f"longest_{column}"] = longest[column]
    return row


def soaks_json(
    label: Dataset, measurement: Runs, failed: Callable[[str], None]
) -> list[dict[str, Any]]:
    """One for each soak of the metric. `longest` is None if the longest samples cannot be read."""
    return [
        {
            "session": str(report.session.path),
            "soaked_s": report.seconds,
            "asked_s": report.asked_s,
            "segments": report.segments,
            "clock_sets": [plain(clock_set) for clock_set in report.clock_sets],
            "drift": _drifts(label, report),
            "longest": None
            if report.delays is None
            else [_delay(label, delay) for delay in report.delays],
        }
        for report in soak_reports(measurement, failed)
    ]


def together_json(label: Dataset, failed: Callable[[str], None]) -> list[dict[str, Any]]:
    return [
        {"session": str(session.path), "metric": pair.metric, "cpus": list(pair.cpus)}
        | plain(pair.coincidence)
        for session in label.sessions
        for pair in soaks_together(session, failed)
    ]


def _drifts(label: Dataset, report: SoakReport) -> list[dict[str, Any]]:
    return [plain(d) | _in_ns(label, first=d.first, last=d.last) for d in report.drifts]


def _delay(label: Dataset, delay: Delay) -> dict[str, Any]:
    sample = delay.longest
    return {
        "value": sample.value,
        **_in_ns(label, value=sample.value),
        "time_ns": sample.time_ns,
        "cpu": sample.cpu,
        "segment": sample.row.run,
        "index": sample.index,
        "samples": delay.samples,
        "involuntary": sample.involuntary,
        "steal_ticks": sample.steal_ticks,
        "smi": sample.smi,
    }


def _in_ns(label: Dataset, **values: float) -> dict[str, float]:
    """Only if the unit is a time."""
    if not label.khz:
        return {}
    return {f"{name}_ns": round(label.nanoseconds(v) or 0.0, 3) for name, v in values.items()}
