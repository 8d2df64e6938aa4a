"""Splits the time of a slow sample by cause.

The split starts at the sample's end and follows the chain of wakeups back to its begin. The thread that takes
the end stamp runs until the end. Before it runs, it waits on the run queue from its wakeup on. Before the
wakeup, the waker's time counts in the same way. So each tick of the sample belongs to one part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from klat.tracing.cpu_timeline import CpuStretch, CpuTimeline, IDLE_PID
from klat.tracing.kept_traces import CpuTrace, SlowSample, TraceEvent, TracedRun

if TYPE_CHECKING:
    from klat.stats.means import MeanDifference

EVENT, IDLE_EXIT, DELAY, RESIDUAL = "the event itself", "idle exit", "scheduling delay", "residual"
TASK, INTERRUPT, SOFTIRQ = "task", "interrupt", "softirq"
STOPPED, ASLEEP, THROTTLED = "stopped", "asleep", "throttled"
OR_QUOTA = "CPU quota or task"
# These timers end the throttling by a quota.
_REFILLS = ("sched_cfs_period_timer", "sched_cfs_slack_timer")


@dataclass(frozen=True)
class Part:
    """A part of a sample. `name` is the name of the task, interrupt or softirq."""

    begin: int
    end: int
    cpu: int
    kind: str
    name: str = ""

    @property
    def ticks(self) -> int:
        return self.end - self.begin

    @property
    def cause(self) -> str:
        return f"{self.kind} {self.name}".rstrip()


@dataclass(frozen=True)
class _Place:
    """The position of the walk: `pid` ran on `cpu` at `time`. The walk has split all later time."""

    time: int
    cpu: int
    pid: int


class _Walk:
    def __init__(self, sample: SlowSample, workers: Mapping[int, str]) -> None:
        self.sample = sample
        self.workers = workers
        self.timelines = {
            cpu: CpuTimeline(_with_end(trace, sample) if cpu == sample.cpu else trace)
            for cpu, trace in sample.cpus.items()
        }
        self.parts: list[Part] = []

    def parts_in_order(self) -> list[Part]:
        place: _Place | None = _Place(self.sample.end, self.sample.cpu, self.sample.tid)
        while place and place.time > self.sample.begin:
            place = self._step(place)
        return _joined(sorted(self.parts, key=lambda part: part.begin))

    def _step(self, place: _Place) -> _Place | None:
        """Split one stint of the task and its wait before the stint. Returns the next place, or None at the
        sample's begin."""
        timeline = self.timelines.get(place.cpu)
        if timeline is None:
            self._add(self.sample.begin, place.time, place.cpu, RESIDUAL)
            return None
        first = timeline.stint(place.pid, place.time)
        if first and first.guessed:
            # The stint's begin is unknown. A sleeping thread runs only after its wakeup.
            woken = self._waking(place.pid, place.time)
            if woken and woken.time > max(first.begin, self.sample.begin):
                self._split(woken.time, place)
                return woken
        if first is None or first.begin <= self.sample.begin or self._interrupted(place):
            self._split(self.sample.begin, place)
            return None
        self._split(first.begin, place)
        return self._before(timeline, replace(place, time=first.begin))

    def _interrupted(self, place: _Place) -> bool:
        """Whether the waker is an interrupt that does not interrupt a thread of the run."""
        if place.pid in self.workers:
            return False
        return place.pid == IDLE_PID or bool(self.timelines[place.cpu].at(place.time).interrupts)

    def _before(self, timeline: CpuTimeline, place: _Place) -> _Place | None:
        """The place before the task's stint: where the task was preempted, or where its waker ran."""
        left = timeline.left(place.pid, place.time)
        if left and left[1].startswith("R"):
            self._wait(left[0], left[0], place)
            return replace(place, time=left[0])
        woken = self._waking(place.pid, place.time)
        absence = left and self._absence(timeline, place.pid, *left, woken)
        if left and absence:
            until = woken.time if woken and woken.time > left[0] else place.time
            self._wait(until, self._queued(woken, place), place)
            self._add(max(left[0], self.sample.begin), until, place.cpu, *absence)
            return replace(place, time=left[0])
        if woken is None or woken.time <= self.sample.begin:
            self._split(self.sample.begin, place)
            return None
        self._wait(woken.time, self._queued(woken, place), place)
        return woken

    def _queued(self, woken: _Place | None, place: _Place) -> int:
        """When the wakeup is complete, and the thread on its run queue: the time of the next event on the waker's CPU."""
        events = self.timelines[woken.cpu].events if woken else ()
        return next((e.time for e in events if woken and e.time > woken.time), place.time)

    def _absence(
        self, timeline: CpuTimeline, pid: int, left: int, state: str, woken: _Place | None
    ) -> tuple[str, str] | None:
        """STOPPED or ASLEEP with its detail, for the time after `left`. None if the event itself explains the sleep."""
        stint = timeline.stint(pid, left)
        if woken and stint and stint.begin <= woken.time <= left:
            return None  # the wakeup came before the thread had left its CPU
        if state.startswith(("T", "t")):
            return STOPPED, ""
        if not state or pid not in self.workers:
            return None
        if woken is None or woken.time < left:
            return (ASLEEP, "") if left > self.sample.begin else None
        waker = self.timelines[woken.cpu].at(woken.time)
        if woken.pid in self.workers or woken.pid == IDLE_PID or waker.interrupts:
            return None
        # A waker that slept meanwhile did not work for the thread, unless a thread of the run woke it.
        earlier = self._waking(woken.pid, woken.time)
        if earlier is None or earlier.time < left or earlier.pid in self.workers:
            return None
        return ASLEEP, f"until woken by {waker.task}"

    def _waking(self, pid: int, before: int) -> _Place | None:
        """The waker's place at the task's last wakeup before `before`."""
        place: _Place | None = None
        for cpu, timeline in self.timelines.items():
            for event in reversed(timeline.events):
                if event.time >= before:
                    continue
                if place and event.time <= place.time:
                    break
                if event.name == "sched_waking" and event.value("pid") == str(pid):
                    place = _Place(event.time, cpu, event.pid)
                    break
        return place

    def _split(self, begin: int, place: _Place, idled: int = 0, refilled: int = 0) -> None:
        """Add the parts of the CPU's time from `begin` until `place.time`. A thread of the run is throttled
        before `idled`, and can be throttled before `refilled`."""
        timeline = self.timelines[place.cpu]
        for start, end, stretch in timeline.between(max(begin, self.sample.begin), place.time):
            kind, name = self._cause(stretch)
            idle = kind in (IDLE_EXIT, DELAY)
            if start < idled and (idle or kind == TASK) or start < refilled and idle:
                kind, name = THROTTLED, ""
            elif start < refilled and kind == TASK:
                kind = OR_QUOTA
            self._add(start, end, place.cpu, kind, name)

    def _wait(self, begin: int, queued: int, place: _Place) -> None:
        """Add the parts of a wait for the CPU. The task is on the run queue from `queued` on at the latest.

        Linux does not let a CPU idle while a thread can run there. If the CPU does, the thread is throttled.
        If another task runs, only the timer of a quota shows that the thread may have been throttled.
        """
        timeline = self.timelines[place.cpu]
        idled = refilled = 0
        if place.pid in self.workers and queued < place.time:
            idled = timeline.idled(queued, place.time)
            if timeline.is_fair(place.pid, place.time):
                refilled = max(self._refills(begin, place.time), default=0)
        self._split(begin, place, idled if idled > queued else 0, refilled)

    def _refills(self, begin: int, end: int) -> Iterator[int]:
        for timeline in self.timelines.values():
            for event in timeline.events:
                if begin < event.time < end and event.value("function") in _REFILLS:
                    yield event.time

    def _cause(self, stretch: CpuStretch) -> tuple[str, str]:
        interruption = stretch.interruption
        if interruption:
            thread = f" in {stretch.task}" if stretch.task.startswith("ksoftirqd/") else ""
            return interruption.kind, interruption.name + thread
        if stretch.pid is None:
            return RESIDUAL, ""
        if stretch.pid in self.workers:
            return EVENT, ""
        if stretch.pid == IDLE_PID:
            return (IDLE_EXIT, "") if stretch.asleep else (DELAY, "")
        return TASK, stretch.task or "''"

    def _add(self, begin: int, end: int, cpu: int, kind: str, name: str = "") -> None:
        if end > begin:
            self.parts.append(Part(begin, end, cpu, kind, name))


