"""Finds what of two sides belongs together: the machines, the units (boots, blocks, or pairs of them), and the
measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from klat.base.grouping import grouped
from klat.compare import way_split
from klat.compare.comparison import LeftOutMachine, Options, Uncompared
from klat.compare.conditions import Declared, RECORDED
from klat.compare.dataset import Dataset, Key
from klat.compare.observations import Units
from klat.compare.runs import Runs, split_params
from klat.record.renamed_metrics import is_asked
from klat.record.rows import status_counts
from klat.record.session import NOT_MEASURABLE, printable

# The reason of a run starts with this if the kernel did not deliver the event.
_UNDELIVERED = "not delivered: "


@dataclass(frozen=True)
class MatchedCell:
    """The runs of one cell. If one side has no figure, both keys are the key of the other side."""

    keys: tuple[Key, Key]
    base: Runs
    new: Runs

    @property
    def tried(self) -> bool:
        return bool(self.base.statuses and self.new.statuses)


def matched_cells(
    base: Dataset, new: Dataset, units: SideUnits, options: Options
) -> tuple[list[MatchedCell], list[Uncompared], list[str]]:
    """Return the matched cells, the measurements in no cell, and notes on runs of another way.

    Every measurement of BASE is in a cell. If NEW has no figure, the cell holds NEW's reasons. A
    measurement of NEW alone is in a cell if BASE failed at it.
    """
    wanted = [[k for k in side.cells if _selected(k, options)] for side in (base, new)]
    known = dict(matched(wanted[0], wanted[1], units.declared))
    taken = set(known.values())
    used: list[set[Key]] = [set(), set()]
    pairs = []
    for key in wanted[0]:
        if key in known:
            pairs.append(MatchedCell((key, known[key]), base.cells[key], new.cells[known[key]]))
        else:
            runs = _without_figure(new, key, units.declared, used[1])
            pairs.append(MatchedCell((key, key), base.cells[key], runs))
    left = []
    for key in wanted[1]:
        if key in taken or key in base.unmeasurable:
            continue
        runs = _without_figure(base, key, units.declared, used[0])
        if runs.statuses["error"] or runs.statuses["invalid"] or not_delivered(runs):
            pairs.append(MatchedCell((key, key), runs, new.cells[key]))
        else:
            left.append(Uncompared(key, why_uncounted(runs)))
    notes: list[str] = []
    if not options.limit:  # a limit holds for every way
        pairs, notes = _by_state(pairs)
    if not options.metrics:  # a failed run has no metric
        left += _by_neither(base, new, units.declared, used)
    return pairs, left, notes


def _selected(key: Key, options: Options) -> bool:
    return is_asked(options.metrics, key[0], key[3])


def _by_state(pairs: Sequence[MatchedCell]) -> tuple[list[MatchedCell], list[str]]:
    """Split each cell by the way of the event. Also return sentences on it."""
    cells = []
    said: dict[str, None] = {}  # once for all metrics of a program
    for pair in pairs:
        parts, sentences = way_split.split(pair.base, pair.new)
        for part in parts:
            added = f";{part.state}" if part.state else ""
            base_key, new_key = ((key[0], key[1] + added, *key[2:]) for key in pair.keys)
            cells.append(MatchedCell((base_key, new_key), part.base, part.new))
        what = " ".join(filter(None, (pair.keys[0][0], pair.keys[0][2])))
        said |= {printable(f"{what}: {sentence}"): None for sentence in sentences}
    return cells, list(said)


def _without_figure(side: Dataset, key: Key, declared: Declared, used: set[Key]) -> Runs:
    """Return statuses and reasons of a measurement without a figure. Add the failed keys to `used`."""
    if key in side.unmeasurable:
        return Runs(why=NOT_MEASURABLE)
    measured = {k[:3] for k in side.cells}
    # A run that fails early is not placed.
    near = [k for k in side.failed if k[2] in ("", key[2]) or k[:3] not in measured]
    for bare in _likenesses(declared):
        like = [k for k in near if bare(k)[:2] == bare(key)[:2]]
        if like:
            used.update(like)
            return Runs([run for k in like for run in side.failed[k].every])
    return Runs()


def _by_neither(
    base: Dataset, new: Dataset, declared: Declared, used: Sequence[set[Key]]
) -> Iterator[Uncompared]:
    """What a side tried and neither side measured. `used` holds the keys that a cell already reports."""
    seen: set[Key] = set()
    for side, done in zip((base, new), used):
        measured = {key[:3] for key in (*side.cells, *side.unmeasurable)}
        anywhere = {key[:2] for key in measured}
        for key in side.failed:
            # A run that failed early does not know its placement.
            reported = key[:3] in measured if key[2] else key[:2] in anywhere
            if key in done or reported or (side is new and key in seen):
                continue
            base_failures = _without_figure(base, key, declared, set())
            new_failures = _without_figure(new, key, declared, seen)
            failed = bool(side is base and base_failures.statuses["error"])
            why = f"BASE: {why_uncounted(base_failures)}; NEW: {why_uncounted(new_failures)}"
            yield Uncompared(key, why, True, failed)


def why_uncounted(cell: Runs) -> str:
    """Why no run of the cell counts."""
    if not cell.reasons:
        return "not measured"
    (why, _), *_ = cell.reasons.most_common(1)
    return f"{status_counts(cell.statuses)} ({printable(why)})" if cell.statuses else why


def not_delivered(cell: Runs) -> str:
    """What the kernel did not deliver. Empty if runs count or if there is another reason."""
    skipped = set(+cell.statuses) == {"skipped"} and not cell.units
    if not skipped or not all(reason.startswith(_UNDELIVERED) for reason in cell.reasons):
        return ""
    (reason, _), *_ = cell.reasons.most_common(1)
    return printable(reason.removeprefix(_UNDELIVERED))


def matched(
    base: Sequence[Key], new: Sequence[Key], declared: Declared = frozenset()
) -> list[tuple[Key, Key]]:
    """Pair the keys of the two sides, in BASE's order.

    Equal keys are paired first. Then smaller and smaller parts of the keys are compared, in the
    order of `_likenesses`. Two keys are paired if each is the only one left that fits the other.
    Pairs that differ in more than declared options and their placement are refused later.
    """
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
    """Functions that reduce a key, from the whole key to the least that names a measurement."""

    def without_declared(key: Key) -> Key:
        names = declared_of(key[0], declared)
        kept = [item for item in key[1].split(";") if item.partition("=")[0] not in names]
        return (key[0], ";".join(kept), *key[2:])

    def without_moves(key: Key) -> Key:
        """A declared option may change the placement."""
        benchmark, params, placement, metric = without_declared(key)
        return (benchmark, params, "" if declared_of(benchmark, declared) else placement, metric)

    def without_conditions(key: Key) -> Key:
        benchmark, params, *rest = without_moves(key)
        return (benchmark, split_params(params)[0], rest[0], rest[1])

    def without_placement(key: Key) -> Key:
        return (*without_conditions(key)[:2], "", key[3])

    return lambda key: key, without_declared, without_moves, without_conditions, without_placement


def declared_of(benchmark: str, declared: Declared) -> set[str]:
    """The options of a benchmark that only one side was given."""
    return {option for name, option in declared if name in (benchmark, "all")}


def unmeasurable(base: Dataset, new: Dataset, options: Options) -> Iterator[tuple[str, Key]]:
    for key in dict.fromkeys((*base.unmeasurable, *new.unmeasurable)):
        names = [n for n, s in (("BASE", base), ("NEW", new)) if key in s.unmeasurable]
        if _selected(key, options):
            yield " and ".join(names), key


_MACHINE = RECORDED["machine"]


@dataclass(frozen=True)
class MachinePair:
    """The sessions of both sides on one machine. `machine` is its id. If the sides are not split by machine,
    it is empty, and this has all sessions."""

    machine: str
    base: Dataset
    new: Dataset


def by_machine(side: Dataset) -> dict[str, Dataset]:
    """The sessions of each machine id. Those without one have an empty key."""
    sources = grouped(side.sources, lambda source: str(source.session.info.get(_MACHINE) or ""))
    return {id_: replace(side, sources=its, problems=[]) for id_, its in sources.items()}


def match_machines(
    base: Dataset, base_parts: Mapping[str, Dataset], new: Dataset, allow: Sequence[str]
) -> tuple[list[MachinePair], list[LeftOutMachine]]:
    """The machines with both sides, in the order of BASE, and those that are left out. `base_parts` is by_machine(base), the same object for every NEW, so that a part
    of BASE counts once in the correction.

    In three cases the sides are not split:

    - all sessions are of one machine;
    - no machine has both sides;
    - the user allows machines to differ.
    """
    sides = base_parts, by_machine(new)
    on_both = [machine for machine in sides[0] if machine and machine in sides[1]]
    if not on_both or len({*sides[0], *sides[1]}) < 2 or "machine" in allow:
        return [MachinePair("", base, new)], []
    pairs = [MachinePair(machine, *(side[machine] for side in sides)) for machine in on_both]
    path = printable(str(new.path))
    return pairs, [replace(left, new_path=path) for left in _left_out(*sides)]


def _left_out(base: Mapping[str, Dataset], new: Mapping[str, Dataset]) -> Iterator[LeftOutMachine]:
    for name, of_side, other in (("BASE", base, new), ("NEW", new, base)):
        for machine, part in of_side.items():
            if not machine:
                yield LeftOutMachine("", f"{len(part.sources)} of {name} without a machine id")
            elif machine not in other:
                yield LeftOutMachine(machine, f"only in {name}")


@dataclass(frozen=True)
class SideUnits:
    """The units of both sides, and the subject of a verdict on them. `obstacle` says why the units do
    not represent the subject, and `benchmark_obstacles` why those of a benchmark do not. `declared` are the options under test.
    """

    base: Units
    new: Units
    subject: str = "kernel"
    obstacle: str = ""
    caution: str = ""
    took_turns: bool = False
    declared: Declared = frozenset()
    over_boots: Units | None = None  # if blocks are of several boots
    benchmark_obstacles: Mapping[str, str] = field(default_factory=dict)

    def obstacle_of(self, benchmark: str) -> str:
        return self.obstacle or self.benchmark_obstacles.get(benchmark, "")


def side_units(base: Dataset, new: Dataset) -> SideUnits:
    """Boots, unless both sides declare that they took turns. Then the pairs are blocks if the sides
    share their boots, else boots that follow each other."""
    shared = set(base.boot_ids) & set(new.boot_ids)
    same_boots = set(base.boot_ids) == set(new.boot_ids)
    subject = "setting" if shared else "kernel"
    boots, boot_pairs = Units(), Units(pairs={(boot, ""): boot for boot in shared})
    declared = [{s.pairing.experiment if s.pairing else "" for s in x.sources} for x in (base, new)]
    if declared[0] == declared[1] and "" not in declared[0] and (same_boots or not shared):
        pairs = (
            [source.declared for side in (base, new) for source in side.sources] if shared else []
        )
        options = frozenset[tuple[str, str]]().union(*pairs)
        noun = "block" if shared else "boot"
        units = (_in_pairs(base, noun), _in_pairs(new, noun))
        over = boot_pairs if len(shared) > 1 else None
        return SideUnits(*units, subject, took_turns=True, declared=options, over_boots=over)
    if not shared:
        return SideUnits(boots, boots)
    if len(shared) > 1 and same_boots:
        ahead = sum(_begun(base, boot) < _begun(new, boot) for boot in shared)
        if abs(2 * ahead - len(shared)) <= 1:
            caution = (
                "both sides were measured in the same boots, each of which is a pair; a drift within a boot"
                " counts as a difference, and only the order, which changed from boot to boot, limits this"
            )
            return SideUnits(boot_pairs, boot_pairs, subject, caution=caution)
        obstacle = (
            f"both sides were measured in the same boots, BASE first in {ahead} of {len(shared)}: a"
            " drift would be taken for a difference; klat ab takes turns"
        )
        return SideUnits(boots, boots, subject, obstacle)
    obstacle = (
        "both sides were measured in one boot and declare no blocks that took turns: compare settings"
        " by klat ab, and kernels by several boots of each"
    )
    if "" not in declared[0] | declared[1]:
        obstacle = (
            "the sides took turns in different experiments: name the sessions that took turns with"
            " each other"
        )
    elif base.boots > 1 or new.boots > 1:
        obstacle = "some boots are on both sides, so the sides are not independent"
    return SideUnits(boots, boots, subject, obstacle)


def _begun(side: Dataset, boot: str) -> int:
    """The start of the first run in this boot."""
    return min(row.start_ns for s in side.sessions if s.boot_id == boot for row in s.rows)


def _in_pairs(side: Dataset, noun: str) -> Units:
    keys = {key for cell in side.cells.values() for key in cell.units}
    # A run outside every pair is a unit without a partner, and is counted as such.
    lone = f"none of {side.name} in boot"
    return Units(noun, True, {key: key[1] or f"{lone} {key[0]}" for key in keys})
