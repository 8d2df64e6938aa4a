"""The result of a comparison. `Comparison` holds all that a report prints: reports compute nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from klat.compare import estimands
from klat.compare.conditions import Condition
from klat.compare.estimands import Estimand
from klat.compare.dataset import Key
from klat.compare.observations import Within
from klat.compare.sources import Run
from klat.compare.verdicts import Judgement, Rules, Verdict
from klat.record.environment import Difference


NO_REGRESSION, REGRESSION, UNREADABLE, INCONCLUSIVE, NOT_COMPARABLE, NOT_DELIVERED = range(6)


@dataclass(frozen=True)
class Options:
    """What the user asked for.

    Empty `metrics` means all. `tested` lists the estimands that get a verdict; empty means the
    median, and p99 where the samples support it. `threshold` is in nanoseconds, or in the side's
    unit where time means nothing.
    """

    rules: Rules = Rules()
    tested: tuple[Estimand, ...] = ()
    metrics: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    threshold: float | None = None
    threshold_is_time: bool = False  # it was given with a unit of time
    within_runs: bool = False  # read every sample, to tell how well single runs tell a quantile

    def tested_of(self, runs: Iterable[Run]) -> tuple[Estimand, ...]:
        """In a cell with these runs."""
        return self.tested or estimands.tested_by_default(run.row for run in runs)


@dataclass(frozen=True)
class SideInfo:
    """The head of a report on one side."""

    path: str
    label: str
    kernel: str
    kernel_version: str
    preemption: str
    cpu_model: str
    mode: str
    unit: str
    boots: int
    boots_of_metrics: tuple[int, ...]  # every number of boots in which a metric was measured
    sessions: int
    runs: str  # by status, as text
    emulator: str = ""  # with its version


@dataclass(frozen=True)
class Worst:
    """The largest sample of one side and the number of samples and runs. It has no valid interval.

    With a threshold: how many samples and runs exceed it, and the interval of the share of runs.
    """

    maximum: float | None
    samples: int
    runs: int
    samples_above: int | None = None
    runs_above: int | None = None
    share: tuple[float, float] | None = None


@dataclass(frozen=True)
class Result:
    """One estimand of a cell. Where blocks of several boots are judged, `over_boots` describes the
    same with each boot as one pair: it says more of other boots, from fewer units."""

    estimand: str
    tested: bool
    judgement: Judgement
    base_within: Within | None = None
    new_within: Within | None = None
    over_boots: Judgement | None = None

    @property
    def verdict(self) -> Verdict | None:
        return self.judgement.verdict


@dataclass(frozen=True)
class Cell:
    """One metric of one benchmark with one set of params at one placement, on both sides.

    `refused` names what keeps it from being compared, and then there are no results; `accepted`
    what differs and was allowed; `under_test` what one setting alone was told, and what followed
    from it, where they took turns. The params are BASE's. A cell without a run that counts on one side is
    not shown, and so inconclusive, unless its kernel did not deliver the event; `tried` is false where that side has no run of it at all.
    """

    benchmark: str
    params: str
    placement: str
    metric: str
    unit: str
    base_runs: str
    new_runs: str
    refused: tuple[Condition, ...]
    accepted: tuple[Condition, ...]
    results: tuple[Result, ...]
    base_worst: Worst
    new_worst: Worst
    under_test: tuple[str, ...] = ()
    tried: bool = True
    undelivered: str = ""  # by BASE, NEW, or BASE and NEW

    @property
    def key(self) -> Key:
        return (self.benchmark, self.params, self.placement, self.metric)

    @property
    def verdicts(self) -> list[Verdict]:
        """Of the tested estimands, or that the cell is not comparable."""
        if self.refused:
            return [Verdict.NOT_COMPARABLE]
        return [r.verdict for r in self.results if r.tested and r.verdict]


@dataclass(frozen=True)
class Uncompared:
    """A measurement in no cell: only NEW has it, or no side has it and its key is without metric.
    `failed` if BASE tried it and failed."""

    key: Key
    reason: str
    neither: bool = False
    failed: bool = False

    @property
    def what(self) -> str:
        return "not measured" if self.neither else "only in NEW"


@dataclass(frozen=True)
class Against:
    """BASE against one NEW. `unit_noun` is what inference rests on, a boot or a block; `subject`,
    what a verdict is about, the kernel or the setting within one boot."""

    base: SideInfo
    new: SideInfo
    unit_noun: str
    subject: str
    refused: tuple[Condition, ...]
    accepted: tuple[Condition, ...]
    cautions: tuple[str, ...]
    differences: tuple[Difference, ...]
    cells: tuple[Cell, ...]
    uncompared: tuple[Uncompared, ...] = ()
    unmeasurable: tuple[tuple[str, Key], ...] = ()  # on which side the mode gives it no number

    @property
    def shared(self) -> bool:
        """Whether both sides tried anything that one of them has figures of."""
        return any(cell.tried for cell in self.cells)


@dataclass(frozen=True)
class Comparison:
    """All of it. `family` is the number of tests that the correction is over."""

    options: Options
    against: tuple[Against, ...]
    family: int
    problems: tuple[str, ...]

    @property
    def verdicts(self) -> Counter[Verdict]:
        return Counter(v for a in self.against for c in a.cells for v in c.verdicts)

    @property
    def status(self) -> int:
        """1 where anything is slower; else 4 where anything could not be compared, or nothing was;
        else 3 where anything stays open, or is not shown because a side has no figure of it; else 5
        where NEW did not deliver what BASE delivered; else 0.
        What NEW alone has is no claim about BASE and leaves nothing open, unless BASE failed at it.

        Any `slower` is a regression: it is shown to lie beyond the margin, and the correction over
        the family keeps the chance of a false one at alpha for the whole comparison.
        """
        found = self.verdicts
        if found[Verdict.SLOWER]:
            return REGRESSION
        if not found or found[Verdict.NOT_COMPARABLE]:
            return NOT_COMPARABLE
        if any(not against.shared for against in self.against):
            return NOT_COMPARABLE
        if found[Verdict.INCONCLUSIVE] or found[Verdict.UNATTRIBUTABLE]:
            return INCONCLUSIVE
        if any(left.failed for against in self.against for left in against.uncompared):
            return INCONCLUSIVE
        if any(cell.undelivered == "NEW" for against in self.against for cell in against.cells):
            return NOT_DELIVERED
        return NO_REGRESSION