def _with_end(trace: CpuTrace, sample: SlowSample) -> CpuTrace:
    """The trace with an event for the end stamp. It shows that the thread ran at the sample's end."""
    stamp = TraceEvent(sample.end, sample.tid, "", "end_stamp", "")
    events = sorted([*trace.events, stamp], key=lambda event: event.time)
    return CpuTrace(events, trace.complete)


def _joined(parts: list[Part]) -> list[Part]:
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if last and (last.end, last.cpu, last.cause) == (part.begin, part.cpu, part.cause):
            joined[-1] = replace(last, end=part.end)
        else:
            joined.append(part)
    return joined


def split(sample: SlowSample, workers: Mapping[int, str], usual: int) -> list[Part]:
    """The parts of a sample, in order. They add up to the sample. `workers` are the threads of the run.

    While a thread of the run runs and nothing interrupts it, the part is the event itself, up to `usual`
    ticks in the sample. No trace event explains the ticks above `usual`. They are the residual, at the end
    of the longest such parts.
    """
    parts = _Walk(sample, workers).parts_in_order()
    excess = sum(part.ticks for part in parts if part.kind == EVENT) - usual
    pieces: list[Part] = []
    longest = sorted((p for p in parts if p.kind == EVENT), key=lambda p: p.ticks, reverse=True)
    taken: dict[Part, int] = {}
    for part in longest:
        if excess > 0:
            taken[part] = min(excess, part.ticks)
            excess -= taken[part]
    for part in parts:
        pieces.extend(_divided(part, taken.get(part, 0)))
    return pieces


