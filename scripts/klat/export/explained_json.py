"""An explanation of `klat lab explain` in full, as JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, BinaryIO

from klat.explain.calls import Node
from klat.explain.explanation import Explanation, FunctionDifference, Side, differences


def write(explanation: Explanation, out: BinaryIO) -> None:
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
            {
                "function": name,
                "own": own,
                "calls": functions.calls[name],
                "with_callees": functions.with_callees[name],
            }
            for name, own in functions.own.most_common()
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


def _difference(function: FunctionDifference) -> dict[str, Any]:
    return {
        "function": function.name,
        "difference": function.difference,
        **{
            side: {
                "own": function.own[number],
                "calls": function.calls[number],
                "with_callees": function.with_callees[number],
                "exists": function.exists[number],
            }
            for number, side in enumerate(("base", "new"))
        },
    }
