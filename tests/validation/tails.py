"""How often the extrapolation of a known tail is right, and how often a tail that must be refused is.

`make validate-tails` prints the tables of docs/tail.md.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from klat.stats.extremes import (
    LARGEST_SHARE,
    MOST_ABOVE,
    Extrapolation,
    RunTail,
    SoakSegment,
    block_maxima,
    peaks_over_threshold,
)
from validation.interval import clopper_pearson

Values = npt.NDArray[np.float64]
Draw = np.random.Generator

RUNS = 100
SEGMENT = 60_000  # samples: a minute at a period of 1 ms


@dataclass(frozen=True)
class TwoCauses:
    """A share of the samples is from the second cause."""

    first: Any
    second: Any
    share: float

    def samples(self, n: int, draw: Draw) -> Values:
        made = np.asarray(self.first.ppf(draw.random(n)))
        from_it = draw.random(n) < self.share
        made[from_it] = self.second.ppf(draw.random(int(from_it.sum())))
        return made

    def maxima(self, segments: int, draw: Draw) -> Values:
        counts = draw.binomial(SEGMENT, self.share, segments)
        made = _segment_maxima(self.first, segments, draw)
        of_second = self.second.ppf(draw.random(segments) ** (1 / np.maximum(1, counts)))
        return np.where(counts > 0, np.maximum(made, of_second), made)

    def level(self, horizon: float) -> float:
        from scipy.optimize import brentq

        def exceeded(level: float) -> float:
            share = (1 - self.share) * self.first.sf(level) + self.share * self.second.sf(level)
            return float(np.log(max(share, 1e-300) * horizon))

        farthest = self.first.isf(1e-3 / horizon) + self.second.isf(1e-3 / horizon)
        return float(brentq(exceeded, 0, farthest))

    def evidence(self, samples: Values) -> float:
        """The log likelihood ratio of two causes to the first one alone."""
        of_first, of_second = self.first.logpdf(samples), self.second.logpdf(samples)
        ratios = np.log1p(-self.share), np.log(self.share) + of_second - of_first
        return float(np.logaddexp(*ratios).sum())


@dataclass(frozen=True)
class Case:
    """`level` is the true level; None if the extrapolation must be refused. `samples` counts those of all
    runs, `segments` those of a soak. The horizon is `times` as long. `mix` is None if the tail has one
    cause."""

    name: str
    make: Callable[[Draw], Values]
    level: float | None
    samples: int
    times: float
    boots: int = 1
    segments: int = 0
    mix: TwoCauses | None = None

    def extrapolate(self, seed: int) -> Extrapolation:
        made = self.make(np.random.default_rng([seed, len(self.name), self.samples]))
        horizon = self.times * self.samples
        if self.segments:
            return block_maxima([SoakSegment("boot", SEGMENT, float(x)) for x in made], horizon)
        most = min(MOST_ABOVE, int(LARGEST_SHARE * len(made)))
        base = float(np.partition(made, len(made) - most - 1)[len(made) - most - 1])
        runs = []
        for number, run in enumerate(np.split(made, RUNS)):
            places = np.flatnonzero(run > base)
            boot = str(number * self.boots // RUNS)
            runs.append(RunTail(boot, len(run), places, run[places]))
        return peaks_over_threshold(runs, base, horizon)


@dataclass(frozen=True)
class Found:
    """How often the interval of a case was refused, covered the true level, was above it and below it."""

    case: Case
    repetitions: int
    refused: int
    covers: int
    above: int
    below: int
    ratio: float  # the median of level over true level
    width: float  # the median of the upper over the lower end of the interval
    perfect: float | None = None  # the share that a perfect test would refuse

    @property
    def answered(self) -> int:
        return self.repetitions - self.refused


def _known() -> dict[str, Any]:
    from scipy import stats

    return {
        "exponential": stats.expon(),
        "Pareto, shape 0.2": stats.genpareto(0.2),
        "Pareto, shape 0.3": stats.genpareto(0.3),
        "Pareto, shape 0.5": stats.genpareto(0.5),
        "lognormal, sigma 1": stats.lognorm(1),
        "normal": stats.norm(),
        "bounded (reversed Weibull), shape -0.3": stats.genextreme(0.3),
        "uniform": stats.uniform(),
    }


def _independent(law: Any, n: int, draw: Draw) -> Values:
    return np.asarray(law.ppf(draw.random(n)))


def _moving_maximum(law: Any, n: int, draw: Draw) -> Values:
    """Each value is the larger of two neighbours, so extremes come in pairs: extremal index 1/2."""
    root = draw.random(n + 1) ** 2
    return np.asarray(law.ppf(np.maximum(root[1:], root[:-1])))


def _segment_maxima(law: Any, count: int, draw: Draw) -> Values:
    return np.asarray(law.isf(-np.expm1(np.log(draw.random(count)) / SEGMENT)))


def known_cases(samples: int, times: float) -> Iterator[Case]:
    laws = _known()
    horizon = samples * times
    for name, law in laws.items():
        make = partial(_independent, law, samples)
        yield Case(name, make, float(law.isf(1 / horizon)), samples, times)
    for name in ("exponential", "Pareto, shape 0.3"):
        make = partial(_moving_maximum, laws[name], samples)
        level = float(laws[name].isf(2 / horizon))
        yield Case(f"{name}; extremes in pairs", make, level, samples, times)


def segment_cases(segments: int, times: float) -> Iterator[Case]:
    samples = segments * SEGMENT
    for name, law in _known().items():
        make = partial(_segment_maxima, law, segments)
        level = float(law.isf(1 / (samples * times)))
        yield Case(f"{name}; segments", make, level, samples, times, segments=segments)


def two_cause_cases(samples: int, segments: int) -> Iterator[Case]:
    from scipy import stats

    first = stats.expon()
    for counts, second, name in (
        ((3, 10, 100), stats.expon(300, 30), "from 300 scales on"),
        ((3, 10, 100), stats.expon(30, 30), "from 30 scales on"),
        ((3, 5, 10, 30, 100), stats.expon(0, 20), "20 times the scale"),
        ((3, 10, 30, 100), stats.expon(0, 5), "5 times the scale"),
        ((30, 100), stats.expon(0, 3), "3 times the scale"),
        ((10, 30), stats.uniform(0, 30), "up to 30 scales"),
        ((10, 30), stats.genpareto(0.3, 0, 10), "10 times the scale, Pareto, shape 0.3"),
    ):
        for count in counts:
            mix = TwoCauses(first, second, count / samples)
            yield _mixed(f"{count} of another cause, {name}", mix, samples)
    beside = TwoCauses(stats.genpareto(0.2), stats.expon(0, 100), 10 / samples)
    yield _mixed("10 of another cause, 100 times the scale; Pareto, shape 0.2", beside, samples)
    of_soak = segments * SEGMENT
    for count in (3, 10, 30):
        mix = TwoCauses(first, stats.expon(0, 20), count / of_soak)
        name = f"{count} of another cause, 20 times the scale; segments"
        level = mix.level(of_soak * 10)
        make = partial(mix.maxima, segments)
        yield Case(name, make, level, of_soak, 10, segments=segments, mix=mix)
    mix = TwoCauses(first, stats.uniform(300, 30), 12 / of_soak)
    make = partial(mix.maxima, segments)
    name = "12 of another cause, 300 to 330 scales; segments"
    yield Case(name, make, mix.level(of_soak * 10), of_soak, 10, segments=segments, mix=mix)


def _mixed(name: str, mix: TwoCauses, samples: int) -> Case:
    times = 50
    level = mix.level(samples * times)
    return Case(name, partial(mix.samples, samples), level, samples, times, mix=mix)


def _scaled(scales: Values, n: int, draw: Draw) -> Values:
    """Exponential samples, of which each part of the measurement has another scale."""
    made: Values = draw.standard_exponential(n) * np.repeat(scales, n // len(scales))
    return made


def _run_scales(n: int, draw: Draw) -> Values:
    return _scaled(np.exp(0.2 * draw.standard_normal(RUNS)), n, draw)


def _few_values(n: int, draw: Draw) -> Values:
    return np.where(draw.random(n) < 0.003, 1000.0 + draw.integers(0, 12, n), 340.0)


def changing_cases(samples: int, times: float) -> Iterator[Case]:
    rest = (None, samples, times)
    grows = partial(_scaled, np.linspace(1, 1.5, RUNS), samples)
    yield Case("the scale grows by half", grows, *rest)
    one = partial(_scaled, np.array([1, 1, 1, 1, 1.2]), samples)
    yield Case("one of five boots has 1.2 times the scale", one, *rest, boots=5)
    yield Case("the scales of runs vary by 20 %", partial(_run_scales, samples), *rest)
    yield Case("twelve values only", partial(_few_values, samples), *rest)


def judge(case: Case, repetitions: int, seed: int = 1) -> Found:
    refused = covers = above = below = 0
    ratios, widths = [], []
    for repetition in range(repetitions):
        found = case.extrapolate(1_000_000 * seed + repetition)
        if found.level is None or found.interval is None:
            refused += 1
        elif case.level is not None:
            low, high = found.interval
            above += low > case.level
            below += high < case.level
            covers += low <= case.level <= high
            ratios.append(found.level / case.level)
            widths.append(high / low)
    ratio, width = (float(np.median(x)) if x else float("nan") for x in (ratios, widths))
    return Found(case, repetitions, refused, covers, above, below, ratio, width)


def perfect_refusal(case: Case, draws: int = 400, level: float = 0.05) -> float | None:
    """The share of tails with two causes that a test can refuse if it knows both distributions, and refuses
    the share `level` of the tails with one cause: no test has more power (Neyman and Pearson)."""
    if case.mix is None or case.segments:
        return None
    draw = np.random.default_rng(1)
    alone = [
        case.mix.evidence(_independent(case.mix.first, case.samples, draw)) for _ in range(draws)
    ]
    both = [case.mix.evidence(case.mix.samples(case.samples, draw)) for _ in range(draws)]
    return float(np.mean(np.array(both) > np.quantile(alone, 1 - level)))


def _judged(case: Case, repetitions: int, seed: int) -> Found:
    return replace(judge(case, repetitions, seed), perfect=perfect_refusal(case))


def _rate(count: int, of: int) -> str:
    if not of:
        return "n/a"
    low, high = clopper_pearson(count, of, 0.95)
    return f"{100 * count / of:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def markdown(found: list[Found]) -> Iterator[str]:
    yield (
        "| tail | no extrapolation | the interval covers | too high | too low | level over true level"
        " | upper over lower end |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for f in (f for f in found if f.case.level is not None and not f.case.mix):
        rates = [_rate(f.refused, f.repetitions)]
        rates += [_rate(count, f.answered) for count in (f.covers, f.above, f.below)]
        yield f"| {f.case.name} | {' | '.join(rates)} | {f.ratio:.2f} | {f.width:.2g} |"
    yield ""
    yield (
        "| tail | no extrapolation | the interval covers | too high | too low | refused or covered"
        " | a perfect test refuses |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for f in (f for f in found if f.case.mix):
        counts = (f.refused, f.covers, f.above, f.below, f.refused + f.covers)
        rates = [_rate(count, f.repetitions) for count in counts]
        rates.append("n/a" if f.perfect is None else f"{100 * f.perfect:.0f} %")
        yield f"| {f.case.name} | {' | '.join(rates)} |"
    yield ""
    yield "| tail | no extrapolation |"
    yield "|---|---:|"
    for f in (f for f in found if f.case.level is None):
        yield f"| {f.case.name} | {_rate(f.refused, f.repetitions)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="make validate-tails", allow_abbrev=False)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    args = parser.parse_args()
    cases = [*known_cases(100_000, 50), *segment_cases(120, 10), *two_cause_cases(100_000, 120)]
    cases += changing_cases(100_000, 50)
    one = partial(_judged, repetitions=args.repetitions, seed=args.seed)
    with ProcessPoolExecutor(args.workers) as pool:
        for line in markdown(list(pool.map(one, cases))):
            print(line)


if __name__ == "__main__":
    main()
