"""Traces of slow samples in the kernel's format, made by hand."""

from collections.abc import Sequence

from klat.tracing.kept_traces import TracedRun, parse_run
from klat.tracing.sample_split import Part, split

WRITER, READER, HOG, STOPPER = 101, 102, 300, 301
SOFTIRQD, KWORKER = 401, 402
NAMES = {0: "<idle>", WRITER: "pipes", READER: "pipes", HOG: "a hog: 1-2"}
NAMES |= {STOPPER: "stopper", SOFTIRQD: "ksoftirqd/1", KWORKER: "kworker/1:0"}
AWAKE = 2**32 - 1
Event = tuple[int, int, int, str]  # cpu, time, pid, text


def switch(
    cpu: int, time: int, before: int, after: int, state: str = "S", priority: int = 49
) -> Event:
    return cpu, time, before, (
        f"sched_switch: prev_comm={NAMES[before]} prev_pid={before} prev_prio=49 prev_state={state}"
        f" ==> next_comm={NAMES[after]} next_pid={after} next_prio={priority}"
    )  # fmt: skip


def waking(cpu: int, time: int, by: int, woken: int) -> Event:
    return cpu, time, by, (
        f"sched_waking: comm={NAMES[woken]} pid={woken} prio=49 target_cpu=000"
    )  # fmt: skip


def idle_ends(cpu: int, time: int) -> Event:
    return cpu, time, 0, f"cpu_idle: state={AWAKE} cpu_id={cpu}"


def kept(
    events: Sequence[Event],
    begin: int,
    end: int,
    cpu: int = 1,
    overwritten: int = 0,
    odd: Sequence[str] = (),
    gaps: Sequence[tuple[int, int]] = (),
) -> TracedRun:
    lines = ["metric round_trip", f"sample 7 {begin} {end} {cpu} {WRITER}"]
    for number in (0, 1):
        of_cpu = [event for event in events if event[0] == number]
        lines += [
            f"trace {number}",
            *([f"CPU:{number} [LOST {overwritten} EVENTS]"] if overwritten else []),
            *(f"  {NAMES[p]:>10}-{p:<7} [{c:03}] d..2. {t}: {text}" for c, t, p, text in of_cpu),
        ]
    lines += [*odd, "end", *(["gaps"] if gaps else []), *(f"gap {b} {e}" for b, e in gaps)]
    lines += [f"worker {WRITER} 1 writer", f"worker {READER} 0 reader", "slow 50 1 0"]
    return parse_run(0, lines)


def parts_of(run: TracedRun, usual: int = 10**9) -> list[Part]:
    """The parts of the only sample. Checks that they add up to the sample without gaps."""
    (sample,) = run.samples
    parts = split(sample, run.workers, usual)
    assert parts[0].begin == sample.begin and parts[-1].end == sample.end
    assert all(a.end == b.begin for a, b in zip(parts, parts[1:]))
    return parts
