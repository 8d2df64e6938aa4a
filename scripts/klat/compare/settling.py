"""What would settle an inconclusive verdict: how many units or runs, if the estimates are correct."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from klat.compare.verdicts import Judgement, Method, Observed, Rules, Settle, Verdict, paired_means
from klat.stats import power
from klat.stats.means import variance
from klat.stats.power import Design, MOST_RUNS, MOST_UNITS, power_of_change, power_of_equivalence
from klat.stats.power import smallest


def settled(
    judged: Sequence[Judgement], pairs: Sequence[tuple[Observed, Observed]], rules: Rules
) -> list[Judgement]:
    """The same judgements, with `settle` for the inconclusive ones. More units than an interim look has
    are judged at a later look, so the level is that of all looks."""
    if rules.look:
        rules = replace(rules, alpha=rules.look.alpha, look=None)
    family = max(1, sum(map(_will_be_tested, judged)))
    alpha = rules.strictest(family)
    return [
        replace(judgement, settle=_settle(judgement, rules, alpha, pair))
        if judgement.verdict is Verdict.INCONCLUSIVE and judgement.interval
        else judgement
        for judgement, pair in zip(judged, pairs)
    ]


def _will_be_tested(judgement: Judgement) -> bool:
    """With too few units, a test has no p yet."""
    is_open = judgement.verdict is Verdict.INCONCLUSIVE and judgement.interval is not None
    return judgement.p is not None or is_open


def _settle(
    draft: Judgement, rules: Rules, alpha: float, pair: tuple[Observed, Observed]
) -> Settle:
    """Settled as the verdict that the estimate suggests, with the strictest correction."""
    assert draft.ratio is not None
    effect, margin = math.log(draft.ratio), rules.log_margin
    changed = Verdict.SLOWER if effect > 0 else Verdict.FASTER
    verdict = changed if abs(effect) > margin else Verdict.SAME
    design = _design(draft, pair)

    def likely(chosen: Design) -> bool:
        if verdict is Verdict.SAME:
            return power_of_equivalence(chosen, effect, margin, rules.alpha) >= rules.power
        return power_of_change(chosen, effect, margin, alpha) >= rules.power

    now = min(draft.base.units, draft.new.units)
    fewest = power.fewest(rules.alpha, design.pairs)
    units = smallest(lambda n: likely(replace(design, units=n)), max(now + 1, fewest), MOST_UNITS)
    runs = None
    if now >= fewest and (shares := _shares(draft, design)):
        runs_a_unit = max(draft.base.runs // draft.base.units, draft.new.runs // draft.new.units)
        thinned = partial(_thinned, design, shares)
        runs = smallest(lambda n: likely(thinned(n)), runs_a_unit + 1, MOST_RUNS)
    return Settle(verdict, units, runs, rules.power)


def _design(draft: Judgement, pair: tuple[Observed, Observed]) -> Design:
    if draft.method is Method.PAIRED:
        pairs, _ = paired_means(*pair)
        observed = variance([b - a for a, b in pairs])
        return Design(len(pairs), observed, pairs=True, resolution=draft.resolution)
    base, new = draft.base.unit, draft.new.unit
    assert base and new and base.observed is not None and new.observed is not None
    units = min(draft.base.units, draft.new.units)
    return Design(units, base.observed, new.observed, resolution=draft.resolution)


Shares = list[tuple[float, float]]


def _shares(draft: Judgement, design: Design) -> Shares | None:
    """The parts of the design's variances: of the units themselves, and of one run. None where they
    are not known."""
    observed = [design.variance_a, design.variance_b]
    runs: list[float] = []
    for side in (draft.base, draft.new):
        if side.run is None or side.run.own is None:
            return None
        runs.append(side.run.own)
    shares = [
        deviation * side.units / side.runs for deviation, side in zip(runs, (draft.base, draft.new))
    ]
    if design.pairs:
        runs, shares = [sum(runs), 0.0], [sum(shares), 0.0]
    return [(max(0.0, whole - s), run) for whole, s, run in zip(observed, shares, runs)]


def _thinned(design: Design, shares: Shares, runs: int) -> Design:
    """The design with this many runs per unit. More runs reduce only their own part of the variance."""
    a, b = (unit + run / runs for unit, run in shares)
    return replace(design, variance_a=a, variance_b=b)
