"""Extrapolates the tail of a measurement to a longer one: the level that a horizon exceeds once.

If the samples have an order, by peaks over a threshold: the samples above a high threshold, each cluster
of them as its highest one, and a generalized Pareto distribution of their excesses. If they have none
within a segment, by block maxima: the maxima of the segments, and a generalized extreme value
distribution. The interval is the hull of those of several thresholds, or block lengths: one tail has the
same level at each of them, and a mixture has not. docs/tail.md says what this does not promise, and how often it is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from klat.stats.block_maxima import (
    MaximaFit,
    fitted_maxima,
    log_likelihood_of_maxima,
    maxima_with_draws,
    standardized_maxima,
)
from klat.stats.extremal_index import clusters
from klat.stats.pareto_tail import (
    ParetoTail,
    fitted,
    growth,
    log_likelihood,
    standardized,
    with_draws,
)
from klat.stats.profile_interval import profile_interval
from klat.stats.stationarity import (
    PeakGroups,
    TailChange,
    changes_of_maxima,
    changes_of_peaks,
    first_change,
)
from klat.stats.tail_fit_check import REPLICATES, FitCheck, check_fit

Values = npt.NDArray[np.float64]
# A level, and the ends of its interval.
Level = tuple[float, float, float]

# Of all samples, at most this share and this many are above a threshold.
LARGEST_SHARE = 0.1
MOST_ABOVE = 2000
_FEWEST_ABOVE = 100
_THRESHOLDS = 1.5  # each threshold has this many times fewer samples above it than the one before
_MOST_PEAKS, FEWEST_PEAKS = 500, 50
FEWEST_BLOCKS = 60
_SHORT = 0.9  # of the median length: a shorter segment is joined to its neighbour

_FIT_LEVEL, _CHANGE_LEVEL = 0.03, 0.02
_FEWEST_VALUES, _COMMONEST = 20, 0.1
_HEAVIEST = 1.0

_DROP = 1.920729  # half the 95 % quantile of chi-squared with one degree of freedom
# At a shape below -1/2 the likelihood's maximum is at the end of the tail, and the drop is standard
# exponential (Smith, Biometrika 72, 1985).
_DROP_AT_END, _IRREGULAR = 2.995732, -0.5
_ENDLESS = "the interval of the level has no end"


@dataclass(frozen=True)
class RunTail:
    """The samples of one run above a level that is the same for all runs. `places` are their positions
    among the run's n samples, from 0, ascending."""

    boot: str
    n: int
    places: npt.NDArray[np.int64]
    values: Values


@dataclass(frozen=True)
class SoakSegment:
    """One segment without an order of its samples."""

    boot: str
    n: int
    maximum: float


@dataclass(frozen=True)
class Extrapolation:
    """`level` is exceeded once, on average, in the horizon. If there is none, `refusal` is the reason, a
    clause. Figures that were not computed are None. `blocks` is None for peaks over a
    threshold; `threshold` to `index` are None for block maxima, and so is `location` for peaks."""

    samples: int
    above: int | None = None
    threshold: float | None = None
    peaks: int | None = None
    index: float | None = None
    blocks: int | None = None
    shape: float | None = None
    location: float | None = None
    scale: float | None = None
    level: float | None = None
    interval: tuple[float, float] | None = None
    refusal: str = ""


@dataclass(frozen=True)
class _Peaks:
    """The peaks over one threshold: their excesses, runs, and places in the whole measurement."""

    threshold: float
    above: int
    index: float
    excesses: Values
    recorded: Values
    runs: npt.NDArray[np.int64]
    times: Values


def peaks_over_threshold(
    runs: Sequence[RunTail], base: float, horizon: float, step: float = 0.0, seed: int = 1
) -> Extrapolation:
    """The level that `horizon` samples exceed once. Runs in the order taken, with their samples above
    `base`. `step` is the granularity of the samples: each is spread over its step, because rounded
    values follow no smooth distribution."""
    return _Search(runs, base, horizon, step, seed).result()


def block_maxima(
    blocks: Sequence[SoakSegment], horizon: float, step: float = 0.0, seed: int = 1
) -> Extrapolation:
    """The same from the maxima of segments, in the order taken. A segment that is shorter than the
    others, for example the last one, is joined to its neighbour."""
    samples = sum(block.n for block in blocks)
    whole = _whole_blocks(blocks)
    maxima = np.array([block.maximum for block in whole])
    figures = Extrapolation(samples, blocks=len(whole))
    if len(whole) < FEWEST_BLOCKS:
        needed = f"block maxima need {FEWEST_BLOCKS} segments"
        return replace(figures, refusal=f"{needed}, because a soak keeps no order within one")
    if refusal := _discrete(maxima, "maxima"):
        return replace(figures, refusal=refusal)
    draw = np.random.default_rng(seed)
    maxima = maxima + step * draw.uniform(-0.5, 0.5, len(maxima))
    fit = fitted_maxima(maxima)
    figures = replace(figures, shape=fit.shape, location=fit.location, scale=fit.scale)
    boots = {boot: i for i, boot in enumerate(dict.fromkeys(block.boot for block in whole))}
    numbers = np.array([boots[block.boot] for block in whole])
    refusal = _changed(changes_of_maxima(maxima, numbers)) or _misfit_of_maxima(maxima, fit, seed)
    if refusal:
        return replace(figures, refusal=refusal)
    levels = []
    while len(maxima) >= FEWEST_BLOCKS:
        levels.append(_level_of_maxima(maxima, horizon / samples * len(maxima)))
        maxima = np.maximum.reduceat(maxima, np.arange(0, len(maxima), 2))
    return _with_hull(figures, levels)


