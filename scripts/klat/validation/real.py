"""`make validate-real`: the verdict on real data of which the truth is known.

A kernel held against itself, a slowdown in the kernel's own path, and idle states taken away. What
is measured is not to be repeated digit for digit; the seed decides the order of the runs and the
labels.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from klat.errors import KlatError
from klat.inference.proportion import clopper_pearson, clustered
from klat.session import SessionError
from klat.sides import Side
from klat.validation.__main__ import rate
from klat.validation.simulation import Rate
from klat.validation.turns import Experiment, Setting, Taker
from klat.verdicts import Judgement, Rules, Verdict

INSTRUCTIONS = (25, 35, 50, 75, 100, 200, 400)
HALT_POLL = Path("/sys/module/haltpoll/parameters/guest_halt_poll_ns")
DMA_LATENCY = Path("/dev/cpu_dma_latency")
# A shell that keeps the device open in what it becomes.
HOLD = f"sh -c 'exec 9>{DMA_LATENCY} && echo 0 >&9 && exec \"$@\"' hold"
_TWO = "pipes, two CPUs"
_BUSY = 0.2
_CHANGED = (Verdict.FASTER, Verdict.SLOWER)


@dataclass(frozen=True)
class Plan:
    """How much is taken: comparisons, and blocks of each."""

    seed: int = 1
    seconds: float = 900.0
    itself: int = 220
    itself_blocks: int = 6
    delayed: int = 40  # of each number of instructions, if there is time
    delayed_blocks: int = 8
    idle_blocks: int = 10
    at_once: int = 5  # comparisons of one klat ab
    rules: Rules = Rules()


def quick(plan: Plan) -> Plan:
    """Whether it works, in less than a minute."""
    return replace(
        plan, seconds=50.0, itself=6, itself_blocks=3, delayed=2, delayed_blocks=4, idle_blocks=3,
        at_once=2,
    )  # fmt: skip


ITSELF = Experiment(
    Setting("one"),
    Setting("other"),
    ("pipes", "cv", "tlbflush", "timer", "network", "--iterations=100", "--option=pipes.cpus=1,1"),
    runs=1,
)


@dataclass
class Alarms:
    """Of comparisons of a kernel with itself, each of all metrics at once."""

    method: str
    tests: list[int] = field(default_factory=list)  # of each comparison
    alarms: list[int] = field(default_factory=list)  # p at most alpha, by itself
    changed: list[bool] = field(default_factory=list)  # any faster or slower after Holm

    def add(self, judged: Sequence[Judgement], rules: Rules) -> None:
        self.tests.append(len(judged))
        self.alarms.append(sum(j.p is not None and j.p <= rules.alpha for j in judged))
        self.changed.append(any(j.verdict in _CHANGED for j in judged))

    @property
    def suite(self) -> Rate:
        return Rate(sum(self.changed), len(self.changed))

    @property
    def single(self) -> tuple[float, float, float]:
        """Share of tests with p at most alpha and its interval: metrics of one comparison are of
        the same minute, so that they count for as many as they are worth."""
        low, high = clustered(self.alarms, self.tests, 0.95)
        return sum(self.alarms) / sum(self.tests), low, high

    def refuted(self, alpha: float) -> list[str]:
        found = []
        if self.suite.interval[0] > alpha:
            found.append("false alarms of comparisons")
        if self.single[1] > alpha + 0.01:
            found.append("false alarms of single tests")
        return found


@dataclass
class Found:
    """Of comparisons of a setting with one that is slower, or not, by something known."""

    base: str
    new: str
    about: str
    changes: bool = True  # whether it is claimed that there is a change
    judged: list[Judgement] = field(default_factory=list)

    def said(self, *verdicts: Verdict) -> Rate:
        return Rate(sum(j.verdict in verdicts for j in self.judged), len(self.judged))

    @property
    def ratio(self) -> float:
        return median(j.ratio for j in self.judged if j.ratio is not None)

    @property
    def longer(self) -> Rate:
        """The interval lies above 1."""
        hits = sum(j.interval is not None and j.interval[0] > 1 for j in self.judged)
        return Rate(hits, len(self.judged))

    @property
    def wrong(self) -> int:
        """Verdicts in the wrong direction, where NEW is slower."""
        return self.said(Verdict.FASTER).hits


@dataclass(frozen=True)
class Outcome:
    plan: Plan
    machine: str
    seconds: float
    itself: tuple[Alarms, ...]
    delayed: tuple[Found, ...]
    idle: tuple[Found, ...]
    notes: tuple[str, ...]

    @property
    def refuted(self) -> list[str]:
        alpha = self.plan.rules.alpha
        found = [f"{a.method}: {why}" for a in self.itself if a.tests for why in a.refuted(alpha)]
        found += [f"{f.new}: said faster" for f in self.delayed if f.wrong]
        found += [
            f"{f.new}, {f.about}: no change found"
            for f in self.idle
            if f.changes and f.judged and not f.said(*_CHANGED).hits
        ]
        return found

    @property
    def smallest(self) -> Found | None:
        """The smallest change that is said to be slower 95 times of 100, as are all larger ones."""
        found = None
        for each in sorted((f for f in self.delayed if f.judged), key=lambda f: -f.ratio):
            if each.said(Verdict.SLOWER).value < 0.95:
                break
            found = each
        return found


def alone(plan: Plan, taker: Taker) -> tuple[Alarms, ...]:
    """A kernel against itself."""
    draw = random.Random(plan.seed)
    pairs, boots = Alarms("turns in one boot, in pairs"), Alarms("sessions, as if boots")
    longest = 0.0
    while len(pairs.tests) < plan.itself and taker.time_for(longest):
        begun = time.monotonic()
        wanted = min(plan.at_once, plan.itself - len(pairs.tests))
        compared, _ = taker.comparisons(ITSELF, plan.itself_blocks, wanted)
        for each in compared:
            pairs.add(each.relabelled(draw).judged(plan.rules), plan.rules)
            boots.add(each.judged_as_boots(draw, plan.rules), plan.rules)
        taker.done()
        longest = max(longest, time.monotonic() - begun)
        tell(f"a kernel against itself: {len(pairs.tests)} of {plan.itself}")
    return pairs, boots


def delays(plan: Plan, taker: Taker, helper: Path) -> tuple[Found, ...]:
    """A seccomp filter of n instructions against one of the shortest, and that against none."""
    quoted = shlex.quote(str(helper.absolute()))
    words = ("pipes", "--cpus=1,1", "--iterations=500")
    kinds = [(0, 1)] + [(1, n) for n in INSTRUCTIONS]
    found = []
    for few, many in kinds:
        names = [f"{n} instruction{'s' * (n != 1)}" if n else "no filter" for n in (few, many)]
        found.append(Found(names[0], names[1], "pipes, one CPU"))
    longest = 0.0
    # By turns, so that each kind has about as many when the time is over.
    while any(len(f.judged) < plan.delayed for f in found) and taker.time_for(longest):
        for (few, many), each in zip(kinds, found):
            if not taker.time_for(longest):
                break
            begun = time.monotonic()
            experiment = Experiment(
                Setting(f"filter-{few}", f"{quoted} {few}"),
                Setting(f"filter-{many}", f"{quoted} {many}"),
                words,
                runs=2,
            )
            wanted = max(1, min(plan.at_once, plan.delayed - len(each.judged)))
            compared, _ = taker.comparisons(experiment, plan.delayed_blocks, wanted)
            for comparison in compared:
                each.judged += comparison.judged(plan.rules)
            taker.done()
            longest = max(longest, time.monotonic() - begun)
        tell(f"a slower kernel: {min(len(f.judged) for f in found)} of {plan.delayed} of each kind")
    return tuple(found)


def busy_share(seconds: float = 0.5) -> float:
    """What part of all CPUs' time is spent on something, while this does nothing."""
    before = _cpu_times()
    time.sleep(seconds)
    spent = [after - then for after, then in zip(_cpu_times(), before)]
    return 1 - (spent[3] + spent[4]) / max(1, sum(spent))


