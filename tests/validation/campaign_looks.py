"""Campaigns with interim looks: how often a verdict at any look is false, and how many boots are saved.

The boots of a round are a pair. Each look calls the code of klat compare's verdicts on the rounds so far.
"""

import argparse
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from klat.campaign.looks import planned_looks
from klat.compare.compare_sides import rules_at
from klat.compare.verdicts import Observed, Rules, Unit, Verdict, judge
from validation.__main__ import rate
from validation.kernels import Draw, Logs
from validation.simulation import Rate

_SETTLED = {Verdict.SAME, Verdict.FASTER, Verdict.SLOWER}
# Rounds and looks. The first look is the earliest that klat allows. (20, 6) has as many looks as klat allows.
DESIGNS = ((20, 2), (20, 6), (42, 3))


@dataclass(frozen=True)
class Boots:
    """`draw` gives the logs of boots, with a standard deviation of 1 if it has one."""

    name: str
    draw: Callable[[Draw, tuple[int, ...]], Logs]


def _normal(draw: Draw, shape: tuple[int, ...]) -> Logs:
    return draw.standard_normal(shape)


def _of_two_kinds(draw: Draw, shape: tuple[int, ...]) -> Logs:
    """4 boots in 10 are slower, by 6 times the noise of the others."""
    logs = draw.standard_normal(shape) + 6 * (draw.random(shape) < 0.4)
    return np.asarray(logs / math.sqrt(1 + 36 * 0.24))


def _heavy(draw: Draw, shape: tuple[int, ...]) -> Logs:
    return np.asarray(draw.standard_t(3, shape) / math.sqrt(3))


def _skewed(draw: Draw, shape: tuple[int, ...]) -> Logs:
    return np.asarray(draw.standard_exponential(shape) - 1)


KINDS = (
    Boots("normal", _normal),
    Boots("two states", _of_two_kinds),
    Boots("Student's t of 3", _heavy),
    Boots("exponential", _skewed),
)


@dataclass(frozen=True)
class Campaigns:
    """The outcome of simulated campaigns.

    - `changed`, `same`: the campaigns with any such verdict at any look, also at a look after the end.
    - `boots`: the mean share of the planned boots that a campaign takes.
    - `settled`: the campaigns with a look that settles every metric.
    """

    changed: Rate
    same: Rate
    boots: float
    settled: Rate


def campaigns(
    rounds: int, looks: int, kind: Boots, spread: float, change: float, metrics: int, rules: Rules,
    repetitions: int, seed: int,
) -> Campaigns:  # fmt: skip
    """`spread` is the standard deviation of boots, and `change` the change between kernels; both are logs."""
    draw = np.random.default_rng([seed, rounds, looks])
    planned = planned_looks(rounds, looks)
    levels = [rules_at(look, planned, rules) for look in planned]
    changed = same = settled = 0
    boots = 0.0
    for _ in range(repetitions):
        base, new = (spread * kind.draw(draw, (metrics, rounds)) for _ in range(2))
        held = [_verdicts(base, new + change, look, at) for look, at in zip(planned, levels)]
        changed += any({Verdict.FASTER, Verdict.SLOWER} & verdicts for verdicts in held)
        same += any(Verdict.SAME in verdicts for verdicts in held)
        ends = [look for look, verdicts in zip(planned, held) if verdicts <= _SETTLED]
        boots += (ends or planned[-1:])[0] / rounds
        settled += bool(ends)
    rates = [Rate(n, repetitions) for n in (changed, same, settled)]
    return Campaigns(rates[0], rates[1], boots / repetitions, rates[2])


def _verdicts(base: Logs, new: Logs, rounds: int, rules: Rules) -> set[Verdict]:
    """The verdicts of all metrics, as one family."""
    pairs = [(_side(one), _side(two)) for one, two in zip(base[:, :rounds], new[:, :rounds])]
    return {judgement.verdict for judgement in judge(pairs, rules) if judgement.verdict}


def _side(logs: Logs) -> Observed:
    return Observed(tuple(Unit(str(i), (x,), str(i)) for i, x in enumerate(logs.tolist())))


@dataclass(frozen=True)
class Level:
    """The campaigns with a false verdict, for one kind of boots and one design.

    - `none`: one metric, kernels that do not differ, margin 0.
    - `suite`: the same with ten metrics.
    - `changed`, `same`: one metric, kernels that differ by the margin.
    """

    kind: str
    rounds: int
    looks: int
    none: Rate
    suite: Rate
    changed: Rate
    same: Rate

    @property
    def rates(self) -> tuple[Rate, ...]:
        return self.none, self.suite, self.changed, self.same

    def refuted(self, alpha: float) -> bool:
        return any(held.surely[0] > alpha for held in self.rates)


def level(kind: Boots, design: tuple[int, int], repetitions: int, seed: int) -> Level:
    rules, strict = Rules(), Rules(margin=0.0)
    margin = rules.log_margin
    # The margin is 4 standard errors at the end.
    spread = margin / 4 * math.sqrt(design[0] / 2)
    suite = campaigns(*design, kind, spread, 0.0, 10, strict, repetitions, seed)
    # One metric takes less time, so there are more of them.
    none = campaigns(*design, kind, spread, 0.0, 1, strict, 8 * repetitions, seed)
    apart = campaigns(*design, kind, spread, margin, 1, rules, 8 * repetitions, seed)
    return Level(kind.name, *design, none.changed, suite.changed, apart.changed, apart.same)


_LEVELS = """\
| boots | rounds, looks | no change, margin 0 | the same, ten metrics | change of the margin: faster or slower | `same` | |
|---|---|---:|---:|---:|---:|---|"""


def _row(one: Level, alpha: float) -> str:
    rates = " | ".join(map(rate, one.rates))
    claim = "refuted" if one.refuted(alpha) else "holds"
    return f"| {one.kind} | {one.rounds}, {one.looks} | {rates} | {claim} |"


def _savings(repetitions: int, seed: int) -> Iterator[str]:
    designs = (*DESIGNS, (60, 4))
    yield f"| boots vary by | {' | '.join(f'{n} rounds, {k} looks' for n, k in designs)} |"
    yield f"|---:|{'---:|' * len(designs)}"
    change = math.log(1.05)
    for spread in (0.005, 0.01, 0.02, 0.03):
        cells = []
        for design in designs:
            found = campaigns(*design, KINDS[0], spread, change, 10, Rules(), repetitions, seed)
            cells.append(f"{100 * (1 - found.boots):.0f} % ({100 * found.settled.value:.0f} %)")
        yield f"| {100 * spread:g} % | {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make validate-looks", allow_abbrev=False)
    parser.add_argument("--repetitions", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    args = parser.parse_args()
    alpha, refuted = Rules().alpha, False
    print("Boots saved at a change of 5 % in ten metrics, and campaigns that settle all of them:\n")
    for line in _savings(args.repetitions // 5, args.seed):
        print(line, flush=True)
    print(f"\nFalse verdicts at any look:\n\n{_LEVELS}", flush=True)
    kinds, designs = zip(*itertools.product(KINDS, DESIGNS))
    same = map(itertools.repeat, (args.repetitions, args.seed))
    with ProcessPoolExecutor(args.workers) as pool:
        for one in pool.map(level, kinds, designs, *same):
            print(_row(one, alpha), flush=True)
            refuted |= one.refuted(alpha)
    return int(refuted)


if __name__ == "__main__":
    sys.exit(main())
