"""HdrHistogram's percentile distribution, as its outputPercentileDistribution() writes it.

Over all samples of all usable runs, at the percentiles that HdrHistogram reports with five ticks
for every half of the distance to 100 %, each with the exact sample in place of a bucket's. Values
are microseconds, or ticks or instructions if these are not time. The last comment names the unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import BinaryIO

from klat import __version__
from klat.base.errors import KlatError
from klat.base.file_names import unique_file_name
from klat.export.exported_runs import ExportedRuns, MetricRuns
from klat.report.text.numbers import plural
from klat.record.session import printable
from klat.stats.distribution import Distribution

_TICKS = 5


def write(exported: ExportedRuns, out: BinaryIO) -> None:
    """KlatError if there are several distributions: a file holds one."""
    if len(exported.series) > 1:
        names = [f"{s.label.name} {s.setting.benchmark} {s.metric}" for s in exported.series[:3]]
        held = printable(", ".join([*names, *["..."] * (len(exported.series) > 3)]))
        raise KlatError(
            f"a file of hgrm holds one distribution, and there are {len(exported.series)} ({held});"
            " choose with --benchmark and --metric, or give a directory, -o DIR/"
        )
    out.write(_distribution(exported.series[0]))


def files(exported: ExportedRuns) -> Iterator[tuple[str, bytes]]:
    """Name and content of one file for each distribution."""
    taken: set[str] = set()
    for series in exported.series:
        name = unique_file_name("-".join(_parts(series, exported)), taken, ".hgrm")
        yield name, _distribution(series)


def _parts(series: MetricRuns, exported: ExportedRuns) -> list[str]:
    """Label, benchmark and metric, and what else is not the same in all of these."""
    alike = [
        dict(other.names())
        for other in exported.series
        if (other.setting.benchmark, other.metric) == (series.setting.benchmark, series.metric)
    ]
    own = [
        f"{key}-{value}"
        for key, value in series.names()
        if any(other.get(key) != value for other in alike)
    ]
    return [series.label.name, series.setting.benchmark, series.metric, *own]


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
        lines.append(f"{value:12.3f} {share:2.12f} {count:10d}{inverse}")
    lines += [
        f"#[Mean    = {values.mean():12.3f}, StdDeviation   = {values.deviation():12.3f}]",
        f"#[Max     = {values.max:12.3f}, Total count    = {values.n:12d}]",
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
    yield float(values.max), 1.0, n
