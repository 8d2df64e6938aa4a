"""Explanations of samples, written by hand."""

from collections.abc import Mapping

from klat.explain.calls import Node, totals
from klat.explain.explanation import ExplainedSample, Explanation, PathKind, Side
from klat.explain.symbols import Function, Symbols


def side(label: str, stacks: Mapping[str, int], idle: int = 0, missing: int = 0) -> Side:
    """A side with these stacks: `caller;callee` and the callee's own instructions. Each stack is one call.
    `missing` instructions belong to no function."""
    root = Node(Function("", "", 0))
    path = []
    for stack, own in stacks.items():
        names = stack.split(";")
        node = root
        for name in names:
            node = node.callee(Function(name, "kernel", 0))
        node.own += own
        node.calls += 1
        path.append((len(names), names[-1]))
    functions = totals(root)
    symbols = Symbols(Function(name, "kernel", n) for n, name in enumerate(functions.own))
    ticks = sum(stacks.values()) + idle + missing
    sample = ExplainedSample(ticks, 1, idle, [], root, path, functions)
    return Side(label, "6.1", f"results/{label}", symbols, [PathKind(ticks, 3)], sample)


def explanation(*sides: Side) -> Explanation:
    return Explanation("pipes.round_trip", "typical sample", False, list(sides))


BASE = side("stock", {"read": 100, "read;lock": 40, "read;lock;irq": 7, "exit": 300}, idle=50)
NEW = side("rt", {"read": 120, "read;rt_lock": 90, "read;rt_lock;migrate": 600, "exit": 300})
