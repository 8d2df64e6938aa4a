"""A metric by pair of CPUs: what `klat run --matrix` measures, found in the settings of a label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from klat.compare.conditions import OBTAINED
from klat.compare.dataset import Dataset
from klat.compare.settings import Measurement, Setting
from klat.stats.descriptive import Values
from klat.stats.granularity import rounding

Pair = tuple[int, int]
# The words of a placement, without the types of cores, whose CPUs share a core, a cache, a node.
_LEVELS = (
    ("one-cpu", "same-core"),
    ("one-cpu", "same-core", "same-llc", "same-llc-unknown-node"),
    ("one-cpu", "same-core", "same-llc", "same-node"),
)


@dataclass(frozen=True)
class PairFigure:
    """`medians` has the median of each run."""

    placement: str
    medians: Values
    resolution: float

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
    pairs: Mapping[Pair, PairFigure]
    starts: tuple[frozenset[int], frozenset[int]]
    types: Mapping[int, str]

    def classes(self) -> list[tuple[str, list[PairFigure]]]:
        """The figures of each placement, the placement with the lowest median first."""
        found: dict[str, list[PairFigure]] = {}
        for figure in self.pairs.values():
            found.setdefault(figure.placement, []).append(figure)
        return sorted(found.items(), key=lambda item: float(np.median([f.value for f in item[1]])))


def matrices(label: Dataset) -> Iterator[Matrix]:
    """A matrix for each metric of runs that differ in their pair of CPUs only."""
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Setting]] = {}
    for setting in label.settings:
        params = tuple(pair for pair in setting.params.items() if pair[0] != "cpus")
        groups.setdefault((setting.benchmark, params), []).append(setting)
    for (benchmark, params), settings in groups.items():
        for metric in dict.fromkeys(name for s in settings for name in s.measurements):
            pairs = dict(_pairs(s, s.measurements[metric]) for s in settings if _has(s, metric))
            if None in pairs or len(pairs) < 2:
                continue
            measured = {pair: figure for pair, figure in pairs.items() if pair is not None}
            yield _matrix(benchmark, metric, dict(params), settings, measured)


def _has(setting: Setting, metric: str) -> bool:
    return metric in setting.measurements and bool(setting.measurements[metric].runs)


def _pairs(setting: Setting, measurement: Measurement) -> tuple[Pair | None, PairFigure]:
    """None in place of a pair for a run of one CPU, or of more than two."""
    runs = [run for run in measurement.runs if run.row.p50 is not None]
    cpus = [int(cpu) for cpu in measurement.runs[0].row.cpus.split(";") if cpu.isdecimal()]
    if len(cpus) != 2 or not runs:
        return None, PairFigure(setting.placement, np.array([]), 0)
    medians = [float(run.row.p50) for run in runs if run.row.p50 is not None]
    step = rounding(medians, max(run.source.step / run.source.scale for run in runs))
    return (cpus[0], cpus[1]), PairFigure(setting.placement, np.array(medians), step)


def _matrix(
    benchmark: str,
    metric: str,
    params: dict[str, str],
    settings: Sequence[Setting],
    pairs: Mapping[Pair, PairFigure],
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
    cpus: Iterable[int], pairs: Mapping[Pair, PairFigure], words: Sequence[str]
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


def _types(pairs: Mapping[Pair, PairFigure]) -> dict[int, str]:
    """The type of each core, on a machine with several."""
    types: dict[int, str] = {}
    for (a, b), figure in pairs.items():
        if words := figure.placement.partition(":")[2]:
            first, _, second = words.partition("+")
            types |= {a: first, b: second or first}
    return types
