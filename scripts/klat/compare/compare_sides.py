"""Compares BASE with every NEW, and judges all tests together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from klat.base.errors import KlatError
from klat.compare import refusals
from klat.compare.environment_conditions import scheduling
from klat.compare.caveats import cautions
from klat.compare.declared_looks import at_look
from klat.compare.copies import run_of, same_samples
from klat.compare.comparison import Against, Comparison, LeftOutMachine, Options, SideInfo
from klat.compare.judged_cells import OpenAgainst, OpenResult, open_cell
from klat.compare.judged_limits import with_limits
from klat.compare.limits import check
from klat.compare.machines import MachinePair, match_machines
from klat.compare.matching import matched_cells, unmeasurable
from klat.compare.over_machines import OpenOverMachines, open_over_machines
from klat.compare.settling import settled
from klat.compare.dataset import Dataset, status_counts
from klat.compare.units import side_units
from klat.compare.verdicts import Rules, judge
from klat.record import lab_files, renamed_metrics
from klat.record.rows import run_noun
from klat.record.session import printable


def compare(base: Dataset, news: Sequence[Dataset], options: Options) -> Comparison:
    """The correction is over every test of BASE against every NEW. The options of the result have the
    level of the look, if the sessions declare interim looks."""
    _check(base, news, options)
    rules, caution = at_look([base, *news], options.rules)
    options = replace(options, rules=rules)
    opened: list[OpenAgainst] = []
    over: list[OpenOverMachines] = []
    left_out: list[LeftOutMachine] = []
    for new in news:
        pairs, alone = match_machines(base, new, options.allow)
        of_new = [_open(pair, options, caution) for pair in pairs]
        opened += of_new
        over += open_over_machines(of_new, pairs, options)
        left_out += alone
    problems = tuple(dict.fromkeys(problem for side in (base, *news) for problem in side.problems))
    problems += tuple(same_samples([s for side in (base, *news) for s in side.sessions]))
    if options.limit:
        judged_against, family = with_limits(opened, options.limit, options.rules)
        return Comparison(
            options, judged_against, family, problems, left_out_machines=tuple(left_out)
        )
    family = _judge_all(opened, over, options.rules)
    against = tuple(
        replace(
            one.against,
            cells=tuple(
                replace(cell, results=tuple(entry.result() for entry in entries))
                for cell, entries in one.cells
            ),
        )
        for one in opened
    )
    over_machines = tuple(entry.result() for entry in over)
    return Comparison(options, against, family, problems, over_machines, tuple(left_out))


def _judge_all(
    opened: Sequence[OpenAgainst], over: Sequence[OpenOverMachines], rules: Rules
) -> int:
    """Judges the tests of all machines and those over machines as one family, and returns their
    number. So the chance of any false change in the report is at most alpha."""
    tests = [e for one in opened for _, entries in one.cells for e in entries if e.to_judge]
    tests_over = [entry for entry in over if entry.to_judge]
    entries: list[OpenResult | OpenOverMachines] = [*tests, *tests_over]
    observed = [entry.pair for entry in entries]
    obstacles = [e.obstacle for e in tests] + [""] * len(tests_over)
    judged = settled(judge(observed, rules, obstacles), observed, rules)
    for entry, judgement in zip(entries, judged):
        entry.judgement = judgement
    for entry in tests_over:
        for result in entry.results:
            result.decided_over_machines = True
    return sum(judgement.p is not None for judgement in judged)


def _check(base: Dataset, news: Sequence[Dataset], options: Options) -> None:
    sides = [base, *news]
    for new in news:
        both = {s.path.resolve() for s in base.sessions} & {s.path.resolve() for s in new.sessions}
        if both:
            raise KlatError(f"{printable(str(min(both)))}: is on both sides")
        base_runs = {run_of(row): session for session in base.sessions for row in session.rows}
        for session in new.sessions:
            copies = {run_of(row) for row in session.rows} & base_runs.keys()
            if copies:
                raise KlatError(
                    f"{printable(str(session.path))}: {len(copies):,} of its runs are on both sides, also"
                    f" in {printable(str(base_runs[min(copies)].path))}; remove the copy"
                )
    if options.limit:
        for side in sides:
            check(options.limit, side)
    known = [pair for side in sides for pair in side.known_metrics()]
    renamed_metrics.require(options.metrics, known)


def _open(sides: MachinePair, options: Options, caution: str) -> OpenAgainst:
    """What is known before all tests are judged: cells come without results, apart from the rest."""
    base, new = sides.base, sides.new
    units = side_units(base, new)
    refused, accepted = refusals.between(base, new, units, options.allow)
    pairs, uncompared, notes = matched_cells(base, new, units, options)
    against = Against(
        base=_info(base),
        new=_info(new),
        unit_noun=units.base.noun,
        subject=units.subject,
        refused=refused,
        accepted=accepted,
        cautions=(
            *filter(None, [units.caution, caution]),
            *cautions(
                base,
                new,
                units.subject,
                units.took_turns,
                {pair.keys[0][0] for pair in pairs},
                options.rules.alpha,
            ),
            *notes,
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
    cells = [open_cell(pair, against, units, base.figure_unit, options) for pair in pairs]
    return OpenAgainst(against, units, pairs, cells)


def _info(side: Dataset) -> SideInfo:
    info = side.info
    runs, segments = Counter[str](), Counter[str]()
    for session in side.sessions:
        for rows in session.runs():
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
        emulator=lab_files.emulator(side.sessions[0].path),
        scheduling=printable(scheduling(side.sources[0].values)),
    )
