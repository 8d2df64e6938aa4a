"""Quantiles for which single runs are too short: those of all samples of a boot or block together.

If a boot is too short as well, neighbouring boots form a group, and the groups are the units. They share
no boot, so they are as independent as boots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from klat.compare.dataset import CellRuns
from klat.compare.estimands import Estimand
from klat.compare.observations import NoLogarithm, Units, observe
from klat.compare.sources import Run, distribution_at
from klat.compare.verdicts import Observed, Unit
from klat.stats.descriptive import fewest, supports
from klat.stats.granularity import hidden
from klat.stats.hierarchy import mean

_Named = dict[str, list[Run]]  # the runs of each unit


def observe_sides(
    cells: Sequence[CellRuns], estimand: Estimand, units: Sequence[Units], grouped: bool = True
) -> list[Observed]:
    """The logs of one estimand on one side or two: of each run, or of each unit if a run of any side is
    too short. With `grouped`, units that are too short form groups.

    NoLogarithm if a figure is 0. SessionError if samples are needed that cannot be read.
    """
    q = estimand.q
    lengths = {run.row.n or 0 for cell in cells for run in cell.runs}
    if q is None or all(supports(n, q) for n in lengths):
        return [observe(cell, estimand, own) for cell, own in zip(cells, units)]
    sides = [_named(cell, own) for cell, own in zip(cells, units)]
    paired = len(cells) > 1 and all(
        key in own.pairs for cell, own in zip(cells, units) for key in own.of(cell)
    )
    both = [name for name in sides[0] if paired and name in sides[1]]
    needed = fewest(q) if grouped else 0
    groups = _gathered(both, lambda name: min(_samples(side[name]) for side in sides), needed)
    chosen = []
    for side in sides:
        rest = [name for name in side if name not in both]
        # Pairs need both sides, so a unit without partner stays alone. It is left out later, and counted.
        alone = _gathered(rest, lambda name: _samples(side[name]), 0 if paired else needed)
        chosen.append([*groups, *alone])
    noun = units[0].noun
    if any(len(names) > 1 for side_groups in chosen for names in side_groups):
        noun = f"{noun} group"
    return [_observed(side, own, q, noun, paired) for side, own in zip(sides, chosen)]


def _named(cell: CellRuns, units: Units) -> _Named:
    """The runs of each unit. Units of the same pair are one."""
    found: _Named = {}
    for key, runs in units.of(cell).items():
        found.setdefault(units.pairs.get(key) or ":".join(filter(None, key)), []).extend(runs)
    return found


def _samples(runs: Sequence[Run]) -> int:
    return sum(run.row.n or 0 for run in runs)


def _gathered(
    names: Sequence[str], samples: Callable[[str], int], needed: int
) -> list[tuple[str, ...]]:
    """Groups of neighbours, each with at least `needed` samples. The last group takes the rest."""
    groups: list[tuple[str, ...]] = []
    held: tuple[str, ...] = ()
    for name in names:
        held += (name,)
        if sum(map(samples, held)) >= needed:
            groups.append(held)
            held = ()
    return [*groups[:-1], groups[-1] + held] if groups else [held] if held else []


def _observed(
    side: _Named, groups: Sequence[tuple[str, ...]], q: Fraction, noun: str, paired: bool
) -> Observed:
    found = []
    for names in groups:
        runs = [run for name in names for run in side[name]]
        scale = mean([run.source.scale for run in runs])
        samples = distribution_at(runs, scale).times(scale)
        if not supports(samples.n, q):
            continue
        if samples.min <= 0:
            raise NoLogarithm("is 0")
        name = " and ".join(names)
        found.append(Unit(name, (samples.log_quantile(q),), name if paired else ""))
    every = [run for runs in side.values() for run in runs]
    step = max((run.source.step for run in every), default=0.0)
    return Observed(
        tuple(found),
        hidden([value for unit in found for value in unit.values], step),
        noun=noun,
        pooled=True,
        lacking=None if found else (fewest(q), _samples(every)),
    )
