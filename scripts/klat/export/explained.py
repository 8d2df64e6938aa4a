"""An explanation of `klat lab explain` in the formats of other programs."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
from collections import Counter
from typing import Any, BinaryIO

from klat.base.errors import printable
from klat.explain.calls import Node
from klat.explain.explanation import Explanation, FunctionDifference, Side, differences

# The name of skipped idle time. stackcollapse-perf.pl uses the same brackets.
IDLE = "[idle]"


def write_stacks(explanation: Explanation, out: BinaryIO) -> None:
    """Folded stacks, for flamegraph.pl, inferno and speedscope.

    A line has a chain of callers, the outermost first, and the own instructions of the last function. With two
    sides, a line ends with the instructions of BASE and of NEW, in the format of difffolded.pl."""
    sides = [_stacks(side) for side in explanation.sides]
    for stack in dict.fromkeys(stack for side in sides for stack in side):
        counts = " ".join(str(side[stack]) for side in sides)
        out.write(f"{stack} {counts}\n".encode())


def _stacks(side: Side) -> Counter[str]:
    stacks: Counter[str] = Counter()
    for chain, node in side.sample.tree.walk():
        if node.own:
            stacks[";".join(map(_frame, chain))] += node.own
    if side.sample.idle:
        stacks[IDLE] += side.sample.idle
    return stacks


def _frame(name: str) -> str:
    """The name without the characters that separate frames and counts."""
    return re.sub(r"[;\s]", "_", printable(name))


_ONE = ("function", "own", "calls", "with_callees")
_TWO = (
    "function base_own new_own difference base_calls new_calls base_with_callees new_with_callees"
    " base_exists new_exists"
).split()


def write_csv(explanation: Explanation, out: BinaryIO) -> None:
    """A row for each function, and one for idle time."""
    sides = explanation.sides
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_ONE if len(sides) == 1 else _TWO)
    for f in differences(sides[0], sides[-1]):
        name = printable(f.name)
        if len(sides) == 1:
            writer.writerow([name, f.own[0], f.calls[0], f.with_callees[0]])
        else:
            exist = [int(exists) for exists in f.exists]
            writer.writerow([name, *f.own, f.difference, *f.calls, *f.with_callees, *exist])
    idle = [side.sample.idle for side in sides]
    if any(idle) and len(idle) == 1:
        writer.writerow([IDLE, *idle, 0, *idle])
    elif any(idle):
        writer.writerow([IDLE, *idle, idle[1] - idle[0], 0, 0, *idle, "", ""])
    out.write(text.getvalue().encode())


def write_json(explanation: Explanation, out: BinaryIO) -> None:
    sides = explanation.sides
    document = {
        "metric": explanation.metric,
        "parameters": dict(explanation.params),
        "which": explanation.which,
        "unit": "instructions",
        "valid": explanation.valid,
        "sides": [_side(side) for side in sides],
        "differences": [_difference(f) for f in differences(*sides)] if len(sides) > 1 else [],
    }
    out.write((json.dumps(document, indent=1, allow_nan=False) + "\n").encode())


def _side(side: Side) -> dict[str, Any]:
    sample, functions = side.sample, side.sample.functions
    return {
        "label": side.label,
        "kernel": side.release,
        "session": side.session,
        "sample": sample.ticks,
        "windows": sample.windows,
        "idle": sample.idle,
        "residual": sample.residual,
        "doubt": sample.doubt,
        "paths": [dataclasses.asdict(kind) for kind in side.kinds],
        "functions": [
            {"function": name, "own": instructions}
            | {"calls": functions.calls[name], "with_callees": functions.with_callees[name]}
            for name, instructions in functions.own.most_common()
        ],
        "tree": [_node(node) for node in sample.tree.callees.values()],
        "calls_in_order": sample.path,
    }


def _node(node: Node) -> dict[str, Any]:
    return {
        "function": node.function.name,
        "owner": node.function.owner,
        "own": node.own,
        "calls": node.calls,
        "with_callees": node.total,
        "callees": [_node(callee) for callee in node.callees.values()],
    }


def _difference(f: FunctionDifference) -> dict[str, Any]:
    return {
        "function": f.name,
        "difference": f.difference,
        **{
            side: dict(zip(("own", "calls", "with_callees", "exists"), of_side))
            for side, of_side in zip(("base", "new"), zip(f.own, f.calls, f.with_callees, f.exists))
        },
    }


WRITERS = {"json": write_json, "csv": write_csv, "folded": write_stacks}
