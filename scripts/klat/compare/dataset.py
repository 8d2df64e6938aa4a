"""The one model of recorded runs, which summary, plot, compare, export, history and plan read.

A `Dataset` is the sessions of one label. It gives their runs in two forms: `cells`, the runs of
each metric by boot and pair, for verdicts, history and plans; and `settings`, the runs of each
setting with their statistics, for tables, figures and exports. Sessions that compare refuses within
a side are never pooled: `Dataset.pools` separates them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from klat.base.bounded_read import read_regular
from klat.base.errors import KlatError
from klat.compare.conditions import (
    NONE,
    RUN,
    RunConditions,
    Distinctions,
    alike,
    of_kernel,
)
from klat.compare.machines import unify_machine_ids
from klat.compare.session_problems import frequency_errors, frequency_problems, same_samples
from klat.compare.settings import Setting, grouped_settings, order_of_metric, split_params
from klat.compare.sources import Run, Source, place_of, read_sources
from klat.record import profiles, renamed_metrics
from klat.record.json_files import LARGEST_PLAN
from klat.record.plan_csv import from_csv
from klat.record.session import (
    NOT_MEASURABLE,
    USABLE,
    Row,
    Session,
    SessionError,
    printable,
)
from klat.record.session_directory import PLAN

# Benchmark, params, placement, metric.
Key = tuple[str, str, str, str]
key_of = attrgetter("benchmark", "params", "placement", "metric")
_status_of = attrgetter("status")
UnitKey = tuple[str, str]  # boot, pair
Kind = TypeVar("Kind")


@dataclass(eq=False)
class CellRuns:
    """The runs of one metric. `values` holds every value of each condition in the runs that count."""

    statuses: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)  # of the runs that do not count
    units: dict[UnitKey, list[Run]] = field(default_factory=dict)
    uncounted: list[Run] = field(default_factory=list)
    values: dict[tuple[str, str], dict[str, None]] = field(default_factory=dict)

    @cached_property
    def runs(self) -> list[Run]:
        """The runs that count, once `units` has them all."""
        return [run for unit in self.units.values() for run in unit]

    @cached_property
    def lengths(self) -> set[int]:
        """How many samples the runs have."""
        return {run.row.n or 0 for run in self.runs}

    @cached_property
    def step(self) -> float:
        """The largest step of a counter in the runs, in the unit of figures."""
        return max((source.step for source in {run.source for run in self.runs}), default=0.0)

    @property
    def boots(self) -> int:
        """The number of boots with a run that counts."""
        return len({boot for boot, _ in self.units})

    def parts(self, kind_of: Callable[[Run], Kind]) -> dict[Kind, CellRuns]:
        """The runs by their kind, the most frequent kind first. The first part also has the runs
        that do not count. A pair is left out of a kind if one of its turns has no run of that kind.
        """
        if len(kinds := set(map(kind_of, self.runs))) == 1:
            return {kind: self for kind in kinds}
        by_kind: dict[Kind, CellRuns] = {}
        for unit, runs in self.units.items():
            for run in runs:
                part = by_kind.setdefault(kind_of(run), CellRuns(values=self.values))
                part.units.setdefault(unit, []).append(run)
        for part in by_kind.values():
            part.units = {
                unit: runs
                for unit, runs in part.units.items()
                if _is_whole(runs) or not _is_whole(self.units[unit])
            }
            part.statuses.update(run.row.status for run in part.runs)
        ordered = sorted(by_kind.items(), key=lambda item: -item[1].statuses.total())
        for _, part in ordered[:1]:
            part.reasons = self.reasons if part.units else Counter(["no pair is of one kind"])
            part.statuses += Counter({s: n for s, n in self.statuses.items() if s not in USABLE})
        return dict(ordered)

    def by_run_conditions(self) -> dict[RunConditions, CellRuns]:
        """The parts whose runs may be in one figure."""
        return self.parts(lambda run: run.conditions)

    def _add(self, rows: Sequence[Row], source: Source) -> None:
        """The rows of one session."""
        self.statuses.update(map(_status_of, rows))
        for row in rows:
            if row.usable:
                pair = source.pairing.of_order(row.order) if source.pairing else ""
                self.units.setdefault((row.boot, pair), []).append(Run(row, source))
            else:
                self.uncounted.append(Run(row, source))
                self.reasons[row.reason or "no reason was recorded"] += 1

    def _complete(self, benchmark: str, params: str) -> None:
        """After the last run."""
        for conditions in {run.conditions: None for runs in self.units.values() for run in runs}:
            for name, value in conditions.values(benchmark).items():
                self.values.setdefault(name, {})[value] = None
        _, opts = split_params(params)
        self.values |= {(name, f"the option {name}"): {value: None} for name, value in opts.items()}
        self.units = dict(map(_whole_pair, self.units.items()))
        for runs in self.units.values():
            runs.sort(key=place_of)


@dataclass
class Dataset:
    """Sessions of one label in the order taken. Each is a boot or a part of one. `apart` names the
    conditions that separate them from other sessions of the label. `problems` are sentences on
    damage."""

    sources: list[Source]
    apart: Distinctions = ()
    path: Path = Path()
    problems: list[str] = field(default_factory=list)

    @property
    def sessions(self) -> list[Session]:
        return [source.session for source in self.sources]

    @property
    def info(self) -> dict[str, Any]:
        """session.json of the first session. Pooled sessions agree in what reports show of it."""
        return self.sources[0].session.info

    @property
    def name(self) -> str:
        return printable(self.sources[0].session.label)

    @property
    def apart_text(self) -> str:
        """`load: populate, governor: performance`."""
        return ", ".join(f"{key}: {value}" for key, value in self.apart)

    @property
    def full_name(self) -> str:
        """The label's name, with the conditions that separate it from other sessions of the label."""
        return f"{self.name} ({self.apart_text})" if self.apart else self.name

    @property
    def under(self) -> list[str]:
        """The load, the prefix and so on of all sessions."""
        values = self.sources[0].values
        apart = dict(self.apart)
        recorded = [(key, values.get((key, name), NONE)) for key, name in RUN.items()]
        return [f"{key}: {value}" for key, value in recorded if value != NONE and key not in apart]

    @property
    def kernel(self) -> str:
        return printable(str(self.info.get("kernel_release") or "unknown kernel"))

    @property
    def mode(self) -> str:
        return self.sources[0].session.mode

    @property
    def unit(self) -> str:
        """The unit of the samples as recorded: ticks or instructions."""
        return self.sources[0].session.unit

    @property
    def figure_unit(self) -> str:
        """The unit of figures: ns, ticks where ticks are no time, or instructions."""
        return self.sources[0].session.figure_unit

    @property
    def khz(self) -> float | None:
        """Ticks per millisecond, the mean of the sessions' calibrations; None where time means
        nothing."""
        rates = [session.khz for session in self.sessions if session.khz is not None]
        return sum(rates) / len(rates) if rates else None

    @property
    def quantum(self) -> int:
        return max(session.quantum for session in self.sessions)

    @property
    def step(self) -> int:
        """The smallest difference between two samples."""
        return max(session.step for session in self.sessions)

    def nanoseconds(self, value: float) -> float | None:
        return value * 1e6 / self.khz if self.khz else None

    @property
    def first_of_boots(self) -> dict[str, Source]:
        """The first session of each boot, in the order taken."""
        by_boot: dict[str, Source] = {}
        for source in self.sources:
            by_boot.setdefault(source.session.boot_id, source)
        return by_boot

    @property
    def boot_ids(self) -> list[str]:
        return list(self.first_of_boots)

    @property
    def boots(self) -> int:
        return len(self.boot_ids)

    @property
    def boots_of_metrics(self) -> list[int]:
        """The numbers of boots in which a metric was measured."""
        counts = {m.boots for setting in self.settings for m in setting.measurements.values()}
        return sorted(counts - {0})

    @property
    def planned(self) -> tuple[int, int]:
        """The number of planned runs that are recorded, and of all planned runs, over the sessions
        that have a plan."""
        recorded = planned = 0
        for session in self.sessions:
            try:
                data = read_regular(session.path / PLAN, LARGEST_PLAN)
                runs = from_csv(data.decode("utf-8"))
            except (FileNotFoundError, UnicodeError, KlatError, SessionError):
                continue  # no figure rests on the plan
            planned += len(runs)
            recorded += len(session.completed_orders() & {run.order for run in runs})
        return recorded, planned

    @cached_property
    def settings(self) -> list[Setting]:
        """Only for sessions that may be pooled."""
        return grouped_settings(self.sources)

    @property
    def cells(self) -> dict[Key, CellRuns]:
        """The metrics that have figures, or could have."""
        return self._by_key[0]

    @property
    def failed(self) -> dict[Key, CellRuns]:
        """The runs that ended before they had a metric, which is empty in their keys."""
        return self._by_key[1]

    @property
    def unmeasurable(self) -> tuple[Key, ...]:
        """The metrics that have no number in this mode."""
        return self._by_key[2]

    @cached_property
    def _by_key(self) -> tuple[dict[Key, CellRuns], dict[Key, CellRuns], tuple[Key, ...]]:
        cells: dict[Key, CellRuns] = defaultdict(CellRuns)
        failed: dict[Key, CellRuns] = defaultdict(CellRuns)
        unmeasurable = set()
        for source in self.sources:
            by_key: dict[Key, list[Row]] = {}
            for row in source.session.rows:
                by_key.setdefault(key_of(row), []).append(row)
            for key, rows in by_key.items():
                measured = [row for row in rows if row.n or source.session.measurable(row)]
                if len(measured) < len(rows):
                    unmeasurable.add(key)
                if measured:
                    (cells if key[3] else failed)[key]._add(measured, source)
        for key, cell in cells.items():
            cell._complete(key[0], key[1])
        first = profiles.first_metrics(source.profile for source in self.sources)
        by_order = partial(order_of_metric, first)
        ordered = [
            {key: keyed[key] for key in sorted(keyed, key=by_order)} for keyed in (cells, failed)
        ]
        return ordered[0], ordered[1], tuple(sorted(unmeasurable, key=by_order))

    def unmeasurable_lines(
        self, metrics: Sequence[str] = (), benchmarks: Sequence[str] = ()
    ) -> list[str]:
        """A sentence for each program with metrics that have no number in this mode. Empty
        `metrics` and `benchmarks` mean all."""
        left: dict[str, dict[str, None]] = {}
        for benchmark, _, _, metric in self.unmeasurable:
            if renamed_metrics.is_asked(metrics, benchmark, metric) and benchmark in (
                benchmarks or [benchmark]
            ):
                left.setdefault(printable(benchmark), {})[printable(metric)] = None
        return [f"{NOT_MEASURABLE}: {name} {', '.join(ms)}" for name, ms in left.items()]

    def known_metrics(self) -> list[tuple[str, str]]:
        """The benchmarks and their metrics, with a figure or without."""
        keys = (*self.cells, *self.unmeasurable)
        return list(dict.fromkeys((key[0], key[3]) for key in keys))

    def pools(self, across_kernels: bool = False) -> list[Dataset]:
        """The sessions in groups that compare accepts as one side."""
        values = [s.values | ({} if across_kernels else of_kernel(s.session)) for s in self.sources]
        return [
            replace(self, sources=[self.sources[place] for place in places], apart=apart)
            for places, apart in alike(values)
        ]

    def by_session(self) -> list[Dataset]:
        """Each session by itself."""
        return [replace(self, sources=[source]) for source in self.sources]


