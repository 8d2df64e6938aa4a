"""Compares BASE with every NEW, and judges all tests together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from functools import partial

from klat.base.errors import KlatError
from klat.compare import refusals
from klat.compare.cell_tests import CellPlace, MatchedSides, Test, cell_tests_of
from klat.compare.cell_tests import cell_without_results
from klat.compare.comparison import Against, Comparison, LeftOutMachine, Options, OverMachines
from klat.compare.comparison import Result, SideInfo
from klat.compare.dataset import Dataset, unify_machine_ids
from klat.compare.environment_conditions import scheduling
from klat.compare.estimands import Estimand
from klat.compare.judged_limits import with_limits
from klat.compare.limits import check
from klat.compare.matching import MachinePair, by_machine, match_machines, matched_cells, side_units
from klat.compare.matching import unmeasurable
from klat.compare.over_machines import over_machines
from klat.compare.refusals import cautions
from klat.compare.session_problems import run_of, same_samples
from klat.compare.verdicts import Judgement, Method, Observed, Rules, Settle, Verdict, judge
from klat.compare.verdicts import paired_means
from klat.record import json_files, renamed_metrics
from klat.record.rows import run_noun, status_counts
from klat.record.session import printable
from klat.stats import power
from klat.stats.means import variance
from klat.stats.multiplicity import Look
from klat.stats.power import Design, MOST_RUNS, MOST_UNITS, power_of_change, power_of_equivalence
from klat.stats.power import smallest


def compare(base: Dataset, news: Sequence[Dataset], options: Options) -> Comparison:
    """The correction is over every test of BASE against every NEW. The options of the result have the
    level of the look, if the sessions declare interim looks."""
    return compare_with_runs(base, news, options)[0]


def compare_with_runs(
    base: Dataset, news: Sequence[Dataset], options: Options
) -> tuple[Comparison, list[MatchedSides]]:
    """compare(), and the matched runs of each item of Comparison.against."""
    return compare_steps([base, *news], [(0, new) for new in range(1, len(news) + 1)], options)


def compare_steps(
    sides: Sequence[Dataset], steps: Sequence[tuple[int, int]], options: Options
) -> tuple[Comparison, list[MatchedSides]]:
    """Compares pairs of sides, each given by the indices of its BASE and NEW. The correction is over the
    tests of all of them."""
    for base, new in steps:
        _check(sides[base], sides[new], options)
    known = [metric for side in sides for metric in side.known_metrics()]
    renamed_metrics.require(options.metrics, known)
    sources_of_sides, renamed = unify_machine_ids(side.sources for side in sides)
    # An unchanged side is not copied, because its cells are cached.
    sides = [
        side if side.sources == sources else replace(side, sources=sources)
        for side, sources in zip(sides, sources_of_sides)
    ]
    rules, caution = at_look(sides, options.rules)
    options = replace(options, rules=rules)
    matched: list[MatchedSides] = []
    tests: list[Test] = []
    over: list[tuple[OverMachines, Test | None]] = []
    left_out: list[LeftOutMachine] = []
    parts = {base: by_machine(sides[base]) for base, _ in steps}
    for base, new in steps:
        pairs, single_sided = match_machines(sides[base], parts[base], sides[new], options.allow)
        matched_of_new = [_match(pair, options, caution) for pair in pairs]
        left_out += single_sided
        if not options.limit:
            numbered = enumerate(matched_of_new, len(matched))
            cell_tests = [
                test for number, m in numbered for test in cell_tests_of(number, m, options)
            ]
            over += over_machines(matched_of_new, cell_tests, len(matched), options)
            tests += cell_tests
        matched += matched_of_new
    problems = tuple(dict.fromkeys(problem for side in sides for problem in side.problems))
    problems += tuple(renamed)
    problems += tuple(refusals.without_effect(options.allow, sides))
    problems += tuple(same_samples([s for side in sides for s in side.sessions]))
    tests_over = [test for _, test in over if test]
    judgements, family = _judge_all([*tests, *tests_over], options.rules)
    decided = {(cell, test.estimand) for test in tests_over for cell in test.included}
    against = _with_results(matched, zip(tests, judgements), decided)
    judged_over = iter(judgements[len(tests) :])
    over_results = tuple(
        replace(result, judgement=next(judged_over) if test else None) for result, test in over
    )
    if options.limit:
        against, family = with_limits(matched, options.limit, options.rules)
    left = tuple(left_out)
    return Comparison(options, against, family, problems, over_results, left), matched


def _judge_all(tests: Sequence[Test], rules: Rules) -> tuple[list[Judgement], int]:
    """The judgement of each test, and the number of tests in the correction. All tests of the report, of machines
    and over machines, are one family. So the chance of any false change in the report is at most alpha.
    """
    undecided = [test for test in tests if not test.described]
    sides = [test.sides for test in undecided]
    judged = settled(judge(sides, rules, [t.obstacle for t in undecided]), sides, rules)
    in_order = iter(judged)
    family = sum(judgement.p is not None for judgement in judged)
    return [test.described or next(in_order) for test in tests], family


def _with_results(
    matched: Sequence[MatchedSides],
    judged: Iterable[tuple[Test, Judgement]],
    decided_over_machines: Container[tuple[CellPlace | None, Estimand]],
) -> tuple[Against, ...]:
    results: dict[CellPlace | None, list[Result]] = {}
    for test, judgement in judged:
        result = Result(
            test.estimand.name,
            test.tested,
            judgement,
            *test.within,
            over_boots=test.over_boots,
            decided_over_machines=(test.cell, test.estimand) in decided_over_machines,
        )
        results.setdefault(test.cell, []).append(result)
    return tuple(
        replace(
            sides.against,
            cells=tuple(
                replace(cell, results=tuple(results.get((number, place), ())))
                for place, cell in enumerate(sides.against.cells)
            ),
        )
        for number, sides in enumerate(matched)
    )


def _check(base: Dataset, new: Dataset, options: Options) -> None:
    base_paths, new_paths = ({s.path.resolve() for s in side.sessions} for side in (base, new))
    if on_both := base_paths & new_paths:
        raise KlatError(f"{printable(str(min(on_both)))}: is on both sides")
    shared = set(base.boot_ids) & set(new.boot_ids)
    base_session_of = {run_of(r): s for s in base.sessions if s.boot_id in shared for r in s.rows}
    for session in new.sessions:
        if session.boot_id in shared and (
            copies := {run_of(row) for row in session.rows} & base_session_of.keys()
        ):
            raise KlatError(
                f"{printable(str(session.path))}: {len(copies):,} of its runs are on both sides, also"
                f" in {printable(str(base_session_of[min(copies)].path))}; remove the copy"
            )
    if options.limit:
        for side in (base, new):
            check(options.limit, side)


def _match(sides: MachinePair, options: Options, caution: str) -> MatchedSides:
    base, new = sides.base, sides.new
    units = side_units(base, new)
    refused, accepted = refusals.between(base, new, units, options.allow)
    pairs, uncompared, notes = matched_cells(base, new, units, options)
    compared = {pair.keys[0][0] for pair in pairs}
    warnings, obstacles = refusals.uncounted_runs(base, new, compared, options.rules.alpha)
    units = replace(units, benchmark_obstacles=obstacles)
    against = Against(
        base=_info(base),
        new=_info(new),
        unit_noun=units.base.noun,
        subject=units.subject,
        refused=refused,
        accepted=accepted,
        cautions=(
            *filter(None, [units.caution, caution]),
            *warnings,
            *(obstacles.values() if options.limit else ()),
            *cautions(base, new, units.subject, units.took_turns),
            *notes,
            *refusals.floors(pairs, base.figure_unit, options.rules.margin),
        ),
        differences=tuple(refusals.differences(base, new)),
        cells=(),
        uncompared=tuple(uncompared),
        unmeasurable=tuple(
            (names, key)
            for names, key in unmeasurable(base, new, options)
            if not any(key in pair.keys for pair in pairs)
        ),
        machine=sides.machine,
    )
    cells = (cell_without_results(p, against, units, base.figure_unit, options) for p in pairs)
    return MatchedSides(sides, replace(against, cells=tuple(cells)), units, pairs)


def _info(side: Dataset) -> SideInfo:
    info = side.info
    runs, segments = Counter[str](), Counter[str]()
    for session in side.sessions:
        for rows in session.runs:
            (segments if rows[0].soak else runs)[rows[0].status] += 1
    counts = [status_counts(runs)] if runs or not segments else []
    if segments:
        counts.append(f"{'segments of soaks: ' if runs else ''}{status_counts(segments)}")
    return SideInfo(
        path=printable(str(side.path)),
        label=side.name,
        kernel=printable(str(info.get("kernel_release") or "unknown")),
        kernel_version=printable(str(info.get("kernel_version") or "unknown")),
        preemption=printable(str(info.get("preemption") or "unknown")),
        cpu_model=printable(" ".join(str(info.get("cpu_model") or "unknown CPU").split())),
        mode=side.mode,
        unit=side.figure_unit,
        boots=side.boots,
        boots_of_metrics=tuple(sorted({cell.boots for cell in side.cells.values()} - {0})),
        sessions=len(side.sessions),
        runs="; ".join(counts),
        run_noun=run_noun(bool(segments and not runs)),
        emulator=json_files.emulator(side.sessions[0].path),
        scheduling=printable(scheduling(side.sources[0].values)),
    )


_SEVERAL = (
    "some sessions declare interim looks, but not all sessions declare the same looks of one campaign;"
    " alpha is for a comparison without looks; to use the looks, compare only sessions of one campaign"
)


def at_look(sides: Sequence[Dataset], rules: Rules) -> tuple[Rules, str]:
    """The rules at the look after the rounds that all sides have, and a caution or an empty text. If no
    session declares looks, the rules are unchanged."""
    pairings = [[source.pairing for source in side.sources] for side in sides]
    declared = {
        (p.experiment, p.looks) if p and p.looks else None for pairing in pairings for p in pairing
    }
    if declared <= {None}:
        return rules, ""
    if len(declared) > 1:
        return rules, _SEVERAL
    ((_, planned),) = filter(None, declared)
    rounds = set.intersection(*({p.pairs for p in pairing if p} for pairing in pairings))
    # Without a common round there is no pair, so no test uses this level.
    rules_now = rules_at(max(1, min(len(rounds), planned[-1])), planned, rules)
    caution = ""
    if rules_now.look and not rules_now.look.number:
        caution = (
            f"looks were planned after {_listed(planned)} rounds, but all sides have {len(rounds)} rounds;"
            f" alpha is the level of a look after {len(rounds)} rounds; it holds only if you did not use"
            " the results to decide when to compare"
        )
    return rules_now, caution


def rules_at(rounds: int, planned: tuple[int, ...], rules: Rules) -> Rules:
    """The rules of a look after `rounds` rounds. Looks are planned after the rounds `planned`."""
    look = Look(rounds, planned, rules.alpha)
    return replace(rules, alpha=look.level(), look=look)


def _listed(numbers: Sequence[int]) -> str:
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last


def settled(
    judged: Sequence[Judgement], pairs: Sequence[tuple[Observed, Observed]], rules: Rules
) -> list[Judgement]:
    """Adds `settle` to the inconclusive judgements. An interim look has fewer units than `settle` asks for. So a later
    look judges them, and the level is the level of all looks."""
    if rules.look:
        rules = replace(rules, alpha=rules.look.alpha, look=None)
    family = max(1, sum(map(_will_be_tested, judged)))
    alpha = rules.strictest(family)
    return [
        replace(judgement, settle=_settle(judgement, rules, alpha, pair))
        if judgement.verdict is Verdict.INCONCLUSIVE and judgement.interval
        else judgement
        for judgement, pair in zip(judged, pairs)
    ]


def _will_be_tested(judgement: Judgement) -> bool:
    """With too few units, a test has no p yet."""
    is_open = judgement.verdict is Verdict.INCONCLUSIVE and judgement.interval is not None
    return judgement.p is not None or is_open


def _settle(
    draft: Judgement, rules: Rules, alpha: float, pair: tuple[Observed, Observed]
) -> Settle:
    """Settled as the verdict that the estimate suggests, with the strictest correction."""
    assert draft.ratio is not None
    effect, margin = math.log(draft.ratio), rules.log_margin
    changed = Verdict.SLOWER if effect > 0 else Verdict.FASTER
    verdict = changed if abs(effect) > margin else Verdict.SAME
    design = _design(draft, pair)

    def likely(chosen: Design) -> bool:
        if verdict is Verdict.SAME:
            return power_of_equivalence(chosen, effect, margin, rules.alpha) >= rules.power
        return power_of_change(chosen, effect, margin, alpha) >= rules.power

    now = min(draft.base.units, draft.new.units)
    fewest = power.fewest(rules.alpha, design.pairs)
    units = smallest(lambda n: likely(replace(design, units=n)), max(now + 1, fewest), MOST_UNITS)
    runs = None
    if now >= fewest and (shares := _shares(draft, design)):
        runs_a_unit = max(draft.base.runs // draft.base.units, draft.new.runs // draft.new.units)
        thinned = partial(_thinned, design, shares)
        runs = smallest(lambda n: likely(thinned(n)), runs_a_unit + 1, MOST_RUNS)
    return Settle(verdict, units, runs, rules.power)


def _design(draft: Judgement, pair: tuple[Observed, Observed]) -> Design:
    if draft.method is Method.PAIRED:
        pairs, _ = paired_means(*pair)
        observed = variance([b - a for a, b in pairs])
        return Design(len(pairs), observed, pairs=True, resolution=draft.resolution)
    base, new = draft.base.unit, draft.new.unit
    assert base and new and base.observed is not None and new.observed is not None
    units = min(draft.base.units, draft.new.units)
    return Design(units, base.observed, new.observed, resolution=draft.resolution)


Shares = list[tuple[float, float]]


def _shares(draft: Judgement, design: Design) -> Shares | None:
    """The parts of the design's variances: of the units themselves, and of one run. None where they
    are not known."""
    observed = [design.variance_a, design.variance_b]
    runs: list[float] = []
    for side in (draft.base, draft.new):
        if side.run is None or side.run.own is None:
            return None
        runs.append(side.run.own)
    shares = [d * side.units / side.runs for d, side in zip(runs, (draft.base, draft.new))]
    if design.pairs:
        runs, shares = [sum(runs), 0.0], [sum(shares), 0.0]
    return [(max(0.0, whole - s), run) for whole, s, run in zip(observed, shares, runs)]


def _thinned(design: Design, shares: Shares, runs: int) -> Design:
    """The design with this many runs per unit. More runs reduce only their own part of the variance."""
    a, b = (unit + run / runs for unit, run in shares)
    return replace(design, variance_a=a, variance_b=b)
