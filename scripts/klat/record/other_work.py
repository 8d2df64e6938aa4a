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
_UNKNOWN = "other_busy_unknown="
_COUNTS = ("cpu_us", "other_busy_us", "other_busy_error_us")


def other_work(sessions: Iterable[Session]) -> str:
    """A warning if other work took more than SHARE of the CPUs' time in all these sessions together, or if the
    kernel did not count it; otherwise empty. Sessions under a load do not count."""
    time = busy = squares = runs = unknown = 0
    for session in sessions:
        if read_run_json(session.path).get("load"):
            continue
        for rows in session.runs():
            evidence = rows[0].evidence
            runs += 1
            unknown += _UNKNOWN in evidence
            if "other_busy_us=" not in evidence:
                continue
            counts = parse_pairs(evidence)
            try:
                own = [int(counts[name]) for name in _COUNTS]
            except (KeyError, ValueError):
                continue
            time, busy, squares = time + own[0], busy + own[1], squares + own[2] ** 2
    error = _ERRORS * sqrt(squares)
    if time > 0 and busy - error > SHARE * time:
        return (
            f"other work took {100 * busy / time:.0f} % of the time of the CPUs under test while they"
            " were measured; end it, or move it to other CPUs"
        )
    if unknown > SHARE * runs or busy + error < -SHARE * time:
        return (
            "other work on the CPUs under test is unknown: /proc/stat was absent or did not count, as in"
            " some containers; see klat doctor"
        )
    return ""
