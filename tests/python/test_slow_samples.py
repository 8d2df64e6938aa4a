"""klat explain splits slow samples. The traces are made up, in the kernel's format."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from made_events import HOG, NAMES, WRITER, kept, parts_of, switch, waking

from klat.base.errors import KlatError
from klat.report import slow_samples
from klat.report.renderers import terminal
from klat.stats.means import paired
from klat.tracing import instance
from klat.tracing.kept_traces import SlowSample, TracedRun, parse_events, parse_run
from klat.tracing.sample_split import RESIDUAL, split
from klat.tracing.sample_split import SplitSample, TracedSession, causes, split_samples


def splits_of(run: TracedRun) -> list[SplitSample]:
    return list(split_samples(run, 10**9))


def report(traced: TracedSession, above_ns: int, longest: int) -> Iterator[str]:
    return terminal.lines(slow_samples.document(traced, above_ns, longest), colour=False)


def session_of(run: TracedRun, statuses: Sequence[tuple[str, str]] = ()) -> TracedSession:
    return TracedSession(
        benchmark="pipes",
        metric=run.metric,
        khz=1000,
        runs=[run, run],
        samples=splits_of(run),
        steal_ms=12,
        smi=3,
        statuses={"traced": list(statuses) or [("ok", "")], "untraced": [("ok", "")]},
        invalid=frozenset(),
        overhead=paired([math.log(1.1), math.log(1.1)]),
    )


# What global trace options make of a line: nocontext-info, noirq-info, latency-format, fields, stacktrace.
STRANGE = (
    "cpu_idle: state=4294967295 cpu_id=0",
    "  <idle>-0       [000]     1040: cpu_idle: state=4294967295 cpu_id=0",
    "  <idle>-0         0d..2    4us : cpu_idle: state=4294967295 cpu_id=0",
    "  <idle>-0       [000] d..2. 1040: cpu_idle: state=0xffffffff (4294967295) cpu_id=0x0 (0)",
    " => default_idle_call",
)


@pytest.mark.parametrize("line", STRANGE)
def test_a_trace_that_klat_does_not_understand_is_refused(line):
    whole = [switch(1, 1000 + n, WRITER, 0) for n in range(999)]
    run = kept(whole, 1000, 3000, odd=[line])
    assert len(run.samples[0].cpus[1].events) == len(whole)
    with pytest.raises(
        KlatError, match=r"does not understand 2 of their lines, the first: "
    ) as refused:
        kept(whole, 1000, 3000, odd=[line] * 2)
    assert line.strip() in str(refused.value)


def test_a_task_can_have_the_name_of_a_field():
    text = (
        "sched_switch: prev_comm=prev_state=R prev_pid=7 prev_prio=49 prev_state=S"
        " ==> next_comm=next_pid=x next_pid=8 next_prio=49",
        "sched_waking: comm=pid=1 x pid=8 prio=49 target_cpu=000",
    )
    switched, woken = parse_events(f" a-7 [000] d..2. 1: {line}" for line in text).events
    shown = [switched.value(key) for key in ("prev_state", "prev_pid", "next_pid")]
    assert shown == ["S", "7", "8"]
    assert woken.value("pid") == "8"


def test_time_of_the_thread_beyond_the_usual_is_the_residual():
    run = kept([waking(1, 1010, WRITER, HOG)], 1000, 1500)
    parts = parts_of(run, usual=40)
    assert [(p.cause, p.ticks) for p in parts] == [("the event itself", 40), ("residual", 460)]


def test_what_was_overwritten_is_the_residual():
    run = kept([switch(1, 1400, HOG, WRITER, "S")], 1000, 1500, overwritten=9)
    assert [(part.kind, part.ticks) for part in parts_of(run)][0] == (RESIDUAL, 400)


def test_each_gap_above_the_limit_has_its_causes_and_is_never_the_event_itself():
    """Gaps by an interrupt, a task, and nothing that the trace shows. The last one is the sample."""
    run = kept(
        [
            (1, 1010, WRITER, "local_timer_entry: vector=236"),
            (1, 1015, WRITER, "local_timer_exit: vector=236"),
            switch(1, 1100, WRITER, HOG, "R"),
            switch(1, 1150, HOG, WRITER),
        ],
        2000,
        2300,
        gaps=[(1000, 1020), (1095, 1152), (2000, 2300)],
    )
    assert [[(part.cause, part.ticks) for part in gap.parts] for gap in splits_of(run)] == [
        [
            ("residual with interrupt local_timer", 10),
            ("interrupt local_timer", 5),
            ("residual with interrupt local_timer", 5),
        ],
        [("residual with task a hog: 1-2", 5), ("task a hog: 1-2", 50)]
        + [("residual with task a hog: 1-2", 2)],
        [("residual", 300)],
    ]
    text = "\n".join(report(replace(session_of(run), runs=[run]), 10_000, 1))
    assert "79.6 % of the time of 3 gaps above 10 us is residual" in text
    assert "1 of 50 samples" in text and "without a trace" not in text


def test_a_task_without_a_name_is_quoted(monkeypatch):
    monkeypatch.setitem(NAMES, HOG, "")
    run = kept([switch(1, 1010, WRITER, HOG, "R"), switch(1, 1510, HOG, WRITER)], 1000, 1520)
    assert "is task ''" in report_of(run)


def test_the_causes_of_all_samples_add_up():
    run = kept([switch(1, 1010, WRITER, HOG, "R"), switch(1, 1510, HOG, WRITER)], 1000, 1520)
    found = causes(splits_of(run) * 3)
    assert [(cause.name, cause.ticks, cause.samples, cause.longest) for cause in found] == [
        ("task a hog: 1-2", 1500, 3, 500),
        ("the event itself", 60, 3, 20),
    ]


def test_the_report_names_the_largest_cause_and_folds_short_interruptions():
    ticks = [
        (1, time, HOG, f"local_timer_{end}: vector=236")
        for start in range(1100, 4000, 100)
        for time, end in ((start, "entry"), (start + 5, "exit"))
    ]
    run = kept(
        [
            (1, 1005, WRITER, "page_fault_user: address=0x7f81d6e18000 ip=0x7f81 error_code=0x4"),
            switch(1, 1010, WRITER, HOG, "R"),
            *ticks,
            (1, 4500, HOG, "page_fault_user: address=0x7f81d6e18000 ip=0x7f81 error_code=0x4"),
            switch(1, 5000, HOG, WRITER),
        ],
        1000,
        5010,
    )
    lines = list(report(session_of(run), above_ns=100_000, longest=1))
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 80
    assert "95.9 % of the time of 1 sample above 100 us is task a hog: 1-2" in text
    assert [line.split()[:3] for line in lines if "other causes" in line] == [
        ["10.0", "3,990.0", "1"]
    ]
    assert "sample 7; page faults of its threads: 1" in text
    assert "1.10 times that of an untraced one" in text


def report_of(run: TracedRun, statuses: Sequence[tuple[str, str]] = ()) -> str:
    return " ".join(" ".join(report(session_of(run, statuses), 1000, 1)).split())


def test_a_report_without_slow_samples_suggests_a_lower_limit():
    run = kept([], 1000, 1500)
    run.slow = 0
    found = replace(session_of(run), samples=[])
    assert "a lower limit finds more samples" in "\n".join(report(found, 1000, 1))


def test_stolen_time_and_smis_stand_beside_the_residual():
    text = report_of(kept([switch(1, 1400, HOG, WRITER)], 1000, 1500))
    assert "12 ms stolen by a hypervisor" in text and "system-management interrupts: 3" in text


def test_a_sample_whose_trace_has_lost_events_is_counted_and_marked():
    text = report_of(kept([switch(1, 1400, HOG, WRITER)], 1000, 1500, overwritten=9))
    assert "1 sample with lost events in the trace: the buffer" in text
    assert "sample 7; its trace has lost events" in text


def test_events_before_the_lost_ones_show_nothing_of_the_sample():
    """The kernel does not overwrite the page that was read last."""
    lines = [
        f"  {NAMES[HOG]}-{HOG} [001] d..2. 900: page_fault_user: address=1",
        "CPU:1 [LOST 9 EVENTS]",
        f"  {NAMES[WRITER]}-{WRITER} [001] d..2. 1400: page_fault_user: address=1",
    ]
    sample = SlowSample(0, 7, 1000, 1500, 1, WRITER, {1: parse_events(lines)})
    assert sample.overwritten
    first = split(sample, {WRITER: ""}, 10**9)[0]
    assert (first.kind, first.ticks) == (RESIDUAL, 400)


def test_a_sample_that_began_after_the_lost_events_is_complete():
    event = [(cpu, 990, 0, f"cpu_idle: state=1 cpu_id={cpu}") for cpu in (0, 1)]
    text = report_of(kept([*event, switch(1, 1400, 0, WRITER)], 1000, 1500, overwritten=9))
    assert "lost" not in text


def test_reasons_that_differ_in_numbers_share_a_line():
    text = report_of(
        kept([switch(1, 1400, HOG, WRITER)], 1000, 1500),
        [("invalid", "in 4 of 56 iterations"), ("invalid", "in 5 of 56 iterations")],
    )
    assert "invalid, 2 of 2 traced runs: in 4 of 56 iterations (and similar)" in text
    assert "in 5" not in text


def test_samples_whose_traces_were_not_kept_are_counted_with_the_limits():
    run = kept([switch(1, 1400, HOG, WRITER)], 1000, 1500)
    run.slow = 9  # of each of two runs, with one trace
    text = report_of(run)
    said = "17 samples without a trace: klat keeps 100 traces of each run, and 200 MB"
    assert f"{said} of each session" in text


def test_traced_runs_that_are_all_invalid_refute_the_explanation():
    run = kept([switch(1, 1400, HOG, WRITER)], 1000, 1500)
    invalid = ("invalid", "the writer did not sleep")
    assert session_of(run, [invalid, invalid]).refuted
    assert not session_of(run, [invalid, ("ok", "")]).refuted


def test_samples_of_invalid_runs_are_counted_and_marked():
    run = kept([switch(1, 1400, HOG, WRITER)], 1000, 1500)
    found = replace(session_of(run), invalid=frozenset({0}))
    text = " ".join(" ".join(report(found, 1000, 1)).split())
    assert "1 of the 1 sample explained: of invalid runs" in text and "run 0 (invalid), " in text
    assert "invalid" not in report_of(run)


@pytest.mark.parametrize(
    "line", ["sample 7 1000", "sample 7 1000 11 1 x", "worker 101", "slow 5 ", "end"]
)
def test_a_cut_line_of_the_traces_is_an_error_in_one_line(line):
    with pytest.raises(KlatError, match=f"run 3 are cut at '{line.strip()}'"):
        parse_run(3, ["metric round_trip", line])


def test_a_machine_without_a_clock_of_its_counter_is_refused(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(KlatError, match="riscv64 .* no trace clock") as refused:
        instance.clock()
    assert refused.value.status == 4
