"""How often the bounds of a share, and the verdicts on them, are wrong: on simulated kernels, and on
a recorded session against itself.

Usage: python3 -m validation.shares [--repetitions N] [--seed N] [SESSION]
"""

import argparse
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from klat.compare.dataset import read_dataset
from klat.compare.judged_limits import p_equal
from klat.compare.verdicts import Rules, too_few
from klat.stats.distribution import Distribution
from klat.stats.exceedance import Exceedance, Tail, Unit
from validation.kernels import Draw, Size
from validation.simulation import Rate

SIZES = (Size(4, 5, 1_000), Size(10, 5, 400), Size(20, 10, 500))
# True shares above the limit.
RARE, OFTEN = 2e-4, 2e-3
_ALPHA = Rules().alpha
# Ticks in one unit of the exponential distribution.
_STEP = 1_000


@dataclass(frozen=True)
class Clustering:
    """Exponential samples. A boot and a run multiply the share above any limit by factors with mean
    1. Every sample is repeated `burst` times in turn."""

    name: str
    boots: float = 0.0  # the coefficient of variation of the factors, which are gamma distributed
    runs: float = 0.0
    burst: int = 1
    states: bool = False  # one boot in five has 4 times the share, the others a quarter

    def samples(self, draw: Draw, size: Size) -> np.ndarray:  # type: ignore[type-arg]
        """In units of the exponential distribution: boots x runs x samples."""
        shape = (size.boots, size.runs, size.samples // self.burst)
        found = draw.exponential(size=shape)
        for spread, outer in ((self.boots, shape[:1] + (1, 1)), (self.runs, shape[:2] + (1,))):
            if spread:
                factors = draw.gamma(1 / spread**2, spread**2, outer)
                found = found + np.log(np.maximum(factors, 1e-9))
        if self.states:
            slow = draw.random((size.boots, 1, 1)) < 0.2
            found = found + np.where(slow, math.log(4), math.log(0.25))
        return found.repeat(self.burst, axis=2)


CLUSTERINGS = (
    Clustering("independent"),
    Clustering("bursts of 5", burst=5),
    Clustering("boots vary by 50 %, runs by 30 %", 0.5, 0.3),
    Clustering("boots vary by 100 %", 1.0),
    Clustering("boots in two states", states=True),
    Clustering("all of these, bursts of 3", 0.5, 0.3, 3, True),
)


class Hits(Counter[str]):
    """Of one clustering and size, `of` tries: how often the upper and the lower bound miss the true share, rare
    and often; how often a side that has a tenth of the share that may be above is within; how often
    equal sides differ, also if one has a tenth of the samples, and sides with a fourfold share do.
    """

    def rate(self, name: str) -> Rate:
        return Rate(self[name], self["of"])


def exceedance(samples: np.ndarray, share: float) -> Exceedance:  # type: ignore[type-arg]
    """With the limit that this share of all samples is above."""
    ticks = np.maximum(0, (samples + 10) * _STEP).astype(np.uint64)
    limit = (10 - math.log(share)) * _STEP
    return Exceedance.of([[Tail.of(Distribution.of(run), limit) for run in boot] for boot in ticks])


def simulate(clustering: Clustering, size: Size, repetitions: int, seed: int) -> Hits:
    draw = np.random.default_rng(seed)
    hits = Hits()
    for _ in range(repetitions):
        one, two = (clustering.samples(draw, size) for _ in range(2))
        rare, often = exceedance(one, RARE), exceedance(one, OFTEN)
        hits["of"] += 1
        hits["upper"] += rare.p_below(RARE) <= _ALPHA
        hits["lower"] += rare.p_above(RARE) <= _ALPHA
        hits["upper_often"] += often.p_below(OFTEN) <= _ALPHA
        hits["lower_often"] += often.p_above(OFTEN) <= _ALPHA
        hits["within"] += rare.p_below(10 * RARE) <= _ALPHA
        hits["differ"] += differ(_units(one, OFTEN), _units(two, OFTEN))
        hits["unequal"] += differ(
            _units(one[:, :, : size.samples // 10], OFTEN), _units(two, OFTEN)
        )
        hits["found"] += differ(_units(one, OFTEN), _units(two, 4 * OFTEN))
    return hits


def _units(samples: np.ndarray, share: float) -> list[Unit]:  # type: ignore[type-arg]
    above = (samples > -math.log(share)).sum(axis=2).tolist()
    return [[(count, samples.shape[2]) for count in boot] for boot in above]


def differ(base: Sequence[Unit], new: Sequence[Unit]) -> bool:
    """Whether two sides are said to differ."""
    if too_few(len(base), len(new), False, "boot", _ALPHA):
        return False
    if not any(above for side in (base, new) for unit in side for above, _ in unit):
        return False
    return p_equal(base, new, False) <= _ALPHA


def split(path: Path, repetitions: int, seed: int) -> Iterator[tuple[str, Hits]]:
    """Each metric of a session against itself: its runs, in the order taken, are cut into ten
    stretches, which are dealt at random to two sides of five. The limit is the p99 of all samples.
    """
    draw = np.random.default_rng(seed)
    for key, cell in read_dataset(path).cells.items():
        runs = cell.runs
        if len(runs) < 100:
            continue
        samples = [run.distribution() for run in runs]
        every = Distribution.merged(samples)
        limit = float(every.values[np.searchsorted(every.ends, 0.99 * every.n)])
        counts = [(each.above(limit), each.n) for each in samples]
        parts = np.array_split(np.arange(len(counts)), 10)
        stretches = [[counts[i] for i in part] for part in parts]
        hits = Hits()
        for _ in range(repetitions):
            order = draw.permutation(10)
            hits["of"] += 1
            dealt = [stretches[i] for i in order]
            hits["differ"] += differ(dealt[:5], dealt[5:])
        yield f"{key[0]} {key[3]}", hits


def main() -> None:
    parser = argparse.ArgumentParser(prog="validation.shares", allow_abbrev=False)
    parser.add_argument("--repetitions", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("session", type=Path, nargs="?")
    args = parser.parse_args()
    if args.session:
        for name, hits in split(args.session, args.repetitions, args.seed):
            print(f"| {name} | {100 * hits.rate('differ').value:.1f} % |")
        return
    for clustering in CLUSTERINGS:
        for size in SIZES:
            found = simulate(clustering, size, args.repetitions, args.seed)
            names = "upper lower upper_often lower_often differ unequal within found".split()
            rates = " | ".join(f"{100 * found.rate(name).value:.1f} %" for name in names)
            shape = f"{size.boots} x {size.runs} x {size.samples:,}"
            print(f"| {clustering.name} | {shape} | {rates} |", flush=True)


if __name__ == "__main__":
    main()
