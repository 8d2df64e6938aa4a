"""The functions of a metric's samples, and how two kernels differ in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from klat.explain import calls, windows
from klat.explain.calls import CallTree, FunctionTotals, Node
from klat.explain.symbols import Symbols
from klat.explain.trace import Executed
from klat.explain.windows import Content, Sample, Stamps


@dataclass(frozen=True)
class PathKind:
    """Samples that took the same path: the same instructions in the same order."""

    ticks: int
    count: int


@dataclass(frozen=True)
class ExplainedSample:
    """One sample by function. `own` of all functions and `idle` add up to `ticks`, which is the sample
    or, if a sample is the mean of several windows, their sum."""

    ticks: int
    windows: int
    idle: int
    contents: list[Content]
    tree: Node
    path: list[tuple[int, str]]  # calls in order: depth, function
    functions: FunctionTotals

    @property
    def residual(self) -> int:
        """Instructions that no function accounts for. An explanation is valid only if this is 0."""
        return self.ticks - self.idle - sum(self.functions.own.values())


@dataclass(frozen=True)
class Side:
    """One kernel's sample, and all samples of its session by path, the most frequent path first. `kinds`
    is empty if the trace has the paths of only one sample."""

    label: str
    release: str
    session: str
    symbols: Symbols
    kinds: list[PathKind]
    sample: ExplainedSample
    # Instructions by function and source line, of the functions for which they were wanted.
    lines: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Explanation:
    """One side, or BASE and NEW."""

    metric: str  # benchmark.metric
    which: str  # "typical sample", for example
    from_deadline: bool  # samples begin at a deadline
    sides: list[Side]
    params: Mapping[str, str] = field(default_factory=dict)  # that other runs have otherwise

    @property
    def valid(self) -> bool:
        return not any(side.sample.residual for side in self.sides)


@dataclass(frozen=True)
class FunctionDifference:
    """Instructions and calls of one function in both samples, BASE first."""

    name: str
    own: tuple[int, int]
    with_callees: tuple[int, int]
    calls: tuple[int, int]
    exists: tuple[bool, bool]  # whether the side's kernel or program has a function of this name

    @property
    def difference(self) -> int:
        return self.own[1] - self.own[0]


def choose_typical(
    stamps: Stamps, runs: Sequence[Sequence[Sample]], median: int, deadline: bool
) -> tuple[Sample, list[PathKind]]:
    """A sample of the most frequent path among those as long as the median, and the shares of all
    paths. With `deadline` a path begins at the deadline."""
    every = [sample for run in runs for sample in run]
    key_of = _since_deadline_key if deadline else _key
    keys = [key_of(stamps, sample) for sample in every]
    kinds = Counter(keys)
    alike = [key for key, sample in zip(keys, every) if _mean(sample) == median]
    chosen = max(alike, key=lambda key: kinds[key])
    shares = [PathKind(key[0], count) for key, count in kinds.most_common()]
    return every[keys.index(chosen)], shares


def _mean(sample: Sample) -> int:
    return sample.ticks // len(sample.windows)


def _key(stamps: Stamps, sample: Sample) -> tuple[int, ...]:
    """The same for samples that took the same path."""
    shapes = stamps.trace.shapes
    paths = (path for window in sample.windows for path in stamps.paths(window))
    return (sample.ticks, *(shapes[path] for path in paths))


def _since_deadline_key(stamps: Stamps, sample: Sample) -> tuple[int, ...]:
    (content,) = windows.contents(stamps, sample, deadline=True)
    steps = [(s.block.address, s.first, s.total) for s in content.items if isinstance(s, Executed)]
    return (sample.ticks, content.idle, hash(tuple(steps)))


def explain(contents: list[Content], symbols: Symbols, ticks: int) -> ExplainedSample:
    tree = CallTree(symbols)
    for content in contents:
        tree.add(content.before, counted=False)
        tree.add(content.items)
    idle = sum(content.idle for content in contents)
    return ExplainedSample(
        ticks, len(contents), idle, contents, tree.root, tree.path, calls.totals(tree.root)
    )


def functions_of(sides: Sequence[Side], least: int) -> list[str]:
    """Those that have or, of two sides, differ by `least` instructions."""
    if len(sides) > 1:
        return [f.name for f in differences(*sides) if abs(f.difference) >= least]
    return [name for name, own in sides[0].sample.functions.own.items() if own >= max(1, least)]


def differences(base: Side, new: Side) -> list[FunctionDifference]:
    """Of every function that either sample has, the largest difference first."""
    a, b = base.sample.functions, new.sample.functions
    names = {name for own in (a.own, b.own) for name, count in own.items() if count}
    found = [
        FunctionDifference(
            name,
            (a.own[name], b.own[name]),
            (a.with_callees[name], b.with_callees[name]),
            (a.calls[name], b.calls[name]),
            (base.symbols.has(name), new.symbols.has(name)),
        )
        for name in names
    ]
    return sorted(found, key=lambda f: (-abs(f.difference), -max(f.own), f.name))
