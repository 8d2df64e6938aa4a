"""Copies of runs: a copied session must not count twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from klat.record.samples import SampleFiles
from klat.record.session import Row, Session, SessionError, printable

# Fewer samples can be the same by chance.
_LEAST_SAMPLES = 30


def run_of(row: Row) -> tuple[Any, ...]:
    """What identifies a run in all copies of its session."""
    return (row.boot, row.order, *row.batch)


def without_copies(sessions: Iterable[Session]) -> list[Session]:
    """The sessions without the runs of earlier sessions. Their problems say how many runs were left out."""
    seen: dict[tuple[Any, ...], Path] = {}
    kept = []
    for session in sessions:
        runs = {run_of(row): row for row in session.rows}
        copies = {run: seen[run] for run in runs if run in seen}
        if copies:
            path = next(iter(copies.values()))
            problem = (
                f"left out {_runs(len(copies))} that {_name(path)} also has: a run counts once"
            )
            rows = [row for row in session.rows if run_of(row) not in copies]
            session = replace(session, rows=rows, problems=[*session.problems, problem])
        seen |= dict.fromkeys(runs.keys() - copies.keys(), session.path)
        kept.append(session)
    return kept


def same_samples(sessions: Sequence[Session]) -> list[str]:
    """A sentence on boots with the same samples. Few samples, or guests that count instructions, can repeat a run,
    so only a session that mostly repeats another boot is named."""
    seen: dict[tuple[Any, ...], list[tuple[Session, Row]]] = {}
    count = 0
    example: tuple[Path, Path] | None = None
    for session in sessions:
        rows = [row for row in session.rows if _is_distinctive(row)]
        copies = []
        for row in rows:
            figures = (row.benchmark, row.params, row.metric, row.n, row.mean, row.stddev, row.max)
            candidates = seen.setdefault(figures, [])
            copies += [s.path for s, r in candidates if _is_copy(s, r, session, row)][:1]
            candidates.append((session, row))
        if 2 * len(copies) > len(rows):
            count += len(copies)
            example = example or (copies[0], session.path)
    if not example:
        return []
    first, second = map(_name, example)
    return [
        f"{count:,} row{'s have' if count > 1 else ' has'} exactly the samples of another boot, for example in"
        f" {first} and {second}: remove the copies; if a guest repeats itself, its boots are not independent"
    ]


def _is_distinctive(row: Row) -> bool:
    return not row.soak and (row.n or 0) >= _LEAST_SAMPLES and bool(row.stddev)


def _is_copy(first: Session, first_row: Row, second: Session, second_row: Row) -> bool:
    if first.boot_id == second.boot_id:
        return False
    try:
        samples = SampleFiles(first).read(first_row)
        return np.array_equal(samples, SampleFiles(second).read(second_row))
    except SessionError:
        return False


def _name(path: Path) -> str:
    return printable(str(path))


def _runs(count: int) -> str:
    return f"{count:,} run{'s' if count > 1 else ''}"
