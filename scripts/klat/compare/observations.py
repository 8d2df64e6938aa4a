"""The figures of the runs of one cell: an estimand by unit, and the precision of single runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from statistics import median

from klat.compare.dataset import CellRuns, UnitKey
from klat.compare.estimands import MEAN, Estimand
from klat.compare.sources import Run
from klat.compare.verdicts import Observed, Unit
from klat.record.samples import Samples
from klat.record.session import SessionError
from klat.stats.granularity import as_log, hidden, rounded_alike, short_runs_rounded_alike
from klat.stats.hierarchy import mean


class NoLogarithm(Exception):
    """The figure of a run has no ratio. Its text says why: "is 0"."""


@dataclass(frozen=True)
class Units:
    """How the runs of a side form units: by boot, or by boot and declared pair. `pairs` has the pair
    of each unit with a partner on the other side."""

    noun: str = "boot"
    by_pair: bool = False
    pairs: Mapping[UnitKey, str] = field(default_factory=dict)

    def of(self, cell: CellRuns) -> dict[UnitKey, list[Run]]:
        if self.by_pair:
            return cell.units
        boots: dict[UnitKey, list[Run]] = {}
        for (boot, _), runs in cell.units.items():
            boots.setdefault((boot, ""), []).extend(runs)
        return boots


def observe(cell: CellRuns, estimand: Estimand, units: Units) -> Observed:
    """The logs of one estimand of the runs of a cell. The samples of a single run are read for an
    interval. NoLogarithm if a figure is 0, or a mean may be."""
    found = observe_values(cell, units, lambda run: run.value(estimand))
    if estimand is MEAN:
        found = replace(found, resolution=_resolution_of_means(cell))
    if found.runs == 1 == len(cell.runs):
        return replace(found, sampled=_sampled(cell.runs[0], estimand))
    return found


def observe_values(
    cell: CellRuns, units: Units, value_of: Callable[[Run], float | None]
) -> Observed:
    """The same for any sample of a run."""
    observed = []
    values: list[float] = []
    for key, runs in units.of(cell).items():
        found = [value for run in runs if (value := value_of(run)) is not None]
        if not found:
            continue
        if min(found) <= 0:
            raise NoLogarithm("is 0")
        values += found
        logs = tuple(math.log(value) for value in found)
        observed.append(Unit(":".join(filter(None, key)), logs, units.pairs.get(key, "")))
    return Observed(tuple(observed), hidden(values, _step(cell)), noun=units.noun)


def _step(cell: CellRuns) -> float:
    return max((run.source.step for run in cell.runs), default=0.0)


def _resolution_of_means(cell: CellRuns) -> float:
    """How far, as a log, the counter's step may have rounded the means."""
    step = _step(cell)
    runs = [run for run in cell.runs if run.row.mean is not None]
    if not step or not runs:
        return 0.0
    means = [float(run.row.mean or 0) * run.source.scale for run in runs]
    shares = [s for start in range(0, len(runs), 256) for s in _rounded(runs[start : start + 256])]
    rounded = mean(shares) * step / 2 / mean(means)
    if rounded > 0.5:
        raise NoLogarithm("is below the counter's step")
    return as_log(rounded)


# Runs of at most this many samples are sorted together.
_SHORT = 1 << 12


def _rounded(runs: Sequence[Run]) -> Iterator[float]:
    """The share of each run's samples that may all be rounded in the same direction."""
    shares: dict[int, float] = {}
    short: dict[tuple[int, float], dict[int, Samples]] = {}
    for place, run in enumerate(runs):
        n, step = run.row.n or 0, run.source.step / run.source.scale
        try:
            if run.row.soak or n > _SHORT:
                shares[place] = rounded_alike(run.distribution(), step)
            else:
                short.setdefault((n, step), {})[place] = run.source.files.read(run.row)
        except SessionError:
            shares[place] = 1.0  # nothing shows that samples are in several steps
    for (_, step), samples in short.items():
        shares |= zip(samples, short_runs_rounded_alike(list(samples.values()), step))
    return (shares[place] for place in range(len(runs)))


def _sampled(run: Run, estimand: Estimand) -> tuple[float, float] | None:
    if estimand.q is None:
        return None
    try:
        found = run.run_quantile(estimand.q)
    except SessionError:
        return None  # the row alone still gives the figure
    if found is None or found.interval is None or not found.interval[0]:
        return None
    low, high = found.interval
    return math.log(low * run.source.scale), math.log(high * run.source.scale)


@dataclass(frozen=True)
class Within:
    """How precise a quantile of one run is, as medians over `runs`: the number of samples, the
    number of independent samples with the same precision, and the ends of the interval over the
    quantile."""

    runs: int
    samples: float
    effective: float
    low: float
    high: float


def within_runs(cell: CellRuns, q: Fraction) -> Within | None:
    """Reads every sample. None where no run supports an interval."""
    found = [run.run_quantile(q) for run in cell.runs]
    held = [f for f in found if f is not None and f.interval is not None and f.value]
    if not held:
        return None
    return Within(
        runs=len(held),
        samples=median(float(f.n) for f in held),
        effective=median(f.effective for f in held),
        low=median(f.interval[0] / f.value for f in held if f.interval),
        high=median(f.interval[1] / f.value for f in held if f.interval),
    )
