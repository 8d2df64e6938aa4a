"""Simulated kernels: samples within runs within boots, of shapes that are hard on statistics.

Each draws the logs of samples around a log median of 0; boots and runs are drawn for every
comparison and side by themselves, so that nothing they share can cancel.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from klat.compare.estimands import MEAN, MEDIAN, Estimand
from klat.stats.descriptive import rank

Logs = npt.NDArray[np.float64]
Samples = npt.NDArray[np.float32]
Draw = np.random.Generator

# Standard deviations of the logs of boots and of runs within a boot.
BOOT, RUN = 0.005, 0.01
# Of a coarse counter, in ticks.
STEP = 26


@dataclass(frozen=True)
class Size:
    """Of one side of one comparison."""

    boots: int
    runs: int
    samples: int


@dataclass(frozen=True)
class Shape:
    """`samples` draws the logs of samples around 0, for runs x samples; `boots` those of boots. Where
    the counter is coarse, runs read `ticks` at steps of `STEP`."""

    name: str
    about: str
    estimand: Estimand
    samples: Callable[[Draw, tuple[int, ...]], Samples]
    boots: Callable[[Draw, tuple[int, ...]], Logs]
    run: float = RUN
    ticks: float = 0.0

    def runs(self, draw: Draw, count: int, size: Size) -> Logs:
        """The logs of the runs' true figures: count x boots x runs."""
        shape = (count, size.boots, size.runs)
        shifts = self.boots(draw, shape[:2])[:, :, None] + draw.normal(0, self.run, shape)
        logs = self.samples(draw, (*shape, size.samples))
        if self.estimand.q is None:
            found = np.log(np.exp(logs, dtype=np.float64).mean(axis=-1))
        else:
            at = rank(size.samples, self.estimand.q) - 1
            # The order of logs is that of the samples, so the same one is the quantile.
            found = np.partition(logs, at, axis=-1)[..., at].astype(np.float64)
        return np.asarray(found + shifts)


def _normal(draw: Draw, shape: tuple[int, ...]) -> Samples:
    return draw.standard_normal(shape, dtype=np.float32) * np.float32(0.2)


def _narrow(draw: Draw, shape: tuple[int, ...]) -> Samples:
    return _normal(draw, shape) / np.float32(10)


def _pareto(draw: Draw, shape: tuple[int, ...]) -> Samples:
    return draw.standard_exponential(shape, dtype=np.float32) / np.float32(1.5)


def _remembering(draw: Draw, shape: tuple[int, ...]) -> Samples:
    from scipy.signal import lfilter

    memory = 0.9
    noise = draw.standard_normal(shape, dtype=np.float32)
    start = draw.standard_normal((*shape[:-1], 1), dtype=np.float32) * np.float32(memory)
    step = np.array([np.sqrt(1 - memory**2)], dtype=np.float32)
    back = np.array([1, -memory], dtype=np.float32)
    series, _ = lfilter(step, back, noise, axis=-1, zi=start)
    return np.asarray(series, dtype=np.float32) * np.float32(0.2)


def _alike(draw: Draw, shape: tuple[int, ...]) -> Logs:
    return draw.normal(0, BOOT, shape)


def _of_two_kinds(draw: Draw, shape: tuple[int, ...]) -> Logs:
    kind = draw.random(shape) < 0.4
    return np.asarray(draw.normal(0, BOOT / 2, shape) + 0.03 * kind)


SHAPES = (
    Shape("lognormal", "samples of 20 % standard deviation", MEDIAN, _normal, _alike),
    Shape("bimodal boots", "4 boots in 10 are 3 % slower", MEDIAN, _normal, _of_two_kinds),
    Shape("Pareto(1.5)", "tails without a variance", MEDIAN, _pareto, _alike),
    Shape("Pareto(1.5), mean", "the same tails", MEAN, _pareto, _alike),
    Shape("AR(1) 0.9", "autocorrelated samples", MEDIAN, _remembering, _alike),
    Shape("coarse", "340 ticks at steps of 26; samples of 2 %", MEDIAN, _narrow, _alike, RUN, 340),
    Shape("coarse, spread", "1,000 ticks at steps of 26; runs vary by 3 %", MEDIAN, _narrow, _alike, 0.03, 1000),  # fmt: skip
)
