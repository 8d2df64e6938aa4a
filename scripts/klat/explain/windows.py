"""Where a metric's samples lie in a trace.

A sample is the difference of two stamps, or the mean of two such differences. In counted mode the
counter counts instructions, and jumps while the CPU is idle. So the instructions between the two
stamps are the sample, less what idle time skipped, to the instruction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from klat.base.errors import KlatError
from klat.explain.trace import Idle, Item, Executed, Trace

# A thread that spins stores each stamp for another thread. If the other thread interrupts it between
# the stamp and the store, the sample begins at an earlier stamp.
_EARLIER = 3


@dataclass(frozen=True)
class RecordedRun:
    """A run's samples in the record, and the number of iterations before the first one."""

    samples: NDArray[np.uint64]
    warmup: int


@dataclass(frozen=True)
class Window:
    """From a stamp to a stamp. `begin` and `end` are rows of Stamps; the window begins at the last
    stamp of row `begin`, or `earlier` stamps before that one."""

    begin: int
    end: int
    earlier: int = 0


@dataclass(frozen=True)
class Sample:
    """The windows of one sample, and the ticks in them: the sample, or the sum that it is the mean
    of. Without `windows` it was not found."""

    windows: tuple[Window, ...]
    ticks: int


@dataclass(frozen=True)
class Content:
    """What was executed in a window, and ticks that idle time skipped. They add up to the window.
    `before` was executed before it."""

    before: list[Item]
    items: list[Item]
    idle: int


class Stamps:
    """The stamps of a trace. Each end has a row of its own; begins that came in a row alike share one."""

    def __init__(self, trace: Trace, begins: Collection[int], ends: Collection[int]) -> None:
        self.trace = trace
        rows = trace.stamps
        is_end = np.isin(rows[:, 0], list(ends))
        rows = np.repeat(rows, np.where(is_end, rows[:, 3], 1), axis=0)
        is_end = np.isin(rows[:, 0], list(ends))
        rows[is_end, 3] = 1
        self.rows = rows
        self.ends: NDArray[np.intp] = np.flatnonzero(is_end)
        self.first = np.cumsum(rows[:, 3]) - rows[:, 3]  # the ordinal of a row's first stamp
        self._total = np.cumsum(rows[:, 2] * rows[:, 3])
        begin_rows = np.where(np.isin(rows[:, 0], list(begins)), np.arange(len(rows)), -1)
        # At the end's own row, a begin would be the next window's.
        before = np.maximum.accumulate(begin_rows)[:-1]
        self._last_begin = np.concatenate((np.array([-1]), before))
        # Nothing was recorded before the stamp of such a row: the row before it closed a window.
        paused = (rows[:, 1] == 0) & (rows[:, 2] == 0)
        self._pauses = np.concatenate(([0], np.cumsum(paused)))
        self._idles = np.concatenate(([0], np.cumsum(trace.halts[rows[:, 1]] * rows[:, 3])))

    def windows(self, end: int) -> Iterator[Window]:
        """The windows that can end at a row, the shortest first."""
        begin, earlier = int(self._last_begin[end]), 0
        for _ in range(_EARLIER):
            if begin < 0 or self._pauses[end + 1] > self._pauses[begin + 1]:
                return
            yield Window(begin, end, earlier)
            earlier += 1
            if earlier == self.rows[begin, 3]:
                begin, earlier = int(self._last_begin[begin]), 0

    def instructions(self, window: Window) -> int:
        between = self._total[window.end] - self._total[window.begin]
        return int(between + window.earlier * self.rows[window.begin, 2])

    def has_idle(self, window: Window) -> bool:
        begin = window.begin if window.earlier else window.begin + 1
        return bool(self._idles[window.end + 1] > self._idles[begin])

    def paths(self, window: Window) -> Iterator[int]:
        """The numbers of the paths that lead through a window."""
        for _ in range(window.earlier):
            yield int(self.rows[window.begin, 1])
        for row in range(window.begin + 1, window.end + 1):
            for _ in range(int(self.rows[row, 3])):
                yield int(self.rows[row, 1])

    def kept(self, window: Window) -> bool:
        return all(path > 0 for path in self.paths(window))

    def items(self, window: Window) -> list[Item]:
        return [item for path in self.paths(window) if path > 0 for item in self.trace.items(path)]

    def ordinals(self, window: Window) -> tuple[int, int]:
        """Of the stamps at both ends."""
        last = self.first[window.begin] + self.rows[window.begin, 3] - 1
        return int(last - window.earlier), int(self.first[window.end])

    def before(self, row: int, count: int) -> list[Item]:
        """What led to the last `count` rows up to `row`, one time each."""
        paths = self.rows[max(0, row + 1 - count) : row + 1, 1].tolist()
        return [item for path in paths if path > 0 for item in self.trace.items(path)]


def find(stamps: Stamps, runs: Sequence[RecordedRun], mean_of: int) -> list[list[Sample]] | None:
    """The windows of each run's samples, in order. A sample is the mean of `mean_of` windows. None if
    the trace does not hold the samples of the record, to the instruction."""
    starts = _starts(len(stamps.ends), runs, mean_of)
    at = 0
    found = []
    for run, start in zip(runs, starts):
        at = max(at, start) + run.warmup * mean_of
        samples = _one_by_one(stamps, run, mean_of, at)
        if samples is None:
            samples, at = _search(stamps, run, mean_of, at)
        else:
            at += mean_of * len(samples)
        if samples is None:
            return None
        found.append(samples)
    return found


