"""An explanation of `klat lab explain` as CSV: a row for each function, and one for idle time."""

from __future__ import annotations

import csv
import io
from typing import BinaryIO

from klat.base.errors import printable
from klat.explain.explanation import Explanation, differences
from klat.export.explained_stacks import IDLE

_ONE = ("function", "own", "calls", "with_callees")
_TWO = (
    "function base_own new_own difference base_calls new_calls base_with_callees new_with_callees"
    " base_exists new_exists"
).split()


def write(explanation: Explanation, out: BinaryIO) -> None:
    sides = explanation.sides
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_ONE if len(sides) == 1 else _TWO)
    for f in differences(sides[0], sides[-1]):
        name = printable(f.name)
        if len(sides) == 1:
            writer.writerow([name, f.own[0], f.calls[0], f.with_callees[0]])
        else:
            exist = [int(found) for found in f.exists]
            writer.writerow([name, *f.own, f.difference, *f.calls, *f.with_callees, *exist])
    idle = [side.sample.idle for side in sides]
    if any(idle) and len(idle) == 1:
        writer.writerow([IDLE, *idle, 0, *idle])
    elif any(idle):
        writer.writerow([IDLE, *idle, idle[1] - idle[0], 0, 0, *idle, "", ""])
    out.write(text.getvalue().encode())
