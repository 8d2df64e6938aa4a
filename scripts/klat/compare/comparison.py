"""Compares what kernels measured. `Comparison` holds all that a report prints: reports compute
nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

from klat.compare import estimands, refusals, wakeup_split
from klat.record import lab_files
from klat.compare.caveats import cautions
from klat.compare.conditions import Condition, Declared, disagreements
from klat.record.environment import Difference, short
from klat.base.errors import KlatError
from klat.compare.estimands import Estimand
from klat.compare.environment_conditions import Values
from klat.stats.proportion import clustered
from klat.record.session import NOT_MEASURABLE, printable
from klat.compare.units import SideUnits, side_units
from klat.compare.settling import settled
from klat.compare.sides import (
    CellRuns,
    Key,
    NoLogarithm,
    Side,
    Units,
    Within,
    exceedances,
    observe,
    split_params,
    told,
    within_runs,
)
from klat.compare.sources import Run
from klat.compare.verdicts import Judgement, Observed, Rules, Verdict, describe, judge

NO_REGRESSION, REGRESSION, UNREADABLE, INCONCLUSIVE, NOT_COMPARABLE, NOT_DELIVERED = range(6)
# What a run's reason begins with where the kernel did not deliver the event.
_UNDELIVERED = "not delivered: "


@dataclass(frozen=True)
class Options:
    """What was asked for. `metrics` empty means all. `tested` are the estimands that verdicts are
    given on; empty means the median, and p99 where the samples support it. `threshold` is in nanoseconds, or in the unit where time means nothing.
    """

    rules: Rules = Rules()
    tested: tuple[Estimand, ...] = ()
    metrics: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    threshold: float | None = None
    threshold_is_time: bool = False  # it was given with a unit of time
    within_runs: bool = False  # read every sample, to tell how well single runs tell a quantile

    def tested_of(self, runs: Iterable[Run]) -> tuple[Estimand, ...]:
        """In a cell with these runs."""
        return self.tested or estimands.tested_by_default(run.row for run in runs)


@dataclass(frozen=True)
class SideInfo:
    """What heads a report of one side."""

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
    emulator: str = ""  # with its version


@dataclass(frozen=True)
class Worst:
    """The largest sample of one side, with what it is the largest of; no interval is honest for it.

    With a threshold: how many samples and runs exceed it, and the interval of the share of runs.
    """

    maximum: float | None
    samples: int
    runs: int
    samples_above: int | None = None
    runs_above: int | None = None
    share: tuple[float, float] | None = None


@dataclass(frozen=True)
class Result:
    """One estimand of a cell. Where blocks of several boots are judged, `over_boots` describes the
    same with each boot as one pair: it says more of other boots, from fewer units."""

    estimand: str
    tested: bool
    judgement: Judgement
    base_within: Within | None = None
    new_within: Within | None = None
    over_boots: Judgement | None = None

    @property
    def verdict(self) -> Verdict | None:
        return self.judgement.verdict


@dataclass(frozen=True)
class Cell:
    """One metric of one benchmark with one set of params at one placement, on both sides.

    `refused` names what keeps it from being compared, and then there are no results; `accepted`
    what differs and was allowed; `under_test` what one setting alone was told, and what followed
    from it, where they took turns. The params are BASE's. A cell without a run that counts on one side is
    not shown, and so inconclusive, unless its kernel did not deliver the event; `tried` is false where that side has no run of it at all.
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

    @property
    def key(self) -> Key:
        return (self.benchmark, self.params, self.placement, self.metric)

    @property
    def verdicts(self) -> list[Verdict]:
        """Of the tested estimands, or that the cell is not comparable."""
        if self.refused:
            return [Verdict.NOT_COMPARABLE]
        return [r.verdict for r in self.results if r.tested and r.verdict]


@dataclass(frozen=True)
class Uncompared:
    """What is in no cell: measured by NEW and not by BASE; or tried, and measured by neither, and then
    its key is without metric. `failed` where BASE tried it and failed: that is not shown either."""

    key: Key
    reason: str
    neither: bool = False
    failed: bool = False

    @property
    def what(self) -> str:
        return "not measured" if self.neither else "only in NEW"


