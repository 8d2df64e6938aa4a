"""Says how the event of a run came about, by the counts that docs/record.md defines."""

from __future__ import annotations

from dataclasses import dataclass

from klat.record.session import Row, parse_pairs

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
    for name, way in WAYS.items():
        # A quick test first: a large session may have many rows without these counts.
        if f"{way.events}=" in row.evidence and (state := _state(row, way)):
            return f"{name}={state}"
    return ""


def _state(row: Row, way: Way) -> str:
    counts = parse_pairs(row.evidence)
    texts = [counts.get(name, "") for name in (way.events, way.interrupts)]
    if not all(text.isascii() and text.isdigit() for text in texts):
        return ""
    events, interrupts = map(int, texts)
    if not events:
        return ""
    if 100 * interrupts >= (100 - way.percent) * events:
        return INTERRUPT
    return way.other_state if 100 * interrupts <= way.percent * events else MIXED