def read_datasets(paths: Iterable[Path | str]) -> tuple[list[Dataset], list[str]]:
    """Every session below the paths, in pools of one label, and sentences on problems.

    SessionError if a path leads to no session, or if no session has a run.
    """
    by_label, problems = read_sources(paths)
    labels, of_machines = unify_machine_ids(by_label.values())
    problems += of_machines
    datasets = [pool for sources in labels for pool in Dataset(sources).pools()]
    for dataset in datasets:
        problems += frequency_problems(dataset.full_name, dataset.sessions)
    problems += same_samples([session for dataset in datasets for session in dataset.sessions])
    return datasets, problems


def with_metrics(datasets: Sequence[Dataset], metrics: Sequence[str]) -> list[Dataset]:
    """Those with these metrics. Their settings lose the others, and keep runs that failed before they
    had any, if their program may have these. KlatError if no dataset has such a metric."""
    settings = [setting for dataset in datasets for setting in dataset.settings]
    renamed_metrics.require(
        metrics, ((s.benchmark, name) for s in settings for name in s.measurements)
    )
    for dataset in datasets:
        kept = []
        for setting in dataset.settings:
            chosen = {
                name: measurement
                for name, measurement in setting.measurements.items()
                if renamed_metrics.is_asked(metrics, setting.benchmark, name)
            }
            may_have = any(m.rpartition(".")[0] in ("", setting.benchmark) for m in metrics)
            if chosen or (may_have and not setting.measurements):
                kept.append(setting)
            setting.measurements = chosen
        dataset.settings[:] = kept
    return [dataset for dataset in datasets if dataset.settings]


