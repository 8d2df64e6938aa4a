"""The result of a comparison. `Comparison` holds all that a report prints: reports compute nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from klat.compare import estimands
from klat.compare.conditions import Condition
from klat.compare.estimands import Estimand
from klat.compare.limits import Limit, SideLimit
from klat.compare.dataset import Key
from klat.compare.observations import Within
from klat.compare.sources import Run
from klat.compare.verdicts import INCONCLUSIVE, NO_REGRESSION, NOT_COMPARABLE, NOT_DELIVERED
from klat.compare.verdicts import REGRESSION, Interval, Judgement, Rules, Verdict
from klat.record.environment import Difference
from klat.record.rows import is_soak, run_noun


@dataclass(frozen=True)
class Options:
    """What the user asked for.

    Empty `metrics` means all. `tested` lists the estimands that get a verdict; empty means the
    median, and p99 where the samples support it. With a limit, only the share of samples above it
    gets a verdict.
    """

    rules: Rules = Rules()
    tested: tuple[Estimand, ...] = ()
    metrics: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    limit: Limit | None = None
    within_runs: bool = False  # read every sample, for the precision of single runs

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
    run_noun: str = "run"  # "segment" if all are of soaks
    emulator: str = ""  # with its version
    scheduling: str = ""  # what schedules ordinary tasks, where that was recorded

    @property
    def model(self) -> str:
        """The preemption model, and what schedules ordinary tasks."""
        return f"{self.preemption}, {self.scheduling}" if self.scheduling else self.preemption


@dataclass(frozen=True)
class Worst:
    """The largest sample of one side, and the number of its samples and runs. The maximum has no
    valid interval."""

    maximum: float | None
    samples: int
    runs: int


@dataclass(frozen=True)
class Result:
    """One estimand of a cell. Where the blocks of several boots are judged, `over_boots` is the
    same estimand with each boot as one pair. It covers other boots too, but has fewer units.
    `decided_over_machines` if a verdict over machines includes this result."""

    estimand: str
    tested: bool
    judgement: Judgement
    base_within: Within | None = None
    new_within: Within | None = None
    over_boots: Judgement | None = None
    decided_over_machines: bool = False

    @property
    def verdict(self) -> Verdict | None:
        return self.judgement.verdict


@dataclass(frozen=True)
class CellLimit:
    """A limit on both sides; None for a side without figure. `verdict` is NEW's. `difference` is MORE,
    FEWER or CANNOT_TELL: the samples of NEW above the limit, compared with those of BASE."""

    base: SideLimit | None
    new: SideLimit | None
    verdict: Verdict
    difference: Verdict
    p: float | None = None
    p_adjusted: float | None = None
    reason: str = ""  # why the difference is CANNOT_TELL


@dataclass(frozen=True)
class Cell:
    """One metric of one benchmark with one set of params (BASE's) at one placement, on both sides.

    `refused` names the conditions that forbid the comparison; there are no results then. `accepted`
    names differences that were allowed. `under_test` names the options that one setting alone got,
    and their effects, if the settings alternated.

    A cell in which a side has no run that counts is inconclusive, unless its kernel did not deliver
    the event. `tried` is false if that side has no run of the cell at all.
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
    limit: CellLimit | None = None

    @property
    def key(self) -> Key:
        return (self.benchmark, self.params, self.placement, self.metric)

    @property
    def run_noun(self) -> str:
        return run_noun(is_soak(self.params))

    @property
    def verdicts(self) -> list[Verdict]:
        """Of the tested estimands, or that the cell is not comparable."""
        if self.refused:
            return [Verdict.NOT_COMPARABLE]
        if self.limit:
            return [self.limit.verdict]
        return [r.verdict for r in self.results if r.tested and r.verdict]

    @property
    def deciding_verdicts(self) -> list[Verdict]:
        """The verdicts, except those that a verdict over machines includes."""
        if self.refused or self.limit:
            return self.verdicts
        alone = [r for r in self.results if not r.decided_over_machines]
        return [r.verdict for r in alone if r.tested and r.verdict]


@dataclass(frozen=True)
class Uncompared:
    """A measurement that is in no cell: only NEW has it, or neither side has it and its key has no
    metric. `failed` if BASE tried it and failed."""

    key: Key
    reason: str
    neither: bool = False
    failed: bool = False

    @property
    def what(self) -> str:
        return "not measured" if self.neither else "only in NEW"


@dataclass(frozen=True)
class LeftOutMachine:
    """`machine` is its id; empty for sessions that have none."""

    machine: str
    reason: str
    new_path: str = ""


@dataclass(frozen=True)
class OverMachines:
    """One estimand of a metric over the machines that have it on both sides, BASE against one NEW.

    - `judgement`: its units are the machines. None if there is no verdict over machines, for `reason`. Then
      each machine has only its own verdict.
    - `needed`: the smallest number of machines for a verdict.
    - `spread`: the standard deviation between machines of the log of the ratio. The part that the variation
      of the boots explains is subtracted.
    - `next_machine`: the prediction interval for the ratio of one more machine, measured under the same
      conditions.
    """

    new: str
    new_path: str
    benchmark: str
    params: str
    placement: str
    metric: str
    unit: str
    under_test: tuple[str, ...]
    estimand: str
    machines: tuple[str, ...]
    left_out: tuple[LeftOutMachine, ...]
    needed: int
    reason: str
    spread: float | None
    next_machine: Interval | None
    judgement: Judgement | None = None

    @property
    def key(self) -> Key:
        return (self.benchmark, self.params, self.placement, self.metric)


@dataclass(frozen=True)
class Against:
    """BASE against one NEW. `unit_noun` is the unit of inference, a boot or a block. `subject` is
    what a verdict is about: the kernel, or the setting within one boot. `machine` is the id of the
    machine if both sides are the sessions of one machine out of several."""

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
    unmeasurable: tuple[tuple[str, Key], ...] = ()  # the sides on which the mode gives it no number
    machine: str = ""

    @property
    def run_noun(self) -> str:
        """The word for the runs of all cells."""
        nouns = {cell.run_noun for cell in self.cells}
        return nouns.pop() if len(nouns) == 1 else "run"

    @property
    def shared(self) -> bool:
        """Whether both sides tried a measurement of which at least one has a figure."""
        return any(cell.tried for cell in self.cells)


_OPEN = (Verdict.INCONCLUSIVE, Verdict.UNATTRIBUTABLE, Verdict.CANNOT_TELL)


@dataclass(frozen=True)
class Comparison:
    """The whole comparison. `family` is the number of tests that the correction is over. If the sides
    are sessions of several machines, `against` has an entry for each machine with both sides."""

    options: Options
    against: tuple[Against, ...]
    family: int
    problems: tuple[str, ...]
    over_machines: tuple[OverMachines, ...] = ()
    left_out_machines: tuple[LeftOutMachine, ...] = ()

    @property
    def by_machine(self) -> bool:
        return any(against.machine for against in self.against)

    @property
    def verdicts(self) -> Counter[Verdict]:
        """The verdicts that decide the status: a verdict over machines, or where there is none, the
        machine's own."""
        over = [o.judgement.verdict for o in self.over_machines if o.judgement]
        alone = [v for a in self.against for c in a.cells for v in c.deciding_verdicts]
        return Counter([*filter(None, over), *alone])

    @property
    def machine_verdicts(self) -> Counter[Verdict]:
        """The verdicts of all single machines, also those that a verdict over machines includes."""
        return Counter(v for a in self.against if a.machine for c in a.cells for v in c.verdicts)

    @property
    def status(self) -> int:
        """The exit status, by the first rule that applies:

        - 1 if anything is slower; with a limit: if anything of NEW exceeds it;
        - 4 if anything could not be compared, or nothing was compared;
        - 3 if anything is inconclusive, or a side has no figure; with a limit: if NEW has none;
        - 5 if NEW did not deliver what BASE delivered;
        - else 0.

        A verdict over machines stands for the verdicts of the machines that it includes.

        A measurement of NEW alone leaves nothing open, unless BASE failed at it. Any `slower` is a
        regression: it is shown to lie beyond the margin, and the correction keeps the chance of a
        false one in the whole comparison at alpha.
        """
        counted = self.verdicts
        if counted[Verdict.SLOWER] or counted[Verdict.EXCEEDED]:
            return REGRESSION
        return self._status_without_regression(counted)

    @property
    def is_settled(self) -> bool:
        """Whether every metric has a verdict that more boots or runs are not expected to change."""
        status = self._status_without_regression(self.verdicts)
        return status in (NO_REGRESSION, NOT_DELIVERED)

    def _status_without_regression(self, counted: Counter[Verdict]) -> int:
        if not counted or counted[Verdict.NOT_COMPARABLE]:
            return NOT_COMPARABLE
        if any(not against.shared for against in self.against):
            return NOT_COMPARABLE
        if any(counted[verdict] for verdict in _OPEN):
            return INCONCLUSIVE
        if any(left.failed for against in self.against for left in against.uncompared):
            return INCONCLUSIVE
        if any(cell.undelivered == "NEW" for against in self.against for cell in against.cells):
            return NOT_DELIVERED
        return NO_REGRESSION
