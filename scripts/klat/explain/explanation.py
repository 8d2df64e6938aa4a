"""The functions of a metric's samples, and how two kernels differ in them."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from klat.base.errors import KlatError
from klat.explain import calls, windows
from klat.explain.calls import CallTree, FunctionTotals, Node
from klat.explain.isa import is_interrupt
from klat.explain.symbols import Function, Symbols
from klat.explain.trace import Executed, Switched
from klat.explain.windows import Content, Sample, Stamps


class SampleNotFound(KlatError):
    """A repeated boot does not contain the sample. Another repetition gives the same result."""


@dataclass(frozen=True)
class PathKind:
    """Samples that took the same path: the same instructions in the same order."""

    ticks: int
    count: int


@dataclass(frozen=True)
class ExplainedSample:
    """One sample by function. The own instructions of all functions and `idle` add up to `ticks`.

    `ticks` is the sample. If the sample is the mean of several windows, `ticks` is their sum."""

    ticks: int
    windows: int
    idle: int
    contents: list[Content]
    tree: Node
    path: list[tuple[int, str]]  # calls in order: depth, function
    functions: FunctionTotals
    doubt: str = ""  # why the instructions may be those of another sample

    @property
    def residual(self) -> int:
        """Instructions that belong to no function. An explanation is valid only if this is 0."""
        return self.ticks - self.idle - sum(self.functions.own.values())


@dataclass(frozen=True)
class Side:
    """One kernel's sample. `kinds` counts the samples of its session by path, the most frequent path
    first. `kinds` is empty if the trace has the paths of only one sample."""

    label: str
    release: str
    session: str
    symbols: Symbols
    kinds: list[PathKind]
    sample: ExplainedSample
    # Instructions by function and source line, for some functions.
    lines: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Explanation:
    """One side, or BASE and NEW."""

    metric: str  # benchmark.metric
    which: str  # "typical sample", for example
    from_deadline: bool  # samples begin at a deadline
    sides: list[Side]
    params: Mapping[str, str] = field(default_factory=dict)  # parameters in which the runs differ

    @property
    def valid(self) -> bool:
        return not any(side.sample.residual or side.sample.doubt for side in self.sides)


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
    """Returns a typical sample and the counts of all paths.

    The sample is as long as the median and took the most frequent path of that length. It is the first such
    sample whose windows are certain, or else the first. With `deadline`, a path begins at the deadline.
    """
    every = [sample for run in runs for sample in run]
    key_of = _since_deadline_key if deadline else _key
    keys = [
        key_of(stamps, sample) if all(map(stamps.kept, sample.windows)) else (sample.ticks,)
        for sample in every
    ]
    kinds = Counter(keys)
    alike = [key for key, sample in zip(keys, every) if _mean(sample) == median]
    chosen = max(alike, key=lambda key: kinds[key])
    shares = [PathKind(key[0], count) for key, count in kinds.most_common()]
    fits = [sample for key, sample in zip(keys, every) if key == chosen]
    return next((sample for sample in fits if _is_certain(stamps, sample)), fits[0]), shares


def _is_certain(stamps: Stamps, sample: Sample) -> bool:
    """Whether all windows that can be this sample have the same path."""
    key = _key(stamps, sample)
    return all(_key(stamps, rival) == key for rival in windows.rivals(stamps, sample))


def doubt(
    stamps: Stamps, sample: Sample, symbols: Symbols, deadline: bool, halts_masked: bool = False
) -> str:
    """Why the windows may belong to another sample. Empty if they are certain. `halts_masked` is that of
    isa.Isa."""
    if not _is_certain(stamps, sample):
        return (
            "another window fits this sample and took another path; klat cannot say which of the two"
            " is the sample"
        )
    if deadline and not _is_followed_by_an_interrupt(stamps, sample, symbols, halts_masked):
        return "no interrupt follows the deadline, so the deadline lies elsewhere in the trace"
    return ""


def _is_followed_by_an_interrupt(
    stamps: Stamps, sample: Sample, symbols: Symbols, halts_masked: bool
) -> bool:
    """Whether an interrupt follows the deadline.

    If the CPU was idle, the first code after the idle time must be an interrupt. With `halts_masked`, the
    interrupt must come before a task switch. If the CPU was not idle, an interrupt must be active at the
    deadline or begin after it."""
    (content,) = windows.contents(stamps, sample, deadline=True)
    tree = calls.CallTree(symbols)
    tree.add(content.before)
    for item in content.items:
        tree.add([item])
        if any(map(is_interrupt, tree.stack)):
            return True
        if content.idle and isinstance(item, Switched if halts_masked else Executed):
            return False
    return not sample.ticks


def _mean(sample: Sample) -> int:
    return sample.ticks // len(sample.windows)


def _key(stamps: Stamps, sample: Sample) -> tuple[int, ...]:
    """A key for the sample's path. Samples with the same path have the same key."""
    shapes = stamps.trace.shapes
    paths = (path for window in sample.windows for path in stamps.paths(window))
    return (sample.ticks, *(shapes[path] for path in paths))


