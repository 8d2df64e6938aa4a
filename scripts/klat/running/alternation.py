"""Two settings that take turns within one boot: two sessions, whose runs alternate.

run.json of each session also holds:

- `setup`, `prefix`, `restore`: the commands
- `options`: the options of this setting alone
- `turns`: [first order, last order, place among the turns of both settings]
- `pairing`: the blocks, as docs/record.md says
- `partner`: the path from this session to the other one
- `first`: whether this setting is A
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klat.record import plan_csv, session_directory
from klat.running import recording
from klat.base.errors import KlatError
from klat.record.plan_csv import PlannedRun
from klat.running.recording import Settings
from klat.running.runner import Portion, Runner, command_line


@dataclass(frozen=True)
class Partner:
    """The other session, and the turns of this one."""

    path: Path
    first: bool
    turns: tuple[plan_csv.Turn, ...]

    @staticmethod
    def of(session: Path, facts: dict[str, Any]) -> Partner | None:
        """None if the session took no turns. KlatError if run.json is damaged."""
        if facts.get("partner") is None:
            return None
        try:
            turns = tuple(plan_csv.Turn(int(f), int(last), int(p)) for f, last, p in facts["turns"])
            return Partner(session / str(facts["partner"]), bool(facts["first"]), turns)
        except (KeyError, TypeError, ValueError):
            raise KlatError(f"{session}/run.json is damaged or was edited") from None


def begin(
    output: Path,
    settings: Sequence[Settings],
    plans: Sequence[tuple[list[PlannedRun], list[plan_csv.Turn]]],
    options: Sequence[Sequence[str]],
    command: Sequence[str],
) -> list[Path]:
    """Make both session directories with their plans, before the first run. `options` are the options of
    each setting alone."""
    for side in settings:
        recording.prefix_words(side.prefix)
    experiment = secrets.token_hex(8)
    with ExitStack() as unbegun:
        sessions = []
        for side in settings:
            sessions.append(session_directory.create(output, side.label))
            unbegun.enter_context(session_directory.removed_unless_begun(sessions[-1]))
        for session, other, side, (schedule, turns), side_options in zip(
            sessions, reversed(sessions), settings, plans, options
        ):
            more = {
                "first": session is sessions[0],
                "partner": os.path.relpath(other.resolve(), session.resolve()),
                "options": list(side_options),
                "turns": [[turn.first, turn.last, turn.place] for turn in turns],
                "pairing": {"experiment": experiment, "pairs": _pairs(turns)},
            }
            recording.write(session, side, schedule, command, more)
    return sessions


def _pairs(turns: Sequence[plan_csv.Turn]) -> list[list[object]]:
    """The first order, the last order and the name of each block."""
    blocks: dict[int, list[int]] = {}
    for turn in turns:
        span = blocks.setdefault(turn.block, [turn.first, turn.last])
        span[1] = turn.last
    return [[*span, str(block)] for block, span in blocks.items()]


def both(session: Path, trust: bool) -> list[Path]:
    """This session and its partner, A first. `trust` as in read_facts() of session_directory."""
    facts = session_directory.read_facts(session, trust)
    partner = Partner.of(session, facts)
    if partner is None:
        raise KlatError(f"{session}: klat ab did not begin it; klat run --resume completes it")
    other = Path(os.path.relpath(partner.path))
    if os.path.isabs(session):
        other = Path(os.path.normpath(partner.path.resolve()))
    try:
        back = Partner.of(other, session_directory.read_facts(other, trust))
    except KlatError as error:
        raise KlatError(f"the session that took turns with {session}: {error}") from None
    if back is None or not back.path.is_dir() or not back.path.samefile(session):
        raise KlatError(f"{other} is not the session that took turns with {session}")
    return [session, other] if partner.first else [other, session]


class TurnsRunner(Runner):
    """One attempt to complete both sessions."""

    command = "ab"

    def portions(self, remaining: Sequence[Sequence[PlannedRun]]) -> list[Portion]:
        """The missing runs of each turn, turn after turn."""
        placed: list[tuple[int, Portion]] = []
        for recording, runs in zip(self._recordings, remaining):
            partner = Partner.of(recording.path, recording.facts)
            assert partner
            for turn in partner.turns:
                left = [run for run in runs if turn.first <= run.order <= turn.last]
                placed.append((turn.place, Portion(recording, left)))
        return [portion for _, portion in sorted(placed, key=lambda item: item[0])]

    def advice(self, recorded: Sequence[Path]) -> list[str]:
        return [command_line("compare", *recorded)] if len(recorded) == 2 else []
