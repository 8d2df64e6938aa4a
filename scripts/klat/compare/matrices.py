"""A metric by pair of CPUs: what `klat run --matrix` measures, found in the settings of a label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from klat.base.grouping import grouped
from klat.compare.conditions import OBTAINED
from klat.compare.dataset import Dataset
from klat.compare.settings import Setting
from klat.stats.descriptive import Values

Pair = tuple[int, ...]
# The words of a placement, without the types of cores, whose CPUs share a core, a cache, a node.
_LEVELS = (
    ("one-cpu", "same-core"),
    ("one-cpu", "same-core", "same-llc", "same-llc-unknown-node"),
    ("one-cpu", "same-core", "same-llc", "same-node"),
)


@dataclass(frozen=True)
class PairMedians:
    """The median of each run of a pair of CPUs."""

    placement: str
    medians: Values

    @property
    def value(self) -> float:
        return float(self.medians.mean())


@dataclass(frozen=True)
class Matrix:
    """`cpus` are in the order of nodes, caches and cores. `pairs` has the figure of each measured pair, in the order
    of the program's roles. `starts` are the CPUs with which a node begins, and those with which a cache does.
    """

    benchmark: str
    metric: str
    params: Mapping[str, str]
    settings: tuple[Setting, ...]
    cpus: tuple[int, ...]
    pairs: Mapping[Pair, PairMedians]
    starts: tuple[frozenset[int], frozenset[int]]
    types: Mapping[int, str]

    def by_placement(self) -> list[tuple[str, list[PairMedians]]]:
        """The figures of each placement, the placement with the lowest median first."""
        figures = grouped(self.pairs.values(), lambda figure: figure.placement)
        return sorted(
            figures.items(), key=lambda item: float(np.median([f.value for f in item[1]]))
        )


def matrices(label: Dataset) -> Iterator[Matrix]:
    """A matrix for each metric of runs that differ in their pair of CPUs only."""
    groups = grouped(
        label.settings,
        lambda s: (s.benchmark, tuple(pair for pair in s.params.items() if pair[0] != "cpus")),
    )
    for (benchmark, params), settings in groups.items():
        for metric in dict.fromkeys(name for s in settings for name in s.measurements):
            of_pairs = [s for s in settings if _has_runs(s, metric) and _pair_of(s, metric)]
            pairs: dict[Pair, PairMedians] = {}
            for setting in of_pairs:
                pair = _pair_of(setting, metric)
                pairs[pair] = _medians_of(setting, metric, pairs.get(pair))
            if len(pairs) > 1:
                yield _matrix(benchmark, metric, dict(params), of_pairs, pairs)


def _has_runs(setting: Setting, metric: str) -> bool:
    measurement = setting.measurements.get(metric)
    return measurement is not None and any(run.row.p50 is not None for run in measurement.runs)


def _pair_of(setting: Setting, metric: str) -> Pair:
    """Empty for runs of one CPU, or of more than two."""
    cpus = setting.measurements[metric].runs[0].row.cpus.split(";")
    return tuple(map(int, cpus)) if len(cpus) == 2 and all(map(str.isdecimal, cpus)) else ()


def _medians_of(setting: Setting, metric: str, others: PairMedians | None) -> PairMedians:
    """Of the setting's runs, after those of another setting of this pair."""
    runs = setting.measurements[metric].runs
    medians = np.array([float(run.row.p50) for run in runs if run.row.p50 is not None])
    earlier = others.medians if others else np.array([])
    return PairMedians(setting.placement, np.concatenate([earlier, medians]))


def _matrix(
    benchmark: str,
    metric: str,
    params: dict[str, str],
    settings: Sequence[Setting],
    pairs: Mapping[Pair, PairMedians],
) -> Matrix:
    cpus = sorted({cpu for pair in pairs for cpu in pair})
    core, cache, node = (_groups(cpus, pairs, words) for words in _LEVELS)
    order = sorted(cpus, key=lambda cpu: (node[cpu], cache[cpu], core[cpu], cpu))
    starts = (frozenset(_starts(order, node)), frozenset(_starts(order, cache)))
    params = {name: value for name, value in params.items() if name not in OBTAINED}
    return Matrix(
        benchmark, metric, params, tuple(settings), tuple(order), pairs, starts, _types(pairs)
    )


def _groups(
    cpus: Iterable[int], pairs: Mapping[Pair, PairMedians], words: Sequence[str]
) -> dict[int, int]:
    """The lowest CPU of each CPU's group: CPUs that a pair of such a placement connects are one group."""
    lowest = {cpu: cpu for cpu in cpus}

    def root(cpu: int) -> int:
        while lowest[cpu] != cpu:
            cpu = lowest[cpu]
        return cpu

    for (a, b), figure in pairs.items():
        if figure.placement.partition(":")[0] in words:
            low, high = sorted((root(a), root(b)))
            lowest[high] = low
    return {cpu: root(cpu) for cpu in lowest}


def _starts(order: Sequence[int], group: Mapping[int, int]) -> Iterator[int]:
    for before, cpu in zip(order, order[1:]):
        if group[before] != group[cpu]:
            yield cpu


def _types(pairs: Mapping[Pair, PairMedians]) -> dict[int, str]:
    """The type of each core, on a machine with several."""
    types: dict[int, str] = {}
    for (a, b), figure in pairs.items():
        if words := figure.placement.partition(":")[2]:
            first, _, second = words.partition("+")
            types |= {a: first, b: second or first}
    return types
