"""The figures of the runs of one cell: an estimand by unit, and the precision of single runs.

For some quantiles, single runs are too short: then the figure is that of all samples of a boot or block. If
a boot is too short as well, neighbouring boots form a group, and the groups are the units. They share no
boot, so they are as independent as boots. The same if runs have few and unequal numbers of samples, because the
log of a figure of few samples has another expected value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain, groupby
from operator import attrgetter
from statistics import median

import numpy as np

from klat.base.grouping import neighbours
from klat.compare.estimands import Estimand, MEAN
from klat.compare.runs import Runs, by_boot, figures_of, ranked_at
from klat.compare.sources import Run, UnitKey
from klat.compare.verdicts import Observed, Unit
from klat.record.samples import adjacent
from klat.record.session import SessionError
from klat.stats.descriptive import fewest, supports
from klat.stats.distribution import between_logs, log_quantile_places
from klat.stats.granularity import as_log, hidden, rounded_alike, short_runs_rounded_alike
from klat.stats.means import mean

_Named = dict[str, list[Run]]  # the runs of each unit


class NoLogarithm(Exception):
    """The figure of a run has no ratio. Its text says why: "is 0"."""


@dataclass(frozen=True)
class Units:
    """How the runs of a side form units: by boot, or by boot and declared pair. `pairs` has the pair
    of each unit with a partner on the other side."""

    noun: str = "boot"
    by_pair: bool = False
    pairs: Mapping[UnitKey, str] = field(default_factory=dict)

    def of(self, cell: Runs) -> dict[UnitKey, list[Run]]:
        if self.by_pair:
            return cell.units
        return {(boot, ""): runs for boot, runs in by_boot(cell.runs).items()}


def observe(cell: Runs, estimand: Estimand, units: Units) -> Observed:
    """The logs of one estimand of the runs of a cell. The samples of a single run are read for an
    interval. NoLogarithm if a figure is 0, or a mean may be."""
    figures = {key: figures_of(runs, estimand) for key, runs in units.of(cell).items()}
    observed = observe_values(cell, units, figures)
    if estimand is MEAN:
        means = list(chain.from_iterable(figures.values()))
        observed = replace(observed, resolution=_resolution_of_means(cell, means))
    if observed.runs == 1 == len(cell.runs):
        return replace(observed, sample_interval=_interval_from_samples(cell.runs[0], estimand))
    return observed


def observe_values(
    cell: Runs, units: Units, figures: Mapping[UnitKey, Sequence[float]]
) -> Observed:
    """The same for any figures of the runs of each unit."""
    observed = []
    values: list[float] = []
    for key, of_unit in figures.items():
        if not of_unit:
            continue
        if min(of_unit) <= 0:
            raise NoLogarithm("is 0")
        values += of_unit
        logs = tuple(map(math.log, of_unit))
        observed.append(Unit(":".join(filter(None, key)), logs, units.pairs.get(key, "")))
    return Observed(tuple(observed), hidden(values, cell.step), noun=units.noun)


def _resolution_of_means(cell: Runs, means: Sequence[float]) -> float:
    """How far, as a log, the counter's step may have rounded the means of the runs."""
    if not cell.step or not means:
        return 0.0
    shares = list(_shares_rounded_alike(run for run in cell.runs if run.row.mean is not None))
    rounded = mean(shares) * cell.step / 2 / mean(means)
    if rounded > 0.5:
        raise NoLogarithm("is below the counter's step")
    return as_log(rounded)


# Runs of at most this many samples are examined together.
_SHORT = 1 << 12
# The share where nothing shows that samples are in several steps.
_UNKNOWN = 1.0


def _shares_rounded_alike(runs: Iterable[Run]) -> Iterator[float]:
    """The share of each run's samples that may all be rounded in the same direction."""
    for source, members in groupby(runs, attrgetter("source")):
        step = source.step / source.scale
        for group in adjacent(run.row for run in members):
            if group[0].soak or (group[0].n or 0) > _SHORT:
                for row in group:
                    try:
                        yield rounded_alike(source.files.distribution(row), step)
                    except SessionError:
                        yield _UNKNOWN
                continue
            for rows, samples in source.files.block(group):
                if isinstance(samples, SessionError):
                    yield from [_UNKNOWN] * len(rows)
                else:
                    yield from short_runs_rounded_alike(samples, step)