def _cpu_times() -> list[int]:
    """user, nice, system, idle, iowait, irq, softirq, steal of all CPUs, in jiffies."""
    with open("/proc/stat", encoding="ascii") as file:
        return [int(word) for word in file.readline().split()[1:9]]


def idle(plan: Plan, taker: Taker) -> tuple[tuple[Found, ...], tuple[str, ...]]:
    """Wake-ups between CPUs with idle states and without; on one CPU nothing should change much."""
    experiments: list[tuple[Experiment, str, str]] = []
    notes = []
    busy = busy_share()
    if busy > _BUSY:
        notes.append(
            f"The CPUs were {100 * busy:.0f} % busy with other work: they hardly idled in any case,"
            " and nothing is claimed of idle states"
        )
    for cpus, about in (((), _TWO), (("--cpus=1,1",), "pipes, one CPU")):
        words = ("pipes", "--iterations=500", *cpus)
        if os.access(DMA_LATENCY, os.W_OK):
            held = Setting("held", HOLD)
            held_words = "kept out of idle states"
            experiments.append((Experiment(Setting("idle"), held, words, 2), held_words, about))
        if os.access(HALT_POLL, os.W_OK):
            was = HALT_POLL.read_text().strip()
            sides = [
                Setting(n, "", f"echo {v} > {HALT_POLL}") for n, v in (("0", 0), ("1", 200_000))
            ]
            sides = [replace(side, label=f"poll-{side.label}") for side in sides]
            restore = f"echo {was} > {HALT_POLL}"
            polled = "guest_halt_poll_ns 200,000"
            experiments.append((Experiment(sides[0], sides[1], words, 2, restore), polled, about))
    for path in (DMA_LATENCY, HALT_POLL):
        if not os.access(path, os.W_OK):
            notes.append(f"Not taken: {path} cannot be written here")
    found = []
    for experiment, new, about in experiments:
        compared, _ = taker.comparisons(experiment, plan.idle_blocks, 1)
        base = "guest_halt_poll_ns 0" if experiment.restore else "idle states as they are"
        # One CPU does not idle while it is measured: there nothing is claimed.
        judged = [j for comparison in compared for j in comparison.judged(plan.rules)]
        claimed = about == _TWO and busy <= _BUSY
        found.append(Found(base, new, about, claimed, judged))
        taker.done()
        tell(f"idle states: {len(found)} of {len(experiments)}")
    return tuple(found), tuple(notes)