@dataclass(frozen=True)
class Against:
    """BASE against one NEW. `unit_noun` is what inference rests on, a boot or a block; `subject`,
    what a verdict is about, the kernel or the setting within one boot."""

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
    unmeasurable: tuple[tuple[str, Key], ...] = ()  # on which side the mode gives it no number

    @property
    def shared(self) -> bool:
        """Whether both sides tried anything that one of them has figures of."""
        return any(cell.tried for cell in self.cells)


@dataclass(frozen=True)
class Comparison:
    """All of it. `family` is the number of tests that the correction is over."""

    options: Options
    against: tuple[Against, ...]
    family: int
    problems: tuple[str, ...]

    @property
    def verdicts(self) -> Counter[Verdict]:
        return Counter(v for a in self.against for c in a.cells for v in c.verdicts)

    @property
    def status(self) -> int:
        """1 where anything is slower; else 4 where anything could not be compared, or nothing was;
        else 3 where anything stays open, or is not shown because a side has no figure of it; else 5
        where NEW did not deliver what BASE delivered; else 0.
        What NEW alone has is no claim about BASE and leaves nothing open, unless BASE failed at it.

        Any `slower` is a regression: it is shown to lie beyond the margin, and the correction over
        the family keeps the chance of a false one at alpha for the whole comparison.
        """
        found = self.verdicts
        if found[Verdict.SLOWER]:
            return REGRESSION
        if not found or found[Verdict.NOT_COMPARABLE]:
            return NOT_COMPARABLE
        if any(not against.shared for against in self.against):
            return NOT_COMPARABLE
        if found[Verdict.INCONCLUSIVE] or found[Verdict.UNATTRIBUTABLE]:
            return INCONCLUSIVE
        if any(left.failed for against in self.against for left in against.uncompared):
            return INCONCLUSIVE
        if any(cell.undelivered == "NEW" for against in self.against for cell in against.cells):
            return NOT_DELIVERED
        return NO_REGRESSION


def compare(base: Side, news: Sequence[Side], options: Options) -> Comparison:
    """The correction is over every test of BASE against every NEW."""
    _check(base, news, options)
    opened = [_open(base, new, options) for new in news]
    tests = [e for o in opened for _, entries in o.cells for e in entries if e.to_judge]
    observed = [e.pair for e in tests]
    judged = judge(observed, options.rules, [e.obstacle for e in tests])
    judged = settled(judged, observed, options.rules)
    for entry, judgement in zip(tests, judged):
        entry.judgement = judgement
    against = tuple(
        replace(
            o.against,
            cells=tuple(
                replace(cell, results=tuple(entry.result() for entry in entries))
                for cell, entries in o.cells
            ),
        )
        for o in opened
    )
    family = sum(judgement.p is not None for judgement in judged)
    problems = dict.fromkeys(problem for side in (base, *news) for problem in side.problems)
    return Comparison(options, against, family, tuple(problems))


def _check(base: Side, news: Sequence[Side], options: Options) -> None:
    sides = [base, *news]
    for new in news:
        both = {s.path.resolve() for s in base.sessions} & {s.path.resolve() for s in new.sessions}
        if both:
            raise KlatError(f"{printable(str(min(both)))}: is on both sides")
    if options.threshold_is_time:
        for side in sides:
            if side.unit != "ns":
                raise KlatError(
                    f"--threshold is a time and {side.name} is in {side.unit}; give a bare number"
                )
    known = dict.fromkeys(key[3] for side in sides for key in (*side.cells, *side.unmeasurable))
    for metric in options.metrics:
        if metric not in known:
            raise KlatError(
                f"no side has the metric {metric!r}; there are {', '.join(map(printable, known))}"
            )


@dataclass
class _Entry:
    """A result on its way. `pair` is empty on both sides where there is nothing to judge."""

    estimand: Estimand
    tested: bool
    pair: tuple[Observed, Observed]
    obstacle: str
    judgement: Judgement | None = None
    within: tuple[Within | None, Within | None] = (None, None)
    over_boots: Judgement | None = None

    @property
    def to_judge(self) -> bool:
        return self.tested and self.judgement is None

    def result(self) -> Result:
        assert self.judgement is not None
        return Result(
            self.estimand.name, self.tested, self.judgement, *self.within, self.over_boots
        )


