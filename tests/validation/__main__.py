"""`make validate`: prints what the simulation finds as Markdown; status 1 where a claim is refuted."""

import argparse
import os
import sys
from collections.abc import Iterator

from validation import machines
from validation.kernels import BOOT, RUN, SHAPES
from validation.simulation import CHANGES, Outcome, Plan, Rate, quick, validate
from validation.states import SIZES, States, states


def rate(found: Rate) -> str:
    low, high = found.interval
    return f"{100 * found.value:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def markdown(outcome: Outcome, command: str) -> Iterator[str]:
    """The lines, without a time or a machine: the seed decides them."""
    plan = outcome.plan
    alpha, margin = plan.rules.alpha, plan.rules.margin
    yield f"`{command}`"
    yield ""
    yield (
        f"{plan.repetitions:,} suites of {plan.benchmarks} comparisons for each line, seed"
        f" {plan.seed}, alpha {100 * alpha:g} %, margin {100 * margin:g} %, {plan.runs} runs a boot of"
        f" {plan.samples} samples; boots vary by {100 * BOOT:g} %, runs by {100 * RUN:g} %. Brackets"
        " hold 95 % intervals of the simulation itself. A claim is refuted where its 99.9 % interval"
        " excludes it."
    )
    yield ""
    for shape in SHAPES:
        yield f"- {shape.name}: {shape.about}; judged by the {shape.estimand.name}"
    yield ""
    yield "Errors. The true change is in margins: 0.5 is half the margin."
    yield ""
    yield (
        "| kernels | boots a side | margin in standard errors | any false verdict in a suite, change 0"
        " | the same, change 1 | slower, change 0.5 | slower, change 0.75 | slower, change 1 | `same`,"
        " change 1 | the interval covers | |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|"
    for r in outcome.rows:
        refuted = r.refuted(alpha)
        told = f"refuted: {', '.join(refuted)}" if refuted else "holds"
        held = (r.none, r.suite, *(r.slower[c] for c in CHANGES[:3]), r.same, r.covers)
        rates = " | ".join(map(rate, held))
        yield f"| {r.shape} | {r.boots} | {r.errors:.1f} | {rates} | {told} |"
    yield ""
    yield (
        "How often a two-sided test of no difference, after a test for `same`, says slower, and how"
        " often this rule does:"
    )
    yield ""
    shown = " | ".join(f"test of no difference, change {c:g}" for c in CHANGES)
    yield f"| kernels | boots a side | {shown} | this rule, change {CHANGES[-1]:g} | faster, change {CHANGES[-1]:g} |"
    yield f"|---|---:|{'---:|' * (len(CHANGES) + 2)}"
    for r in outcome.rows:
        cells = " | ".join(f"{100 * r.shows[c].value:.1f} %" for c in CHANGES)
        power = f"{100 * r.slower[CHANGES[-1]].value:.1f} % | {100 * r.faster.value:.2f} %"
        yield f"| {r.shape} | {r.boots} | {cells} | {power} |"
    yield ""
    yield (
        "After a look at each boot from 4 to 20, with a stop at the first verdict, kernels that differ"
        f" by the margin are called faster or slower in {rate(outcome.looks)}."
    )


def states_markdown(found: list[States], tests: int) -> Iterator[str]:
    yield (
        "Equal kernels whose boots are in one of two fixed states: the exact chance of a false verdict,"
        f" alone and in a suite of {tests}, for the worst of several shares and distances:"
    )
    yield ""
    yield "| boots a side | alone | in a suite | pairs | alone | in a suite |"
    yield "|---:|---:|---:|---:|---:|---:|"
    for one, two in zip(*([s for s in found if s.pairs is pairs] for pairs in (False, True))):
        cells = [f"{s.units} | {100 * s.one:.2f} % | {100 * s.suite:.2f} %" for s in (one, two)]
        yield f"| {' | '.join(cells)} |"


def machines_markdown(found: list[machines.Row], plan: machines.Plan) -> Iterator[str]:
    yield (
        f"The verdict over machines: {plan.repetitions:,} fleets for each line, {plan.boots} boots a side"
        " on each machine. The true mean ratio is the margin, but for false alarms, where it is 1. The"
        " spread is the standard deviation of the machines' true ratios, in margins. With unequal boots"
        " the machines' standard deviations of boots differ by a log-normal factor with sigma 1."
    )
    yield ""
    yield (
        "| machines | spread | boots | false alarms | slower, change 1 | `same`, change 1 | the interval"
        " covers | one more machine: its true ratio | its measured ratio | weighted by errors, the interval covers | |"
    )
    yield "|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---|"
    for r in found:
        refuted = r.refuted(plan.rules.alpha)
        told = f"refuted: {', '.join(refuted)}" if refuted else "holds"
        held = (r.none, r.slower, r.same, r.covers, r.next_true, r.next_measured, r.weighted)
        rates = " | ".join(map(rate, held))
        boots = "unequal" if r.unequal else "alike"
        yield f"| {r.machines} | {r.spread:g} | {boots} | {rates} | {told} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make validate", allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="200 repetitions, for a test")
    parser.add_argument("--repetitions", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    args = parser.parse_args()
    plan = Plan(repetitions=args.repetitions, seed=args.seed)
    fleets = machines.Plan(repetitions=args.repetitions // 2, seed=args.seed)
    flags = f"--seed {args.seed}"
    sizes = SIZES
    if args.quick:
        plan, flags, sizes = quick(plan), f"--quick {flags}", (3, 4, 6)
        fleets = machines.quick(fleets)
    elif args.repetitions != 2_000:
        flags = f"--repetitions {args.repetitions} {flags}"
    outcome = validate(plan, args.workers)
    held = [states(n, pairs, plan.rules, plan.benchmarks) for pairs in (False, True) for n in sizes]
    for line in markdown(outcome, f"make validate VALIDATE='{flags}'"):
        print(line)
    print()
    for line in states_markdown(held, plan.benchmarks):
        print(line)
    print()
    over = machines.validate(fleets, args.workers)
    for line in machines_markdown(over, fleets):
        print(line)
    alpha = plan.rules.alpha
    refuted = [f"{r.shape}, {r.boots}: {why}" for r in outcome.rows for why in r.refuted(alpha)]
    refuted += [f"two states, {s.units}: false alarms" for s in held if max(s.one, s.suite) > alpha]
    refuted += [f"{r.machines} machines: {why}" for r in over for why in r.refuted(alpha)]
    for why in refuted:
        print(f"validate: {why}", file=sys.stderr)
    return 1 if refuted else 0


if __name__ == "__main__":
    sys.exit(main())
