"""Warns of other work on the CPUs under test, by the counts that docs/record.md defines."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

from klat.record.json_files import read_run_json
from klat.record.session import Session, parse_pairs

# Warn above this share of the CPUs' time.
SHARE = 0.05
# The sum must exceed the share by this many standard errors: 3 false alarms in 100,000 sessions.
_ERRORS = 4
_COUNTS = ("cpu_us", "other_busy_us", "other_busy_error_us")


def other_work(sessions: Iterable[Session]) -> str:
    """A warning if other work took more than SHARE of the CPUs' time in all these sessions together;
    otherwise empty. Sessions under a load do not count."""
    time = busy = squares = 0
    for session in sessions:
        if read_run_json(session.path).get("load"):
            continue
        for rows in session.runs():
            evidence = rows[0].evidence
            if "other_busy_us=" not in evidence:
                continue
            counts = parse_pairs(evidence)
            try:
                own = [int(counts[name]) for name in _COUNTS]
            except (KeyError, ValueError):
                continue
            time, busy, squares = time + own[0], busy + own[1], squares + own[2] ** 2
    if time <= 0 or busy - _ERRORS * sqrt(squares) <= SHARE * time:
        return ""
    return (
        f"other work took {100 * busy / time:.0f} % of the time of the CPUs under test while they"
        " were measured; end it, or move it to other CPUs"
    )