@dataclass(frozen=True)
class _Opened:
    against: Against  # without its cells
    cells: list[tuple[Cell, list[_Entry]]]  # each cell without its results


def _open(base: Side, new: Side, options: Options) -> _Opened:
    units = side_units(base, new)
    refused, accepted = refusals.between(base, new, units, options.allow)
    pairs, uncompared, unlike = _paired(base, new, units, options)
    against = Against(
        base=_info(base),
        new=_info(new),
        unit_noun=units.base.noun,
        subject=units.subject,
        refused=refused,
        accepted=accepted,
        cautions=(
            *filter(None, [units.caution]),
            *cautions(
                base,
                new,
                units.subject,
                units.took_turns,
                {pair.keys[0][0] for pair in pairs},
                options.rules.alpha,
            ),
            *unlike,
        ),
        differences=tuple(refusals.differences(base, new)),
        cells=(),
        uncompared=tuple(uncompared),
        unmeasurable=tuple(
            (sides, key)
            for sides, key in _unmeasurable(base, new, options)
            if not any(key in pair.keys for pair in pairs)
        ),
    )
    cells = [_open_cell(pair, against, units, base.unit, options) for pair in pairs]
    return _Opened(against, cells)


@dataclass(frozen=True)
class _Pair:
    """What makes a cell. Where a side has no figure of it, both keys are the other's."""

    keys: tuple[Key, Key]
    base: CellRuns
    new: CellRuns

    @property
    def tried(self) -> bool:
        return bool(self.base.statuses and self.new.statuses)


def _paired(
    base: Side, new: Side, units: SideUnits, options: Options
) -> tuple[list[_Pair], list[Uncompared], list[str]]:
    """All that BASE has with what belongs to it in NEW, if only the reason why it is not there; what
    BASE failed at and NEW has; what is left; and sentences on runs that are not compared like with
    like."""
    wanted = [[k for k in side.cells if _wanted(k, options)] for side in (base, new)]
    known = dict(matched(wanted[0], wanted[1], units.declared))
    taken = set(known.values())
    used: list[set[Key]] = [set(), set()]
    pairs = []
    for key in wanted[0]:
        if key in known:
            pairs.append(_Pair((key, known[key]), base.cells[key], new.cells[known[key]]))
        else:
            runs = _without_figure(new, key, units.declared, used[1])
            pairs.append(_Pair((key, key), base.cells[key], runs))
    left = []
    for key in wanted[1]:
        if key in taken or key in base.unmeasurable:
            continue
        runs = _without_figure(base, key, units.declared, used[0])
        if runs.statuses["error"] or runs.statuses["invalid"] or _undelivered(runs):
            pairs.append(_Pair((key, key), runs, new.cells[key]))
        else:
            left.append(Uncompared(key, _why(runs)))
    pairs, unlike = _by_state(pairs)
    if not options.metrics:  # for which these would have had is not known
        left += _by_neither(base, new, units.declared, used)
    return pairs, left, unlike


def _by_state(pairs: Sequence[_Pair]) -> tuple[list[_Pair], list[str]]:
    """Each pair split by how sleepers were woken, where both sides have runs of several ways."""
    found = []
    said: dict[str, None] = {}  # once for all metrics of a program
    for pair in pairs:
        parts, sentences = wakeup_split.split(pair.base, pair.new)
        for part in parts:
            added = f";woken={part.state}" if part.state else ""
            one, two = ((key[0], key[1] + added, *key[2:]) for key in pair.keys)
            found.append(_Pair((one, two), part.base, part.new))
        what = " ".join(filter(None, (pair.keys[0][0], pair.keys[0][2])))
        said |= {printable(f"{what}: {sentence}"): None for sentence in sentences}
    return found, list(said)


def _over_boots(
    base: CellRuns, new: CellRuns, estimand: Estimand, boots: Units, rules: Rules
) -> Judgement | None:
    """Each boot as one pair, of the blocks that are complete on both sides: of others a drift does
    not cancel. None with fewer than two boots."""
    both = {key for key in base.units.keys() & new.units.keys() if key[1]}
    if len({boot for boot, _ in both}) < 2:
        return None
    sides = [
        replace(side, units={key: runs for key, runs in side.units.items() if key in both})
        for side in (base, new)
    ]
    one, two = (observe(side, estimand, boots) for side in sides)
    return describe(one, two, rules)


