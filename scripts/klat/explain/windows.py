"""Finds a metric's samples in a trace.

A sample is the difference of two stamps, or the mean of two such differences. In counted mode the counter
counts instructions, and jumps while the CPU is idle. So a sample is exactly the number of instructions
between its two stamps, plus the ticks that idle time skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from klat.explain.trace import INSTRUCTIONS, PATH, SITE, TIMES, Idle, Item, Executed, Trace

# A spinning thread stores each stamp for another thread. If the other thread preempts the spinning thread
# between the stamp and the store, the sample begins at an earlier stamp. klat tries this many stamps.
_EARLIER = 3
# After the samples, klat's workers execute two more iterations (klat_end() in lib/klat.h).
TAIL = 2


@dataclass(frozen=True)
class RecordedRun:
    """A run's samples in the record, and the number of iterations before the first one."""

    samples: NDArray[np.uint64]
    warmup: int


@dataclass(frozen=True)
class Window:
    """The instructions between two stamps. `begin` and `end` are rows of Stamps. The window begins at the
    last stamp of row `begin`, or `earlier` stamps before that one."""

    begin: int
    end: int
    earlier: int = 0


@dataclass(frozen=True)
class Sample:
    """The windows of one sample. `ticks` is the sum of the windows: with one window, the sample itself.

    `places` has the numbers of the first and the last end stamp at which the first window can end. These
    numbers differ if another window can be the sample."""

    windows: tuple[Window, ...]
    ticks: int
    places: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Content:
    """The executed items of a window, and the ticks that idle time skipped. They add up to the window.
    `before` has the items before the window: they show which functions are active."""

    before: list[Item]
    items: list[Item]
    idle: int


class Stamps:
    """The stamps of a trace that begin or end windows. Each end stamp has its own row. Equal consecutive
    begin stamps share a row."""

    def __init__(self, trace: Trace, begins: Collection[int], ends: Collection[int]) -> None:
        self.trace = trace
        rows = trace.stamps
        is_end = np.isin(rows[:, SITE], list(ends))
        rows = np.repeat(rows, np.where(is_end, rows[:, TIMES], 1), axis=0)
        is_end = np.isin(rows[:, SITE], list(ends))
        rows[is_end, TIMES] = 1
        self.rows = rows
        self.ends: NDArray[np.intp] = np.flatnonzero(is_end)
        # The ordinal of a row's first stamp.
        self.first = np.cumsum(rows[:, TIMES]) - rows[:, TIMES]
        self._total = np.cumsum(rows[:, INSTRUCTIONS] * rows[:, TIMES])
        begin_rows = np.where(np.isin(rows[:, SITE], list(begins)), np.arange(len(rows)), -1)
        # One stamp can end a window and begin the next one. So a window begins in a row before its end's row.
        before = np.maximum.accumulate(begin_rows)[:-1]
        self._last_begin = np.concatenate((np.array([-1]), before))
        # Before the stamp of such a row no window was open: the plugin recorded nothing.
        paused = (rows[:, PATH] == 0) & (rows[:, INSTRUCTIONS] == 0)
        self._pauses = np.concatenate(([0], np.cumsum(paused)))
        self._idles = np.concatenate(([0], np.cumsum(trace.halts[rows[:, PATH]] * rows[:, TIMES])))

    def windows(self, end: int) -> Iterator[Window]:
        """The windows that can end at this row, the shortest first."""
        begin, earlier = int(self._last_begin[end]), 0
        for _ in range(_EARLIER):
            if begin < 0 or self._pauses[end + 1] > self._pauses[begin + 1]:
                return
            yield Window(begin, end, earlier)
            earlier += 1
            if earlier == self.rows[begin, TIMES]:
                begin, earlier = int(self._last_begin[begin]), 0

    def instructions(self, window: Window) -> int:
        between = self._total[window.end] - self._total[window.begin]
        return int(between + window.earlier * self.rows[window.begin, INSTRUCTIONS])

    def has_idle(self, window: Window) -> bool:
        begin = window.begin if window.earlier else window.begin + 1
        return bool(self._idles[window.end + 1] > self._idles[begin])

    def paths(self, window: Window) -> Iterator[int]:
        """The numbers of the paths that lead through a window."""
        for _ in range(window.earlier):
            yield int(self.rows[window.begin, PATH])
        for row in range(window.begin + 1, window.end + 1):
            for _ in range(int(self.rows[row, TIMES])):
                yield int(self.rows[row, PATH])

    def kept(self, window: Window) -> bool:
        return all(path > 0 for path in self.paths(window))

    def items(self, window: Window) -> list[Item]:
        return [item for path in self.paths(window) if path > 0 for item in self.trace.items(path)]

    def ordinals(self, window: Window) -> tuple[int, int]:
        """The ordinals of the stamps at both ends."""
        last = self.first[window.begin] + self.rows[window.begin, TIMES] - 1
        return int(last - window.earlier), int(self.first[window.end])

    def before(self, row: int, count: int) -> list[Item]:
        """The items of the paths to the last `count` rows up to `row`, one path for each row."""
        paths = self.rows[max(0, row + 1 - count) : row + 1, PATH].tolist()
        return [item for path in paths if path > 0 for item in self.trace.items(path)]