def split_gap(gap: SlowSample, workers: Mapping[int, str]) -> list[Part]:
    """The parts of a gap, in order. Nothing in it is the event itself: what no event explains is the residual.
    Its name has the gap's first cause, which the kernel, and the hypervisor, enter before its first event and
    leave after its last."""
    parts = _Walk(gap, workers).parts_in_order()
    first = next((f"with {part.cause}" for part in parts if part.kind not in (EVENT, RESIDUAL)), "")
    return [replace(p, kind=RESIDUAL, name=first) if p.kind == EVENT else p for p in parts]


def _divided(part: Part, residual: int) -> Iterator[Part]:
    border = part.end - residual
    if border > part.begin:
        yield replace(part, end=border)
    if residual:
        yield replace(part, begin=border, kind=RESIDUAL)


@dataclass(frozen=True)
class SplitSample:
    """A slow sample without its trace. `page_faults` counts page faults of the run's threads.
    `overwritten`: the trace lost events of the sample."""

    run: int
    index: int
    begin: int
    ticks: int
    parts: list[Part]
    page_faults: int
    frequency_changes: int
    overwritten: bool


def split_samples(run: TracedRun, usual: float) -> Iterator[SplitSample]:
    """Splits the slow samples of a run, or their gaps. `usual` is the median of the run's samples."""
    for sample in run.samples:
        if not run.of_gaps:
            yield _split_sample(sample, run.workers, split(sample, run.workers, round(usual)))
            continue
        # A limit below the threshold of a gap leaves the longest.
        for begin, end in sample.gaps or [(sample.begin, sample.end)]:
            gap = replace(sample, begin=begin, end=end)
            yield _split_sample(gap, run.workers, split_gap(gap, run.workers))


def _split_sample(sample: SlowSample, workers: Mapping[int, str], parts: list[Part]) -> SplitSample:
    return SplitSample(
        sample.run,
        sample.index,
        sample.begin,
        sample.ticks,
        parts,
        sample.count("page_fault", workers),
        sample.count("cpu_frequency"),
        sample.overwritten,
    )


@dataclass(frozen=True)
class TracedSession:
    """The traced runs of a session. `samples` are the slow samples with a kept trace, in the order of the
    runs. `invalid` are the numbers of the traced runs that the evidence refutes."""

    benchmark: str
    metric: str
    khz: float  # the frequency of the counter
    runs: list[TracedRun]  # without their samples
    samples: list[SplitSample]  # or gaps
    steal_ms: float
    smi: int | None
    # The status and the reason of each run, for "traced" and for "untraced".
    statuses: Mapping[str, list[tuple[str, str]]]
    invalid: frozenset[int]
    overhead: MeanDifference | None  # log of the ratio of medians, traced to untraced runs

    @property
    def noun(self) -> str:
        """What klat splits."""
        return "gap" if any(run.of_gaps for run in self.runs) else "sample"

    @property
    def refuted(self) -> bool:
        """Whether every traced run is invalid."""
        return all(status == "invalid" for status, _ in self.statuses["traced"])


@dataclass(frozen=True)
class Cause:
    """A cause that took `ticks` in total, in `samples` samples. `longest` is its largest share of one
    sample, in ticks."""

    name: str
    ticks: int
    samples: int
    longest: int


def causes(samples: Sequence[SplitSample]) -> list[Cause]:
    """The causes, the largest first. Their ticks add up to the samples."""
    by_name: dict[str, list[int]] = {}
    for split in samples:
        ticks_of_sample: dict[str, int] = {}
        for part in split.parts:
            ticks_of_sample[part.cause] = ticks_of_sample.get(part.cause, 0) + part.ticks
        for name, ticks in ticks_of_sample.items():
            by_name.setdefault(name, []).append(ticks)
    all_causes = [Cause(name, sum(t), len(t), max(t)) for name, t in by_name.items()]
    return sorted(all_causes, key=lambda cause: (-cause.ticks, cause.name))
