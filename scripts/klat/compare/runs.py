"""Runs of one metric: any selection of them, whatever it is grouped by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby
from operator import attrgetter
from typing import TypeVar

import numpy as np

from klat.base.grouping import grouped
from klat.compare.conditions import PARAMS, RunConditions
from klat.compare.estimands import Estimand
from klat.compare.sources import Run, Source, UnitKey
from klat.record.rows import is_soak
from klat.record.samples import PIECE, Samples
from klat.record.session import SessionError
from klat.stats import descriptive
from klat.stats.descriptive import P50, P90, P99, P999
from klat.stats.distribution import Distribution

Kind = TypeVar("Kind")
_source_of = attrgetter("source")


def by_boot(runs: Iterable[Run]) -> dict[str, list[Run]]:
    return grouped(runs, attrgetter("row.boot"))


def split_params(params: str) -> tuple[str, dict[str, str]]:
    """The params that say what is measured, and the others, which are conditions of it."""
    conditions = dict(PARAMS)
    kept = []
    for item in params.split(";"):
        name, _, value = item.partition("=")
        if name in conditions:
            # The length of a soak's segments does not change its samples.
            conditions[name] = "given" if name == "soak" else value
        else:
            kept.append(item)
    return ";".join(kept), conditions


@dataclass(frozen=True)
class Statistics:
    """Of one metric, in the session's unit. None where there are too few runs or samples."""

    runs: int
    samples: int
    average: float | None  # mean over runs of the runs' means
    stdev: float | None  # of the runs' means
    min: int | None  # from here on over all samples
    median: int | None
    p90: int | None
    p99: int | None
    p999: int | None
    max: int | None
    tail: tuple[int, ...]  # the quantiles 9/10, 99/100, 999/1000 ... that the samples support
    # 95 %, of the runs' medians, within one boot only: runs of several are not independent.
    median_interval: tuple[float, float] | None


@dataclass(eq=False)
class Runs:
    """Runs of one metric in the order taken. `why` is the reason that no run counts, if the runs do not record it."""

    every: Sequence[Run] = ()
    why: str = ""

    @property
    def metric(self) -> str:
        return self.every[0].row.metric

    @cached_property
    def runs(self) -> list[Run]:
        """Those that count."""
        return [run for run in self.every if run.row.usable]

    @cached_property
    def uncounted(self) -> list[Run]:
        """Those that do not count, although their mode could give them a number."""
        return [run for run in self.every if not run.row.usable and run.is_measurable]

    @property
    def sampled(self) -> list[Run]:
        """Those with samples."""
        return [run for run in self.every if run.row.n]

    @cached_property
    def is_unmeasurable(self) -> bool:
        """Whether the mode of a run gives it no number."""
        return not all(run.row.n or run.is_measurable for run in self.every)

    @cached_property
    def statuses(self) -> Counter[str]:
        return Counter(run.row.status for run in chain(self.runs, self.uncounted))

    @cached_property
    def reasons(self) -> Counter[str]:
        """Of the runs that do not count."""
        if self.why:
            return Counter([self.why])
        return Counter(run.row.reason or "no reason was recorded" for run in self.uncounted)

    @cached_property
    def units(self) -> dict[UnitKey, list[Run]]:
        """The runs that count, by boot and pair."""
        return dict(map(_whole_pair, grouped(self.runs, attrgetter("unit")).items()))

    @cached_property
    def values(self) -> dict[tuple[str, str], dict[str, None]]:
        """Every value of each condition in the runs that count."""
        if not self.runs:
            return {}
        row = self.every[0].row
        values: dict[tuple[str, str], dict[str, None]] = {}
        for conditions in dict.fromkeys(run.conditions for run in self.runs):
            for name, value in conditions.values(row.benchmark).items():
                values.setdefault(name, {})[value] = None
        _, options = split_params(row.params)
        return values | {(k, f"the option {k}"): {value: None} for k, value in options.items()}

    @cached_property
    def lengths(self) -> set[int]:
        """How many samples the runs have."""
        return {run.row.n or 0 for run in self.runs}

    @cached_property
    def step(self) -> float:
        """The largest step of a counter in the runs, in the unit of figures."""
        return max((source.step for source in set(map(_source_of, self.runs))), default=0.0)

    @property
    def boots(self) -> int:
        """The number of boots with a run that counts."""
        return len({run.row.boot for run in self.runs})

    def parts(self, kind_of: Callable[[Run], Kind]) -> dict[Kind, Runs]:
        """The runs by their kind, the most frequent kind first. The first part also has the runs
        that do not count. A pair is left out of a kind if one of its turns has no run of that kind.
        """
        kinds = grouped(self.runs, kind_of)
        if len(kinds) == 1:
            return dict.fromkeys(kinds, self)
        parts: dict[Kind, list[Run]] = {}
        for kind, runs in kinds.items():
            units = Runs(runs).units
            parts[kind] = [run for unit in units if unit in self.units for run in units[unit]]
        ordered = sorted(parts.items(), key=lambda item: -len(item[1]))
        selected = {kind: Runs(runs) for kind, runs in ordered}
        for kind, runs in ordered[:1]:
            why = self.why if runs else "no pair is of one kind"
            selected[kind] = Runs([*runs, *self.uncounted], why)
        for part in selected.values():
            part.values = self.values
        return selected

    def by_run_conditions(self) -> dict[RunConditions, Runs]:
        """The parts whose runs may be in one figure."""
        return self.parts(attrgetter("conditions"))

    def readable_statistics(self, failed: Callable[[str], None]) -> Statistics | None:
        """None where samples are missing; `failed` gets the reason."""
        try:
            return self.statistics
        except SessionError as error:
            failed(str(error))
            return None

    @cached_property
    def statistics(self) -> Statistics:
        """SessionError where samples are missing."""
        rows = [run.row for run in self.runs]
        samples = merged_distribution(self.runs)
        median, p90, p99, p999 = map(samples.quantile, (P50, P90, P99, P999))
        means = np.array([float(row.mean) for row in rows if row.mean is not None])
        average = float(means.mean()) if len(means) else None
        if len(means) == len(rows) and len({row.n for row in rows}) == 1:
            average = samples.mean()  # exact, while the recorded means are rounded down
        medians = np.array([float(row.p50) for row in rows if row.p50 is not None])
        return Statistics(
            runs=len(rows),
            samples=samples.n,
            average=average,
            stdev=float(means.std(ddof=1)) if len(means) > 1 else None,
            min=samples.min if samples.n else None,
            median=median,
            p90=p90,
            p99=p99,
            p999=p999,
            max=samples.max if samples.n else None,
            tail=samples.tail(),
            median_interval=descriptive.median_interval(medians) if self.boots == 1 else None,
        )


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


