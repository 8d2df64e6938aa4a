"""The verdict over machines: each machine is a pair of BASE and NEW.

The verdict of a machine holds for this machine only. The verdict over machines is on the mean ratio in a
population of machines. The measured machines are a sample of it, so the unit is the machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from klat.compare.comparison import LeftOutMachine, Options, OverMachines
from klat.compare.conditions import RUN, WITHIN_SIDE, disagreements, of_kernel, words_under_test
from klat.compare.cell_tests import MatchedSides, Test
from klat.compare.estimands import Estimand
from klat.compare.matching import MachinePair, MatchedCell
from klat.compare.verdicts import Judgement, Method, Observed, Rules, Unit, Verdict, describe
from klat.stats import power
from klat.stats.means import between_variance, mean, next_effect

# Conditions that must be the same on all machines: somebody set them, or they are under test. The others
# belong to the machine. They may differ, because each comparison is within one machine.
_ALIKE = {*RUN, *WITHIN_SIDE, "mode", "architecture"}


@dataclass
class _Members:
    """The machines that have one estimand of a metric. The keys are machine ids."""

    tests: dict[str, Test] = field(default_factory=dict)
    pairs: dict[str, MatchedCell] = field(default_factory=dict)
    judgements: dict[str, Judgement] = field(default_factory=dict)


# Benchmark, params, placement, metric, unit, what is under test, subject.
_Key = tuple[str, str, str, str, str, tuple[str, ...], str]


def over_machines(
    matched: Sequence[MatchedSides], tests: Sequence[Test], first_number: int, options: Options
) -> list[tuple[OverMachines, Test | None]]:
    """All estimands of BASE and one NEW, in the order of the cells, with their tests. There is no test for
    figures that cannot have a verdict. `matched` has an entry for each machine, and `tests` are those of
    their cells. `first_number` is the number of the first machine in Comparison.against.
    Empty if the sides are not split by machine.
    """
    if not matched[0].datasets.machine:
        return []
    usable = [sides.datasets for sides in matched if not sides.against.refused]
    differing = "; ".join(_differing_conditions(usable, options.allow))
    return [
        _over_machines(key, members, matched, differing, options.rules)
        for key, members in _by_estimand(matched, tests, first_number, options.rules).items()
    ]


def _by_estimand(
    matched: Sequence[MatchedSides], tests: Sequence[Test], first_number: int, rules: Rules
) -> dict[tuple[_Key, Estimand], _Members]:
    by_estimand: dict[tuple[_Key, Estimand], _Members] = {}
    for test in tests:
        if not test.tested or test.cell is None:
            continue
        number, place = test.cell
        sides = matched[number - first_number]
        cell, machine = sides.against.cells[place], sides.datasets.machine
        key = (*cell.key, cell.unit, cell.under_test, sides.against.subject)
        members = by_estimand.setdefault((key, test.estimand), _Members())
        members.tests[machine] = test
        members.pairs[machine] = sides.pairs[place]
        if not test.described:
            members.judgements[machine] = describe(*test.sides, rules, test.obstacle)
    return by_estimand


def _over_machines(
    key: tuple[_Key, Estimand],
    members: _Members,
    matched: Sequence[MatchedSides],
    differing: str,
    rules: Rules,
) -> tuple[OverMachines, Test | None]:
    names, estimand = key
    usable = {m: j for m, j in members.judgements.items() if _has_error(j)}
    left_out = tuple(
        LeftOutMachine(sides.datasets.machine, _why_left_out(sides, names, members))
        for sides in matched
        if sides.datasets.machine not in usable
    )
    needed = power.fewest(rules.alpha, pairs=True)
    reason = differing or _differing_policy([members.pairs[m] for m in usable])
    if len(usable) < needed:
        few = f"too few machines for a verdict over machines: {len(usable)} of {needed}"
        reason = "; ".join(filter(None, [few, reason]))
    effects = [math.log(j.ratio) for j in usable.values() if j.ratio is not None]
    errors = [j.error for j in usable.values() if j.error is not None]
    spread = not reason
    new = matched[0].against.new
    result = OverMachines(
        new.label,
        new.path,
        *names[:6],
        estimand=estimand.name,
        machines=tuple(usable),
        left_out=left_out,
        needed=needed,
        reason=reason,
        spread=math.sqrt(max(0.0, between_variance(effects, errors))) if spread else None,
        next_machine=_next(effects, rules) if spread else None,
    )
    if reason:
        return result, None
    included = tuple(cell for m in usable if (cell := members.tests[m].cell))
    return result, Test(None, estimand, True, machines_as_pairs(usable), included=included)


def _has_error(judgement: Judgement) -> bool:
    """Whether the ratio has an error from units of both sides, not from runs or samples."""
    return judgement.method in (Method.WELCH, Method.PAIRED)


def _why_left_out(sides: MatchedSides, key: _Key, members: _Members) -> str:
    machine = sides.datasets.machine
    if machine in members.judgements:
        return members.judgements[machine].reason
    if machine in members.tests and (described := members.tests[machine].described):
        return described.reason
    cells = [cell for cell in sides.against.cells if cell.key == key[:4]]
    if any(cell.refused for cell in cells):
        return Verdict.NOT_COMPARABLE.value
    return (
        "another setting is under test, or this figure is not tested" if cells else "not measured"
    )


def machines_as_pairs(usable: Mapping[str, Judgement]) -> tuple[Observed, Observed]:
    """BASE and NEW with each machine as a pair, from the judgement of each machine. The granularity of the
    figures can hide a change of the mean ratio. The bound of this change is the mean of the bounds on the
    machines."""
    base, new = [], []
    for machine, judgement in usable.items():
        assert judgement.base.value and judgement.ratio
        log = math.log(judgement.base.value)
        base.append(Unit(machine, (log,), machine))
        new.append(Unit(machine, (log + math.log(judgement.ratio),), machine))
    hidden = mean([j.resolution for j in usable.values()]) if usable else 0.0
    pooled = next((j.pooled_because for j in usable.values() if j.pooled), "")
    return (
        Observed(tuple(base), hidden, noun="machine", pooled=pooled),
        Observed(tuple(new), noun="machine", pooled=pooled),
    )


def _next(effects: Sequence[float], rules: Rules) -> tuple[float, float]:
    low, high = next_effect(effects, 1 - rules.alpha)
    return math.exp(low), math.exp(high)


def _differing_conditions(pairs: Sequence[MachinePair], allow: Sequence[str]) -> Iterator[str]:
    """A sentence for each condition that differs between the machines of a side, but must be the same."""
    for name, sides in (("BASE", [p.base for p in pairs]), ("NEW", [p.new for p in pairs])):
        values = [
            {key: value for key, value in source.values.items() if key[0] in _ALIKE}
            | of_kernel(source.session)
            for side in sides
            for source in side.sources
        ]
        for condition in disagreements(values, values):
            if condition.key not in allow:
                either = "" if condition.key == "architecture" else f", or --allow {condition.key}"
                yield (
                    f"the machines of {name} differ in {condition.name}: {condition.base}; measure all machines"
                    f" with one value{either}"
                )
    words = {
        words_under_test(*([s.values for s in side.sources] for side in (pair.base, pair.new)))
        for pair in pairs
    }
    if len(words) > 1:
        yield "the parameters under test on the kernel's command line differ between machines"


def _differing_policy(cells: Sequence[MatchedCell]) -> str:
    for name, sides in (("BASE", [c.base for c in cells]), ("NEW", [c.new for c in cells])):
        policies = {tuple(v) for s in sides for (key, _), v in s.values.items() if key == "policy"}
        if len(policies) > 1:
            return (
                f"the machines of {name} differ in the policy obtained; measure all machines with one"
                " policy"
            )
    return ""
