"""What the units of two sides are: boots, blocks, or pairs of them."""

from __future__ import annotations

from dataclasses import dataclass

from klat.compare.conditions import Declared
from klat.compare.dataset import Dataset
from klat.compare.observations import Units


@dataclass(frozen=True)
class SideUnits:
    """The units of both sides, and the subject of a verdict on them. `obstacle` says why the units do
    not represent the subject. `declared` are the options under test."""

    base: Units
    new: Units
    subject: str = "kernel"
    obstacle: str = ""
    caution: str = ""
    took_turns: bool = False
    declared: Declared = frozenset()
    over_boots: Units | None = None  # if blocks are of several boots


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
        both = (_in_pairs(base, noun), _in_pairs(new, noun))
        over = boot_pairs if len(shared) > 1 else None
        return SideUnits(*both, subject, took_turns=True, declared=options, over_boots=over)
    if not shared:
        return SideUnits(boots, boots)
    if len(shared) > 1 and same_boots:
        ahead = sum(_begun(base, boot) < _begun(new, boot) for boot in shared)
        if abs(2 * ahead - len(shared)) <= 1:
            caution = (
                "both sides were measured in the same boots, each of which is a pair; a drift within"
                " them counts as a difference, but for the order, which changed from boot to boot"
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
    """When the first run of it started."""
    return min(row.start_ns for s in side.sessions if s.boot_id == boot for row in s.rows)


def _in_pairs(side: Dataset, noun: str) -> Units:
    keys = {key for cell in side.cells.values() for key in cell.units}
    # A run outside every pair is a unit without partner, and is counted as such.
    lone = f"none of {side.name} in boot"
    return Units(noun, True, {key: key[1] or f"{lone} {key[0]}" for key in keys})
