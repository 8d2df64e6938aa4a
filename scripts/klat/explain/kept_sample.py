"""An explained sample in a form that can be kept in a file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from klat.explain.calls import Node
from klat.explain.explanation import Side
from klat.explain.symbols import Function


@dataclass(frozen=True)
class KeptSample:
    """A sample by chain of callers. `ticks` are the instructions of the sample, the sum of its `windows`. `chains` has
    depth, function, own instructions and calls, callers before their callees. `why`: why the sample has no explanation,
    or why it may be that of another sample. `not_found_by` is a hash of the code that did not find the sample in the
    repeated boot: the same code would fail again, so klat does not repeat the boot."""

    ticks: int = 0
    windows: int = 1
    idle: int = 0
    chains: tuple[tuple[int, str, int, int], ...] = ()
    why: str = ""
    not_found_by: str = ""

    @property
    def functions(self) -> Counter[str]:
        """The own instructions of each function."""
        return self.tree.functions()

    @property
    def tree(self) -> Node:
        root = Node(Function("", "", 0))
        callers = [root]
        for depth, name, own, calls in self.chains:
            node = callers[depth - 1].callees[name] = Node(Function(name, "", 0), calls, own)
            callers[depth:] = [node]
        return root

    @property
    def can_be_kept(self) -> bool:
        """Whether each chain follows its caller, and the instructions of all chains and `idle` add up to `ticks`; or the
        sample was not found."""
        if self.not_found_by:
            return not self.ticks and not self.chains
        depths = [0, *(depth for depth, *_ in self.chains)]
        follows = all(1 <= after <= before + 1 for before, after in zip(depths, depths[1:]))
        return follows and 0 < self.ticks == self.idle + self.functions.total()


def kept_sample(side: Side) -> KeptSample:
    sample = side.sample
    chains = [(len(chain), chain[-1], n.own, n.calls) for chain, n in sample.tree.walk()]
    if sample.residual:
        why = f"{sample.residual:+,} instructions belong to no function"
    else:
        why = sample.doubt
    return KeptSample(sample.ticks, sample.windows, sample.idle, tuple(chains), why)


def differences(base: KeptSample, new: KeptSample) -> list[tuple[str, int]]:
    """The functions that differ, the largest difference first. They add up to the difference of the samples, unless a
    sample has instructions that belong to no function."""
    before, after = base.functions, new.functions
    before["idle time"], after["idle time"] = base.idle, new.idle
    after.subtract(before)
    return sorted((c for c in after.items() if c[1]), key=lambda c: (-abs(c[1]), c[0]))
