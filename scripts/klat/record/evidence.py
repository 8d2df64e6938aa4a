"""Says what the counts in the evidence of runs mean: how their events came about, and whether other work ran on the
CPUs under test. docs/runs.md defines the counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import Any

from klat.record.json_files import read_run_json
from klat.record.session import Row, Session, parse_pairs

INTERRUPT, MIXED = "interrupt", "mixed"
# If a smaller share of the runs has a state, its cause is not the kernel.
STRAY = 0.1


@dataclass(frozen=True)
class Way:
    """How the events of a run came about: by interrupts or by another mechanism."""

    events: str  # name of the count of all events
    interrupts: str  # name of the count of the interrupts for them
    other_state: str  # of a run without these interrupts
    percent: int  # a run is mixed if the less frequent way has more of the events
    sentence: str


WAYS = {
    "woken": Way("wakeups", "wake_interrupts", "polling", 10, "sleepers were woken"),
    "delivery": Way("flushes", "flush_interrupts", "broadcast", 1, "flushes were delivered"),
}


def state_of(row: Row) -> str:
    """The way of the run's event, as in `woken=polling`; empty for a run without these counts."""
    return _state_of_evidence(row.evidence)


@lru_cache(maxsize=1 << 16)
def _state_of_evidence(evidence: str) -> str:
    for name, way in WAYS.items():
        if f"{way.events}=" in evidence and (state := _state(parse_pairs(evidence), way)):
            return f"{name}={state}"
    return ""


def _state(counts: Mapping[str, str], way: Way) -> str:
    texts = [counts.get(name, "") for name in (way.events, way.interrupts)]
    if not all(text.isascii() and text.isdigit() for text in texts):
        return ""
    events, interrupts = map(int, texts)
    if not events:
        return ""
    if 100 * interrupts >= (100 - way.percent) * events:
        return INTERRUPT
    return way.other_state if 100 * interrupts <= way.percent * events else MIXED


# Warn above this share of the CPUs' time.
SHARE = 0.05
# The sum must exceed the share by this many standard errors: 3 false alarms in 100,000 sessions.
_ERRORS = 4
_UNKNOWN = "other_busy_unknown="
_COUNTS = ("cpu_us", "other_busy_us", "other_busy_error_us")


def load_of(session: Session, facts: Mapping[str, Any]) -> str | None:
    """The background load. `facts` is run.json, which names the loads that klat started."""
    load: str | None = facts.get("load")
    return load or ("not named (--under-load)" if session.info.get("under_load") else None)


def other_work(sessions: Iterable[Session]) -> str:
    """A warning if other work took more than SHARE of the CPUs' time in all these sessions together, or if the
    kernel did not count it; otherwise empty. Sessions under a load do not count."""
    time = busy = squares = runs = unknown = 0
    for session in sessions:
        if load_of(session, read_run_json(session.path)):
            continue
        for rows in session.runs:
            evidence = rows[0].evidence
            runs += 1
            unknown += _UNKNOWN in evidence
            if "other_busy_us=" not in evidence:
                continue
            counts = parse_pairs(evidence)
            try:
                counted = [int(counts[name]) for name in _COUNTS]
            except (KeyError, ValueError):
                continue
            time, busy, squares = time + counted[0], busy + counted[1], squares + counted[2] ** 2
    error = _ERRORS * sqrt(squares)
    if time > 0 and busy - error > SHARE * time:
        return (
            f"other work took {100 * busy / time:.0f} % of the time of the CPUs under test while they"
            " were measured; end it, or move it to other CPUs"
        )
    if unknown > SHARE * runs or busy + error < -SHARE * time:
        return (
            "other work on the CPUs under test is unknown: /proc/stat was absent, did not count (some"
            " containers), or counted less time than the programs themselves ran; see klat doctor"
        )
    return ""
