"""Kernels in order, each compared with the one before it. All steps are judged together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from klat.base.errors import KlatError
from klat.compare.comparison import Cell, Comparison, Options, Result
from klat.compare.compare_sides import compare_steps
from klat.compare.dataset import Dataset, Key
from klat.compare.estimands import MEDIAN
from klat.compare.matching import MatchedCell, why_uncounted
from klat.compare.observations import NoLogarithm, Units, observe
from klat.compare.verdicts import INCONCLUSIVE, NO_REGRESSION, NOT_COMPARABLE, NOT_DELIVERED
from klat.compare.verdicts import Verdict, spread

_BEYOND = (Verdict.FASTER, Verdict.SLOWER)
_WITHOUT_REGRESSION = (NO_REGRESSION, NOT_DELIVERED)


@dataclass(frozen=True)
class Step:
    """From a kernel to the next one, each by its index among the kernels. Without a `result`, the step is refused or has no
    figure."""

    base: int
    new: int
    cell: Cell
    result: Result | None

    @property
    def is_jump(self) -> bool:
        return self.result is not None and self.result.verdict in _BEYOND

    @property
    def verdict(self) -> Verdict:
        if self.result is None:
            return Verdict.NOT_COMPARABLE
        return self.result.verdict or Verdict.INCONCLUSIVE

    @property
    def ratio(self) -> float | None:
        return self.result.judgement.ratio if self.result else None


@dataclass
class MetricSeries:
    """A metric in each kernel. The keys of the dictionaries are indices of kernels. The key of a step is the index of its
    NEW. `ranges` has the lowest and the highest figure of a boot."""

    key: Key  # of the first kernel that has it
    keys: dict[int, Key] = field(default_factory=dict)  # of the kernels where it differs
    values: dict[int, float] = field(default_factory=dict)
    ranges: dict[int, tuple[float, float]] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)  # why a kernel has no value
    steps: dict[int, Step] = field(default_factory=dict)

    def key_of(self, kernel: int) -> Key:
        return self.keys.get(kernel, self.key)


@dataclass(frozen=True)
class Trend:
    """`chains` has the indices of the kernels that follow each other. `comparison.against` has an item for each step,
    in the order of `steps`."""

    comparison: Comparison
    labels: tuple[str, ...]
    releases: tuple[str, ...]
    chains: tuple[tuple[int, ...], ...]
    series: tuple[MetricSeries, ...]
    failures: Mapping[str, str]  # by label: why a kernel was not measured

    @property
    def status(self) -> int:
        """That of the comparison. A kernel that was not measured leaves open what it would show."""
        status = self.comparison.status
        return INCONCLUSIVE if self.failures and status in _WITHOUT_REGRESSION else status

    @property
    def steps(self) -> list[tuple[int, int]]:
        return steps_of(self.chains)

    @property
    def jumps(self) -> list[tuple[MetricSeries, Step]]:
        """The steps beyond the margin, in the order of series and kernels."""
        return [(c, step) for c in self.series for step in c.steps.values() if step.is_jump]

    def first_of(self, metric: MetricSeries, kernel: int) -> int:
        """The first kernel in the chain of `kernel` that has the metric. `kernel` if there is none."""
        chain = next((chain for chain in self.chains if kernel in chain), ())
        return next((first for first in chain if first in metric.values), kernel)


def steps_of(chains: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    return [step for chain in chains for step in pairwise(chain)]


def trend(
    sides: Sequence[Dataset],
    chains: Sequence[Sequence[int]],
    options: Options,
    failures: Mapping[str, str],
) -> Trend:
    """`chains` has indices of `sides`. The verdicts are on the median of each metric. KlatError if no two kernels that
    follow each other were measured."""
    failures = {label: why.removeprefix(f"{label}: ") for label, why in failures.items()}
    steps = steps_of(chains)
    if not steps:
        why = "; ".join(f"{label}: {reason}" for label, reason in failures.items())
        raise KlatError(f"there is no kernel to compare with: {why}", status=NOT_COMPARABLE)
    comparison, matched = compare_steps(sides, steps, options)
    if len(matched) != len(steps):
        raise KlatError(
            "the kernels were measured by several QEMUs or machines; measure them again"
        )
    series: dict[tuple[int, Key], MetricSeries] = {}
    for (base, new), against, sides_matched in zip(steps, comparison.against, matched):
        for cell, pair in zip(against.cells, sides_matched.pairs):
            metric = _series_of(series, (base, new), pair)
            tested = (r for r in cell.results if r.estimand == MEDIAN.name)
            metric.steps[new] = Step(base, new, cell, next(tested, None))
    for kernel, side in enumerate(sides):
        for key in side.cells:
            if (kernel, key) not in series:
                series[kernel, key] = _of_other_kernel(series, key) or MetricSeries(key)
    unique = list({metric.key: metric for metric in series.values()}.values())
    _fill(unique, sides)
    return Trend(
        comparison,
        tuple(side.name for side in sides),
        tuple(str(side.info.get("kernel_release") or "unknown") for side in sides),
        tuple(map(tuple, chains)),
        tuple(unique),
        failures,
    )


def _series_of(
    series: dict[tuple[int, Key], MetricSeries], step: tuple[int, int], pair: MatchedCell
) -> MetricSeries:
    """The metric of a matched pair. The two keys may differ in parameters that the kernels set."""
    places = list(zip(step, pair.keys))
    known = [series[place] for place in places if place in series]
    known += filter(None, (_of_other_kernel(series, key) for key in pair.keys))
    metric = known[0] if known else MetricSeries(pair.keys[0])
    for kernel, key in places:
        series.setdefault((kernel, key), metric)
        if key != metric.key:
            metric.keys[kernel] = key
    return metric


def _of_other_kernel(series: dict[tuple[int, Key], MetricSeries], key: Key) -> MetricSeries | None:
    return next((metric for (_, other), metric in series.items() if other == key), None)


def _fill(series: Sequence[MetricSeries], sides: Sequence[Dataset]) -> None:
    for metric in series:
        for kernel, side in enumerate(sides):
            key = metric.key_of(kernel)
            cell = side.cells.get(key)
            reason = next(_reasons(side, key), "not measured")
            try:
                observed = observe(cell, MEDIAN, Units()) if cell else None
            except NoLogarithm as error:
                observed = None
                reason = f"the median of a run {error}, so there is no geometric mean"
            if observed and (value := spread(observed).value) is not None:
                metric.values[kernel] = value
                metric.ranges[kernel] = math.exp(min(observed.means)), math.exp(max(observed.means))
            else:
                metric.reasons[kernel] = reason


def _reasons(side: Dataset, key: Key) -> Iterator[str]:
    """Why a kernel has no value. The reason is from runs of the metric, or from runs that ended before they had one."""
    for cells in (side.cells, side.failed):
        for other, cell in cells.items():
            if other[:2] == key[:2] and not cell.units and cell.reasons:
                yield why_uncounted(cell)
    if key in side.unmeasurable:
        yield "has no number in this mode"