def read_dataset(path: Path) -> Dataset:
    """All sessions of the one label at a path, whether they may be pooled or not.

    SessionError if there is no session or none has a run; KlatError if there are several labels.
    """
    by_label, problems = read_sources(path)
    labels = [printable(label) for label in by_label]
    if len(labels) > 1:
        shown = ", ".join(labels[:4]) + (", ..." if labels[4:] else "")
        raise KlatError(
            f"{printable(str(path))}: holds {len(labels)} labels, {shown}; give one of them"
        )
    (sources,) = by_label.values()
    problems += frequency_errors(source.session for source in sources)
    return Dataset(sources, path=path, problems=problems)


def _whole_pair(item: tuple[UnitKey, list[Run]]) -> tuple[UnitKey, list[Run]]:
    """A unit in which a turn is missing gets a name of its own, so it finds no partner."""
    (boot, pair), runs = item
    if not _is_whole(runs):
        pair = f"{pair}, incomplete in {runs[0].source.session.label}"
    return (boot, pair), runs


def _is_whole(runs: Sequence[Run]) -> bool:
    """Whether the runs of one pair are of each of its turns, and its last turn ended."""
    source, orders = runs[0].source, [run.row.order for run in runs]
    return source.pairing is None or source.pairing.is_complete(orders, source.last_order)
