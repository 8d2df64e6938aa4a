"""Reads from a pilot how much runs and boots vary, and computes how many of each find a given
change in the least time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from statistics import median

from klat.base.errors import KlatError
from klat.compare.session_problems import same_samples
from klat.compare.estimands import Estimand, tested_by_default
from klat.record import renamed_metrics
from klat.record.json_files import seconds_of_runs
from klat.record.rows import is_soak, run_noun
from klat.record.session import Session, SessionError, printable
from klat.compare.dataset import Dataset, Key, read_dataset
from klat.compare.runs import Runs
from klat.compare.observations import NoLogarithm, Units, observe
from klat.compare.least_effort import CAUTION, Effort, Metric, Target, UnitCost, bound, coarse
from klat.compare.least_effort import efforts, least_effort
from klat.compare.verdicts import spread

# Variations between boots for which a pilot of one boot lists the number of boots.
ASSUMED = (0.002, 0.005, 0.01, 0.02)
_SOAK = re.compile(r"(?:^|;)soak=([0-9]{1,9})(?:;|$)", re.ASCII)
# Why nothing is planned for a metric.
ONE_BOOT = "one boot"
ONE_RUN = "one run"


@dataclass(frozen=True)
class Pilot:
    """`effort` finds the change in all metrics together. `same` shows that all are the same if
    nothing has changed (exit status 0); it is None with a margin of 0. The `cautious` ones use the
    bound of the variances. `assumed` has an `effort` for each assumed variation between boots, if
    the pilot is one boot. If the pilot is a soak, a run is a segment of `segment_s` (None if the
    segments differ in length)."""

    label: str
    target: Target
    metrics: tuple[Metric, ...]
    tests: int
    round_seconds: float | None  # one run of every benchmark; None if unknown
    effort: Effort | None
    cautious: Effort | None
    same: Effort | None
    cautious_same: Effort | None
    assumed: tuple[tuple[float, Effort | None], ...]
    cannot_know: tuple[str, ...]
    problems: tuple[str, ...]
    run_noun: str = "run"
    segment_s: int | None = None

    noun = "boot"

    @property
    def boots_of_metrics(self) -> list[int]:
        """In how many boots each metric was measured, for every number that occurs."""
        return sorted({metric.units for metric in self.metrics} - {0})

    @property
    def planned(self) -> list[Metric]:
        """The metrics for which a number of boots is computed, if only for assumed variations."""
        return [m for m in self.metrics if not m.reason or (m.reason == ONE_BOOT and self.assumed)]


def plan_path(path: Path, target: Target) -> Pilot:
    """SessionError or KlatError where the pilot cannot be read or has no run that counts."""
    side = read_dataset(path)
    _require_one_pool(side)
    metric_names = target.metrics
    cells = {
        key: c
        for key, c in side.cells.items()
        if renamed_metrics.is_asked(metric_names, key[0], key[3])
    }
    if not cells:
        if unmeasurable := side.unmeasurable_lines(target.metrics):
            where = printable(str(path))
            raise SessionError(f"{where}: {'; '.join(unmeasurable)}, so nothing can be planned")
        if side.cells:
            renamed_metrics.require(target.metrics, side.known_metrics())
    cells = {key: cell for key, cell in cells.items() if cell.units}
    if not cells:
        raise SessionError(f"{printable(str(path))}: no run counts, so nothing can be planned")
    cells, soaks_left_out = _without_soaks(cells)
    counted, uncounted = counted_share((side, key) for key in cells)
    cells, left_out = _of_one_kind(cells)
    costs = _run_costs(side)
    metrics = [
        _metric(key, estimand, cell, costs, target)
        for key, cell in cells.items()
        for estimand in target.estimands or tested_by_default(run.row for run in cell.runs)
    ]
    tests = sum(metric.units > 0 for metric in metrics)
    usable = [metric for metric in metrics if not metric.reason]
    round_seconds = _round_seconds(metrics)
    cost = UnitCost(target.boot_seconds, round_seconds, counted=counted)
    unmeasurable = side.unmeasurable_lines(target.metrics)
    return Pilot(
        label=side.name,
        target=target,
        metrics=tuple(metric.with_alone(target, cost) for metric in metrics),
        tests=max(1, tests),
        round_seconds=round_seconds,
        **efforts(usable, target, tests, cost),
        assumed=_assumed(metrics, target, tests, cost) if not usable else (),
        cannot_know=(*_cannot_know(metrics), *uncounted, *soaks_left_out, *left_out, *unmeasurable),
        problems=(*side.problems, *same_samples(side.sessions)),
        run_noun=run_noun(all(is_soak(key[1]) for key in cells)),
        segment_s=_segment_seconds(cells),
    )


def counted_share(planned: Iterable[tuple[Dataset, Key]]) -> tuple[Fraction, list[str]]:
    """The smallest share of runs that count, over the metrics; and a sentence if it is below 1. At least one run of
    each metric counts."""
    share, sentences = Fraction(1), []
    for side, key in planned:
        cell = side.cells[key]
        failed = sum(runs.statuses.total() for of, runs in side.failed.items() if of[:2] == key[:2])
        count, total = len(cell.runs), cell.statuses.total() + failed
        if Fraction(count, total) < share:
            share = Fraction(count, total)
            noun = run_noun(is_soak(key[1]))
            sentences = [
                f"{total - count:,} of {total:,} {noun}s of {printable(key[0])} did not count; the plan adds"
                f" {noun}s, as many as make up for the same loss"
            ]
    return share, sentences


def _require_one_pool(side: Dataset) -> None:
    """Boots of several kinds vary more than boots of one kernel."""
    pools = side.pools()
    if len(pools) > 1:
        kinds = " | ".join(pool.apart_text for pool in pools)
        raise KlatError(
            f"{printable(str(side.path))}: its sessions are of {len(pools)} kinds that compare does"
            f" not pool ({printable(kinds)}); plan from a session, or give each kind a label"
        )


def _without_soaks(cells: dict[Key, Runs]) -> tuple[dict[Key, Runs], list[str]]:
    """No boot holds as many segments of a soak as runs of other programs, so a soak beside such runs is
    left out, with a sentence."""
    runs = {key: cell for key, cell in cells.items() if not is_soak(key[1])}
    if not runs or len(runs) == len(cells):
        return cells, []
    names = ", ".join(dict.fromkeys(key[0] for key in cells if key not in runs))
    return runs, [printable(f"left out: the soak of {names}; to plan it, name its session")]


def _segment_seconds(cells: Iterable[Key]) -> int | None:
    """The length of the segments of all soaks."""
    lengths = {int(match[1]) for key in cells if (match := _SOAK.search(key[1]))}
    return lengths.pop() if len(lengths) == 1 else None


def _round_seconds(metrics: Sequence[Metric]) -> float | None:
    """One run of every benchmark. Programs that soak together take the time of one. None if the time
    of a run is unknown."""
    by_setting: dict[tuple[str, ...], float] = {}
    for metric in metrics:
        if metric.run_seconds is None:
            return None
        name = ("together",) if ";together=" in f";{metric.key[1]}" else metric.key[:3]
        by_setting[name] = max(by_setting.get(name, 0.0), metric.run_seconds)
    return sum(by_setting.values())


def _of_one_kind(cells: dict[Key, Runs]) -> tuple[dict[Key, Runs], list[str]]:
    """For each metric, the largest group of runs that may be in one figure; and sentences on the
    other runs."""
    kept: dict[Key, Runs] = {}
    left_out: dict[str, None] = {}  # once for all metrics of a program
    for key, cell in cells.items():
        kinds = cell.by_run_conditions()
        first, *others = kinds
        kept[key] = kinds[first]
        for other in others:
            differs = ", ".join(f"{k}: {v}" for k, v in other.differs_from([first]))
            count = f"{len(kinds[other].runs):,} of {len(cell.runs):,} runs of {key[0]}"
            left_out[printable(f"left out: {count}, which are of another kind ({differs})")] = None
    return kept, list(left_out)


def _run_costs(side: Dataset) -> dict[tuple[str, str, str], float]:
    """Seconds of a run by benchmark, params and placement, where the record has them. They last from
    the start of a run to the start of the next, so they include the start and the end of the process.
    The median, because a session may have been interrupted. A segment starts no process."""
    cells: dict[tuple[str, str, str], list[float]] = {}
    for source in side.sources:
        rate = _clock_rate(source.session)
        if rate is None:
            continue
        starts = sorted({row.start_ns for row in source.session.rows})
        following = dict(zip(starts, starts[1:]))
        for key, cell in side.cells.items():
            for run in (run for run in cell.runs if run.source is source):
                after = None if run.row.soak else following.get(run.row.start_ns)
                taken = (run.row.elapsed_ns or 0) if after is None else after - run.row.start_ns
                cells.setdefault(key[:3], []).append(rate * taken / 1e9)
    return {key: median(values) for key, values in cells.items()}


def _clock_rate(session: Session) -> float | None:
    """Seconds that pass in a second of the session's clock; None if unknown. In counted mode this clock
    counts instructions, and only the host knows the time."""
    if session.mode != "counted":
        return 1.0
    seconds = seconds_of_runs(session.path)
    start = min((row.start_ns for row in session.rows), default=0)
    end = max((row.start_ns + (row.elapsed_ns or 0) for row in session.rows), default=0)
    return seconds * 1e9 / (end - start) if seconds and end > start else None


def _metric(
    key: Key,
    estimand: Estimand,
    cell: Runs,
    costs: dict[tuple[str, str, str], float],
    target: Target,
) -> Metric:
    seconds = costs.get(key[:3])
    blank = Metric(key, estimand.name, 0, len(cell.runs), None, None, None, seconds)
    try:
        observed_runs = observe(cell, estimand, Units())
    except NoLogarithm as error:
        return replace(blank, reason=f"the {estimand.name} of a run {error}")
    variation = spread(observed_runs)
    if variation.run is None or variation.unit is None:
        return replace(blank, runs=0, reason=f"no run has its {estimand.name}")
    # The other kernel's counter steps are assumed to be as large.
    known = replace(
        blank, units=variation.units, runs=variation.runs, resolution=2 * observed_runs.resolution
    )
    run, observed = variation.run.own, variation.unit.observed
    if reason := coarse(known.resolution, target):
        return replace(known, run=run, reason=reason)
    if observed is None:
        return replace(known, run=run, reason=ONE_BOOT if run is not None else ONE_RUN)
    limit = bound(observed, variation.units)
    if run is None:
        # With one run in each boot, the variation of runs and of boots cannot be separated.
        return replace(known, run=0.0, unit=observed, unit_bound=limit)
    deviation = variation.unit.own or 0.0
    runs_share = observed - deviation
    return replace(
        known, run=run, unit=max(0.0, deviation), unit_bound=max(0.0, limit - runs_share)
    )


def _assumed(
    metrics: Sequence[Metric], target: Target, tests: int, cost: UnitCost
) -> tuple[tuple[float, Effort | None], ...]:
    known = [m for m in metrics if m.run is not None and not coarse(m.resolution, target)]
    if not known:
        return ()
    varied = ((d, [replace(metric, unit=d**2) for metric in known]) for d in ASSUMED)
    return tuple((d, least_effort(these, target, tests, cost)) for d, these in varied)


def _cannot_know(metrics: Sequence[Metric]) -> list[str]:
    reasons = []
    counts = sorted({metric.units for metric in metrics if metric.runs} - {0})
    if counts == [1]:
        reasons.append(
            "the pilot is one boot and does not show the variation between boots; record the same"
            " benchmarks in at least 2 more boots"
        )
    few = [count for count in counts if 1 < count < 5]
    if few:
        numbers = " or ".join(map(str, few))
        reasons.append(
            f"{numbers} boots show the variation between boots only roughly; the cautious plan allows"
            f" for that with a chance of {100 * CAUTION:.0f} %"
        )
    if any(metric.units > 1 and metric.runs == metric.units for metric in metrics):
        reasons.append(
            "boots of one run do not separate the variation between runs from that between boots;"
            " the plan takes all of it as between boots"
        )
    if any(metric.run_seconds is None for metric in metrics):
        reasons.append(
            "the plan assumes that one run of every benchmark takes as long as the start of a boot;"
            " the record does not have the time of a run"
        )
    reasons.append("the plan assumes that the other kernel varies as much as the pilot's")
    return reasons