def _interval_from_samples(run: Run, estimand: Estimand) -> tuple[float, float] | None:
    if estimand.q is None:
        return None
    try:
        ranked = run.run_quantile(estimand.q)
    except SessionError:
        return None  # the row alone still gives the figure
    if ranked is None or ranked.interval is None or not ranked.interval[0]:
        return None
    low, high = ranked.interval
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


def within_runs(cell: Runs, q: Fraction) -> Within | None:
    """Reads every sample. None where no run supports an interval."""
    ranked = [run.run_quantile(q) for run in cell.runs]
    usable = [f for f in ranked if f is not None and f.interval is not None and f.value]
    if not usable:
        return None
    return Within(
        runs=len(usable),
        samples=median(float(f.n) for f in usable),
        effective=median(f.effective for f in usable),
        low=median(f.interval[0] / f.value for f in usable if f.interval),
        high=median(f.interval[1] / f.value for f in usable if f.interval),
    )


def observe_sides(
    cells: Sequence[Runs], estimand: Estimand, units: Sequence[Units], grouped: bool = True
) -> list[Observed]:
    """The logs of one estimand on one side or two: of each run, or of each unit if _why_pooled() has a reason. With
    `grouped`, units that are too short form groups.

    NoLogarithm if a figure is 0. SessionError if samples are needed that cannot be read.
    """
    q = estimand.q
    why = _why_pooled(cells, q)
    if not why:
        return [observe(cell, estimand, u) for cell, u in zip(cells, units)]
    sides = [_runs_by_name(cell, u) for cell, u in zip(cells, units)]
    paired = len(cells) > 1 and all(key in u.pairs for c, u in zip(cells, units) for key in u.of(c))
    samples = [{name: _samples(runs) for name, runs in side.items()} for side in sides]
    on_both = [name for name in sides[0] if paired and name in sides[1]]
    needed = fewest(q) if grouped and q else 0
    groups = neighbours(on_both, lambda name: min(s[name] for s in samples), needed)
    chosen = []
    for of_side in samples:
        rest = [name for name in of_side if name not in on_both]
        # Pairs need both sides, so a unit without partner stays alone. It is left out later, and counted.
        least = 0 if paired else needed
        chosen.append([*groups, *neighbours(rest, of_side.__getitem__, least)])
    noun = units[0].noun
    if any(len(names) > 1 for side_groups in chosen for names in side_groups):
        why = f"single runs and {noun}s are too short"
        noun = f"{noun} group"
    if q is None:
        observed = [_observed_means(side, u, noun, paired) for side, u in zip(sides, chosen)]
        observed = _with_bias(observed, cells, samples)
    else:
        observed = [_observed_in_groups(side, u, q, noun, paired) for side, u in zip(sides, chosen)]
    return [replace(of_side, pooled=why) for of_side in observed]


# Times the samples that a quantile needs. The bias of a run's quantile falls as 1 / n. From this length on, it is small
# compared with the noise of boots (docs/validation.md, Pooled quantiles).
_LONG_RUN = 50


def _why_pooled(cells: Sequence[Runs], q: Fraction | None) -> str:
    """Why the figure of a unit must be that of all its samples; empty if each run can have its own. `q` is None for
    the mean."""
    lengths = {n for cell in cells for n in cell.lengths}
    if q is not None and not all(supports(n, q) for n in lengths):
        return "single runs are too short"
    if _are_equally_long(cells):
        return ""
    unequal = "the runs have unequal numbers of samples"
    if q is None:
        return unequal
    enough = _LONG_RUN * fewest(q)
    return f"{unequal}, some fewer than {enough:,}" if min(lengths) < enough else ""


_MOST_LENGTH_RATIO = 1.1  # between the median numbers of samples of two sessions


