"""Judges whether the share of samples above a limit is small enough, for one side and metric at a
time, and for every metric of some labels. klat.compare.judged_limits compares two sides."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from klat.base.errors import KlatError
from klat.compare.dataset import Dataset
from klat.compare.settings import Setting, counted, have_same_params
from klat.compare.runs import Runs, by_boot
from klat.compare.sources import Run
from klat.compare.verdicts import INCONCLUSIVE, NO_REGRESSION, REGRESSION, Rules, Verdict
from klat.record.session import parse_pairs, printable
from klat.stats.distribution import Distribution
from klat.stats.exceedance import STRETCHES, Exceedance, Tail, units_to_show

# The shares that real-time users ask for.
RARE = (1e-4, 1e-6)


@dataclass(frozen=True)
class Limit:
    """What the user asked for. `value` is in the unit of figures. `share` of the samples may be
    above it."""

    text: str
    value: float
    is_time: bool
    share: float


@dataclass(frozen=True)
class Needed:
    """How many samples like the observed ones would show that the true share is below `share`; or
    above it, if the observed share is. `units` is the same number in boots, or in runs or segments of
    a single boot. None if no number would."""

    share: float
    samples: int | None
    units: int | None
    seconds: float | None  # that these runs take; None where the mode measures no time


@dataclass(frozen=True)
class SideLimit:
    """One metric of one side. `low` and `high` are one-sided bounds of the share, each at 1 - alpha.
    `maxima` has the largest sample of each boot. `boot_clusters` is the number of boots, if a short one
    counts as a part of its neighbour. `needed` has an entry for the limit's share if the verdict is open.
    If no sample is above the limit, it also has one for each of `RARE` that is not shown. `copies` is the
    number of boots in counted mode that repeat another one. They do not count.
    `unusable` is the number of other runs that do not count and have a sample above the limit.
    `missed` is the number of periods that a late timer skipped. They have no samples. `near` is the
    number of samples that are so near the limit that rounding to the counter's step may have moved them
    to the other side: `low` takes them as not above, `high` takes them as above.
    """

    boots: int
    boot_clusters: int
    runs: int
    samples: int
    above: int
    low: float
    high: float
    effect: float | None  # the largest design effect; None if it cannot be seen
    maxima: tuple[float, ...]
    copies: int
    unusable: int
    missed: int
    near: int
    noun: str  # of Needed.units
    needed: tuple[Needed, ...]
    verdict: Verdict
    p: float | None = None
    p_adjusted: float | None = None
    reason: str = ""

    @property
    def share(self) -> float:
        return self.above / self.samples


@dataclass(frozen=True)
class SamplesAbove:
    """How many samples of one metric of one side are above the limit. A sample can be up to one step of the
    counter longer or shorter than its reading: `least` has only the samples that are above the limit all
    the same, `most` all that may be. `counts` has the samples above, by `least`, by their readings and by
    `most`, and all samples of each run."""

    observed: Exceedance
    least: Exceedance
    most: Exceedance
    boots: dict[str, list[Run]]
    maxima: tuple[float, ...]
    copies: int
    counts: dict[Run, tuple[tuple[int, int, int], int]]
    unusable: int

    @property
    def units(self) -> tuple[int, str]:
        """The number of units and their noun: boots, or the runs or segments of the only boot that is not short."""
        if self.observed.boots > 1:
            return len(self.boots), "boot"
        runs = [run for its in self.boots.values() for run in its]
        return len(runs), "segment" if all(run.row.soak for run in runs) else "run"


def check(limit: Limit, side: Dataset) -> None:
    """KlatError if a side has no samples in the limit's unit."""
    what, name, unit = f"--limit {limit.text}", side.name, side.figure_unit
    if side.mode == "emulated":
        raise KlatError(
            f"{what}: {name} is from an emulator whose ticks mean nothing, so no limit applies"
        )
    if limit.is_time and unit != "ns":
        raise KlatError(
            f"{what}: the samples of {name} are in {unit}, not in time; give a number of {unit}"
            " without a unit, for example --limit 20000"
        )
    if not limit.is_time and unit == "ns":
        raise KlatError(
            f"{what}: the samples of {name} are in time; give a unit, for example {limit.text}us"
        )


