"""Reads from a pilot of two settings that alternated in one boot how much runs and blocks vary, and
computes how many of each find a given change in the least time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from klat.compare.session_problems import same_samples
from klat.compare.conditions import Declared
from klat.compare.matching import SideUnits, declared_of, matched, side_units
from klat.base.errors import KlatError
from klat.compare.estimands import Estimand, tested_by_default
from klat.stats.means import mean, variance
from klat.compare.least_effort import Effort, Metric, Target, UnitCost, bound, coarse, efforts
from klat.compare.pilot import counted_share
from klat.record import renamed_metrics
from klat.record.session import SessionError, printable
from klat.compare.dataset import Dataset, Key, read_dataset
from klat.compare.runs import Runs
from klat.compare.observations import NoLogarithm, observe
from klat.compare.way_split import split
from klat.compare.verdicts import TURNS, paired_means, spread


@dataclass(frozen=True)
class TurnsPilot:
    """`effort` and `same` as those of klat.compare.pilot.Pilot."""

    labels: tuple[str, str]
    blocks: int
    target: Target
    metrics: tuple[Metric, ...]
    tests: int
    round_seconds: float  # one run of every benchmark
    turn_seconds: float  # before the first run of a turn: the set-up
    effort: Effort | None
    cautious: Effort | None
    same: Effort | None
    cautious_same: Effort | None
    cannot_know: tuple[str, ...]
    problems: tuple[str, ...]

    noun = "block"
    run_noun = "run"

    @property
    def planned(self) -> list[Metric]:
        """The metrics for which a number of blocks is computed."""
        return [metric for metric in self.metrics if not metric.reason]


def plan_turns(paths: Sequence[Path], target: Target) -> TurnsPilot:
    """KlatError or SessionError where the sessions cannot be read or have no run that counts."""
    a, b = (read_dataset(path) for path in paths)
    units = side_units(a, b)
    if not units.base.by_pair or units.subject != "setting":
        raise KlatError(f"{printable(str(paths[0]))}: its blocks and those of its partner differ")
    pairs = [
        pair
        for pair in matched(list(a.cells), list(b.cells), units.declared)
        if _wanted(pair, target) and _comparable(pair, units.declared)
    ]
    if not a.cells or not b.cells:
        raise SessionError(f"{printable(str(paths[0]))}: no run counts, so nothing can be planned")
    if not pairs:
        both_have = {*a.known_metrics()} & {*b.known_metrics()}
        renamed_metrics.require(target.metrics, sorted(both_have))
        raise KlatError("no metric of both sides has one placement, so nothing can be planned")
    seconds, turn_seconds = _costs(a, b)
    paired = [
        (a_key, b_key) for a_key, b_key in pairs if a.cells[a_key].units and b.cells[b_key].units
    ]
    metrics = []
    notes: dict[str, None] = {}  # once for all metrics of a program
    for a_key, b_key in paired:
        parts, said = split(a.cells[a_key], b.cells[b_key])
        base, new = parts[0].base, parts[0].new  # the most there are
        rows = (run.row for run in (*base.runs, *new.runs))
        took = seconds.get(a_key[:3], 0.0)
        for estimand in target.estimands or tested_by_default(rows):
            metrics.append(_metric(a_key, estimand, base, new, units, took, target))
        notes |= {f"{printable(a_key[0])}: {sentence}": None for sentence in said}
    if not metrics:
        raise SessionError(f"{printable(str(paths[0]))}: no run counts, so nothing can be planned")
    usable = [metric for metric in metrics if not metric.reason]
    tests = sum(metric.units > 1 for metric in metrics)
    round_seconds = sum({a_key[:3]: seconds.get(a_key[:3], 0.0) for a_key, _ in paired}.values())
    counted, uncounted = counted_share((s, key) for keys in paired for s, key in zip((a, b), keys))
    cost = UnitCost(turn_seconds, round_seconds, TURNS, pairs=True, counted=counted)
    return TurnsPilot(
        labels=(a.name, b.name),
        blocks=max(_complete(a.cells[a_key], b.cells[b_key], units) for a_key, b_key in paired),
        target=target,
        metrics=tuple(metric.with_alone(target, cost) for metric in metrics),
        tests=max(1, tests),
        round_seconds=round_seconds,
        turn_seconds=turn_seconds,
        **efforts(usable, target, tests, cost),
        cannot_know=(*_left_out(a, b, paired, target), *notes, *_cannot_know(metrics), *uncounted),
        problems=(*a.problems, *b.problems, *same_samples([*a.sessions, *b.sessions])),
    )


def _wanted(pair: tuple[Key, Key], target: Target) -> bool:
    return renamed_metrics.is_asked(target.metrics, pair[0][0], pair[0][3])


def _comparable(pair: tuple[Key, Key], declared: Declared) -> bool:
    """Whether the placement is alike, or under test."""
    a_key, b_key = pair
    return a_key[2] == b_key[2] or bool(declared_of(a_key[0], declared))


def _complete(base_runs: Runs, new_runs: Runs, units: SideUnits) -> int:
    """Blocks in which both settings have a run that counts."""
    a, b = (
        {boots.pairs[key] for key in boots.of(cell) if key in boots.pairs}
        for boots, cell in ((units.base, base_runs), (units.new, new_runs))
    )
    return len(a & b)


def _left_out(
    a: Dataset, b: Dataset, paired: Sequence[tuple[Key, Key]], target: Target
) -> Iterator[str]:
    """Metrics that only one of the settings has."""
    for number, side in enumerate((a, b)):
        on_both = {pair[number] for pair in paired}
        for key in side.cells:
            if key not in on_both and _wanted((key, key), target):
                what = " ".join(f"{key[0]} {key[2]} {key[1].replace(';', ' ')}".split())
                yield (
                    f"left out: {printable(what)}: {printable(key[3])} of {side.name}, for which the"
                    " other setting has no run that counts"
                )


def _costs(a: Dataset, b: Dataset) -> tuple[dict[tuple[str, str, str], float], float]:
    """The median seconds from the start of a run to the next start, by benchmark, params and placement; and
    how much longer this takes if the next run is of the other setting. Medians, because a session may have been interrupted.
    """
    starts = sorted(
        (row.start_ns, number, (row.benchmark, row.params, row.placement))
        for number, side in enumerate((a, b))
        for source in side.sources
        for row in {row.start_ns: row for row in source.session.rows}.values()
    )
    seconds: dict[tuple[str, str, str], list[float]] = {}
    before_switch: list[tuple[tuple[str, str, str], float]] = []
    for (start, side, what), (following, other, _) in zip(starts, starts[1:]):
        taken = (following - start) / 1e9
        if side == other:
            seconds.setdefault(what, []).append(taken)
        else:
            before_switch.append((what, taken))
    for what, taken in before_switch:
        seconds.setdefault(what, []).append(taken)
    costs = {what: median(taken) for what, taken in seconds.items()}
    extra = [max(0.0, taken - costs[what]) for what, taken in before_switch]
    return costs, median(extra) if extra else 0.0


def _metric(
    key: Key,
    estimand: Estimand,
    base_runs: Runs,
    new_runs: Runs,
    units: SideUnits,
    seconds: float,
    target: Target,
) -> Metric:
    runs_held = len(base_runs.runs) + len(new_runs.runs)
    blank = Metric(key, estimand.name, 0, runs_held, None, None, None, seconds)
    try:
        a, b = observe(base_runs, estimand, units.base), observe(new_runs, estimand, units.new)
    except NoLogarithm as error:
        return replace(blank, reason=f"the {estimand.name} of a run {error}")
    if not a.runs or not b.runs:
        return replace(blank, reason=f"no run has its {estimand.name}")
    pairs, _ = paired_means(a, b)
    if len(pairs) < 2:
        reason = "one block is complete" if pairs else "no block is complete"
        return replace(blank, units=len(pairs), reason=reason)
    runs = [variation.run.own if variation.run else None for variation in (spread(a), spread(b))]
    if runs[0] is None or runs[1] is None:
        return replace(blank, units=len(pairs), reason="one run a block")
    observed = variance([new - base for base, new in pairs])
    shares = [
        deviation * mean([1 / len(unit.logs) for unit in side.units])
        for deviation, side in zip(runs, (a, b))
        if deviation is not None
    ]
    known = replace(
        blank,
        units=len(pairs),
        run=runs[0] + runs[1],
        unit=max(0.0, observed - sum(shares)),
        unit_bound=max(0.0, bound(observed, len(pairs)) - sum(shares)),
        resolution=a.resolution + b.resolution,
    )
    return replace(known, reason=coarse(known.resolution, target))


def _cannot_know(metrics: Sequence[Metric]) -> list[str]:
    reasons = []
    if 1 < min((m.units for m in metrics if not m.reason), default=9) < 5:
        reasons.append(
            "few blocks show the variation between blocks only roughly; the cautious plan allows for"
            " that"
        )
    reasons.append("a verdict is about this boot; the change may differ in another boot")
    return reasons
