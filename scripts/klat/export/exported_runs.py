"""What there is to export of some sessions: each metric's usable runs, with their unit and scale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from pathlib import Path
from typing import Any

from klat.base.errors import KlatError
from klat.base.grouping import grouped
from klat.compare.conditions import NONE, RUN
from klat.compare.dataset import Dataset, read_datasets
from klat.compare.runs import Runs, merged_distribution
from klat.compare.settings import Setting
from klat.compare.sources import Run, Source
from klat.record import renamed_metrics
from klat.record.rows import status_counts
from klat.record.session import Row, USABLE, parse_pairs, printable
from klat.stats.distribution import Distribution

# Recorded by a run beside its mean.
FIGURES = ("p50", "p90", "p99", "max")


@dataclass(frozen=True)
class MetricRuns:
    """The usable runs of one metric of one setting of one label, in order of start; at least one."""

    label: Dataset
    setting: Setting
    measurement: Runs

    @property
    def metric(self) -> str:
        return self.measurement.metric

    @property
    def runs(self) -> list[Run]:
        return self.measurement.runs

    @property
    def unit(self) -> str:
        return self.label.figure_unit

    @property
    def params(self) -> dict[str, str]:
        run = self.runs[0]
        return run_params(run.source, run.row)

    def names(self) -> list[tuple[str, str]]:
        """What distinguishes it from the others of its label and benchmark, as (key, value). Nothing of it depends on
        the other runs of the label."""
        placed = {"metric": self.metric, "placement": self.setting.placement}
        return [(k, v) for k, v in (placed | self.params | load_of(self.label)).items() if v]

    def distribution(self) -> Distribution:
        """All samples in `unit`. SessionError where some are missing."""
        by_scale = grouped(self.runs, attrgetter("source.scale"))
        return Distribution.merged(
            merged_distribution(runs) if factor == 1 else merged_distribution(runs).times(factor)
            for factor, runs in by_scale.items()
        )


@dataclass(frozen=True)
class ExportedRuns:
    """`left_out` counts the runs that are in no series, by status."""

    labels: tuple[Dataset, ...]
    series: tuple[MetricRuns, ...]
    left_out: Counter[str]
    problems: tuple[str, ...]
    unmeasurable: tuple[str, ...] = ()  # a sentence for each program and label
    benchmarks: Sequence[str] = ()  # only these; empty for all

    def of(self, label: Dataset) -> list[MetricRuns]:
        return [series for series in self.series if series.label is label]


def run_params(source: Source, row: Row) -> dict[str, str]:
    """The params and all conditions of a run, so that its name is the same in every export."""
    conditions = source.run_conditions(row)._asdict()
    policies = set(parse_pairs(row.policy).values())
    if len(policies) == 1:  # of all roles
        conditions["policy"] = policies.pop()
    shown = {name: value.replace(";", ",") for name, value in conditions.items() if value}
    return {"policy": shown.pop("policy", "")} | parse_pairs(row.params) | shown


def load_of(label: Dataset) -> dict[str, str]:
    """The background load, which the sessions of a label can differ in on purpose; empty if there was none."""
    load = label.sources[0].values.get(("load", RUN["load"]), NONE)
    return {} if load == NONE else {"load": load}


def require_distinct(
    exported: ExportedRuns, form: str, name: Callable[[MetricRuns], object]
) -> None:
    """KlatError if two series have one name: sessions of their label differ in what no name says."""
    named: dict[object, MetricRuns] = {}
    for series in exported.series:
        other = named.setdefault(name(series), series)
        if other is not series:
            kinds = " | ".join(s.label.apart_text or "no difference" for s in (other, series))
            raise KlatError(
                f"label {series.label.name}: {series.setting.benchmark} {series.metric} was measured under"
                f" conditions that klat compare does not combine ({kinds}), and names in {form} do not say"
                " which; export the sessions of each kind into a file of their own"
            )


def figure(run: Run, name: str) -> Any:
    """A figure of runs.csv in the unit of the run's series, exact if that is the recorded unit; None where n does not
    support it."""
    recorded, scale = getattr(run.row, name), run.source.scale
    return recorded if recorded is None or scale == 1 else float(recorded) * scale


def digits(value: float | Decimal) -> str:
    """With three decimals. A float from 10^15 on has no exact last digit."""
    is_inexact = isinstance(value, float) and value >= 1e15
    return f"{value:.12g}" if is_inexact else f"{Decimal(value):.3f}"


def mean(run: Run) -> Any:
    value = figure(run, "mean")
    if value is None:
        path = printable(str(run.source.session.path))
        raise KlatError(f"{path}: line {run.row.line} of runs.csv has samples, but no mean")
    return value


def read_runs(
    paths: Iterable[Path], benchmarks: Sequence[str] = (), metrics: Sequence[str] = ()
) -> ExportedRuns:
    """Every usable run below the paths; of these benchmarks and metrics only, where any is named.

    KlatError where that leaves nothing, SessionError as read_datasets().
    """
    labels, problems = read_datasets(paths)
    _check_benchmarks(benchmarks, (s.benchmark for label in labels for s in label.settings))
    chosen = [
        (label, setting)
        for label in labels
        for setting in label.settings
        if not benchmarks or setting.benchmark in benchmarks
    ]
    renamed_metrics.require(metrics, ((s.benchmark, n) for _, s in chosen for n in s.measurements))
    series = tuple(
        MetricRuns(label, setting, measurement)
        for label, setting in chosen
        for metric, measurement in setting.measurements.items()
        if measurement.runs and renamed_metrics.is_asked(metrics, setting.benchmark, metric)
    )
    left_out: Counter[str] = Counter()
    for _, setting in chosen:
        left_out += Counter({s: n for s, n in setting.statuses.items() if s not in USABLE})
    unmeasurable = tuple(
        f"label {label.full_name}, mode {label.mode}: {line}"
        for label in labels
        for line in label.unmeasurable_lines(metrics, benchmarks)
    )
    if not series:
        reasons = [*([status_counts(left_out)] if left_out else []), *unmeasurable]
        why = f" ({'; '.join(reasons)})" if reasons else ""
        raise KlatError(f"no run counts{why}, so there is nothing to export")
    kept = tuple(label for label in labels if any(s.label is label for s in series))
    return ExportedRuns(kept, series, left_out, tuple(problems), unmeasurable, benchmarks)


def _check_benchmarks(asked: Sequence[str], recorded: Iterable[str]) -> None:
    known = dict.fromkeys(recorded)
    for name in asked:
        if name not in known:
            there = ", ".join(map(printable, known)) or "none"
            raise KlatError(f"no session has the benchmark {name!r}; there are {there}")


def only_label(exported: ExportedRuns, name: str) -> Dataset:
    """The label, for a format whose files hold one. KlatError if there are several."""
    if len(exported.labels) > 1:
        shown = ", ".join(
            f"{label.full_name} on Linux {label.kernel}" for label in exported.labels[:4]
        )
        more = ", ..." if exported.labels[4:] else ""
        raise KlatError(
            f"a file of {name} holds one label on one kernel under the same conditions, and there are"
            f" {len(exported.labels)}: {shown}{more}; export each into a file of its own"
        )
    return exported.labels[0]


def require_time(label: Dataset, name: str) -> None:
    """KlatError if the samples of the label are not times, for a format that has only times."""
    if label.figure_unit != "ns":
        raise KlatError(
            f"{name} holds times, and label {label.name} is in {label.unit} of mode {label.mode},"
            " which are none; gobench, pyperf, hgrm, openmetrics and parquet can say so"
        )


def info(label: Dataset, key: str) -> str:
    """A text of session.json in one printable line; `unknown` if it is missing."""
    return printable(" ".join(str(label.info.get(key) or "unknown").split()))


def escaped(text: str, unwanted: Callable[[str], bool]) -> str:
    """With unwanted characters, and those that are not printable, as in an URL: %2F."""
    return "".join(
        "".join(f"%{byte:02X}" for byte in c.encode("utf-8", "surrogatepass"))
        if c == "%" or unwanted(c) or not c.isprintable()
        else c
        for c in text
    )
