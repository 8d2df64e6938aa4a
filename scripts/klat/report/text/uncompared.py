"""What a comparison has no verdict on, in words."""

from __future__ import annotations

from klat.compare.comparison import Uncompared
from klat.report.text import wording
from klat.record.session import printable


def uncompared(left: Uncompared) -> str:
    """A line for what is in no cell."""
    metric = f": {left.key[3]}" if left.key[3] else ""
    return printable(f"{left.what}: {wording.setting(left.key)}{metric} ({reason(left)})")


def reason(left: Uncompared) -> str:
    return printable(left.reason if left.neither else f"BASE: {left.reason}")
