"""What a CPU did from one event of the trace to the next."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

from klat.tracing.kept_traces import CpuTrace, TraceEvent

IDLE_PID = 0
_FIRST_FAIR = 100  # the kernel's priorities below are real-time priorities
_AWAKE = str(2**32 - 1)  # the state in a cpu_idle event when the CPU leaves its idle state
_ENTRIES = ("_entry", "_exit")


@dataclass(frozen=True)
class Interrupt:
    """An interrupt or a softirq that interrupts a task. `kind` is "interrupt" or "softirq"."""

    kind: str
    name: str
    begin: int


@dataclass(frozen=True)
class CpuStretch:
    """The CPU's state from `begin` until the next stretch. `pid` is None if the trace does not show which
    task runs. The innermost interrupt is last. `asleep`: the CPU is in an idle state."""

    begin: int
    pid: int | None
    task: str
    interrupts: tuple[Interrupt, ...] = ()
    asleep: bool = False
    guessed: bool = False  # the trace has no event at `begin`: see _State.advance()

    @property
    def interruption(self) -> Interrupt | None:
        """The interrupt or softirq that runs. The timers that it expires belong to it. None if the task
        itself runs."""
        outermost = self.interrupts[-1] if self.interrupts else None
        for interrupt in reversed(self.interrupts[:-1]):
            if outermost and interrupt.kind == outermost.kind:
                outermost = interrupt
            else:
                break
        return outermost


class CpuTimeline:
    """The stretches of one CPU. The first begins before all events."""

    def __init__(self, trace: CpuTrace) -> None:
        self.events = trace.events
        self.stretches = list(_stretches(trace))
        self._begins = [stretch.begin for stretch in self.stretches]

    def between(self, begin: int, end: int) -> Iterator[tuple[int, int, CpuStretch]]:
        """The parts of the stretches within [begin, end), in order."""
        at = max(0, bisect_right(self._begins, begin) - 1)
        while begin < end:
            next_begin = self._begins[at + 1] if at + 1 < len(self._begins) else end
            until = min(end, max(begin, next_begin))
            if until > begin:
                yield begin, until, self.stretches[at]
            begin = until
            at += 1

    def at(self, time: int) -> CpuStretch:
        return self.stretches[max(0, bisect_right(self._begins, time) - 1)]

    def stint(self, pid: int, time: int) -> CpuStretch | None:
        """The first stretch of the task's stint on this CPU. A stint is the time from one task switch to
        the next; this one contains `time` or ends there. None if the task did not run then, or if the
        stint began before the trace."""
        at = bisect_right(self._begins, time) - 1
        if at > 0 and self.stretches[at].pid != pid:
            at -= 1
        if self.stretches[at].pid != pid:
            return None
        while at > 0 and self.stretches[at - 1].pid == pid:
            at -= 1
        return self.stretches[at] if at > 0 else None

    def left(self, pid: int, before: int) -> tuple[int, str] | None:
        """The last time before `before` at which the task stopped running on this CPU, and its state then:
        "" if the trace lacks this switch. None if the trace does not show such a time."""
        for at in range(bisect_right(self._begins, before) - 1, 0, -1):
            stretch = self.stretches[at]
            if stretch.begin < before and stretch.pid != pid and self.stretches[at - 1].pid == pid:
                event = self._switch_at(stretch.begin)
                left = event if event and event.value("prev_pid") == str(pid) else None
                return stretch.begin, left.value("prev_state") if left else ""
        return None

    def is_fair(self, pid: int, time: int) -> bool:
        """Whether a quota applies to the task that the CPU switches to at `time`."""
        event = self._switch_at(time)
        priority = event.value("next_prio") if event and event.value("next_pid") == str(pid) else ""
        return priority.isdecimal() and int(priority) >= _FIRST_FAIR

    def idled(self, begin: int, end: int) -> int:
        """The end of the last idle state before `end`, if the CPU entered an idle state at `begin` or later.
        Otherwise `begin`."""
        entered, last, asleep = False, begin, self.at(begin - 1).asleep
        for _, until, stretch in self.between(begin, end):
            entered = entered or (stretch.asleep and not asleep)
            asleep = stretch.asleep
            last = until if asleep else last
        return last if entered else begin

    def _switch_at(self, time: int) -> TraceEvent | None:
        at = bisect_right(self.events, time, key=lambda event: event.time) - 1
        event = self.events[at] if at >= 0 else None
        return event if event and (event.time, event.name) == (time, "sched_switch") else None


def _stretches(trace: CpuTrace) -> Iterator[CpuStretch]:
    state = _State(trace)
    yield state.stretch(state.last)
    for event in trace.events:
        yield from state.advance(event)


class _State:
    """The CPU's state while klat reads its events."""

    def __init__(self, trace: CpuTrace) -> None:
        first = trace.events[0] if trace.events else None
        # If no event was overwritten, the first event's task ran from the start.
        self.pid = first.pid if first and trace.complete else None
        self.task = first.task if first else ""
        self.interrupts: tuple[Interrupt, ...] = ()
        self.asleep = self.pid == IDLE_PID
        self.works: dict[int, str] = {}  # what kworkers execute
        self.last = -(2**63)

    def label(self) -> str:
        work = self.works.get(self.pid or 0)
        return f"{self.task} ({work})" if work else self.task

    def stretch(self, begin: int) -> CpuStretch:
        return CpuStretch(begin, self.pid, self.label(), self.interrupts, self.asleep)

    def advance(self, event: TraceEvent) -> Iterator[CpuStretch]:
        """The stretches that this event begins."""
        if event.pid != self.pid:
            # The kernel can lose events of its idle task. The trace then lacks the switch to this task: it
            # came at an unknown time after the last event.
            known = self.pid is not None
            self._switch(event.pid, event.task)
            if known:
                yield replace(self.stretch(self.last), guessed=True)
        self._apply(event)
        self.last = event.time
        yield self.stretch(event.time)

    def _switch(self, pid: int, task: str) -> None:
        self.pid, self.task, self.interrupts, self.asleep = pid, task, (), pid == IDLE_PID

    def _apply(self, event: TraceEvent) -> None:
        if event.name == "sched_switch":
            self._switch(int(event.value("next_pid")), _next_task(event))
        elif event.name == "cpu_idle":
            self.asleep = event.value("state") != _AWAKE
        elif event.name == "workqueue_execute_start":
            self.works[event.pid] = event.text.rpartition("function ")[2].strip()
        elif event.name == "workqueue_execute_end":
            self.works.pop(event.pid, None)
        elif event.name.endswith(_ENTRIES):
            kind, name = _interrupt(event)
            if event.name.endswith("_entry"):
                self.interrupts = (*self.interrupts, Interrupt(kind, name, event.time))
            else:
                self.interrupts = self.interrupts[:-1]


def _next_task(event: TraceEvent) -> str:
    return event.text.partition(" next_comm=")[2].rpartition(" next_pid=")[0]


def _interrupt(event: TraceEvent) -> tuple[str, str]:
    """The kind and the name of the interrupt or softirq that begins or ends here."""
    base = event.name.rpartition("_")[0]
    if base == "softirq":
        return "softirq", event.text.partition("action=")[2].rstrip("] ") or event.value("vec")
    if base == "irq_handler":
        return "interrupt", event.value("name") or f"irq {event.value('irq')}"
    if base == "timer_expire":
        return "softirq", event.value("function")
    if base == "hrtimer_expire":
        return "interrupt", event.value("function")
    if base == "ipi":
        return "interrupt", event.text.strip("() ")
    return "interrupt", base
