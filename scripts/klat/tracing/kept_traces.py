"""Reads the traces that a program keeps of its slow samples: see lib/run/slow.c."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field

from klat.base.errors import KlatError, printable, too_many_damaged

# Once the traces of a session have this size, its runs keep no further traces.
MOST_MEGABYTES = 200

_EVENT = re.compile(
    r"\s*(?P<task>.*)-(?P<pid>\d+)\s+(?:\(.*?\)\s+)?\[(?P<cpu>\d+)\]\s+\S+\s+(?P<time>\d+):"
    r" (?P<name>\w+):\s?(?P<text>.*)"
)
_LOST = re.compile(r"CPU:\d+ \[LOST (?:\d+ )?EVENTS\]")
# The fields of the events that klat reads.
_FIELDS = {
    "sched_switch": re.compile(
        r"prev_comm=.* prev_pid=\d+ .*prev_state=\S+ ==> next_comm=.* next_pid=\d+ .*"
    ),
    "sched_waking": re.compile(r"comm=.* pid=\d+ .*"),
    "cpu_idle": re.compile(r"state=\d+ cpu_id=\d+.*"),
}


@dataclass(frozen=True)
class TraceEvent:
    """One event of the kernel's trace. `time` is in ticks. `pid` and `task` name the task that ran at
    this time."""

    time: int
    pid: int
    task: str
    name: str
    text: str

    def value(self, key: str) -> str:
        """The word after the last `key=`, or "". A task's name, which can hold any text, precedes its fields."""
        before, _, after = self.text.rpartition(" ==> ")
        text = before if key.startswith("prev_") else after
        match = re.search(rf".*\b{key}=(\S+)", text)
        return match[1] if match else ""


@dataclass(frozen=True)
class CpuTrace:
    """The events of one CPU in order, from the last overwritten one on. `complete`: no event was overwritten.
    `damaged` are the lines that klat does not understand."""

    events: list[TraceEvent]
    complete: bool
    damaged: tuple[str, ...] = ()


@dataclass
class SlowSample:
    """A sample above the limit, from `begin` to `end` in ticks, with the trace of the run's CPUs. If the sample is
    the longest of several gaps, `gaps` are all gaps above the limit."""

    run: int
    index: int
    begin: int
    end: int
    cpu: int
    tid: int
    cpus: dict[int, CpuTrace] = field(default_factory=dict)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    @property
    def ticks(self) -> int:
        return self.end - self.begin

    @property
    def overwritten(self) -> bool:
        """Whether a CPU's buffer lost events of the sample. Loss of older events is normal."""
        return any(
            not trace.complete and not (trace.events and trace.events[0].time <= self.begin)
            for trace in self.cpus.values()
        )

    def count(self, event: str, pids: Container[int] | None = None) -> int:
        """The number of events during the sample whose names begin with `event`. With `pids`, only events
        of these threads."""
        return sum(
            trace_event.name.startswith(event) and (pids is None or trace_event.pid in pids)
            for trace in self.cpus.values()
            for trace_event in trace.events
            if self.begin <= trace_event.time <= self.end
        )


@dataclass
class TracedRun:
    """The slow samples of one run.

    `checked` counts all samples, `slow` the samples above the limit. `after_copy` counts slow samples
    among the `settle` samples after the copy of a trace: the copy may have delayed them. `of_gaps`: in a
    sample, the thread does not run."""

    metric: str = ""
    of_gaps: bool = False
    settle: int = 0
    checked: int = 0
    slow: int = 0
    after_copy: int = 0
    workers: dict[int, str] = field(default_factory=dict)  # roles by thread id
    samples: list[SlowSample] = field(default_factory=list)


def _is_understood(event: re.Match[str]) -> bool:
    fields = _FIELDS.get(event["name"])
    return fields is None or fields.fullmatch(event["text"]) is not None


def parse_events(lines: Iterable[str]) -> CpuTrace:
    events, complete, damaged = [], True, []
    for line in lines:
        match = _EVENT.match(line)
        if match and _is_understood(match):
            time, pid = int(match["time"]), int(match["pid"])
            events.append(TraceEvent(time, pid, match["task"], match["name"], match["text"]))
        elif _LOST.match(line):
            # The page that was read last can still have events from before the lost ones.
            events.clear()
            complete = False
        else:
            damaged.append(line.rstrip())
    events.sort(key=lambda event: event.time)
    return CpuTrace(events, complete, tuple(damaged))


def parse_run(number: int, lines: Iterable[str]) -> TracedRun:
    """Reads the file of one run. A run that failed leaves a file without a `slow` line. KlatError if a line is
    cut, or if klat does not understand the events: see too_many_damaged()."""
    run = TracedRun()
    source = iter(lines)
    for line in source:
        word, _, rest = line.strip().partition(" ")
        try:
            _take(run, number, word, rest, source)
        except ValueError:
            raise KlatError(
                f"the traces of run {number} are cut at {line.strip()!r}; measure again"
            ) from None
    traces = [trace for sample in run.samples for trace in sample.cpus.values()]
    damaged = [line for trace in traces for line in trace.damaged]
    if too_many_damaged(len(damaged), len(damaged) + sum(len(trace.events) for trace in traces)):
        raise KlatError(
            f"the traces of run {number} cannot be explained: klat does not understand {len(damaged):,} of"
            f" their lines, the first: {printable(damaged[0][:200])}"
        )
    return run


def _take(run: TracedRun, number: int, word: str, rest: str, source: Iterator[str]) -> None:
    """One line of the file, with the trace after a sample's line. ValueError for any other line."""
    if word == "metric":
        run.metric = rest
    elif word == "gaps":
        run.of_gaps = True
    elif word == "gap" and run.samples:
        begin, end = map(int, rest.split())
        run.samples[-1].gaps.append((begin, end))
    elif word == "settle":
        run.settle = int(rest)
    elif word == "worker":
        thread, _, role = rest.split(" ", 2)
        run.workers[int(thread)] = role
    elif word == "slow":
        run.checked, run.slow, run.after_copy = map(int, rest.split())
    elif word == "sample":
        index, begin, end, cpu, tid = map(int, rest.split())
        sample = SlowSample(number, index, begin, end, cpu, tid)
        run.samples.append(sample)
        sample.cpus.update(_cpu_traces(source))
    elif word:
        raise ValueError(word)


def _cpu_traces(source: Iterator[str]) -> Iterator[tuple[int, CpuTrace]]:
    cpu, lines = -1, list[str]()
    for line in source:
        heading = re.fullmatch(r"trace (\d+)|end", line.strip())
        if heading is None:
            lines.append(line)
            continue
        if cpu >= 0:
            yield cpu, parse_events(lines)
        if heading[1] is None:
            return
        cpu, lines = int(heading[1]), []
