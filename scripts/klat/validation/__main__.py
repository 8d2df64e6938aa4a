"""`make validate`: prints what the simulation finds as Markdown; status 1 where a claim is refuted."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator

from klat.validation.kernels import BOOT, RUN, SHAPES
from klat.validation.simulation import Outcome, Plan, Rate, quick, validate


def rate(found: Rate) -> str:
    low, high = found.interval
    return f"{100 * found.value:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def markdown(outcome: Outcome, command: str) -> Iterator[str]:
    """The lines, without a time or a machine: the seed decides them."""
    plan = outcome.plan
    yield f"`{command}`"
    yield ""
    yield (
        f"{plan.repetitions:,} repetitions of each line, seed {plan.seed}, alpha"
        f" {100 * plan.rules.alpha:g} %, margin {100 * plan.rules.margin:g} %,"
        f" {plan.runs} runs a boot of {plan.samples} samples; boots vary by {100 * BOOT:g} %, runs"
        f" by {100 * RUN:g} %. In brackets 95 % intervals of the simulation itself."
    )
    yield ""
    for shape in SHAPES:
        yield f"- {shape.name}: {shape.about}; judged by the {shape.estimand.name}"
    yield ""
    yield "Errors, between kernels that do not differ, or differ by just the margin:"
    yield ""
    yield (
        "| kernels | boots a side | false alarms, one comparison | any in a suite of"
        f" {plan.benchmarks} after Holm | the interval covers | `same` said at the margin | |"
    )
    yield "|---|---:|---:|---:|---:|---:|---|"
    for e in outcome.errors:
        refuted = e.refuted(plan.rules.alpha)
        told = f"refuted: {', '.join(refuted)}" if refuted else "holds"
        rates = " | ".join(rate(found) for found in (e.alarm, e.suite, e.coverage, e.same))
        yield f"| {e.shape} | {e.boots} | {rates} | {told} |"
    yield ""
    yield "Power, how often a slower kernel is said to be slower:"
    yield ""
    effects = list(dict.fromkeys(power.effect for power in outcome.powers))
    shown = " | ".join(f"slower by {100 * effect:g} %" for effect in effects)
    yield f"| kernels | boots a side | {shown} | said faster |"
    yield f"|---|---:|{'---:|' * len(effects)}---:|"
    for shape_name, boots in dict.fromkeys((p.shape, p.boots) for p in outcome.powers):
        row = [p for p in outcome.powers if (p.shape, p.boots) == (shape_name, boots)]
        cells = " | ".join(f"{100 * p.slower.value:.1f} %" for p in row)
        wrong = Rate(sum(p.faster.hits for p in row), sum(p.faster.of for p in row))
        yield f"| {shape_name} | {boots} | {cells} | {100 * wrong.value:.2f} % |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make validate", allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="200 repetitions, for a test")
    parser.add_argument("--repetitions", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    args = parser.parse_args()
    plan = Plan(repetitions=args.repetitions, seed=args.seed)
    flags = f"--seed {args.seed}"
    if args.quick:
        plan, flags = quick(plan), f"--quick {flags}"
    elif args.repetitions != 2_000:
        flags = f"--repetitions {args.repetitions} {flags}"
    outcome = validate(plan, args.workers)
    for line in markdown(outcome, f"make validate VALIDATE='{flags}'"):
        print(line)
    refuted = [e for e in outcome.errors if e.refuted(plan.rules.alpha)]
    for e in refuted:
        print(f"validate: {e.shape}: {', '.join(e.refuted(plan.rules.alpha))}", file=sys.stderr)
    return 1 if refuted else 0


if __name__ == "__main__":
    sys.exit(main())
