"""What is wrong with sessions: copies of runs, which must not count twice, and a counter whose frequency is doubtful."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from klat.record.rows import start_of
from klat.record.samples import SampleFiles, Samples
from klat.record.session import Row, Session, SessionError, printable

# Fewer samples, or samples of fewer values, can be the same by chance: a coarse counter has few values. Then the
# chance that another run repeats them is 2 to the power of minus their bits.
_LEAST_SAMPLES, _LEAST_VALUES, _LEAST_BITS = 30, 10, 64


def run_of(row: Row) -> tuple[str, str, int]:
    """What identifies a run in all copies of its session."""
    return (row.boot, *start_of(row))


def without_copies(sessions: Sequence[Session]) -> list[Session]:
    """The sessions without the runs of earlier sessions. Their problems say how many runs were left out."""
    sessions_of = Counter(session.boot_id for session in sessions)
    seen: dict[tuple[Any, ...], Path] = {}
    kept = []
    for session in sessions:
        if sessions_of[session.boot_id] > 1:
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
    """A sentence on rows that have the samples of another row. In another boot, few samples or a guest that
    counts instructions can repeat a run, so there only a session that mostly repeats others is named.
    """
    by_figures: dict[tuple[Any, ...], list[_Recorded]] = {}
    # Most rows differ from all others in these already.
    alike = Counter(_whole_figures_of(row) for session in sessions for row in session.rows)
    for session in sessions:
        for row in session.rows:
            if alike[_whole_figures_of(row)] == 1 or not _is_distinctive(row):
                continue
            figures = (row.benchmark, row.params, row.metric, row.n, row.mean, row.stddev, row.max)
            by_figures.setdefault(figures, []).append((session, row))
    copies: dict[Path, list[tuple[_Recorded, _Recorded]]] = {}
    for recorded in by_figures.values():
        originals: dict[bytes, _Recorded] = {}
        for copy in recorded if len(recorded) > 1 else ():
            digest = _digest(*copy)
            original = originals.setdefault(digest, copy) if digest else copy
            if original is not copy:
                copies.setdefault(copy[0].path, []).append((original, copy))
    named = []
    for session in sessions:
        pairs = copies.get(session.path, [])
        mostly = 2 * len(pairs) > sum(map(_is_distinctive, session.rows))
        named += [pair for pair in pairs if mostly or _is_of_one_boot(*pair)]
    if not named:
        return []
    original_line, copied_line = map(_line_in_words, named[0])
    return [
        f"{len(named):,} row{'s have' if len(named) > 1 else ' has'} exactly the samples of another run, for"
        f" example {original_line} and {copied_line}: remove the copies; if a guest repeats itself, its runs"
        " are not independent"
    ]


_Recorded = tuple[Session, Row]
_whole_figures_of = attrgetter("n", "min", "p50", "max")


def _is_distinctive(row: Row) -> bool:
    return (row.n or 0) >= _LEAST_SAMPLES and bool(row.stddev)


def _is_of_one_boot(original: _Recorded, copy: _Recorded) -> bool:
    return copy[0].unit != "instructions" and original[1].boot == copy[1].boot


def _digest(session: Session, row: Row) -> bytes:
    """Of the samples; empty if they cannot be read, or can be the same by chance."""
    digest, files = blake2b(), SampleFiles(session)
    distinct: set[int] = set()
    try:
        if row.soak:
            counted = files.distribution(row)
            digest.update(counted.counts.tobytes())
            parts = iter((counted.values,))
        else:
            parts = files.parts(row)
        for part in parts:
            digest.update(part.tobytes())
            if len(distinct) < _LEAST_VALUES:
                distinct |= set(np.unique(part)[:_LEAST_VALUES].tolist())
        few = len(distinct) < _LEAST_VALUES
        # In counted mode, a pattern of few values can be the same in each boot.
        if few and (
            row.soak
            or session.unit == "instructions"
            or _bits(files.parts(row), sorted(distinct)) < _LEAST_BITS
        ):
            return b""
    except SessionError:
        return b""
    return digest.digest()


def _bits(parts: Iterable[Samples], values: Sequence[int]) -> float:
    """The information in the samples of these few values, each after the one before: the entropy of a Markov chain.
    A step, or a value in every other sample, has almost none."""
    changes = np.zeros((len(values), len(values)))
    for part in parts:
        places = np.searchsorted(values, part)
        np.add.at(changes, (places[:-1], places[1:]), 1)
    totals = np.broadcast_to(changes.sum(axis=1, keepdims=True), changes.shape)
    seen = changes > 0
    return float(np.sum(changes[seen] * np.log2(totals[seen] / changes[seen])))


def _line_in_words(recorded: _Recorded) -> str:
    session, row = recorded
    return f"line {row.line} of {_name(session.path / 'runs.csv')}"


def _name(path: Path) -> str:
    return printable(str(path))


def _runs(count: int) -> str:
    return f"{count:,} run{'s' if count > 1 else ''}"


def frequencies_differ(khz: Sequence[float]) -> bool:
    """Whether the frequencies differ by more than 0.1 %. A kernel measures the counter in each boot, with an error of
    some 100 ppm if its reference is poor."""
    return bool(khz) and max(khz) > 1.001 * min(khz)


def frequency_problems(label: str, sessions: Sequence[Session]) -> Iterator[str]:
    """Sentences on a label whose sessions disagree, and on sessions that contradict their own reference."""
    khz = [session.khz for session in sessions if session.khz is not None]
    if frequencies_differ(khz):
        yield (
            f"label {label}: the sessions' counters differ in frequency, {min(khz):,.0f}"
            f" to {max(khz):,.0f} kHz, so pooled ticks are not the same time; look at them one by one"
        )
    yield from frequency_errors(sessions)


def frequency_errors(sessions: Iterable[Session]) -> Iterator[str]:
    """Sentences on sessions whose frequency an independent reference refutes."""
    for session in sessions:
        tsc = session.info.get("tsc") or {}
        second = tsc.get("second_khz")
        if (
            session.khz
            and second
            and tsc.get("independent")
            and frequencies_differ([session.khz, second])
        ):
            yield (
                f"{printable(str(session.path))}: all times may be wrong by"
                f" {100 * abs(session.khz / second - 1):.1f} %: the counter has"
                f" {session.khz:,.0f} kHz for the kernel, and {second:,.0f} kHz for"
                f" {printable(str(tsc.get('second_method')))}"
            )
