"""What a comparison has no verdict on, in words."""

from __future__ import annotations

from klat.compare.comparison import Against, Uncompared
from klat.report.text import wording
from klat.record.session import printable


def uncompared(left: Uncompared, against: Against) -> str:
    """A line for what is in no cell."""
    setting = wording.setting(left.key, wording.keys(against))
    metric = f": {left.key[3]}" if left.key[3] else ""
    return printable(f"{left.what}: {setting}{metric} ({reason(left)})")


def reason(left: Uncompared) -> str:
    return printable(left.reason if left.neither else f"BASE: {left.reason}")
