"""An interim look in words."""

from __future__ import annotations

from klat.report.text.numbers import percent
from klat.stats.interim_looks import Look


def look_sentence(found: Look, level: float) -> str:
    """Why alpha is not the one that the user asked for."""
    which = f"look {found.number} of {len(found.planned)}" if found.number else "an unplanned look"
    return (
        f"This is {which}, after {found.units} of {found.planned[-1]} rounds: its level is"
        f" {percent(level)}, so that all looks together err in at most {percent(found.alpha)}."
    )