def _are_equally_long(cells: Sequence[Runs]) -> bool:
    """Whether the runs of all sessions have about the same number of samples. The last segment of a soak may be short.
    True if a side has no runs."""
    if not all(cell.runs for cell in cells):
        return True
    every = {n for cell in cells for n in cell.lengths}
    if max(every, default=0) <= _MOST_LENGTH_RATIO * min(every, default=0):
        return True
    by_session: dict[object, list[int]] = {}
    for run in chain.from_iterable(cell.runs for cell in cells):
        by_session.setdefault(run.source, []).append(run.row.n or 0)
    medians = [float(median(lengths)) for lengths in by_session.values()]
    return max(medians) <= _MOST_LENGTH_RATIO * min(medians)


def _runs_by_name(cell: Runs, units: Units) -> _Named:
    """The runs of each unit. Units of the same pair are one."""
    named: _Named = {}
    for key, runs in units.of(cell).items():
        named.setdefault(units.pairs.get(key) or ":".join(filter(None, key)), []).extend(runs)
    return named


def _samples(runs: Sequence[Run]) -> int:
    return sum(run.row.n or 0 for run in runs)


def _observed_in_groups(
    side: _Named, groups: Sequence[Sequence[str]], q: Fraction, noun: str, paired: bool
) -> Observed:
    pooled_units = []
    for names in groups:
        runs = [run for name in names for run in side[name]]
        scale = mean([run.source.scale for run in runs])
        count = _samples(runs)
        places, share = log_quantile_places(count, q)
        least, *nearest = ranked_at(runs, scale, [0, *places])  # also shows whether all can be read
        if not supports(count, q):
            continue
        if least <= 0:
            raise NoLogarithm("is 0")
        name = " and ".join(names)
        pooled_units.append(
            Unit(name, (between_logs(np.array(nearest), share),), name if paired else "")
        )
    every = [run for runs in side.values() for run in runs]
    step = max((run.source.step for run in every), default=0.0)
    return Observed(
        tuple(pooled_units),
        hidden([value for unit in pooled_units for value in unit.values], step),
        noun=noun,
        needed_and_present=None if pooled_units else (fewest(q), _samples(every)),
    )


_UNEQUAL = (
    "the means are of unequal numbers of samples, so rare long samples shift their ratio: measure as many on both"
    " sides, or judge the share of long samples (--limit)"
)


def _observed_means(
    side: _Named, groups: Sequence[Sequence[str]], noun: str, paired: bool
) -> Observed:
    """The mean of all samples of each unit."""
    units = []
    for (name,) in groups:
        total = sum(float(r.row.mean or 0) * (r.row.n or 0) * r.source.scale for r in side[name])
        if not total:
            raise NoLogarithm("is 0")
        units.append(Unit(name, (math.log(total / _samples(side[name])),), name if paired else ""))
    return Observed(tuple(units), noun=noun)


def _with_bias(
    sides: Sequence[Observed], cells: Sequence[Runs], samples: Sequence[Mapping[str, int]]
) -> list[Observed]:
    """Adds the bias of means of unequal n to the resolutions.

    The expected log of a mean of n samples is CV^2 / 2n below the log of the true mean (the second term of the
    Taylor series; CV is the coefficient of variation). The bias of a ratio of two means is the difference of these
    terms. Twice the difference counts, because the bias is larger if most units have none of the rare long
    samples. The resolutions of two sides add, so each gets half. With one side alone, the means are those of its
    units.
    """
    runs = [run for cell in cells for run in cell.runs]
    values = [value for side in sides for unit in side.units for value in unit.values]
    count, centre = _samples(runs), mean(values)
    squares = math.fsum(
        ((float(run.row.mean or 0) ** 2 + float(run.row.stddev or 0) ** 2) * run.source.scale**2)
        * (run.row.n or 0)
        for run in runs
    )
    variation = max(squares / count / centre**2 - 1, 0.0)
    of_sides = [[variation / n for n in by_name.values()] for by_name in samples]
    biases = list(map(mean, of_sides)) if len(sides) > 1 else of_sides[0]
    bias = (max(biases) - min(biases)) / 2
    observed = []
    for side, cell in zip(sides, cells):
        rounded = _resolution_of_means(cell, [v for unit in side.units for v in unit.values])
        coarse = _UNEQUAL if bias > rounded else side.coarse
        observed.append(replace(side, resolution=rounded + bias, coarse=coarse))
    return observed
