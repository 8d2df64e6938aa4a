"""pyperf's JSON (version 1.0), read by its library and its commands.

A run of klat is a run of pyperf, a process. It has one value, the mean of its samples, and `loops` is their
number: pyperf takes values as independent, and samples are not. Ticks and instructions that are not time
have pyperf's unit `integer`, and the metadata `klat_unit` names it. A file holds one label, because pyperf
compares files.
"""

from __future__ import annotations

import json
from decimal import Decimal
from datetime import datetime, timezone
from typing import Any, BinaryIO

from klat import __version__
from klat.base.errors import KlatError
from klat.export.exported_runs import FIGURES, ExportedRuns, MetricRuns, figure, info, mean
from klat.export.exported_runs import only_label
from klat.compare.dataset import Dataset
from klat.record.session import printable
from klat.compare.sources import Run

_SECONDS = 1e-9


def write(exported: ExportedRuns, out: BinaryIO) -> None:
    label = only_label(exported, "pyperf")
    benchmarks = [_benchmark(series) for series in exported.series]
    document = {"benchmarks": benchmarks, "metadata": _metadata(label), "version": "1.0"}
    text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False)
    out.write(f"{text}\n".encode())


def _metadata(label: Dataset) -> dict[str, Any]:
    """No value may be empty."""
    return {
        "klat_version": __version__,
        "klat_label": label.name.strip() or "unknown",
        "klat_mode": label.mode,
        "klat_kernel_version": info(label, "kernel_version"),
        "klat_preemption": info(label, "preemption"),
        "platform": f"Linux-{info(label, 'kernel_release')}-{info(label, 'architecture')}",
        "hostname": info(label, "machine_id"),
        "cpu_model_name": info(label, "cpu_model"),
    }


def _benchmark(series: MetricRuns) -> dict[str, Any]:
    setting = series.setting
    values = " ".join(f"{k}={v}" for k, v in series.names()[1:])
    is_time = series.unit == "ns"
    return {
        "metadata": {
            "name": printable(f"{setting.benchmark} {series.metric} {values}".strip()),
            "unit": "second" if is_time else "integer",
            "klat_boots": series.measurement.boots,
            "klat_unit": "seconds" if is_time else series.unit,
        },
        "runs": [_run(series, run) for run in series.runs],
    }


def _run(series: MetricRuns, run: Run) -> dict[str, Any]:
    value = _value(series, mean(run))
    if value <= 0:
        path = printable(str(run.source.session.path))
        raise KlatError(f"{path}: the mean of a run of {series.metric} is 0, which pyperf refuses")
    started = datetime.fromtimestamp(run.row.start_ns // 10**9, timezone.utc)
    metadata: dict[str, Any] = {
        "loops": run.row.n,
        "date": f"{started:%Y-%m-%d %H:%M:%S}.{run.row.start_ns // 1000 % 10**6:06}",
        "klat_status": run.row.status,
        "klat_boot": printable(run.row.boot) or "unknown",
    }
    if run.row.elapsed_ns is not None:
        metadata["duration"] = run.row.elapsed_ns * _SECONDS
    for name in FIGURES:
        recorded = figure(run, name)
        if recorded is not None:
            metadata[f"klat_{name}"] = _value(series, recorded)
    return {"metadata": metadata, "values": [value]}


def _value(series: MetricRuns, recorded: float | Decimal) -> float:
    value = float(recorded)
    return round(value * _SECONDS, 12) if series.unit == "ns" else round(value, 3)
