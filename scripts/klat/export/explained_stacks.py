"""An explanation of `klat lab explain` as folded stacks, for flamegraph.pl, inferno and speedscope.

A line has a chain of callers, the outermost first, and the own instructions of the last function. With two
sides, a line ends with the instructions of BASE and of NEW, in the format of difffolded.pl.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import BinaryIO

from klat.base.errors import printable
from klat.explain.explanation import Explanation, Side

# The name of skipped idle time. stackcollapse-perf.pl uses the same brackets.
IDLE = "[idle]"


def write(explanation: Explanation, out: BinaryIO) -> None:
    sides = [_stacks(side) for side in explanation.sides]
    for stack in dict.fromkeys(stack for side in sides for stack in side):
        counts = " ".join(str(side[stack]) for side in sides)
        out.write(f"{stack} {counts}\n".encode())


def _stacks(side: Side) -> Counter[str]:
    found: Counter[str] = Counter()
    for chain, node in side.sample.tree.walk():
        if node.own:
            found[";".join(map(_frame, chain))] += node.own
    if side.sample.idle:
        found[IDLE] += side.sample.idle
    return found


def _frame(name: str) -> str:
    """The name without the characters that separate frames and counts."""
    return re.sub(r"[;\s]", "_", printable(name))
