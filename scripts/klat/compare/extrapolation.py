"""Extrapolates the tails of the metrics of some labels to a horizon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from klat.base.errors import KlatError
from klat.compare.dataset import Dataset
from klat.compare.horizon import Horizon
from klat.compare.settings import Measurement, Setting, counted
from klat.compare.sources import Run
from klat.record.session import Row, SessionError
from klat.stats.distribution import Distribution
from klat.stats.extremes import (
    LARGEST_SHARE,
    MOST_ABOVE,
    SoakSegment,
    Extrapolation,
    RunTail,
    block_maxima,
    peaks_over_threshold,
)

NEEDS_NUMBER = (
    "a horizon in time needs a periodic program (timer --mode periodic) or a soak; give a number of"
    " samples"
)


@dataclass(frozen=True)
class MeasuredTail:
    """The tail of one metric of a label, in its unit. `largest` is the maximum. `horizon` is in samples;
    None if it is a time and the metric has no fixed rate. `found` is None if the horizon is not longer
    than the measurement: then the maximum is the answer."""

    samples: int
    largest: int
    boots: int
    horizon: float | None
    found: Extrapolation | None


@dataclass(frozen=True)
class LabelHorizons:
    """The tails of all measurements with a run that counts, by id(measurement)."""

    horizon: Horizon
    found: dict[int, MeasuredTail]


def label_horizons(
    labels: Sequence[Dataset], horizon: Horizon, failed: Callable[[str], None]
) -> LabelHorizons:
    """`failed` gets the reason if samples cannot be read. KlatError if no metric has this horizon."""
    measured = [(label, *each) for label in labels for each in counted(label.settings)]
    if measured and all(horizon.of(setting, each) is None for _, setting, each in measured):
        raise KlatError(f"--horizon {horizon.text}: {NEEDS_NUMBER}")
    found: dict[int, MeasuredTail] = {}
    for label, setting, each in measured:
        try:
            found[id(each)] = measured_tail(label, setting, each, horizon)
        except SessionError as error:
            failed(str(error))
    return LabelHorizons(horizon, found)


def measured_tail(
    label: Dataset, setting: Setting, measurement: Measurement, horizon: Horizon
) -> MeasuredTail:
    """Of a metric with a run that counts. SessionError where samples are missing."""
    distribution = measurement.distribution()
    samples, largest = distribution.n, int(distribution.max)
    wanted = horizon.of(setting, measurement)
    found = None
    if wanted is None:
        found = Extrapolation(samples, refusal=NEEDS_NUMBER)
    elif wanted > samples:
        found = _extrapolated(label, measurement, distribution, wanted)
    return MeasuredTail(samples, largest, measurement.boots, wanted, found)


def _extrapolated(
    label: Dataset, measurement: Measurement, distribution: Distribution, horizon: float
) -> Extrapolation:
    runs = measurement.runs
    left_out = [run.row.max or 0 for run in measurement.unusable]
    if left_out and max(left_out) > distribution.max:
        reason = f"a run that does not count has a longer sample ({max(left_out):,} {label.unit})"
        return Extrapolation(distribution.n, refusal=reason)
    if repeated := _repeated(runs):
        reason = f"{repeated} of {len(runs)} runs repeat another one exactly, and show nothing new"
        return Extrapolation(distribution.n, refusal=reason)
    soaks = sum(run.row.soak for run in runs)
    if soaks == len(runs):
        blocks = [SoakSegment(r.row.boot, r.row.n or 0, float(r.row.max or 0)) for r in runs]
        return block_maxima(blocks, horizon, label.step)
    if soaks:
        reason = "some runs are segments of a soak, and some are not"
        return Extrapolation(distribution.n, refusal=reason)
    most = min(MOST_ABOVE, int(LARGEST_SHARE * distribution.n))
    base = distribution.values[np.searchsorted(distribution.ends, distribution.n - most)]
    tails = [_tail(run, base) for run in runs]
    return peaks_over_threshold(tails, float(base), horizon, label.step)


def _repeated(runs: Sequence[Run]) -> int:
    """How many runs have the same statistics as an earlier one. In counted mode, two boots of one seed are
    equal byte for byte."""
    different = {_figures(run.row) for run in runs if run.row.n and run.row.n > 1}
    return sum(bool(run.row.n and run.row.n > 1) for run in runs) - len(different)


def _figures(row: Row) -> tuple[object, ...]:
    return (row.n, row.mean, row.stddev, row.min, row.p50, row.p90, row.p99, row.max)


def _tail(run: Run, base: np.uint64) -> RunTail:
    """The samples above `base`. If the metric has several samples in an iteration, they are neighbours."""
    n = run.row.n or 0
    places, values = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.uint64)]
    start = 0
    for part in run.parts():
        above = np.flatnonzero(part > base)
        places.append(above + start)
        values.append(part[above])
        start += len(part)
    place, value = np.concatenate(places), np.concatenate(values)
    iterations = run.row.options().get("iterations", "")
    each = int(iterations) if iterations.isascii() and iterations.isdigit() else n
    if 0 < each < n and n % each == 0:
        place = place % each * (n // each) + place // each
        order = np.argsort(place)
        place, value = place[order], value[order]
    return RunTail(run.row.boot, n, place, value.astype(np.float64))
