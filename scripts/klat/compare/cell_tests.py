"""Turns the runs of matched cells into tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

from klat.compare import estimands, refusals
from klat.compare.comparison import Against, Cell, Options, Worst
from klat.compare.conditions import Condition, disagreements
from klat.compare.environment_conditions import Values
from klat.compare.estimands import Estimand
from klat.compare.matching import MachinePair, MatchedCell, SideUnits, declared_of, not_delivered
from klat.compare.matching import why_uncounted
from klat.compare.dataset import Key
from klat.compare.runs import Runs
from klat.compare.observations import NoLogarithm, Units, Within, observe, observe_sides
from klat.compare.observations import within_runs
from klat.compare.verdicts import Judgement, Observed, Rules, Verdict, describe
from klat.record.environment import short
from klat.record.rows import status_counts
from klat.record.session import SessionError


CellPlace = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Test:
    """One estimand of one metric, BASE and NEW.

    - `cell`: its place, as the number in Comparison.against and the number among the cells there. None for a
      test over machines.
    - `tested`: whether it gets a verdict.
    - `described`: its judgement, if there is nothing to judge. Otherwise it is judged with all others.
    - `obstacle`: why its units do not represent the subject of the verdict.
    - `included`: the cells of single machines whose tests a test over machines includes.
    """

    cell: CellPlace | None
    estimand: Estimand
    tested: bool
    sides: tuple[Observed, Observed]
    obstacle: str = ""
    described: Judgement | None = None
    within: tuple[Within | None, Within | None] = (None, None)
    over_boots: Judgement | None = None
    included: tuple[CellPlace, ...] = ()


@dataclass(frozen=True)
class MatchedSides:
    """BASE against one NEW on one machine, before its tests are judged: the cells of `against` have no results,
    and belong to `pairs`."""

    datasets: MachinePair
    against: Against
    units: SideUnits
    pairs: Sequence[MatchedCell]


def cell_without_results(
    pair: MatchedCell, against: Against, units: SideUnits, unit: str, options: Options
) -> Cell:
    """The cell, without results."""
    keys, base, new = pair.keys, pair.base, pair.new
    has_figures = bool(base.units and new.units)
    disagreeing: list[Condition] = []
    if has_figures:
        disagreeing = disagreements(_condition_rows(base), _condition_rows(new))
    names = declared_of(keys[0][0], units.declared)
    followed = names | ({"cpus", "policy"} if names else set())
    consequences = [condition for condition in disagreeing if condition.key in followed]
    disagreeing = [condition for condition in disagreeing if condition not in consequences]
    if has_figures and not names:
        disagreeing = _with_placement(keys, base, new, disagreeing)
    refused, accepted = refusals.split(disagreeing, options.allow)
    return Cell(
        *keys[0],
        unit=unit,
        base_runs=status_counts(base.statuses) or "none",
        new_runs=status_counts(new.statuses) or "none",
        refused=against.refused + refused,
        accepted=accepted,
        results=(),
        base_worst=_worst(base),
        new_worst=_worst(new),
        under_test=tuple(_under_test(*keys, names, consequences)) if names else (),
        tried=pair.tried,
        undelivered=" and ".join(
            name for name, side in (("BASE", base), ("NEW", new)) if not_delivered(side)
        ),
    )


def cell_tests_of(number: int, matched: MatchedSides, options: Options) -> Iterator[Test]:
    """The tests of all cells that are not refused. `number` is the index in Comparison.against."""
    for place, (pair, cell) in enumerate(zip(matched.pairs, matched.against.cells)):
        if not cell.refused:
            yield from _tests_of_cell((number, place), pair, cell, matched.units, options)


def _tests_of_cell(
    place: CellPlace, pair: MatchedCell, cell: Cell, units: SideUnits, options: Options
) -> Iterator[Test]:
    base, new = pair.base, pair.new
    has_figures = bool(base.units and new.units)
    chosen = options.tested_of([*base.runs, *new.runs])
    if cell.undelivered:
        chosen = chosen[:1]
    for estimand in dict.fromkeys((*options.tested, *estimands.SHOWN)) if has_figures else chosen:
        tested = estimand in chosen
        try:
            sides = _observe(base, new, estimand, units, tested)
        except NoLogarithm as error:
            yield _without_ratio(place, estimand, tested, str(error), options.rules)
            continue
        obstacle = units.obstacle_of(cell.benchmark)
        test = Test(place, estimand, tested, sides, obstacle)
        if not has_figures:
            described = _without_figure(describe(*sides, options.rules), tested, base, new)
            test = replace(test, described=described)
        elif not tested:
            described = describe(*sides, options.rules, obstacle)
            test = replace(test, described=described)
        elif units.over_boots:
            over_boots = _over_boots(base, new, estimand, units.over_boots, options.rules)
            test = replace(test, over_boots=over_boots)
        if options.within_runs and tested and estimand.q is not None:
            within = within_runs(base, estimand.q), within_runs(new, estimand.q)
            test = replace(test, within=within)
        yield test


def _instead(estimand: Estimand) -> str:
    return "" if estimand is estimands.MEAN else "; klat compare --quantile mean judges the mean"


def _without_ratio(
    place: CellPlace, estimand: Estimand, tested: bool, error: str, rules: Rules
) -> Test:
    nothing = Observed(()), Observed(())
    described = replace(
        describe(*nothing, rules),
        reason=f"the {estimand.name} of a run {error}, so there is no ratio{_instead(estimand)}",
        verdict=Verdict.INCONCLUSIVE if tested else None,
    )
    return Test(place, estimand, tested, nothing, described=described)


def _observe(
    base: Runs, new: Runs, estimand: Estimand, units: SideUnits, tested: bool
) -> tuple[Observed, Observed]:
    """A figure without a test is that of the runs, if samples cannot be read."""
    try:
        base_observed, new_observed = observe_sides((base, new), estimand, (units.base, units.new))
    except SessionError:
        if tested:
            raise
        base_observed = observe(base, estimand, units.base)
        new_observed = observe(new, estimand, units.new)
    return base_observed, new_observed


def _with_placement(
    keys: tuple[Key, Key], base: Runs, new: Runs, disagreeing: list[Condition]
) -> list[Condition]:
    """Add a condition if the placements differ. It includes the CPUs, unless they vary within a side."""
    if keys[0][2] == keys[1][2] or _differ_in_names(keys, (base, new), disagreeing):
        return disagreeing
    placed = Condition("placement", "the placement", *(short(key[2]) or "none" for key in keys))
    rows = (_condition_rows(side) for side in (base, new))
    within = [c.key for of_side in rows for c in disagreements(of_side, of_side)]
    rest = [c for c in disagreeing if c.key != "cpus" or "cpus" in within]
    for cpus in (c for c in disagreeing if c not in rest):
        placed = replace(
            placed, base=f"{placed.base} ({cpus.base})", new=f"{placed.new} ({cpus.new})"
        )
    return sorted([*rest, placed], key=lambda condition: condition.key)


def _differ_in_names(
    keys: tuple[Key, Key], sides: Sequence[Runs], disagreeing: Sequence[Condition]
) -> bool:
    """Whether the same CPUs of one machine are at the same place, and only the kernels name their types differently."""
    infos = [run.source.session.info for side in sides for run in side.runs]
    machines = {
        tuple(info.get(key) for key in ("machine_id", "mode", "kernel_release")) for info in infos
    }
    is_one = len({machine for machine, *_ in machines}) == 1 and len(machines) > 1
    is_hardware = all(machine and mode == "hardware" for machine, mode, _ in machines)
    places = {key[2].partition(":")[0] for key in keys}
    same_cpus = all(condition.key != "cpus" for condition in disagreeing)
    return is_one and is_hardware and len(places) == 1 and same_cpus


def _under_test(
    base: Key, new: Key, names: Set[str], followed: Sequence[Condition]
) -> Iterator[str]:
    """What differs between the sides, as `name: BASE | NEW`."""
    values = [dict(item.partition("=")[::2] for item in key[1].split(";")) for key in (base, new)]
    said = {condition.key for condition in followed}
    for name in sorted(names):
        in_base, in_new = (short(value_of.get(name)) for value_of in values)
        if in_base != in_new and name not in said:
            yield f"{name}: {in_base} | {in_new}"
    if base[2] != new[2]:
        yield f"placement: {short(base[2])} | {short(new[2])}"
    for condition in followed:
        yield f"{condition.name}: {condition.base} | {condition.new}"


def _over_boots(
    base: Runs, new: Runs, estimand: Estimand, boots: Units, rules: Rules
) -> Judgement | None:
    """Describe the difference with each boot as one pair. None with fewer than two boots.

    Only blocks that are complete on both sides count: in others a drift does not cancel.
    """
    complete = {key for key in base.units.keys() & new.units.keys() if key[1]}
    if len({boot for boot, _ in complete}) < 2:
        return None
    sides = [
        Runs([run for key, runs in side.units.items() if key in complete for run in runs])
        for side in (base, new)
    ]
    base_boots, new_boots = observe_sides(sides, estimand, (boots, boots))
    return describe(base_boots, new_boots, rules)


def _without_figure(blank: Judgement, tested: bool, base: Runs, new: Runs) -> Judgement:
    verdict, reason = without_figure(base, new)
    return replace(blank, reason=reason, verdict=verdict if tested else None)


def without_figure(base: Runs, new: Runs) -> tuple[Verdict, str]:
    """The verdict and reason of a cell in which a side has no run that counts."""
    reasons = []
    settled = True
    for name, cell in (("BASE", base), ("NEW", new)):
        if why := not_delivered(cell):
            reasons.append(f"not delivered by {name}: {why}")
        elif not cell.units:
            settled = False
            counts = f"no run of {name} counts: {why_uncounted(cell)}"
            reasons.append(counts if cell.reasons else f"not measured in {name}")
    verdict = Verdict.NOT_DELIVERED if settled else Verdict.INCONCLUSIVE
    return verdict, "; ".join(reasons)


def _condition_rows(cell: Runs) -> list[Values]:
    """All values of each condition in the runs of a cell.

    A condition that varies within a side disagrees, because the shares of its values may differ
    between the sides.
    """
    by_name = {name: sorted(values) for name, values in cell.values.items()}
    most = max(map(len, by_name.values()))
    return [
        {name: values[min(place, len(values) - 1)] for name, values in by_name.items()}
        for place in range(most)
    ]


def _worst(cell: Runs) -> Worst:
    runs = cell.runs
    return Worst(
        maximum=max((r.row.max * r.source.scale for r in runs if r.row.max is not None), default=None),
        samples=sum(run.row.n or 0 for run in runs),
        runs=len(runs),
    )  # fmt: skip