def _misfit_of_maxima(maxima: Values, fit: MaximaFit, seed: int) -> str:
    rows = maxima_with_draws(maxima, fit, REPLICATES, seed)
    # Maxima above their median follow nearly a generalized Pareto distribution. The draws do so as much.
    half = rows.shape[1] // 2
    check = check_fit(standardized_maxima(rows), rows[:, half:] - rows[:, half - 1 : half])
    return _misfit(check, fit.shape, f"{len(maxima)} maxima", "extreme value")


def _whole_blocks(blocks: Sequence[SoakSegment]) -> list[SoakSegment]:
    usual = float(np.median([block.n for block in blocks])) if blocks else 0.0
    found: list[SoakSegment] = []
    for block in blocks:
        last = found[-1] if found else None
        if last and last.boot == block.boot and min(last.n, block.n) < _SHORT * usual:
            joined = SoakSegment(block.boot, last.n + block.n, max(last.maximum, block.maximum))
            found[-1] = joined
        else:
            found.append(block)
    return found


def _level_of_maxima(maxima: Values, blocks: float) -> Level | None:
    fit = fitted_maxima(maxima)
    # Relative to the fit, so that the search does not depend on the unit.
    standard = (maxima - fit.location) / fit.scale
    level = growth(blocks, fit.shape)

    def likelihood(value: float, others: Values) -> float:
        """Of this level, a shape, and the log of a scale."""
        shape, scale = float(others[0]), float(np.exp(min(others[1], 50.0)))
        if abs(shape) > 5:
            return -np.inf
        return log_likelihood_of_maxima(
            standard, shape, value - scale * growth(blocks, shape), scale
        )

    first = np.array([fit.shape, 0.0])
    found = profile_interval(likelihood, level, first, 0.2 * level, _drop(fit.shape))
    if found is None:
        return None
    low, level, high = (fit.location + fit.scale * x for x in (found[0], level, found[1]))
    return level, low, high


