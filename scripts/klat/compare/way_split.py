"""Runs whose event came about in two ways are two events, so each way is compared by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from klat.stats.means import welch
from klat.compare.runs import Runs
from klat.compare.sources import Run
from klat.record.evidence import MIXED, STRAY, WAYS, state_of


ANY = "any"
# Level of the test whether the shares of the states differ between the sides.
_ALPHA = 0.05


@dataclass(frozen=True)
class WayPart:
    """Runs of both sides. `state` is as in `woken=polling`, or `woken=any` for the runs of all states.
    It is empty if there is only one, unless that is mixed."""

    state: str
    base: Runs
    new: Runs


def split(base: Runs, new: Runs) -> tuple[list[WayPart], list[str]]:
    """The runs of both sides by the way of their event, and sentences on runs that are not
    compared with runs of the same state.

    Each state that is frequent on both sides makes a pair. If the share of a state differs between
    the sides beyond chance, with units as observations, all runs make one more pair, the last. A
    kernel that wakes in the slow way more often is slower, although each way takes as long as
    before. Otherwise a state that is frequent on one side only has no partner and stays open. If no
    state is frequent on both sides, the most frequent states of the sides are compared: then the
    kernel, or the setting, changed the way.
    """
    if not (base.units and new.units):
        return [WayPart("", base, new)], []
    sides = [cell.parts(_state) for cell in (base, new)]
    name = _way_of(*sides[0], *sides[1])
    event = WAYS[name].sentence if name else ""
    often = [_frequent_states(parts) for parts in sides]
    common = [state for state in often[0] if state in often[1]]
    said = []
    mixed = False
    if common:
        alone = [[s for s in often[i] if s not in sides[1 - i]] for i in (0, 1)]
        kept = [common + alone[0], common + alone[1]]
        named = len(common) > 1 or any(alone)
        ways = [
            WayPart(state if named or _is_mixed(state) else "", sides[0][state], sides[1][state])
            for state in common
        ]
        if any(map(_is_mixed, common)):
            said.append(
                f"{event} in both ways within a run, in BASE and in NEW: two events in one figure"
            )
        every = common + alone[0] + alone[1]
        mixed = named and _mixes_differ(base, new, every)
        if mixed:
            ways.append(WayPart(f"{name}={ANY}", base, new))
        else:
            ways += [WayPart(s, sides[0][s], _empty_cell(event, s, "BASE")) for s in alone[0]]
            ways += [WayPart(s, _empty_cell(event, s, "NEW"), sides[1][s]) for s in alone[1]]
        if mixed or len(common) > 1:
            shares = [_shares(parts, every, cell) for parts, cell in zip(sides, (base, new))]
            also = f"all runs are also compared together ({name}={ANY})"
            if not mixed:
                also = "their shares do not differ beyond chance"
            said.append(
                f"{event} {shares[0]} in BASE, and {shares[1]} in NEW; each way is compared by"
                f" itself, and {also}"
            )
    else:
        kept = [states[:1] for states in often]
        (base_state,), (new_state,) = kept
        ways = [WayPart("", sides[0][base_state], sides[1][new_state])]
        said.append(f"{event} {_way(base_state)} in BASE and {_way(new_state)} in NEW")
    left_out = f"counted only in {name}={ANY}" if mixed else "left out"
    for side, cell, parts, states in zip(("BASE", "NEW"), (base, new), sides, kept):
        said += _left_out(cell, parts, states, event, f"of {side} {left_out}")
    return ways, said


def _left_out(
    cell: Runs, parts: Mapping[str, Runs], states: Sequence[str], event: str, what: str
) -> Iterator[str]:
    """Sentences on the runs of a cell that are in none of the states."""
    for way, part in parts.items():
        if way not in states and part.runs:
            yield f"{len(part.runs):,} of {len(cell.runs):,} runs {what}: {event} {_way(way)}"
    if torn := len(cell.runs) - sum(len(part.runs) for part in parts.values()):
        yield (
            f"{torn:,} of {len(cell.runs):,} runs {what}: in another turn of their block"
            f" {event} in another way"
        )


def _mixes_differ(base: Runs, new: Runs, states: Sequence[str]) -> bool:
    """Whether the share of runs in a state differs between the sides, with units as independent
    observations (Welch, and Bonferroni over the states)."""
    for state in states:
        base_shares, new_shares = (
            [sum(_state(run) == state for run in runs) / len(runs) for runs in cell.units.values()]
            for cell in (base, new)
        )
        difference = welch(base_shares, new_shares)
        if difference and difference.p_changed(0.0) <= _ALPHA / len(states):
            return True
    return False


def _empty_cell(event: str, state: str, other: str) -> Runs:
    """The empty cell of the side that was never in the state."""
    return Runs(why=f"{event} {_way(state)} in {other} alone")


def _state(run: Run) -> str:
    return state_of(run.row)


def _frequent_states(parts: Mapping[str, Runs]) -> list[str]:
    """The most frequent first."""
    total = sum(len(part.runs) for part in parts.values())
    return [state for state, part in parts.items() if len(part.runs) >= STRAY * total]


def _shares(parts: Mapping[str, Runs], states: Sequence[str], cell: Runs) -> str:
    counted = [f"{_way(s)} in {len(parts[s].runs):,}" for s in states if s in parts]
    return f"{', '.join(counted)} of {len(cell.runs):,} runs"


def _way_of(*states: str) -> str:
    """The name of the way that the runs of these states have."""
    return max(state.partition("=")[0] for state in states)


def _is_mixed(state: str) -> bool:
    return state.endswith(f"={MIXED}")


def _way(state: str) -> str:
    if _is_mixed(state):
        return "in both ways"
    return f"by {state.partition('=')[2]}" if state else "in a way not counted"
