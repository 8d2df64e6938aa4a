"""Soaks for other programs: how their figures drift, and their longest samples with the times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klat.compare.dataset import Dataset
from klat.compare.settings import Measurement
from klat.compare.soaks import Delay, SoakReport, soak_reports, soaks_together
from klat.report.tables.comparison_tables import plain

_DRIFTS = {"median": "median", "p99.9": "p999", "max": "max"}
_ENDS = tuple(f"{name}_{end}" for name in _DRIFTS.values() for end in ("first", "last"))
# Of a soak, and of its longest sample. Only if something soaked.
SOAK_COLUMNS = (
    "soaked_s asked_s segments".split()
    + [*_ENDS, *(f"{name}_ns" for name in _ENDS)]
    + "longest_time_ns longest_cpu longest_segment longest_samples".split()
)


def soak_cells(
    label: Dataset, measurement: Measurement, failed: Callable[[str], None]
) -> dict[str, Any]:
    """Empty if the line is of no soak, or of several."""
    reports = list(soak_reports(measurement, failed))
    if len(reports) != 1:
        return {}
    (report,) = reports
    found: dict[str, Any] = {
        "soaked_s": report.seconds,
        "asked_s": report.asked_s,
        "segments": report.segments,
    }
    for drift in _drifts(label, report):
        name = _DRIFTS[drift.pop("figure")]
        for key, value in drift.items():
            end, _, unit = key.partition("_")
            found["_".join(filter(None, (name, end, unit)))] = value
    for delay in (report.delays or ())[:1]:
        longest = _delay(label, delay)
        for column in ("time_ns", "cpu", "segment", "samples"):
            found[f"longest_{column}"] = longest[column]
    return found


def soaks_json(
    label: Dataset, measurement: Measurement, failed: Callable[[str], None]
) -> list[dict[str, Any]]:
    """One for each soak of the metric. `longest` is None if the longest samples cannot be read."""
    return [
        {
            "session": str(report.session.path),
            "soaked_s": report.seconds,
            "asked_s": report.asked_s,
            "segments": report.segments,
            "clock_sets": [plain(each) for each in report.clock_sets],
            "drift": _drifts(label, report),
            "longest": None
            if report.delays is None
            else [_delay(label, delay) for delay in report.delays],
        }
        for report in soak_reports(measurement, failed)
    ]


def together_json(label: Dataset, failed: Callable[[str], None]) -> list[dict[str, Any]]:
    return [
        {"session": str(session.path), "metric": each.metric, "cpus": list(each.cpus)}
        | plain(each.found)
        for session in label.sessions
        for each in soaks_together(session, failed)
    ]


def _drifts(label: Dataset, report: SoakReport) -> list[dict[str, Any]]:
    return [
        plain(drift) | _in_ns(label, first=drift.first, last=drift.last) for drift in report.drifts
    ]


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
