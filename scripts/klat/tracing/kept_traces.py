"""Reads the traces that a program kept of its slow samples: see lib/run/slow.c."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field

_EVENT = re.compile(
    r"\s*(?P<task>.*)-(?P<pid>\d+)\s+(?:\(.*?\)\s+)?\[(?P<cpu>\d+)\]\s+\S+\s+(?P<time>\d+):"
    r" (?P<name>\w+):\s?(?P<text>.*)"
)
_LOST = re.compile(r"CPU:\d+ \[LOST \d+ EVENTS\]")


@dataclass(frozen=True)
class TraceEvent:
    """One event of the kernel's trace. `time` is in ticks; pid and task are those that it interrupted or that
    caused it."""

    time: int
    pid: int
    task: str
    name: str
    text: str

    def value(self, key: str) -> str:
        """The word after `key=`, or nothing."""
        found = re.search(rf"\b{key}=(\S+)", self.text)
        return found[1] if found else ""


@dataclass(frozen=True)
class CpuTrace:
    """The events of one CPU in order. `complete`: none was overwritten."""

    events: list[TraceEvent]
    complete: bool


@dataclass
class SlowSample:
    """A sample above the limit, from `begin` to `end` in ticks, with the trace of the run's CPUs."""

    run: int
    index: int
    begin: int
    end: int
    cpu: int
    tid: int
    cpus: dict[int, CpuTrace] = field(default_factory=dict)

    @property
    def ticks(self) -> int:
        return self.end - self.begin

    def count(self, event: str, pids: Container[int] | None = None) -> int:
        """How many events during the sample have a name that begins so; of the threads `pids`, if given."""
        return sum(
            found.name.startswith(event) and (pids is None or found.pid in pids)
            for trace in self.cpus.values()
            for found in trace.events
            if self.begin <= found.time <= self.end
        )


@dataclass
class TracedRun:
    """What one run kept. `slow` counts its samples above the limit; of these, `after_copy` came so soon after
    the copy of a trace that the copy may have delayed them."""

    metric: str = ""
    slow: int = 0
    after_copy: int = 0
    workers: dict[int, str] = field(default_factory=dict)  # roles by thread id
    samples: list[SlowSample] = field(default_factory=list)


def parse_events(lines: Iterable[str]) -> CpuTrace:
    events, complete = [], True
    for line in lines:
        if found := _EVENT.match(line):
            time, pid = int(found["time"]), int(found["pid"])
            events.append(TraceEvent(time, pid, found["task"], found["name"], found["text"]))
        elif _LOST.match(line):
            complete = False
    events.sort(key=lambda event: event.time)
    return CpuTrace(events, complete)


def parse_run(number: int, lines: Iterable[str]) -> TracedRun:
    """The file that one run wrote. Text after a sample's `end` line is complete or absent: a run that failed
    leaves no `slow` line."""
    found = TracedRun()
    source = iter(lines)
    for line in source:
        word, _, rest = line.strip().partition(" ")
        if word == "metric":
            found.metric = rest
        elif word == "worker":
            thread, _, role = rest.split(" ", 2)
            found.workers[int(thread)] = role
        elif word == "slow":
            found.slow, found.after_copy = map(int, rest.split())
        elif word == "sample":
            index, begin, end, cpu, tid = map(int, rest.split())
            sample = SlowSample(number, index, begin, end, cpu, tid)
            found.samples.append(sample)
            sample.cpus.update(_cpu_traces(source))
    return found


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