def _starts(windows: int, runs: Sequence[RecordedRun], mean_of: int) -> list[int]:
    """The number of the first window of each run, if runs of one length have one number of windows
    more than the record has iterations; else zeros."""
    left = windows - mean_of * sum(run.warmup + len(run.samples) for run in runs)
    if left < 0 or left % len(runs):
        return [0] * len(runs)
    each = [mean_of * (run.warmup + len(run.samples)) + left // len(runs) for run in runs]
    return [sum(each[:number]) for number in range(len(runs))]


def _one_by_one(stamps: Stamps, run: RecordedRun, mean_of: int, first: int) -> list[Sample] | None:
    """The samples, if they begin at the end numbered `first` and no other window is between them."""
    found = []
    for index, sample in enumerate(run.samples.tolist()):
        ends = stamps.ends[first + index * mean_of : first + (index + 1) * mean_of]
        match = _match(stamps, ends.tolist(), int(sample)) if len(ends) == mean_of else None
        if match is None:
            return None
        found.append(match)
    return found


def _match(stamps: Stamps, ends: Sequence[int], sample: int) -> Sample | None:
    if len(ends) == 1:
        for window in stamps.windows(ends[0]):
            length = stamps.instructions(window)
            if length == sample or (length < sample and stamps.has_idle(window)):
                return Sample((window,), sample)
        return None
    windows = tuple(window for end in ends for window in islice(stamps.windows(end), 1))
    if len(windows) < len(ends):
        return None
    length = sum(stamps.instructions(window) for window in windows)
    # The mean is rounded down.
    if length // len(ends) == sample:
        return Sample(windows, length)
    if length // len(ends) < sample and any(stamps.has_idle(window) for window in windows):
        return Sample(windows, len(ends) * sample)
    return None


def _search(
    stamps: Stamps, run: RecordedRun, mean_of: int, at: int
) -> tuple[list[Sample] | None, int]:
    """The samples in their order, with other windows of the same stamps between them."""
    found: list[Sample] = []
    for sample in run.samples.tolist():
        match = None
        while match is None:
            ends = stamps.ends[at : at + mean_of].tolist()
            if len(ends) < mean_of:
                return None, at
            match = _match(stamps, ends, int(sample))
            at += mean_of if match else 1
        found.append(match)
    return found, at


def from_deadline(stamps: Stamps, runs: Sequence[RecordedRun]) -> list[list[Sample]] | None:
    """The windows in which the samples' deadlines lie. None if the trace has another number of stamps
    than the record has samples."""
    starts = _starts(len(stamps.ends), runs, 1)
    found = []
    for run, start in zip(runs, starts):
        ends = stamps.ends[start + run.warmup :][: len(run.samples)].tolist()
        if len(ends) < len(run.samples) or (starts[-1] == 0 and len(runs) > 1):
            return None
        windows = [window for end in ends for window in islice(stamps.windows(end), 1)]
        if len(windows) < len(ends):
            return None
        found.append([Sample((w,), int(s)) for w, s in zip(windows, run.samples.tolist())])
    return found


def contents(stamps: Stamps, sample: Sample, deadline: bool) -> list[Content]:
    """By window; they add up to `sample.ticks`."""
    if deadline:
        (window,) = sample.windows
        return [_since_deadline(stamps.items(window), sample.ticks)]
    found = []
    # What idle time skipped cannot be told apart by window. The last window with idle time has it.
    idle = sample.ticks - sum(stamps.instructions(window) for window in sample.windows)
    halts = [window for window in sample.windows if stamps.has_idle(window)]
    for window in sample.windows:
        skipped = idle if halts and window is halts[-1] else 0
        count = window.end - window.begin + 1
        found.append(Content(stamps.before(window.begin, count), stamps.items(window), skipped))
    return found


def _since_deadline(items: Sequence[Item], sample: int) -> Content:
    """The last `sample` instructions. If the CPU was idle less than that before the end, the deadline
    came then: a timer's interrupt ends idle time."""
    left = sample
    at = len(items)
    while at and left:
        item = items[at - 1]
        if isinstance(item, Idle):
            return Content(list(items[: at - 1]), list(items[at - 1 :]), left)
        if isinstance(item, Executed) and item.total > left:
            first, last = _split(item, left)
            return Content([*items[: at - 1], *first], [*last, *items[at:]], 0)
        left -= item.total if isinstance(item, Executed) else 0
        at -= 1
    return Content(list(items[:at]), list(items[at:]), left)


def _split(step: Executed, last: int) -> tuple[list[Executed], list[Executed]]:
    """Into what comes before the `last` instructions, and these."""
    whole, part = divmod(last, step.instructions)
    rest = step.times - whole - (part > 0)
    cut = step.first + step.instructions - part
    before = [Executed(step.block, step.first, step.instructions, rest)] if rest else []
    after = [Executed(step.block, step.first, step.instructions, whole)] if whole else []
    if part:
        before.append(Executed(step.block, step.first, step.instructions - part))
        after.insert(0, Executed(step.block, cut, part))
    return before, after
