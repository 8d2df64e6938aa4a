"""The one model of recorded runs, which summary, plot, compare, export, history and plan read.

A `Dataset` is the sessions of one label. It groups their runs in two ways, each group a `Runs`: `cells`
has those of each metric, for verdicts, history and plans; `settings` also separates runs of different
conditions, for tables, figures and exports. Sessions that compare refuses within a side are never
pooled: `Dataset.pools` separates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from klat.base.bounded_read import read_regular
from klat.base.errors import KlatError
from klat.base.grouping import grouped
from klat.compare.conditions import Distinctions, NONE, RECORDED, RUN, alike, of_kernel
from klat.compare.environment_conditions import GUEST
from klat.compare.runs import Runs
from klat.compare.session_problems import frequency_errors, frequency_problems, same_samples
from klat.compare.settings import Setting, grouped_settings, order_of_metric
from klat.compare.sources import Run, Source, place_of, read_sources
from klat.record import profiles, renamed_metrics
from klat.record.json_files import LARGEST_PLAN
from klat.record.plan_csv import from_csv
from klat.record.session import NOT_MEASURABLE, Session, SessionError, printable
from klat.record.session_directory import PLAN

# Benchmark, params, placement, metric.
Key = tuple[str, str, str, str]
key_of = attrgetter("row.benchmark", "row.params", "row.placement", "row.metric")


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
        return grouped_settings(self.sources, self.runs)

    @property
    def cells(self) -> dict[Key, Runs]:
        """The metrics that have figures, or could have."""
        return self._by_key[0]

    @property
    def failed(self) -> dict[Key, Runs]:
        """The runs that ended before they had a metric, which is empty in their keys."""
        return self._by_key[1]

    @property
    def unmeasurable(self) -> tuple[Key, ...]:
        """The metrics that have no number in this mode."""
        return self._by_key[2]

    @property
    def runs(self) -> list[list[Run]]:
        """The runs in the order taken, each with its metrics. Clocks of different boots may have been set to
        one time."""
        boots = {boot: place for place, boot in enumerate(self.boot_ids)}
        runs = [run for source in self.sources for run in source.runs]
        return sorted(runs, key=lambda run: (boots[run[0].row.boot], place_of(run[0])))

    @cached_property
    def _by_key(self) -> tuple[dict[Key, Runs], dict[Key, Runs], tuple[Key, ...]]:
        groups = grouped(chain.from_iterable(self.runs), key_of)
        first = profiles.first_metrics(source.profile for source in self.sources)
        by_key = {k: Runs(groups[k]) for k in sorted(groups, key=partial(order_of_metric, first))}
        tried = {key: runs for key, runs in by_key.items() if runs.runs or runs.uncounted}
        return (
            {key: runs for key, runs in tried.items() if key[3]},
            {key: runs for key, runs in tried.items() if not key[3]},
            tuple(key for key, runs in by_key.items() if runs.is_unmeasurable),
        )

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
    renamed_metrics.require(metrics, ((s.benchmark, n) for s in settings for n in s.measurements))
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


_ID = RECORDED["machine"]
_WITHOUT_RANDOMNESS = ("counted", "emulated")  # guests that begin alike can have one boot id


def unify_machine_ids(sides: Iterable[Sequence[Source]]) -> tuple[list[list[Source]], list[str]]:
    """Returns the sides with one machine id for all sessions of a boot, and warnings. If two ids share a boot, they are
    one machine in all boots. Warns of boots with several ids, and of ids that several machines have.
    """
    of_sides = [list(side) for side in sides]
    sources = [source for side in of_sides for source in side if _id_of(source)]
    machine_of = _machines(sources)
    problems = _overlap_warnings(sources, machine_of)
    if renamed := {m for m, machine in machine_of.items() if m != machine}:
        machines = len(set(machine_of.values()))
        problems.append(
            f"sessions of one boot have several machine ids, as in containers: {len(machine_of)} ids count as"
            f" {machines} machine{'s' if machines > 1 else ''}"
        )
        of_sides = [
            [_renamed(s, machine_of[_id_of(s)]) if _id_of(s) in renamed else s for s in side]
            for side in of_sides
        ]
    return of_sides, problems


def _id_of(source: Source) -> str:
    """The machine id of the session. Empty if none was recorded, or if guests in this mode can have the same id."""
    return (source.session.mode not in _WITHOUT_RANDOMNESS and source.session.info.get(_ID)) or ""


def _machines(sources: Iterable[Source]) -> dict[str, str]:
    """For each machine id, the first id of the same machine."""
    machine_of: dict[str, str] = {}
    first_of_boot: dict[str, str] = {}
    for source in sources:
        machine = _id_of(source)
        old_first = machine_of.setdefault(machine, machine)
        first = machine_of[first_of_boot.setdefault(source.session.boot_id, machine)]
        machine_of |= {m: first for m, first_id in machine_of.items() if first_id == old_first}
    return machine_of


def _overlap_warnings(sources: Iterable[Source], machine_of: dict[str, str]) -> list[str]:
    """A warning for each machine id whose boots overlap in time. One machine cannot run two boots at once, but a clock
    that was set looks the same, and klat lab sets the clocks of its guests."""
    latest: dict[str, tuple[int, str]] = {}
    overlapping: dict[str, tuple[str, str]] = {}
    for source in sorted(
        (s for s in sources if s.is_dated and GUEST not in s.values), key=lambda s: s.span
    ):
        machine, boot = machine_of[_id_of(source)], source.session.boot_id
        start, end = source.span
        busy_until, other = latest.get(machine, (0, boot))
        if start < busy_until and boot != other:
            overlapping.setdefault(machine, (other, boot))
        latest[machine] = max((busy_until, other), (end, boot))
    return [
        f"boots {printable(a)} and {printable(b)} of machine {printable(machine)} overlap in time: several"
        " machines have this id (clones of one image), or the clock was set. klat counts one machine; give each"
        " clone a machine id of its own"
        for machine, (a, b) in overlapping.items()
    ]


def _renamed(source: Source, machine: str) -> Source:
    session = replace(source.session, info=source.session.info | {_ID: machine})
    return replace(source, session=session, values=source.values | {("machine", _ID): machine})
