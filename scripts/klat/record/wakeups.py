"""Says how the sleepers of a run were woken, by the counts that docs/record.md defines."""

from __future__ import annotations

from klat.record.session import Row, parse_pairs

INTERRUPT, POLLING, MIXED = "interrupt", "polling", "mixed"
# If a smaller share of the runs has a state, its cause is not the kernel.
STRAY = 0.1


def state_of(row: Row) -> str:
    """How the run's sleepers were woken; empty for a run without these counts."""
    # A quick test first: a large session may have many rows without these counts.
    if "wakeups=" not in row.evidence:
        return ""
    counts = parse_pairs(row.evidence)
    found = [counts.get(name, "") for name in ("wakeups", "wake_interrupts")]
    if not all(text.isascii() and text.isdigit() for text in found):
        return ""
    wakeups, interrupts = map(int, found)
    if not wakeups:
        return ""
    if 10 * interrupts >= 9 * wakeups:
        return INTERRUPT
    return POLLING if 10 * interrupts <= wakeups else MIXED
