"""Simulated fleets: how often the verdict over machines is right, and how often its intervals cover."""

import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from klat.compare.over_machines import machines_as_pairs
from klat.compare.verdicts import Judgement, Observed, Rules, Unit, Verdict, describe, judge
from klat.stats.means import next_effect
from validation.simulation import Rate

MACHINES = (6, 10, 20)
# Standard deviations of the machines' true ratios, in margins.
SPREADS = (0.0, 0.5, 2.0)
BOOT = 0.01  # standard deviation of the logs of boots


@dataclass(frozen=True)
class Plan:
    """Boots a side on each machine, each with one run."""

    repetitions: int = 1_000
    boots: int = 4
    seed: int = 1
    rules: Rules = Rules()


@dataclass(frozen=True)
class Row:
    """What is found of fleets of one kind, whose mean ratio is the margin, but for `none`."""

    machines: int
    spread: float  # in margins
    unequal: float  # the standard deviation of the logs of the machines' BOOT
    none: Rate  # faster or slower, with a mean ratio of 1
    slower: Rate
    same: Rate
    covers: Rate  # the mean ratio
    next_true: Rate  # the interval for one more machine covers its true ratio
    next_measured: Rate  # and its measured one
    weighted: Rate  # an interval with weights from the machines' errors covers the mean ratio

    def refuted(self, alpha: float) -> list[str]:
        found = [
            what
            for what, held in (
                ("false alarms", self.none),
                ("slower", self.slower),
                ("same", self.same),
            )
            if held.surely[0] > alpha
        ]
        covering = {"coverage": self.covers, "the true ratio of one more": self.next_true}
        if not self.unequal:  # one more machine of another error is not like the others
            covering["one more"] = self.next_measured
        return found + [w for w, held in covering.items() if held.surely[1] < 1 - alpha - 0.01]


def row(machines: int, spread: float, unequal: float, plan: Plan) -> Row:
    draw = np.random.default_rng([plan.seed, machines, int(10 * spread), int(10 * unequal)])
    margin = plan.rules.log_margin
    none, found = [], []
    covers, next_true, next_measured, weighted = [], [], [], []
    for _ in range(plan.repetitions):
        # One more machine than are judged.
        true = margin + draw.normal(0, spread * margin, machines + 1)
        size = (2, machines + 1, plan.boots)
        boots = draw.normal(0, BOOT, size) * np.exp(draw.normal(0, unequal, machines + 1))[:, None]
        boots[1] += true[:, None]
        verdict, effects, errors = _over(boots[:, :machines], plan.rules)
        found.append(verdict.verdict)
        assert verdict.interval
        covers.append(verdict.interval[0] <= math.exp(margin) <= verdict.interval[1])
        low, high = next_effect(effects, 1 - plan.rules.alpha)
        measured = boots[1, machines].mean() - boots[0, machines].mean()
        next_true.append(low <= true[machines] <= high)
        next_measured.append(low <= measured <= high)
        low, high = weighted_interval(effects, errors, 1 - plan.rules.alpha)
        weighted.append(low <= margin <= high)
        boots[1] -= margin
        none.append(_over(boots[:, :machines], plan.rules)[0].verdict)
    return Row(
        machines,
        spread,
        unequal,
        none=Rate.among([v in (Verdict.SLOWER, Verdict.FASTER) for v in none]),
        slower=Rate.among([v is Verdict.SLOWER for v in found]),
        same=Rate.among([v is Verdict.SAME for v in found]),
        covers=Rate.among(covers),
        next_true=Rate.among(next_true),
        next_measured=Rate.among(next_measured),
        weighted=Rate.among(weighted),
    )


def weighted_interval(
    effects: list[float], errors: list[float], confidence: float
) -> tuple[float, float]:
    """What compare does not use: DerSimonian and Laird's weights (Controlled Clinical Trials 7, 1986) with
    the error of Hartung and Knapp."""
    from scipy.special import stdtrit

    y, squares = np.array(effects), np.array(errors) ** 2
    weights, freedom = 1 / squares, len(y) - 1
    q = float(weights @ (y - weights @ y / weights.sum()) ** 2)
    between = max(0.0, (q - freedom) / (weights.sum() - (weights**2).sum() / weights.sum()))
    weights = 1 / (squares + between)
    centre = float(weights @ y / weights.sum())
    error = math.sqrt(float(weights @ (y - centre) ** 2) / freedom / float(weights.sum()))
    reach = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    return centre - reach, centre + reach


def _over(
    boots: np.ndarray, rules: Rules  # type: ignore[type-arg]
) -> tuple[Judgement, list[float], list[float]]:
    """The verdict over machines alone, and the logs of the machines' ratios with their errors, from 2
    sides x machines x boots."""
    alone = {}
    for machine in range(boots.shape[1]):
        base, new = (
            Observed(tuple(Unit(str(i), (log,)) for i, log in enumerate(side[machine].tolist())))
            for side in boots
        )
        alone[str(machine)] = describe(base, new, rules)
    (found,) = judge([machines_as_pairs(alone)], rules)
    effects = [math.log(j.ratio) for j in alone.values() if j.ratio]
    return found, effects, [j.error for j in alone.values() if j.error]


def validate(plan: Plan, workers: int) -> list[Row]:
    """The seed alone decides the outcome, however many workers there are."""
    wanted = [(m, s, u, plan) for u in (0.0, 1.0) for m in MACHINES for s in SPREADS]
    if workers == 1:
        return [row(*each) for each in wanted]
    with ProcessPoolExecutor(workers) as pool:
        return [future.result() for future in [pool.submit(row, *each) for each in wanted]]


def quick(plan: Plan) -> Plan:
    return replace(plan, repetitions=100)