def _without_figure(side: Side, key: Key, declared: Declared, used: set[Key]) -> CellRuns:
    """What the side's runs of what the key names say that has no figure. `used` takes their keys."""
    if key in side.unmeasurable:
        return CellRuns(reasons=Counter([NOT_MEASURABLE]))
    measured = {k[:3] for k in side.cells}
    # A run that fails early is not placed.
    near = [k for k in side.failed if k[2] in ("", key[2]) or k[:3] not in measured]
    for bare in _likenesses(declared):
        like = [k for k in near if _unplaced(bare(k)) == _unplaced(bare(key))]
        if like:
            used.update(like)
            return _together([side.failed[k] for k in like])
    return CellRuns()


def _unplaced(key: Key) -> tuple[str, str]:
    return key[:2]


def _together(cells: Sequence[CellRuns]) -> CellRuns:
    found = CellRuns()
    for cell in cells:
        found.statuses += cell.statuses
        found.reasons += cell.reasons
    return found


def _by_neither(
    base: Side, new: Side, declared: Declared, used: Sequence[set[Key]]
) -> Iterator[Uncompared]:
    """What a side tried and neither has a figure of, nor the other's figures tell the reason of."""
    seen: set[Key] = set()
    for side, done in zip((base, new), used):
        measured = {key[:3] for key in (*side.cells, *side.unmeasurable)}
        anywhere = {key[:2] for key in measured}
        for key in side.failed:
            # A run that failed early does not know its placement.
            told = key[:3] in measured if key[2] else _unplaced(key) in anywhere
            if key in done or told or (side is new and key in seen):
                continue
            one = _without_figure(base, key, declared, set())
            two = _without_figure(new, key, declared, seen)
            failed = bool(side is base and one.statuses["error"])
            yield Uncompared(key, f"BASE: {_why(one)}; NEW: {_why(two)}", True, failed)


def _why(cell: CellRuns) -> str:
    """Of a cell without a run that counts."""
    if not cell.reasons:
        return "not measured"
    (why, _), *_ = cell.reasons.most_common(1)
    return f"{told(cell.statuses)} ({printable(why)})" if cell.statuses else why


def matched(
    base: Sequence[Key], new: Sequence[Key], declared: Declared = frozenset()
) -> list[tuple[Key, Key]]:
    """Which cells of the two sides belong together, in BASE's order: those of equal params; then of
    what is left, where there is no choice which, those that differ in nothing but declared options;
    then in the placement that followed from these; and those that measure the same under conditions
    that differ, the last of them placement, which will be refused."""
    known = set(new)
    pairs = {key: key for key in base if key in known}
    for bare in _likenesses(declared):
        taken = set(pairs.values())
        left: list[dict[Key, list[Key]]] = [{}, {}]
        for side, keys, done in zip(left, (base, new), (pairs, taken)):
            for key in keys:
                if key not in done:
                    side.setdefault(bare(key), []).append(key)
        for name, ones in left[0].items():
            twos = left[1].get(name, [])
            if len(ones) == len(twos) == 1:
                pairs[ones[0]] = twos[0]
    return [(key, pairs[key]) for key in base if key in pairs]


def _likenesses(declared: Declared) -> tuple[Callable[[Key], Key], ...]:
    """What two keys have in common, from all to the least that makes them the same measurement."""

    def same(key: Key) -> Key:
        return key

    def changed(key: Key) -> Key:
        names = declared_of(key[0], declared)
        kept = [item for item in key[1].split(";") if item.partition("=")[0] not in names]
        return (key[0], ";".join(kept), *key[2:])

    def moved(key: Key) -> Key:
        placement = "" if declared_of(key[0], declared) else key[2]
        return (*changed(key)[:2], placement, key[3])

    def unlike(key: Key) -> Key:
        benchmark, params, *rest = moved(key)
        return (benchmark, split_params(params)[0], rest[0], rest[1])

    def elsewhere(key: Key) -> Key:
        return (*unlike(key)[:2], "", key[3])

    return same, changed, moved, unlike, elsewhere


def declared_of(benchmark: str, declared: Declared) -> set[str]:
    """The options of a benchmark that one side alone was given."""
    return {option for name, option in declared if name in (benchmark, "all")}


