"""Judges simulated kernels and counts how often the verdict is right."""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from klat.inference.proportion import clopper_pearson
from klat.validation.kernels import SHAPES, Logs, Size
from klat.verdicts import Judgement, Observed, Rules, Unit, Verdict, judge

EFFECTS = (0.04, 0.07, 0.10)
BOOTS = (5, 10, 15)


@dataclass(frozen=True)
class Plan:
    """How much is simulated. A suite is a comparison of `benchmarks` at once."""

    repetitions: int = 2_000
    benchmarks: int = 10
    boots: tuple[int, ...] = BOOTS
    runs: int = 5
    samples: int = 200
    seed: int = 1
    rules: Rules = Rules()


@dataclass(frozen=True)
class Rate:
    """`hits` of `of`; the interval is Clopper and Pearson's at 95 %."""

    hits: int
    of: int

    @property
    def value(self) -> float:
        return self.hits / self.of

    @property
    def interval(self) -> tuple[float, float]:
        return clopper_pearson(self.hits, self.of, 0.95)


@dataclass(frozen=True)
class Error:
    """Of kernels that do not differ, or differ by just the margin."""

    shape: str
    boots: int
    alarm: Rate  # p at most alpha, of one comparison by itself
    suite: Rate  # any faster or slower in a suite
    coverage: Rate  # of the interval
    same: Rate  # `same` said of a difference of the margin

    def refuted(self, alpha: float) -> list[str]:
        """What is claimed and is not so, beyond what chance explains. Every claim is held to its
        interval."""
        found = []
        if self.suite.interval[0] > alpha:
            found.append("false alarms of suites")
        if self.alarm.interval[0] > alpha + 0.01:
            found.append("false alarms of comparisons")
        if self.coverage.interval[1] < 1 - alpha - 0.01 or self.coverage.interval[0] > 0.97:
            found.append("coverage")
        if self.same.interval[0] > alpha:
            found.append("same at the margin")
        return found


@dataclass(frozen=True)
class Power:
    """How often a kernel slower by `effect` is found slower, and how often faster."""

    shape: str
    boots: int
    effect: float
    slower: Rate
    faster: Rate


def side(logs: Logs) -> Observed:
    """One side of one comparison, from boots x runs."""
    return Observed(tuple(Unit(str(i), tuple(boot)) for i, boot in enumerate(logs.tolist())))


def errors(shape_number: int, boots: int, plan: Plan) -> Error:
    """Suites of kernels that do not differ; then the first benchmark of each, off by the margin."""
    shape = SHAPES[shape_number]
    size = Size(boots, plan.runs, plan.samples)
    draw = np.random.default_rng([plan.seed, shape_number, boots, 0])
    alarms = alarmed = covered = compared = same = 0
    margin = plan.rules.log_margin
    for repetition in range(plan.repetitions):
        base, new = (shape.runs(draw, plan.benchmarks, size) for _ in range(2))
        pairs = [(side(a), side(b)) for a, b in zip(base, new)]
        found = judge(pairs, plan.rules)
        compared += len(found)
        alarms += sum(j.p is not None and j.p <= plan.rules.alpha for j in found)
        alarmed += any(j.verdict in (Verdict.FASTER, Verdict.SLOWER) for j in found)
        covered += sum(_covers(j, 1.0) for j in found)
        # Up and down by turns: a side that errs one way only is not to be averaged out.
        off = margin if repetition % 2 else -margin
        judged = judge([(side(base[0]), side(new[0] + off))], plan.rules)
        same += judged[0].verdict is Verdict.SAME
    return Error(
        shape.name,
        boots,
        Rate(alarms, compared),
        Rate(alarmed, plan.repetitions),
        Rate(covered, compared),
        Rate(same, plan.repetitions),
    )


def powers(shape_number: int, boots: int, plan: Plan) -> list[Power]:
    """Each effect on draws of its own."""
    shape = SHAPES[shape_number]
    size = Size(boots, plan.runs, plan.samples)
    found = []
    for number, effect in enumerate(EFFECTS):
        draw = np.random.default_rng([plan.seed, shape_number, boots, 1 + number])
        slower = faster = 0
        for first in range(0, plan.repetitions, 20):
            count = min(20, plan.repetitions - first)
            base, new = (shape.runs(draw, count, size) for _ in range(2))
            for a, b in zip(base, new + math.log1p(effect)):
                (judged,) = judge([(side(a), side(b))], plan.rules)
                slower += judged.verdict is Verdict.SLOWER
                faster += judged.verdict is Verdict.FASTER
        rates = Rate(slower, plan.repetitions), Rate(faster, plan.repetitions)
        found.append(Power(shape.name, boots, effect, *rates))
    return found


def _covers(judgement: Judgement, truth: float) -> bool:
    interval = judgement.interval
    return interval is not None and interval[0] <= truth <= interval[1]


@dataclass(frozen=True)
class Outcome:
    plan: Plan
    errors: list[Error]
    powers: list[Power]


def validate(plan: Plan, workers: int) -> Outcome:
    """Every shape; the seed alone decides the outcome, however many workers there are."""
    shapes = range(len(SHAPES))
    wrong = [(number, count, plan) for number in shapes for count in plan.boots]
    right = [(number, count, plan) for number in shapes for count in BOOTS]
    if workers == 1:
        return Outcome(plan, [errors(*x) for x in wrong], [p for x in right for p in powers(*x)])
    with ProcessPoolExecutor(workers) as pool:
        found = [pool.submit(errors, *x) for x in wrong]
        seen = [pool.submit(powers, *x) for x in right]
        return Outcome(
            plan, [f.result() for f in found], [power for f in seen for power in f.result()]
        )


def quick(plan: Plan) -> Plan:
    """For a test in passing: the same shapes, fewer of them."""
    return replace(plan, repetitions=200, samples=100, boots=(10,))
