"""`make validate-real`: verdicts on real data whose truth is known.

A kernel against itself, a slowdown in the kernel's own path, and a machine without idle states. The
figures cannot be repeated digit for digit. The seed decides the order of turns and runs.
"""

import argparse
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from klat.base.errors import KlatError
from klat.record.session import SessionError
from klat.compare.dataset import Dataset
from validation.outcome import Found, Itself, Outcome, Plan, markdown
from validation.turns import Experiment, Setting, Taker

INSTRUCTIONS = (25, 35, 50, 75, 100, 200, 400)
HALT_POLL = Path("/sys/module/haltpoll/parameters/guest_halt_poll_ns")
DMA_LATENCY = Path("/dev/cpu_dma_latency")
CPUIDLE = Path("/sys/devices/system/cpu/cpuidle")
_TWO = "pipes, two CPUs"
_BUSY = 0.2


def quick(plan: Plan) -> Plan:
    """A test that it works, in less than a minute."""
    return replace(
        plan, seconds=50.0, itself=4, delayed=1, delayed_blocks=6, idle_blocks=6, at_once=2
    )


ITSELF = Experiment(
    Setting("one"),
    Setting("other"),
    ("pipes", "cv", "tlbflush", "timer", "network", "--iterations=100", "--option=pipes.cpus=1,1"),
    runs=1,
)


def alone(plan: Plan, taker: Taker) -> Itself:
    """A kernel against itself."""
    found = Itself()
    longest = 0.0
    while len(found.changed) < plan.itself and taker.time_for(longest):
        begun = time.monotonic()
        wanted = min(plan.at_once, plan.itself - len(found.changed))
        compared, _ = taker.comparisons(ITSELF, plan.itself_blocks, wanted)
        for each in compared:
            found.add(each.named(plan.rules))
        taker.done()
        longest = max(longest, time.monotonic() - begun)
        tell(f"a kernel against itself: {len(found.changed)} of {plan.itself}")
    return found


def delays(plan: Plan, taker: Taker, helper: Path) -> tuple[Found, ...]:
    """A seccomp filter of n instructions against one of 1, and one of 1 against none."""
    quoted = shlex.quote(str(helper.absolute()))
    words = ("pipes", "--cpus=1,1", "--iterations=500")
    kinds = [(0, 1)] + [(1, n) for n in INSTRUCTIONS]
    found = []
    for few, many in kinds:
        names = [f"{n} instruction{'s' * (n != 1)}" if n else "no filter" for n in (few, many)]
        found.append(Found(names[0], names[1], "pipes, one CPU"))
    longest = 0.0
    # In turns, so that each kind has about as many when the time is over.
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
    """The share of all CPUs' time that is busy while this process sleeps."""
    before = _cpu_times()
    time.sleep(seconds)
    spent = [after - then for after, then in zip(_cpu_times(), before)]
    return 1 - (spent[3] + spent[4]) / max(1, sum(spent))


def _cpu_times() -> list[int]:
    """user, nice, system, idle, iowait, irq, softirq, steal of all CPUs, in jiffies."""
    with open("/proc/stat", encoding="ascii") as file:
        return [int(word) for word in file.readline().split()[1:9]]


def _why_not(path: Path) -> str:
    """Why the file cannot change the idle states; empty if it can."""
    if not os.access(path, os.W_OK):
        return "cannot be written here"
    if path == DMA_LATENCY and _cpuidle("current_driver") == "none":
        return "has no effect here: the kernel has no cpuidle driver"
    if path == HALT_POLL and (governor := _cpuidle("current_governor")) != "haltpoll":
        return f"has no effect here: the cpuidle governor is {governor}, not haltpoll"
    return ""


def _cpuidle(name: str) -> str:
    try:
        return (CPUIDLE / name).read_text().strip()
    except OSError:
        return "none"


def idle(plan: Plan, taker: Taker) -> tuple[tuple[Found, ...], tuple[str, ...]]:
    """Wakeups between CPUs with and without idle states; on one CPU little should change."""
    experiments: list[tuple[Experiment, Found]] = []
    notes = []
    busy = busy_share()
    if busy > _BUSY:
        notes.append(
            f"The CPUs were {100 * busy:.0f} % busy with other work, so they were hardly idle; no claim"
            " on idle states is tested"
        )
    # The programs' own options settle the idle states before and after a run. If a shell wrote these
    # files instead, the governor's limits would remain, and the next run would poll.
    kinds = (
        (DMA_LATENCY, "pipes.dma-latency", "", "0", "idle states as they are", "kept out of idle states"),
        (HALT_POLL, "pipes.guest-halt-poll", "0", "200000", "guest_halt_poll_ns 0", "guest_halt_poll_ns 200,000"),
    )  # fmt: skip
    for cpus, about in (((), _TWO), (("--cpus=1,1",), "pipes, one CPU")):
        words = ("pipes", "--iterations=500", *cpus)
        for path, option, before, after, base, new in kinds:
            if not _why_not(path):
                one, two = (
                    Setting(name, option=f"{option}={value}" if value else "")
                    for name, value in (("base", before), ("new", after))
                )
                experiments.append((Experiment(one, two, words, 2), Found(base, new, about)))
    for path in (DMA_LATENCY, HALT_POLL):
        if why := _why_not(path):
            notes.append(f"Not measured: {path} {why}")
    found = []
    for experiment, each in experiments:
        compared, _ = taker.comparisons(experiment, plan.idle_blocks, 1)
        each.judged += [j for comparison in compared for j in comparison.judged(plan.rules)]
        # On one CPU the CPU is never idle while measuring, so no claim is tested.
        each.changes = each.about == _TWO and busy <= _BUSY
        found.append(each)
        taker.done()
        tell(f"idle states: {len(found)} of {len(experiments)}")
    return tuple(found), tuple(notes)


def validate(plan: Plan, helper: Path, output: Path) -> Outcome:
    begun = time.monotonic()
    taker = Taker(output, plan.seed * 1_000_000, begun + plan.seconds)
    machine = machine_of(ITSELF.take(1, plan.seed, output)[0])
    taker.done()
    # The short part first, then the part with a fixed number, then the rest of the time.
    polled, notes = idle(plan, taker)
    taker.deadline = begun + 0.7 * plan.seconds
    itself = alone(plan, taker)
    taker.deadline = begun + plan.seconds
    delayed = delays(plan, taker, helper)
    notes += too_few(plan, itself, delayed)
    seconds = time.monotonic() - begun
    return Outcome(plan, machine, seconds, itself, delayed, polled, notes)


def too_few(plan: Plan, itself: Itself, delayed: Sequence[Found]) -> tuple[str, ...]:
    """Where the time was over before all was taken."""
    taken = [(len(itself.changed), plan.itself, "with itself")]
    taken.append((min(len(f.judged) for f in delayed), plan.delayed, "of each slowdown"))
    return tuple(
        f"The time was over after {got} of {wanted} comparisons {what}; VALIDATE='--minutes N'"
        for got, wanted, what in taken
        if got < wanted
    )


def machine_of(side: Dataset) -> str:
    info = side.sessions[0].info
    return (
        f"{' '.join(str(info.get('cpu_model')).split())}, {info.get('cpus_online')} CPUs,"
        f" Linux {info.get('kernel_release')}, mode {side.sessions[0].mode}"
    )


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