def _unmeasurable(base: Side, new: Side, options: Options) -> Iterator[tuple[str, Key]]:
    for key in dict.fromkeys((*base.unmeasurable, *new.unmeasurable)):
        names = [n for n, s in (("BASE", base), ("NEW", new)) if key in s.unmeasurable]
        if _wanted(key, options):
            yield " and ".join(names), key


@dataclass(frozen=True)
class ComparedRuns:
    """What lies behind the cells of BASE against one NEW, by their keys."""

    runs: dict[Key, tuple[CellRuns, CellRuns]]
    units: SideUnits

    def of(self, cell: Cell) -> tuple[CellRuns, CellRuns, SideUnits]:
        return *self.runs[cell.key], self.units


def compared_runs(base: Side, new: Side, options: Options) -> ComparedRuns:
    """The runs that `compare` made the cells of these sides from."""
    units = side_units(base, new)
    pairs, *_ = _paired(base, new, units, options)
    return ComparedRuns({pair.keys[0]: (pair.base, pair.new) for pair in pairs}, units)


def _wanted(key: Key, options: Options) -> bool:
    return not options.metrics or key[3] in options.metrics


def _info(side: Side) -> SideInfo:
    info = side.sessions[0].info
    statuses: Counter[str] = Counter()
    for session in side.sessions:
        for rows in session.runs():
            statuses[rows[0].status] += 1
    return SideInfo(
        path=printable(str(side.path)),
        label=side.name,
        kernel=printable(str(info.get("kernel_release") or "unknown")),
        kernel_version=printable(str(info.get("kernel_version") or "unknown")),
        preemption=printable(str(info.get("preemption") or "unknown")),
        cpu_model=printable(" ".join(str(info.get("cpu_model") or "unknown CPU").split())),
        mode=side.sessions[0].mode,
        unit=side.unit,
        boots=len(side.boots),
        boots_of_metrics=tuple(sorted({cell.boots for cell in side.cells.values()} - {0})),
        sessions=len(side.sessions),
        runs=told(statuses),
        emulator=lab_files.emulator(side.sessions[0].path),
    )


def _open_cell(
    pair: _Pair, against: Against, units: SideUnits, unit: str, options: Options
) -> tuple[Cell, list[_Entry]]:
    keys, base, new = pair.keys, pair.base, pair.new
    both = bool(base.units and new.units)
    unlike = disagreements(_each(base), _each(new)) if both else []
    names = declared_of(keys[0][0], units.declared)
    followed = names | ({"cpus", "policy"} if names else set())
    consequences = [condition for condition in unlike if condition.key in followed]
    unlike = [condition for condition in unlike if condition not in consequences]
    if both and not names:
        unlike = _with_placement(keys, base, new, unlike)
    refused, accepted = refusals.split(unlike, options.allow)
    cell = Cell(
        *keys[0],
        unit=unit,
        base_runs=told(base.statuses) or "none",
        new_runs=told(new.statuses) or "none",
        refused=against.refused + refused,
        accepted=accepted,
        results=(),
        base_worst=_worst(base, units.base, options),
        new_worst=_worst(new, units.new, options),
        under_test=tuple(_under_test(*keys, names, consequences)) if names else (),
        tried=pair.tried,
        undelivered=" and ".join(
            name for name, side in (("BASE", base), ("NEW", new)) if _undelivered(side)
        ),
    )
    if cell.refused:
        return cell, []
    entries = []
    chosen = options.tested_of([*base.runs, *new.runs])
    if cell.undelivered:
        chosen = chosen[:1]
    for estimand in dict.fromkeys((*options.tested, *estimands.SHOWN)) if both else chosen:
        tested = estimand in chosen
        try:
            sides = observe(base, estimand, units.base), observe(new, estimand, units.new)
        except NoLogarithm:
            nothing = Observed(()), Observed(())
            judgement = describe(*nothing, options.rules)
            reason = f"the {estimand.name} of a run is 0, of which there is no ratio"
            verdict = Verdict.INCONCLUSIVE if tested else None
            judgement = replace(judgement, reason=reason, verdict=verdict)
            entries.append(_Entry(estimand, tested, nothing, "", judgement))
            continue
        entry = _Entry(estimand, tested, sides, units.obstacle)
        if options.within_runs and tested and estimand.q is not None:
            entry.within = within_runs(base, estimand.q), within_runs(new, estimand.q)
        if both and tested and units.over_boots:
            entry.over_boots = _over_boots(base, new, estimand, units.over_boots, options.rules)
        if not both:
            entry.judgement = _uncounted(describe(*sides, options.rules), tested, base, new)
        elif not tested:
            entry.judgement = describe(*sides, options.rules, units.obstacle)
        entries.append(entry)
    return cell, entries