def validate(plan: Plan, helper: Path, output: Path) -> Outcome:
    begun = time.monotonic()
    taker = Taker(output, plan.seed * 1_000_000, begun + plan.seconds)
    machine = machine_of(ITSELF.take(1, plan.seed, output)[0])
    taker.done()
    # First what is short, then what has to be long enough, then what the time allows.
    polled, notes = idle(plan, taker)
    taker.deadline = begun + 0.7 * plan.seconds
    itself = alone(plan, taker)
    taker.deadline = begun + plan.seconds
    delayed = delays(plan, taker, helper)
    notes += too_few(plan, itself, delayed)
    seconds = time.monotonic() - begun
    return Outcome(plan, machine, seconds, itself, delayed, polled, notes)


def too_few(plan: Plan, itself: Sequence[Alarms], delayed: Sequence[Found]) -> tuple[str, ...]:
    """Where the time was over before all was taken."""
    taken = [(min(len(a.tests) for a in itself), plan.itself, "with itself")]
    taken.append((min(len(f.judged) for f in delayed), plan.delayed, "of each slowdown"))
    return tuple(
        f"The time was over after {got} of {wanted} comparisons {what}; VALIDATE='--minutes N'"
        for got, wanted, what in taken
        if got < wanted
    )


def machine_of(side: Side) -> str:
    info = side.sessions[0].info
    return (
        f"{' '.join(str(info.get('cpu_model')).split())}, {info.get('cpus_online')} CPUs,"
        f" Linux {info.get('kernel_release')}, mode {side.sessions[0].mode}"
    )