def find(stamps: Stamps, runs: Sequence[RecordedRun], mean_of: int) -> list[list[Sample]] | None:
    """The windows of each run's samples, in order. A sample is the mean of `mean_of` windows. None if the
    trace lacks windows of exactly these lengths in this order."""
    counted = _by_iteration(stamps, runs, mean_of)
    if counted:
        return counted
    starts = _starts(stamps, runs, mean_of)
    at = 0
    samples_of_runs = []
    for run, start in zip(runs, starts):
        samples, at = _search(stamps, run, mean_of, max(at, start) + run.warmup * mean_of)
        if samples is None:
            return None
        samples_of_runs.append(samples)
    return _placed(stamps, runs, mean_of, samples_of_runs)


def _by_iteration(
    stamps: Stamps, runs: Sequence[RecordedRun], mean_of: int
) -> list[list[Sample]] | None:
    """The samples, if each iteration has the same number of windows and only one place among them fits all
    samples. Metrics that share stamps have several windows an iteration."""
    for tail in (TAIL, 0):
        iterations = [run.warmup + len(run.samples) + tail for run in runs]
        per_iteration, rest = divmod(len(stamps.ends), sum(iterations))
        if rest or (per_iteration > mean_of and not tail):
            continue
        starts = np.cumsum([0, *iterations[:-1]]).tolist()
        places = range(per_iteration - mean_of + 1)
        fits = [_at_place(stamps, runs, mean_of, starts, per_iteration, place) for place in places]
        if sum(fit is not None for fit in fits) == 1:
            return next(fit for fit in fits if fit is not None)
    return None


def _at_place(
    stamps: Stamps,
    runs: Sequence[RecordedRun],
    mean_of: int,
    starts: Sequence[int],
    windows_of_iteration: int,
    place: int,
) -> list[list[Sample]] | None:
    """The samples, if each begins at window `place` of the `windows_of_iteration` windows of its iteration."""
    fit: list[list[Sample]] = []
    for run, start in zip(runs, starts):
        fit.append([])
        for number, sample in enumerate(run.samples.tolist(), start + run.warmup):
            match = _match_at(stamps, number * windows_of_iteration + place, mean_of, sample)
            if match is None:
                return None
            fit[-1].append(match)
    return fit


def is_certain(stamps: Stamps, samples_of_runs: Sequence[Sequence[Sample]]) -> bool:
    """Whether each sample has only one possible place. Windows with idle time have no known length."""
    return all(
        sample.places[0] == sample.places[1] and not any(map(stamps.has_idle, sample.windows))
        for samples in samples_of_runs
        for sample in samples
    )


def _left(stamps: Stamps, runs: Sequence[RecordedRun], mean_of: int) -> int:
    """The number of windows beyond the recorded iterations."""
    return len(stamps.ends) - mean_of * sum(run.warmup + len(run.samples) for run in runs)


def _placed(
    stamps: Stamps, runs: Sequence[RecordedRun], mean_of: int, samples_of_runs: list[list[Sample]]
) -> list[list[Sample]]:
    """The samples with their `places`. The first place is found from the front of the trace, the last
    place from its end."""
    values = [run.samples.tolist() for run in runs]
    at = 0
    first: list[list[int]] = []
    for run, samples in zip(runs, values):
        at += run.warmup * mean_of
        first.append([])
        for sample in samples:
            while _match_at(stamps, at, mean_of, sample) is None:
                at += 1
            first[-1].append(at)
            at += mean_of
    at = len(stamps.ends)
    placed = []
    for number in reversed(range(len(runs))):
        kept = []
        for index in reversed(range(len(values[number]))):
            at -= mean_of
            while _match_at(stamps, at, mean_of, values[number][index]) is None:
                at -= 1
            kept.append(replace(samples_of_runs[number][index], places=(first[number][index], at)))
        placed.append(kept[::-1])
        at -= runs[number].warmup * mean_of
    return placed[::-1]