def _with_placement(
    keys: tuple[Key, Key], base: CellRuns, new: CellRuns, unlike: list[Condition]
) -> list[Condition]:
    """The conditions with that of the placement, where it differs: it is one with that of the CPUs, but
    for CPUs that vary within a side."""
    if keys[0][2] == keys[1][2]:
        return unlike
    placed = Condition("placement", "the placement", *(short(key[2]) or "none" for key in keys))
    within = [c.key for side in (base, new) for c in disagreements(_each(side), _each(side))]
    rest = [c for c in unlike if c.key != "cpus" or "cpus" in within]
    for cpus in (c for c in unlike if c not in rest):
        placed = replace(
            placed, base=f"{placed.base} ({cpus.base})", new=f"{placed.new} ({cpus.new})"
        )
    return sorted([*rest, placed], key=lambda condition: condition.key)


def _under_test(
    base: Key, new: Key, names: Set[str], followed: Sequence[Condition]
) -> Iterator[str]:
    """What is not the same, each as `name: BASE | NEW`."""
    values = [dict(item.partition("=")[::2] for item in key[1].split(";")) for key in (base, new)]
    said = {condition.key for condition in followed}
    for name in sorted(names):
        one, two = (short(held.get(name)) for held in values)
        if one != two and name not in said:
            yield f"{name}: {one} | {two}"
    if base[2] != new[2]:
        yield f"placement: {short(base[2])} | {short(new[2])}"
    for condition in followed:
        yield f"{condition.name}: {condition.base} | {condition.new}"


def _undelivered(cell: CellRuns) -> str:
    """What the kernel did not deliver; empty unless that is why no run counts."""
    skipped = set(+cell.statuses) == {"skipped"} and not cell.units
    if not skipped or not all(reason.startswith(_UNDELIVERED) for reason in cell.reasons):
        return ""
    (reason, _), *_ = cell.reasons.most_common(1)
    return printable(reason.removeprefix(_UNDELIVERED))


def _uncounted(blank: Judgement, tested: bool, base: CellRuns, new: CellRuns) -> Judgement:
    """Of a cell without runs that count on a side."""
    told_of = []
    settled = True
    for name, cell, other in (("BASE", base, "NEW"), ("NEW", new, "BASE")):
        if why := _undelivered(cell):
            told_of.append(f"not delivered by {name}: {why}")
        elif not cell.units:
            settled = False
            missing = f"only in {other}: not measured in {name}"
            counts = f"no run of {name} counts: {_why(cell)}"
            told_of.append(counts if cell.reasons else missing)
    verdict = Verdict.NOT_DELIVERED if settled else Verdict.INCONCLUSIVE
    return replace(blank, reason="; ".join(told_of), verdict=verdict if tested else None)


def _each(cell: CellRuns) -> list[Values]:
    """Every value that the runs of a cell have of each condition: what varies within a side is no
    more alike than what differs between two, for the sides may hold it in other shares."""
    held = {name: sorted(values) for name, values in cell.values.items()}
    count = max(map(len, held.values()))
    return [{name: vs[min(i, len(vs) - 1)] for name, vs in held.items()} for i in range(count)]


def _worst(cell: CellRuns, units: Units, options: Options) -> Worst:
    runs = cell.runs
    found = Worst(
        maximum=max((r.row.max * r.source.scale for r in runs if r.row.max is not None), default=None),
        samples=sum(run.row.n or 0 for run in runs),
        runs=len(runs),
    )  # fmt: skip
    if options.threshold is None or not runs:
        return found
    above = exceedances(cell, options.threshold, units)
    return replace(
        found,
        samples_above=above.samples,
        runs_above=sum(above.runs),
        share=clustered(above.runs, above.of_runs, 1 - options.rules.alpha),
    )
