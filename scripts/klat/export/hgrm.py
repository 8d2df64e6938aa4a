"""HdrHistogram's percentile distribution, as its outputPercentileDistribution() writes it.

Over all samples of all usable runs, at the percentiles that HdrHistogram reports with five ticks
for every half of the distance to 100 %, each with the exact sample in place of a bucket's. Values
are microseconds, or ticks or instructions if these are not time. The last comment names the unit.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import BinaryIO

from klat import __version__
from klat.base.errors import KlatError, unique_file_name
from klat.export.exported_runs import ExportedRuns, MetricRuns, digits, info, require_distinct
from klat.record.session import printable
from klat.report.text.numbers import plural
from klat.stats.distribution import Distribution

_TICKS = 5
# Too long for the name of a file, or in it already.
_HASHED = ("metric", "cpus", "program")


def write(exported: ExportedRuns, out: BinaryIO) -> None:
    """KlatError if there are several distributions: a file holds one."""
    if len(exported.series) > 1:
        names = [f"{s.label.name} {s.setting.benchmark} {s.metric}" for s in exported.series[:3]]
        shown = printable(", ".join([*names, *["..."] * (len(exported.series) > 3)]))
        raise KlatError(
            f"a file of hgrm holds one distribution, and there are {len(exported.series)} ({shown});"
            " choose with --benchmark and --metric, or give a directory, -o DIR/"
        )
    out.write(_distribution(exported.series[0]))


def files(exported: ExportedRuns) -> Iterator[tuple[str, bytes]]:
    """Name and content of one file for each distribution."""
    require_distinct(exported, "hgrm", _identity)
    for series in exported.series:
        identity = hashlib.sha256(_identity(series).encode()).hexdigest()[:8]
        shown = [f"{name}-{value}" for name, value in series.names() if name not in _HASHED]
        parts = [series.label.name, series.setting.benchmark, series.metric, *shown]
        yield unique_file_name("-".join(parts), set(), f"-{identity}.hgrm"), _distribution(series)


def _identity(series: MetricRuns) -> str:
    keys = ("machine_id", "cpu_model", "kernel_release", "kernel_version")
    return " ".join([_title(series), series.label.mode, *(info(series.label, key) for key in keys)])


def _title(series: MetricRuns) -> str:
    named = " ".join(f"{key}={value}" for key, value in series.names())
    return printable(f"{series.label.name} {series.setting.benchmark} {named}")


def _distribution(series: MetricRuns) -> bytes:
    values, unit = series.distribution(), series.unit
    if unit == "ns":
        values, unit = values.times(1 / 1000), "microseconds"
    lines = [f"{'Value':>12} {'Percentile':>14} {'TotalCount':>10} {'1/(1-Percentile)':>14}", ""]
    for value, share, count in _percentiles(values):
        inverse = f" {1 / (1 - share):14.2f}" if share < 1 else ""
        lines.append(f"{digits(value):>12} {share:2.12f} {count:10d}{inverse}")
    lines += [
        f"#[Mean    = {digits(values.mean()):>12}, StdDeviation   = {digits(values.deviation()):>12}]",
        f"#[Max     = {digits(values.max):>12}, Total count    = {values.n:12d}]",
        f"#[Unit    = {unit:>12}, klat           = {__version__:>12}]",
        f"#[{_about(series)}: {_title(series)}, {plural(len(series.runs), series.setting.noun)}]",
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def _about(series: MetricRuns) -> str:
    label = series.label
    return f"Linux {label.kernel}, mode {label.mode}, {plural(series.measurement.boots, 'boot')}"


def _percentiles(values: Distribution) -> Iterator[tuple[float, float, int]]:
    """Value, share and number of samples up to that value, as HdrHistogram's PercentileIterator."""
    n = values.n
    level = 0.0
    while True:
        place = max(0, math.ceil(level / 100 * n - 1e-9) - 1)
        value = values.at(place)
        count = values.up_to(value)
        yield value, level / 100, count
        if count == n:
            break
        level += 100 / (_TICKS * 2 ** (math.floor(math.log2(100 / (100 - level))) + 1))
    yield values.max, 1.0, n