def samples_above(metric: Runs, limit: Limit) -> SamplesAbove:
    """Reads every sample of the runs that count. There must be such a run. KlatError if the floor is not
    below the limit; SessionError if samples are missing."""
    runs = metric.runs
    for run in runs:
        if (run.row.floor or 0) * run.source.scale >= limit.value:
            floor = f"{run.row.floor:,} {run.row.unit}"
            if run.source.session.khz:
                floor += f" ({run.source.scale * (run.row.floor or 0):,.0f} ns)"
            raise KlatError(
                f"--limit {limit.text}: must be above the floor of {printable(run.row.benchmark)},"
                f" {floor}"
            )
    every = by_boot(runs)
    boots = _without_copies(every)
    step = max(run.source.step for run in runs)
    at = (limit.value + step, limit.value, limit.value - step)
    tails = {run: _tails(run.distribution(), run, at) for its in boots.values() for run in its}
    least, observed, most = _exceedances([[tails[run] for run in its] for its in boots.values()])
    if not (observed.groupings or any(run.row.soak for run in tails)):
        least, observed, most = _exceedances([_stretches(list(tails), at)])
    maxima = tuple(
        max(run.row.max * run.source.scale for run in its if run.row.max is not None)
        for its in boots.values()
    )
    counts = {
        run: ((low.above, read.above, high.above), read.n)
        for run, (low, read, high) in tails.items()
    }
    longer = sum((run.row.max or 0) * run.source.scale > limit.value for run in metric.uncounted)
    return SamplesAbove(
        observed, least, most, boots, maxima, len(every) - len(boots), counts, longer
    )


def _missed(run: Run) -> int:
    text = parse_pairs(run.row.evidence).get("missed", "")
    return int(text) if text.isascii() and text.isdigit() else 0


# Above the limit and a step, the limit, and the limit less a step.
_Tails = tuple[Tail, Tail, Tail]
# The most samples whose tails are counted together.
_LONGEST_STRETCH = 1 << 21


def _tails(samples: Distribution, run: Run, at: tuple[float, float, float]) -> _Tails:
    low, read, high = (Tail.of(samples, limit, run.source.scale) for limit in at)
    return low, read, high


def _exceedances(boots: Sequence[Sequence[_Tails]]) -> tuple[Exceedance, Exceedance, Exceedance]:
    low, read, high = (
        Exceedance.of([[tail[place] for tail in its] for its in boots]) for place in range(3)
    )
    return low, read, high


def _stretches(runs: Sequence[Run], at: tuple[float, float, float]) -> list[_Tails]:
    """The only full run, and the short runs beside it, cut into consecutive parts that show how samples cluster."""
    n = sum(run.row.n or 0 for run in runs)
    length = min(_LONGEST_STRETCH, math.ceil(n / STRETCHES))
    return [_tails(Distribution.of(part), run, at) for run in runs for part in run.parts(length)]


def _without_copies(boots: dict[str, list[Run]]) -> dict[str, list[Run]]:
    """Two boots of one seed in counted mode are the same boot."""
    by_samples: dict[object, str] = {}
    for boot, runs in boots.items():
        key: object = boot
        if runs[0].source.session.unit == "instructions":
            rows = (run.row for run in runs)
            key = tuple((r.start_ns, r.n, r.mean, r.stddev, r.min, r.max) for r in rows)
        by_samples.setdefault(key, boot)
    return {boot: boots[boot] for boot in by_samples.values()}


def judged(
    sides: Sequence[SamplesAbove], limit: Limit, rules: Rules, other_p: Sequence[float | None] = ()
) -> tuple[list[SideLimit], list[float | None], int]:
    """Judge all sides and metrics together. `other_p` are the p values of other tests of the same family.
    Returns a judgement for each of `sides`, `other_p` after the correction, and the number of tests.

    Two hypotheses are tested for each metric: the true share is above the limit's share, or below it.
    Only one of them can be true, so a metric counts as one test in the correction.
    """
    tests = [_p_values(side, limit.share) for side in sides]
    adjusted = rules.adjusted([*(min(test) if test else None for test in tests), *other_p])
    family = len(adjusted) - adjusted.count(None)
    judgements = [
        _judgement_of_side(side, limit, rules, test, p, family)
        for side, test, p in zip(sides, tests, adjusted)
    ]
    return judgements, adjusted[len(sides) :], family


def _p_values(side: SamplesAbove, share: float) -> tuple[float, float] | None:
    """The p values of "the share is at least this" and "at most this". None for a share of 0, at which
    one sample decides."""
    if not share:
        return None
    return side.most.p_below(share), side.least.p_above(share)


