"""The Go project's benchmark format (golang.org/design/14313-benchmark-format), for benchstat.

A line is a run. Its N is the number of samples and ns/op their mean, as Go means it, and the run's
quantiles are units of their own. In a unit that is no time, `ns` is replaced by that unit.

benchstat makes a table for each set of configuration lines and lets the names of benchmarks be its
rows. So the label is the only such line that is meant to differ, and `benchstat -col label` makes
it the columns; what else may differ between kernels is in comments, or the table would be split;
what makes two machines incomparable (cpu, machine, mode) splits it, as it should.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from klat import __version__
from klat.export.exported_runs import FIGURES, ExportedRuns, MetricRuns, digits, escaped, figure
from klat.export.exported_runs import info, mean, require_distinct
from klat.compare.dataset import Dataset
from klat.report.text.numbers import boots
from klat.compare.sources import Run

# What the Go project calls them.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# Reads as the number of CPUs that a benchmark ran on, at the end of a name.
_CPUS = re.compile(r"-(?=[0-9]+\Z)")


def write(exported: ExportedRuns, out: BinaryIO) -> None:
    lines = [
        f"# klat {__version__}: a line is a run, its N the samples, the value per op their mean.",
        "# Compare labels by: benchstat -col label FILE...",
        "# Runs of one boot are not independent, which benchstat cannot know: klat compare does.",
    ]
    for name in dict.fromkeys(series.unit for series in exported.series):
        units = [f"{name}/op", *(f"{quantile}-{name}" for quantile in FIGURES)]
        lines += [f"Unit {unit} better=lower" for unit in units]
    require_distinct(exported, "gobench", lambda s: (_keys(s.label), _name(s)))
    for label in exported.labels:
        lines += ["", *_configuration(label)]
        for series in exported.of(label):
            lines += [_line(series, run) for run in series.runs]
    out.write("".join(f"{line}\n" for line in lines).encode())


def _keys(label: Dataset) -> tuple[str, ...]:
    architecture = info(label, "architecture")
    return (
        "goos: linux",
        f"goarch: {_ARCHITECTURES.get(architecture, architecture)}",
        f"cpu: {info(label, 'cpu_model')}",
        f"machine: {info(label, 'machine_id')}",
        f"mode: {label.mode}",
        f"label: {' '.join(label.name.split()) or '%20'}",
    )


def _configuration(label: Dataset) -> list[str]:
    return [
        *_keys(label),
        f"# kernel {info(label, 'kernel_release')} {info(label, 'kernel_version')}, preemption"
        f" {info(label, 'preemption')}, {boots(label.boots_of_metrics)}",
        *([] if label.figure_unit == "ns" else [f"# {label.figure_unit} are no time in this mode"]),
    ]


def _line(series: MetricRuns, run: Run) -> str:
    values = [f"{digits(mean(run))} {series.unit}/op"]
    for name in FIGURES:
        value = figure(run, name)
        if value is not None:
            values.append(f"{digits(value)} {name}-{series.unit}")
    return f"{_name(series)} {run.row.n} {' '.join(values)}"


def _name(series: MetricRuns) -> str:
    def part(text: str) -> str:
        return escaped(text, lambda c: c.isspace() or c in "/=")

    name = series.setting.benchmark
    parts = [f"Benchmark{part(name[:1].upper() + name[1:])}"]
    parts += [f"{part(key)}={part(value)}" for key, value in series.names()]
    return _CPUS.sub("%2D", "/".join(parts))