def markdown(outcome: Outcome, command: str) -> Iterator[str]:
    plan = outcome.plan
    rules = plan.rules
    yield f"`{command}`"
    yield ""
    yield (
        f"{outcome.machine}. Seed {plan.seed}, alpha {100 * rules.alpha:g} %, margin"
        f" {100 * rules.margin:g} %; {outcome.seconds / 60:.1f} minutes. In brackets 95 % intervals"
        " (Clopper and Pearson)."
    )
    yield ""
    yield (
        f"A kernel against itself: pipes on one CPU, cv, tlbflush, timer, network, {plan.itself_blocks}"
        " blocks of ABBA for each comparison; labels drawn from the seed:"
    )
    yield ""
    yield (
        "| judged as | comparisons | any faster or slower, after Holm | tests | p at most"
        f" {100 * rules.alpha:g} %, one test | |"
    )
    yield "|---|---:|---:|---:|---:|---|"
    for a in outcome.itself:
        if not a.tests:
            yield f"| {a.method} | 0 | n/a | 0 | n/a | no time |"
            continue
        share, low, high = a.single
        told = ", ".join(a.refuted(rules.alpha))
        yield (
            f"| {a.method} | {len(a.tests)} | {rate(a.suite)} | {sum(a.tests):,} |"
            f" {100 * share:.1f} % ({100 * low:.1f} to {100 * high:.1f}) |"
            f" {'refuted: ' + told if told else 'holds'} |"
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
        yield "No change was said to be slower 95 times of 100."
    else:
        found = smallest.said(Verdict.SLOWER)
        low, _ = clopper_pearson(found.hits, found.of, 0.95)
        yield (
            f"The smallest change that was said to be slower 95 times of 100, as were all larger"
            f" ones: {100 * (smallest.ratio - 1):.1f} % ({smallest.new} over {smallest.base}),"
            f" {found.hits} of {found.of}, so at least {100 * low:.0f} times of 100."
        )
    yield ""
    yield f"Idle states, {plan.idle_blocks} blocks:"
    yield ""
    yield "| BASE | NEW | | ratio | interval | verdict |"
    yield "|---|---|---|---:|---:|---|"
    for f in outcome.idle:
        for j in f.judged:
            reach = f"{j.interval[0]:.3f} to {j.interval[1]:.3f}" if j.interval else "n/a"
            verdict = j.verdict.value if j.verdict else "none"
            yield f"| {f.base} | {f.new} | {f.about} | {j.ratio:.3f} | {reach} | {verdict} |"
    for why in outcome.notes:
        yield ""
        yield f"{why}."


def tell(line: str) -> None:
    print(f"validate-real: {line}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make validate-real", allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="less than a minute, for a test")
    parser.add_argument("--minutes", type=float, default=15.0, help="at most (default: 15)")
    parser.add_argument("--comparisons", type=int, default=Plan.itself, help="with itself")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seccomp-delay", type=Path, required=True, help="the helper, built")
    args = parser.parse_args()
    plan = Plan(seed=args.seed, seconds=60 * args.minutes, itself=args.comparisons)
    flags = f"--seed {args.seed}"
    if args.quick:
        plan, flags = quick(plan), f"--quick {flags}"
    else:
        if args.minutes != 15.0:
            flags = f"--minutes {args.minutes:g} {flags}"
        if args.comparisons != Plan.itself:
            flags = f"--comparisons {args.comparisons} {flags}"
    with tempfile.TemporaryDirectory(prefix="klat-validate-") as output:
        try:
            outcome = validate(plan, args.seccomp_delay, Path(output, "results"))
        except (KlatError, SessionError) as error:
            tell(str(error))
            return 2
        except KeyboardInterrupt:
            tell("interrupted")
            return 130
    for line in markdown(outcome, f"make validate-real VALIDATE='{flags}'"):
        print(line)
    for why in outcome.refuted:
        tell(f"refuted: {why}")
    return 1 if outcome.refuted else 0


if __name__ == "__main__":
    sys.exit(main())
