"""What `make validate-real` found: verdicts on data whose truth is known."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from klat.compare.dataset import Key
from validation.__main__ import rate
from validation.interval import clopper_pearson
from validation.simulation import Rate
from klat.compare.verdicts import Judgement, Rules, Verdict

_CHANGED = (Verdict.FASTER, Verdict.SLOWER)


@dataclass(frozen=True)
class Plan:
    """How much to measure: comparisons, and blocks of each."""

    seed: int = 1
    seconds: float = 900.0
    itself: int = 220
    itself_blocks: int = 6
    delayed: int = 40  # of each number of instructions, if there is time
    delayed_blocks: int = 8
    idle_blocks: int = 10
    at_once: int = 5  # comparisons of one klat ab
    rules: Rules = Rules()


@dataclass
class Metric:
    """One metric in comparisons of a kernel with itself."""

    name: str
    judged: list[Judgement] = field(default_factory=list)

    @property
    def missed(self) -> Rate:
        """How often the interval of the ratio excludes 1, which is the truth."""
        return Rate.among(
            not j.interval[0] <= 1 <= j.interval[1] for j in self.judged if j.interval
        )

    def said(self, *verdicts: Verdict) -> Rate:
        return Rate.among(j.verdict in verdicts for j in self.judged)


@dataclass
class Itself:
    """Comparisons of a kernel with itself, in the order measured; labels are not swapped."""

    metrics: dict[Key, Metric] = field(default_factory=dict)
    changed: list[bool] = field(default_factory=list)  # any faster or slower after Holm

    def add(self, judged: Sequence[tuple[Key, Judgement]]) -> None:
        for key, judgement in judged:
            name = f"{key[0]} {key[3]}"
            self.metrics.setdefault(key, Metric(name)).judged.append(judgement)
        self.changed.append(any(judgement.verdict in _CHANGED for _, judgement in judged))

    @property
    def suite(self) -> Rate:
        return Rate.among(self.changed)

    def refuted(self, alpha: float) -> list[str]:
        """Claims that fail beyond chance, at 5 % over all metrics."""
        found = []
        if self.changed and self.suite.interval[0] > alpha:
            found.append("a kernel against itself: false alarms of comparisons")
        for metric in self.metrics.values():
            hits, of = metric.missed.hits, metric.missed.of
            if of and clopper_pearson(hits, of, 1 - 0.05 / len(self.metrics))[0] > alpha:
                found.append(f"{metric.name} against itself: {hits} of {of} intervals miss 1")
        return found


@dataclass
class Found:
    """Comparisons of two settings with a known difference, or none."""

    base: str
    new: str
    about: str
    changes: bool = True  # whether it is claimed that there is a change
    judged: list[Judgement] = field(default_factory=list)

    def said(self, *verdicts: Verdict) -> Rate:
        return Rate.among(j.verdict in verdicts for j in self.judged)

    @property
    def ratio(self) -> float:
        return median(j.ratio for j in self.judged if j.ratio is not None)

    @property
    def longer(self) -> Rate:
        """The interval lies above 1."""
        return Rate.among(bool(j.interval and j.interval[0] > 1) for j in self.judged)

    @property
    def wrong(self) -> int:
        """Verdicts in the wrong direction, where NEW is slower."""
        return self.said(Verdict.FASTER).hits


@dataclass(frozen=True)
class Outcome:
    plan: Plan
    machine: str
    seconds: float
    itself: Itself
    delayed: tuple[Found, ...]
    idle: tuple[Found, ...]
    notes: tuple[str, ...]

    @property
    def refuted(self) -> list[str]:
        alpha = self.plan.rules.alpha
        found = self.itself.refuted(alpha)
        found += [f"{f.new}: said faster" for f in self.delayed if f.wrong]
        found += [
            f"{f.new}, {f.about}: no change found"
            for f in self.idle
            if f.changes and not f.said(*_CHANGED).hits
        ]
        return found

    @property
    def smallest(self) -> Found | None:
        """The smallest change from which on NEW is called slower at least 95 times of 100."""
        found = None
        for each in sorted((f for f in self.delayed if f.judged), key=lambda f: -f.ratio):
            if each.said(Verdict.SLOWER).value < 0.95:
                break
            found = each
        return found


def markdown(outcome: Outcome, command: str) -> Iterator[str]:
    plan = outcome.plan
    rules = plan.rules
    yield f"`{command}`"
    yield ""
    yield (
        f"{outcome.machine}. Seed {plan.seed}, alpha {100 * rules.alpha:g} %, margin"
        f" {100 * rules.margin:g} %; {outcome.seconds / 60:.1f} minutes. Brackets hold 95 % intervals"
        " (Clopper and Pearson)."
    )
    yield ""
    suite = outcome.itself.suite
    yield (
        "A kernel against itself, always the first label as BASE: pipes on one CPU, cv, tlbflush,"
        f" timer, network, {plan.itself_blocks} blocks for each comparison."
        f" {suite.of} comparisons"
        + (f"; any faster or slower, after Holm: {rate(suite)}:" if suite.of else ": no time")
    )
    yield ""
    yield "| metric | comparisons | interval misses 1 | said faster or slower | said same |"
    yield "|---|---:|---:|---:|---:|"
    for metric in outcome.itself.metrics.values():
        yield (
            f"| {metric.name} | {len(metric.judged)} | {rate(metric.missed)} |"
            f" {rate(metric.said(*_CHANGED))} | {rate(metric.said(Verdict.SAME))} |"
        )
    yield ""
    yield (
        "A slower kernel: a seccomp filter that every system call passes, pipes on one CPU,"
        f" {plan.delayed_blocks} blocks for each comparison:"
    )
    yield ""
    yield (
        "| BASE | NEW | comparisons | ratio, median | said slower | longer beyond chance |"
        " said same | said faster |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for f in outcome.delayed:
        if f.judged:
            yield (
                f"| {f.base} | {f.new} | {len(f.judged)} | {f.ratio:.4f} |"
                f" {rate(f.said(Verdict.SLOWER))} | {rate(f.longer)} |"
                f" {rate(f.said(Verdict.SAME))} | {f.wrong} |"
            )
        else:
            yield f"| {f.base} | {f.new} | 0 | n/a | n/a | n/a | n/a | n/a |"
    yield ""
    smallest = outcome.smallest
    if smallest is None:
        yield "No change was called slower 95 times of 100."
    else:
        found = smallest.said(Verdict.SLOWER)
        low, _ = clopper_pearson(found.hits, found.of, 0.95)
        yield (
            f"The smallest change that was called slower at least 95 times of 100, like all larger"
            f" ones: {100 * (smallest.ratio - 1):.1f} % ({smallest.new} over {smallest.base}),"
            f" {found.hits} of {found.of}, so at least {100 * low:.0f} times of 100."
        )
    yield ""
    yield f"Idle states, {plan.idle_blocks} blocks:"
    yield ""
    if outcome.idle:
        yield "| BASE | NEW | | ratio | interval | verdict |"
        yield "|---|---|---|---:|---:|---|"
    for f in outcome.idle:
        for j in f.judged:
            reach = f"{j.interval[0]:.3f} to {j.interval[1]:.3f}" if j.interval else "n/a"
            verdict = j.verdict.value if j.verdict else "none"
            yield f"| {f.base} | {f.new} | {f.about} | {j.ratio:.3f} | {reach} | {verdict} |"
        if not f.judged:
            yield f"| {f.base} | {f.new} | {f.about} | n/a | n/a | not judged: too few blocks are complete |"
    for why in outcome.notes:
        yield ""
        yield f"{why}."