def rivals(stamps: Stamps, sample: Sample) -> list[Sample]:
    """The other windows that can be this sample if all samples keep their order."""
    count = len(sample.windows)
    first, last = sample.places
    if first == last:
        return []
    every = (_match_at(stamps, at, count, sample.ticks // count) for at in range(first, last + 1))
    return [rival for rival in every if rival and rival.windows != sample.windows]


def _starts(stamps: Stamps, runs: Sequence[RecordedRun], mean_of: int) -> list[int]:
    """The number of the first window of each run. Assumes that each run has the same number of windows
    beyond its recorded iterations. Zeros if this is impossible."""
    left = _left(stamps, runs, mean_of)
    if left < 0 or left % len(runs):
        return [0] * len(runs)
    windows_of_run = [mean_of * (run.warmup + len(run.samples)) + left // len(runs) for run in runs]
    return [sum(windows_of_run[:number]) for number in range(len(runs))]


def _match_at(stamps: Stamps, first: int, count: int, sample: int) -> Sample | None:
    """The sample, if `count` windows from the end numbered `first` have its length. None otherwise."""
    ends = stamps.ends[first : first + count].tolist()
    return _match(stamps, ends, sample) if len(ends) == count else None


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
    """The samples in order, and the number of the next end stamp. Other windows of the same stamps can lie
    between the samples. None for the samples if the trace lacks one."""
    samples: list[Sample] = []
    for sample in run.samples.tolist():
        match = None
        while match is None:
            if at + mean_of > len(stamps.ends):
                return None, at
            match = _match_at(stamps, at, mean_of, sample)
            at += mean_of if match else 1
        samples.append(match)
    return samples, at


def from_deadline(stamps: Stamps, runs: Sequence[RecordedRun]) -> list[list[Sample]] | None:
    """The windows that contain the samples' deadlines. A window can be longer than its sample, so its
    length does not identify it. klat counts the windows instead. None if the trace has further windows.
    """
    if _left(stamps, runs, 1) not in (0, TAIL * len(runs)):
        return None
    starts = _starts(stamps, runs, 1)
    samples_of_runs = []
    for run, start in zip(runs, starts):
        ends = stamps.ends[start + run.warmup :][: len(run.samples)].tolist()
        windows = [window for end in ends for window in islice(stamps.windows(end), 1)]
        if len(windows) < len(ends):
            return None
        samples_of_runs.append(
            [Sample((w,), int(s)) for w, s in zip(windows, run.samples.tolist())]
        )
    return samples_of_runs


def contents(stamps: Stamps, sample: Sample, deadline: bool) -> list[Content]:
    """The contents of the windows. They add up to `sample.ticks`."""
    if deadline:
        (window,) = sample.windows
        return [_since_deadline(stamps.items(window), sample.ticks)]
    parts = []
    # klat knows only the sum of the skipped ticks. It assigns the sum to the last window with idle time.
    idle = sample.ticks - sum(stamps.instructions(window) for window in sample.windows)
    halts = [window for window in sample.windows if stamps.has_idle(window)]
    for window in sample.windows:
        skipped = idle if halts and window is halts[-1] else 0
        count = window.end - window.begin + 1
        parts.append(Content(stamps.before(window.begin, count), stamps.items(window), skipped))
    return parts


def _since_deadline(items: Sequence[Item], sample: int) -> Content:
    """The last `sample` instructions. If idle time ends within them, the sample begins there: the timer's
    interrupt comes at the deadline and ends the idle time."""
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
    """Splits an item. The second part has its `last` instructions."""
    whole, part = divmod(last, step.instructions)
    rest = step.times - whole - (part > 0)
    cut = step.first + step.instructions - part
    before = [Executed(step.block, step.first, step.instructions, rest)] if rest else []
    after = [Executed(step.block, step.first, step.instructions, whole)] if whole else []
    if part:
        before.append(Executed(step.block, step.first, step.instructions - part))
        after.insert(0, Executed(step.block, cut, part))
    return before, after
