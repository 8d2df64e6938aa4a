"""The conditions that refuse a comparison, and all differences between two sides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from klat.base.errors import did_you_mean
from klat.compare import frequencies
from klat.record import environment
from klat.compare.conditions import (
    COUNTER,
    RECORDED,
    RUN,
    SETTINGS,
    UNDER_TEST,
    Condition,
    Words,
    disagreements,
    kernels_within,
    words_under_test,
)
from klat.record.environment import ABSENT, Difference, recorded_differences, short
from klat.record.session import printable
from klat.compare.units import SideUnits
from klat.compare.dataset import Dataset

Conditions = tuple[Condition, ...]


def without_effect(allow: Sequence[str], datasets: Sequence[Dataset]) -> Iterator[str]:
    """A sentence for each KEY.NAME that none of the sessions has. It may fit other sessions, so it is no error."""
    known = {key for side in datasets for source in side.sources for key, _ in source.values}
    for key in allow:
        family, dot, _ = key.partition(".")
        if not dot or key in known:
            continue
        names = sorted(name for name in known if name.startswith(f"{family}."))
        shown = ", ".join(names[:4]) + (", ..." if names[4:] else "") or f"no {family}.NAME"
        meant = did_you_mean(key, names) or f"; they have {shown}"
        yield printable(f"--allow {key}: no session has this condition{meant}")


def between(
    base: Dataset, new: Dataset, units: SideUnits, allow: Sequence[str]
) -> tuple[Conditions, Conditions]:
    """Refused and accepted."""
    sides = [[source.values for source in side.sources] for side in (base, new)]
    conditions = disagreements(*sides)
    for side in (base, new):
        conditions += kernels_within(side.name, side.sessions)
    if any(session.mode == "emulated" for side in (base, new) for session in side.sessions):
        if not any(condition.key == "mode" for condition in conditions):
            why = "a side is emulated without counting instructions, so it has no valid times"
            conditions.append(Condition("mode", "mode", "emulated", "emulated", why))
    # In counted mode the figures do not depend on the machine below the emulator.
    counted = all(session.mode == "counted" for side in (base, new) for session in side.sessions)
    one_machine = units.subject == "setting" or units.took_turns or counted
    if not one_machine and not _machine_ids(base) and not _machine_ids(new):
        why = "no session has a machine id, so the two sides may be of two machines"
        conditions.append(Condition("machine", "machine_id", ABSENT, ABSENT, why))
    if not any(condition.key == "machine" for condition in conditions):
        conditions += _frequencies(base, new)
    if units.subject == "setting" and units.took_turns:
        # One setting each: other experiments of the same labels may have had other settings.
        mixed = {c.key for values in sides for c in disagreements(values, values)}
        conditions = [c for c in conditions if c.family not in SETTINGS or c.key in mixed]
    if words := words_under_test(*sides):
        conditions = [c for c in conditions if not _follows(c, words)]
    return split(conditions, allow)


def _frequencies(base: Dataset, new: Dataset) -> list[Condition]:
    """The counter of a machine has one frequency. If two kernels measure two, the times of one of them have that
    error, or a guest moved to another host."""
    sides = [[s.khz for s in side.sessions if s.khz] for side in (base, new)]
    if not all(sides) or not frequencies.differ([khz for side in sides for khz in side]):
        return []
    texts = (" | ".join(dict.fromkeys(f"{khz:,.0f} kHz" for khz in side)) for side in sides)
    return [Condition(COUNTER, "the counter's frequency", *map(short, texts))]


def _machine_ids(side: Dataset) -> list[str]:
    ids = [session.info.get(RECORDED["machine"]) for session in side.sessions]
    return [machine for machine in ids if machine]


def split(conditions: Sequence[Condition], allow: Sequence[str]) -> tuple[Conditions, Conditions]:
    """Refused and accepted."""
    accepted = tuple(condition for condition in conditions if condition.key in allow)
    return tuple(condition for condition in conditions if condition not in accepted), accepted


def _follows(condition: Condition, words: Words) -> bool:
    """Whether it is one of the words that only one side's kernel got, or can be an effect of these
    words."""
    given = {word.partition("=")[0].replace("-", "_") for side in words for word in side.split()}
    name = condition.key.removeprefix("cmdline.")
    return condition.family in UNDER_TEST or (condition.family == "cmdline" and name in given)


def differences(base: Dataset, new: Dataset) -> list[Difference]:
    """All differences, refused or not."""
    old, newer = base.sessions[0], new.sessions[0]
    differing = recorded_differences(old.info, newer.info)
    recorded = [source.values for source in (base.sources[0], new.sources[0])]
    for key, name in RUN.items():
        texts = [short(values[key, name]) for values in recorded]
        if texts[0] != texts[1]:
            differing.append(Difference(name, *texts))
    return differing + environment.differences(old.path / "environment", newer.path / "environment")