def _judgement_of_side(
    side: SamplesAbove,
    limit: Limit,
    rules: Rules,
    test: tuple[float, float] | None,
    adjusted: float | None,
    family: int,
) -> SideLimit:
    observed = side.observed
    effects = [grouping.effect for grouping in observed.groupings]
    high = side.most.upper(rules.alpha)
    rare = [share for share in RARE if share != limit.share]
    open_shares = [share for share in rare if high >= share and not observed.above]
    draft = SideLimit(
        boots=len(side.boots),
        boot_clusters=observed.boots,
        runs=sum(map(len, side.boots.values())),
        samples=int(observed.n),
        above=int(observed.above),
        low=side.least.lower(rules.alpha),
        high=high,
        effect=max(effects, default=None),
        maxima=side.maxima,
        copies=side.copies,
        unusable=side.unusable,
        missed=sum(_missed(run) for its in side.boots.values() for run in its),
        near=int(side.most.above - side.least.above),
        noun=side.units[1],
        needed=tuple(_needed(side, share, rules.alpha) for share in open_shares),
        verdict=Verdict.CANNOT_TELL,
        p=min(test) if test else None,
        p_adjusted=adjusted,
    )
    if test is None:
        if side.least.above:
            return replace(draft, verdict=Verdict.EXCEEDED)
        return replace(draft, reason="no number of samples shows that none will ever be above")
    assert adjusted is not None
    if adjusted <= rules.alpha and test[0] >= test[1]:
        return replace(draft, verdict=Verdict.EXCEEDED)
    if side.unusable > draft.runs:
        why = f"{side.unusable:,} runs that do not count have samples above the limit, and only {draft.runs:,} runs count"
        return replace(draft, reason=why)
    if adjusted <= rules.alpha:
        return replace(draft, verdict=Verdict.WITHIN)
    why = ""
    if min(test) <= rules.alpha:
        why = f"shown as a single test, but not after the correction for {family} tests"
    return replace(
        draft,
        needed=(_needed(side, limit.share, rules.strictest(family)), *draft.needed),
        reason=why,
    )


def _needed(side: SamplesAbove, share: float, alpha: float) -> Needed:
    now, _ = side.units
    nearer = side.most if side.observed.share < share else side.least
    is_hidden = (nearer.share < share) != (side.observed.share < share)
    units = None if is_hidden else units_to_show(nearer, now, share, alpha)
    if units is None:
        return Needed(share, None, None, None)
    samples = round(side.observed.n * units / now)
    return Needed(share, samples, units, _seconds(side, units / now))


def _seconds(side: SamplesAbove, factor: float) -> float | None:
    """How long so many times the runs take."""
    runs = [run for its in side.boots.values() for run in its]
    if any(not run.source.session.khz or run.row.elapsed_ns is None for run in runs):
        return None
    return factor * sum(run.row.elapsed_ns or 0 for run in runs) / 1e9


@dataclass(frozen=True)
class LabelLimits:
    """The limit of each measurement with a run that counts. `family` is the number of tests that the correction
    is for. `without_figure` names the metrics of which no run counts, and the programs that have no metric because every run
    failed."""

    limit: Limit
    rules: Rules
    family: int
    sides: dict[Runs, SideLimit]
    without_figure: tuple[str, ...] = ()

    def of_setting(self, setting: Setting) -> list[tuple[Runs, SideLimit]]:
        measured = setting.measurements.values()
        return [(m, self.sides[m]) for m in measured if m in self.sides]

    @property
    def verdicts(self) -> Counter[Verdict]:
        return Counter(side.verdict for side in self.sides.values())

    @property
    def status(self) -> int:
        """The exit status: 1 if any verdict is exceeded; else 3 if any is cannot tell, or a metric has no run that
        counts; else 0."""
        if self.verdicts[Verdict.EXCEEDED]:
            return REGRESSION
        is_open = self.verdicts[Verdict.CANNOT_TELL] or self.without_figure
        return INCONCLUSIVE if is_open else NO_REGRESSION


def label_limits(labels: Sequence[Dataset], limit: Limit, rules: Rules) -> LabelLimits:
    """KlatError if a label has no samples in the limit's unit, or no run counts. SessionError if
    samples are missing."""
    for label in labels:
        check(limit, label)
    measured = [measurement for label in labels for _, measurement in counted(label.settings)]
    if not measured:
        raise KlatError(f"--limit {limit.text}: no run counts, so there is no share to judge")
    above = [samples_above(m, limit) for m in measured]
    sides, _, family = judged(above, limit, rules)
    uncounted = [name for label in labels for name in _without_figure(label.settings)]
    return LabelLimits(limit, rules, family, dict(zip(measured, sides)), tuple(uncounted))


def _without_figure(settings: Sequence[Setting]) -> Iterator[str]:
    for setting in settings:
        benchmark = printable(setting.benchmark)
        # A run that failed before it was placed can be of any placement.
        placements = settings if not setting.placement else [setting]
        alike = [other for other in placements if have_same_params(other, setting)]
        if not (setting.measurements or any(other.usable_runs for other in alike)):
            yield benchmark
        for metric, measurement in setting.measurements.items():
            if not (measurement.runs or measurement.is_unmeasurable):
                yield f"{benchmark}.{printable(metric)}"
