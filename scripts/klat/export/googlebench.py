"""The JSON of Google Benchmark (its docs/user_guide.md, Output Formats), for its tools/compare.py.

A run is a repetition: `real_time` is the mean of its samples, `iterations` their number, and the
run's quantiles are counters. klat measures no CPU time: the readers demand `cpu_time`, which is 0.
A file holds one label, as the readers compare files. Times only.
"""

from __future__ import annotations

import json
import statistics
from datetime import datetime, timezone
from typing import Any, BinaryIO

from klat import __version__
from klat.export.exported_runs import FIGURES, ExportedRuns, MetricRuns, escaped, figure, info, mean
from klat.export.exported_runs import only_label, require_time
from klat.compare.dataset import Dataset
from klat.report.text.numbers import boots

_NAME = "googlebench"


def write(exported: ExportedRuns, out: BinaryIO) -> None:
    label = only_label(exported, _NAME)
    require_time(label, _NAME)
    families = (_entries(i, series) for i, series in enumerate(exported.series))
    benchmarks = [entry for entries in families for entry in entries]
    document = {"context": _context(label), "benchmarks": benchmarks}
    out.write((json.dumps(document, indent=2, allow_nan=False) + "\n").encode())


def _context(label: Dataset) -> dict[str, Any]:
    started = min(row.start_ns for session in label.sessions for row in session.rows)
    cpus = label.info.get("cpus_online")
    return {
        "date": datetime.fromtimestamp(started // 10**9, timezone.utc).isoformat(),
        "host_name": info(label, "machine_id"),
        "executable": "klat",
        "num_cpus": cpus if isinstance(cpus, int) else 0,
        "mhz_per_cpu": round((label.khz or 0.0) / 1000),
        "caches": [],
        "load_avg": [],
        "library_version": f"klat {__version__}",
        "library_build_type": "release",
        "json_schema_version": 1,
        "label": label.name,
        "kernel": info(label, "kernel_release"),
        "kernel_version": info(label, "kernel_version"),
        "preemption": info(label, "preemption"),
        "cpu_model": info(label, "cpu_model"),
        "mode": label.mode,
        "boots": boots(label.boots_of_metrics),
        "cpu_time": "not measured",
    }


def _entries(family: int, series: MetricRuns) -> list[dict[str, Any]]:
    name = _name(series)
    times = [float(mean(run)) for run in series.runs]
    shared = {
        "name": name,
        "family_index": family,
        "per_family_instance_index": 0,
        "run_name": name,
        "run_type": "iteration",
        "repetitions": len(times),
        "threads": 1,
    }
    entries: list[dict[str, Any]] = []
    for index, (run, time) in enumerate(zip(series.runs, times)):
        counters = {key: figure(run, key) for key in FIGURES}
        entries.append(
            shared
            | {"repetition_index": index, "iterations": run.row.n}
            | {"real_time": round(time, 3), "cpu_time": 0.0, "time_unit": "ns"}
            | {f"{key}_ns": round(float(v), 3) for key, v in counters.items() if v is not None}
        )
    return entries + [
        shared
        | {"name": f"{name}_{aggregate}", "run_type": "aggregate", "aggregate_name": aggregate}
        | {"aggregate_unit": "percentage" if aggregate == "cv" else "time"}
        | {"iterations": len(times), "real_time": value, "cpu_time": 0.0, "time_unit": "ns"}
        for aggregate, value in _aggregates(times).items()
    ]


def _aggregates(times: list[float]) -> dict[str, float]:
    """Over runs, and of several only, as Google Benchmark has it."""
    if len(times) < 2:
        return {}
    average, deviation = statistics.fmean(times), statistics.stdev(times)
    aggregates = {"mean": average, "median": statistics.median(times), "stddev": deviation}
    aggregates = {name: round(value, 3) for name, value in aggregates.items()}
    return aggregates | ({"cv": round(deviation / average, 9)} if average else {})


def _name(series: MetricRuns) -> str:
    parts = [series.setting.benchmark, *(f"{key}:{value}" for key, value in series.names())]
    return "/".join(escaped(part, lambda c: c == "/") for part in parts)