def figures_of(runs: Sequence[Run], estimand: Estimand) -> list[float]:
    """The figure of each run that supports it, in the unit of figures."""
    if not estimand.column:
        assert estimand.q is not None
        ticks = [(run.quantiles([estimand.q])[0], run) for run in runs]
        return [tick * run.source.scale for tick, run in ticks if tick is not None]
    recorded = map(attrgetter(f"row.{estimand.column}"), runs)
    return [float(v) * run.source.scale for run, v in zip(runs, recorded) if v is not None]


def merged_distribution(runs: Sequence[Run]) -> Distribution:
    """All samples of the runs, as recorded."""
    counted = [run for run in runs if run.is_counted]
    parts = uncounted_samples([run for run in runs if not run.is_counted])
    return Distribution.merged(
        chain([Distribution.of_parts(parts)], (run.distribution() for run in counted))
    )


def uncounted_samples(runs: Sequence[Run]) -> Iterator[Samples]:
    """All samples of runs that are not counted by value, in pieces. Raises SessionError."""
    for source, members in groupby(runs, _source_of):
        for _, samples in source.files.blocks(run.row for run in members):
            if isinstance(samples, SessionError):
                raise samples
            yield samples.ravel()


def _factor(source: Source, scale: float) -> float:
    """From ticks of a session to ticks of `scale` ns. The ticks of boots can have been calibrated differently."""
    factor = source.scale / scale
    return 1.0 if abs(factor - 1) < 1e-3 else factor


def distribution_at(runs: Sequence[Run], scale: float) -> Distribution:
    """All samples of the runs, in ticks of `scale` ns."""
    counted = []
    for factor, members in grouped(runs, lambda run: _factor(run.source, scale)).items():
        merged = merged_distribution(members)
        counted.append(Distribution(_in_ticks(merged.values, factor), merged.counts))
    return Distribution.merged(counted)


def ranked_at(runs: Sequence[Run], scale: float, places: Sequence[int]) -> descriptive.Values:
    """Of all samples of the runs, those at these places, from 0, in ascending order. They are rounded to ticks
    of `scale` ns, and given in the unit of figures. Raises SessionError."""
    is_long = sum(run.row.n or 0 for run in runs) > PIECE
    if is_long or any(map(is_soak, {run.row.params for run in runs})):
        return distribution_at(runs, scale).times(scale).take(np.array(places))
    parts = [
        _in_ticks(part, _factor(source, scale))
        for source, members in groupby(runs, _source_of)
        for part in uncounted_samples(list(members))
    ]
    ordered = np.partition(np.concatenate(parts), sorted(set(places)))
    return ordered[list(places)].astype(np.float64) * scale


def _in_ticks(samples: Samples, factor: float) -> Samples:
    if factor == 1.0:
        return samples
    ticks: Samples = np.rint(samples * factor).astype(np.uint64)
    return ticks