def _since_deadline_key(stamps: Stamps, sample: Sample) -> tuple[int, ...]:
    (content,) = windows.contents(stamps, sample, deadline=True)
    steps = [(s.block.address, s.first, s.total) for s in content.items if isinstance(s, Executed)]
    return (sample.ticks, content.idle, hash(tuple(steps)))


def explain(
    contents: list[Content], symbols: Symbols, ticks: int, doubt: str = ""
) -> ExplainedSample:
    tree = CallTree(symbols)
    for content in contents:
        tree.add(content.before, counted=False)
        tree.add(content.items)
    idle = sum(content.idle for content in contents)
    return ExplainedSample(
        ticks, len(contents), idle, contents, tree.root, tree.path, calls.totals(tree.root), doubt
    )


def usual_least(sides: Sequence[Side]) -> int:
    """20 instructions, or a thousandth of the larger sample if that is more."""
    return max(20, *(side.sample.ticks // 1000 for side in sides))


def functions_of(sides: Sequence[Side], least: int | None) -> list[str]:
    """The functions that a report shows by name. With one side, they have at least `least` instructions
    (default: usual_least()). With two sides, they differ by at least `least` instructions."""
    if least is None:
        least = usual_least(sides)
    if len(sides) > 1:
        return [f.name for f in differences(*sides) if abs(f.difference) >= least]
    return [name for name, count in sides[0].sample.functions.own.items() if count >= max(1, least)]


def differences(base: Side, new: Side) -> list[FunctionDifference]:
    """The differences of all functions in either sample, the largest first."""
    a, b = base.sample.functions, new.sample.functions
    names = {name for c in (a.own, b.own) for name, count in c.items() if count}
    differing = [
        FunctionDifference(
            name,
            (a.own[name], b.own[name]),
            (a.with_callees[name], b.with_callees[name]),
            (a.calls[name], b.calls[name]),
            (base.symbols.has(name), new.symbols.has(name)),
        )
        for name in names
    ]
    return sorted(differing, key=lambda f: (-abs(f.difference), -max(f.own), f.name))


Call = tuple[str, int, str]  # "-" only BASE, "+" only NEW, " " both; depth; function
_MANY = 2000


def calls_in_order(sides: Sequence[Side]) -> Iterator[Call]:
    """The calls of one side, or of BASE and NEW."""
    if len(sides) == 1:
        yield from ((" ", *call) for call in sides[0].sample.path)
        return
    old, new = (side.sample.path for side in sides)
    # difflib's autojunk heuristic. Without it, the time grows with the square of a call's repetitions.
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=len(new) > _MANY)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            yield from ((" ", *call) for call in old[a:b])
        else:
            yield from (("-", *call) for call in old[a:b])
            yield from (("+", *call) for call in new[c:d])


@dataclass(frozen=True)
class KeptSample:
    """An explained sample in the form of a file. `ticks` are the instructions of the sample, the sum over its `windows`.
    Each of `chains` has depth, function, own instructions and calls. Callers come before their callees. `why`: why the
    sample has no explanation, or why the explanation may be that of another sample. `not_found_by` is a hash of the code that did not find the sample in the
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
        for depth, name, own, count in self.chains:
            node = callers[depth - 1].callees[name] = Node(Function(name, "", 0), count, own)
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

    def differences(self, new: KeptSample) -> list[tuple[str, int]]:
        """The functions that differ, the largest difference first. They add up to the difference of the samples, unless a
        sample has instructions that belong to no function."""
        before, after = self.functions, new.functions
        before["idle time"], after["idle time"] = self.idle, new.idle
        after.subtract(before)
        return sorted((c for c in after.items() if c[1]), key=lambda c: (-abs(c[1]), c[0]))


def kept_sample(side: Side) -> KeptSample:
    sample = side.sample
    chains = [(len(chain), chain[-1], n.own, n.calls) for chain, n in sample.tree.walk()]
    if sample.residual:
        why = f"{sample.residual:+,} instructions belong to no function"
    else:
        why = sample.doubt
    return KeptSample(sample.ticks, sample.windows, sample.idle, tuple(chains), why)