class _Search:
    def __init__(
        self, runs: Sequence[RunTail], base: float, horizon: float, step: float, seed: int
    ) -> None:
        self.samples = sum(run.n for run in runs)
        self._sizes = np.array([run.n for run in runs], dtype=np.int64)
        starts = np.r_[0, np.cumsum(self._sizes)[:-1]]
        counts = [len(run.values) for run in runs]
        self._values = np.concatenate([run.values for run in runs]).astype(np.float64)
        self._places = np.concatenate([run.places + start for run, start in zip(runs, starts)])
        self._runs = np.repeat(np.arange(len(runs)), counts)
        boots = {boot: i for i, boot in enumerate(dict.fromkeys(run.boot for run in runs))}
        self._boots = np.array([boots[run.boot] for run in runs])
        draw = np.random.default_rng(seed)
        self._spread = self._values + step * draw.uniform(-0.5, 0.5, len(self._values))
        self._base, self._step, self._seed = base, step, seed
        self._times = horizon / self.samples
        self._figures = Extrapolation(self.samples)

    def result(self) -> Extrapolation:
        thresholds = list(self._thresholds())
        if not thresholds:
            return self._refused(self._too_few())
        lowest = thresholds[0]
        tail = fitted(lowest.excesses)
        self._tell(lowest, tail)
        refusal = self._not_one_kind(lowest) or self._misfit(lowest, tail)
        if refusal:
            return self._refused(refusal)
        return _with_hull(self._figures, [self._level(peaks) for peaks in thresholds])

    def _thresholds(self) -> Iterator[_Peaks]:
        """The lowest one first."""
        most = min(len(self._values), MOST_ABOVE, int(LARGEST_SHARE * self.samples))
        while most >= _FEWEST_ABOVE:
            peaks = self._peaks(most)
            if len(peaks.excesses) < FEWEST_PEAKS:
                break
            if len(peaks.excesses) <= _MOST_PEAKS:
                yield peaks
            most = int(most / _THRESHOLDS)

    def _too_few(self) -> str:
        if LARGEST_SHARE * self.samples < _FEWEST_ABOVE:
            return f"fewer than {_FEWEST_ABOVE / LARGEST_SHARE:,.0f} samples"
        if len(self._values) < _FEWEST_ABOVE:
            return (
                "too few different values: a threshold has either more than a tenth of the samples"
                f" above it, or {len(self._values)} of them"
            )
        return f"the samples are in fewer than {FEWEST_PEAKS} clusters"

    def _peaks(self, most: int) -> _Peaks:
        # A sample above this is above `base`, whatever its place in its step.
        threshold = self._base + self._step / 2
        if most < len(self._spread):
            ordered = np.partition(self._spread, len(self._spread) - most - 1)
            threshold = max(threshold, float(ordered[len(ordered) - most - 1]))
        kept = self._spread > threshold
        runs, places, spread = self._runs[kept], self._places[kept], self._spread[kept]
        breaks = np.flatnonzero(np.r_[False, runs[1:] != runs[:-1]])
        found = clusters(places, breaks)
        highest = _highest(spread, found.starts)
        return _Peaks(
            threshold=threshold,
            above=int(np.count_nonzero(kept)),
            index=found.index,
            excesses=spread[highest] - threshold,
            recorded=self._values[kept][highest],
            runs=runs[highest],
            times=(places[highest] + 0.5) / self.samples,
        )

    def _tell(self, peaks: _Peaks, tail: ParetoTail) -> None:
        self._figures = Extrapolation(
            self.samples,
            above=peaks.above,
            threshold=peaks.threshold,
            peaks=len(peaks.excesses),
            index=peaks.index,
            shape=tail.shape,
            scale=tail.scale,
        )

    def _refused(self, reason: str) -> Extrapolation:
        return replace(self._figures, refusal=reason)

    def _not_one_kind(self, peaks: _Peaks) -> str:
        if refusal := _discrete(peaks.recorded, "peaks"):
            return refusal
        shares = self._sizes / self.samples
        of_boots = np.bincount(self._boots, shares).astype(np.float64)
        boots = PeakGroups("boots", self._boots[peaks.runs], of_boots)
        runs = PeakGroups("runs", peaks.runs, shares)
        found = changes_of_peaks(peaks.excesses, peaks.times, boots, runs, self._seed)
        return _changed(found)

    def _misfit(self, peaks: _Peaks, tail: ParetoTail) -> str:
        rows = with_draws(peaks.excesses, tail, REPLICATES, self._seed)
        check = check_fit(standardized(rows), rows)
        return _misfit(check, tail.shape, f"{len(peaks.excesses)} peaks", "Pareto")

    def _level(self, peaks: _Peaks) -> Level | None:
        tail = fitted(peaks.excesses)
        n = len(peaks.excesses)
        level = tail.excess(n * self._times)

        def likelihood(value: float, others: Values) -> float:
            """Of this level, a shape, and the log of the expected number of peaks."""
            shape, expected = float(others[0]), float(np.exp(min(others[1], 50.0)))
            if value <= 0 or expected * self._times <= 1 or abs(shape) > 5:
                return -np.inf
            scale = value / growth(expected * self._times, shape)
            return n * float(others[1]) - expected + log_likelihood(peaks.excesses, shape, scale)

        others = np.array([tail.shape, np.log(n)])
        found = profile_interval(likelihood, level, others, 0.2 * level, _drop(tail.shape))
        if found is None:
            return None
        base = peaks.threshold
        return base + level, base + found[0], base + found[1]


def _with_hull(figures: Extrapolation, levels: Sequence[Level | None]) -> Extrapolation:
    """The level of the first, with the hull of all intervals."""
    found = [level for level in levels if level]
    if len(found) < len(levels):
        return replace(figures, refusal=_ENDLESS)
    interval = (min(low for _, low, _ in found), max(high for _, _, high in found))
    return replace(figures, level=found[0][0], interval=interval)


def _highest(values: Values, starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The position of the highest value of each cluster."""
    numbers = np.zeros(len(values), dtype=np.int64)
    numbers[starts[1:]] = 1
    numbers = np.cumsum(numbers)
    order = np.lexsort((values, numbers))
    return np.sort(order[np.r_[starts[1:], len(values)] - 1])


def _drop(shape: float) -> float:
    return _DROP_AT_END if shape < _IRREGULAR else _DROP


def _discrete(recorded: Values, noun: str) -> str:
    """Why the values follow no smooth distribution, if so."""
    different, counts = np.unique(recorded, return_counts=True)
    if len(different) < _FEWEST_VALUES:
        only = "the same value" if len(different) == 1 else f"only {len(different)} values"
        return f"the {len(recorded)} {noun} have {only}"
    if counts.max() > _COMMONEST * len(recorded):
        return f"{counts.max()} of {len(recorded)} {noun} have the same value"
    return ""


def _changed(found: list[TailChange]) -> str:
    change = first_change(found, _CHANGE_LEVEL)
    return f"{change.what} (p = {change.p:.2g})" if change else ""


def _misfit(check: FitCheck, shape: float, noun: str, law: str) -> str:
    """Why the tail of these peaks or maxima is not extrapolated, if so."""
    p = f"(p = {check.p:.2g})"
    if check.p < _FIT_LEVEL and check.far:
        return f"two causes: the longest of the {noun} reach farther than the others predict {p}"
    if check.p < _FIT_LEVEL:
        return (
            f"the {noun} follow no generalized {law} distribution {p}, which two causes that mix"
            " would explain"
        )
    if shape >= _HEAVIEST:
        return f"the tail is too heavy, as with a second cause: a shape of {shape:.2f} has no mean"
    return ""
