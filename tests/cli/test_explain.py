"""klat explain on this machine: its tracing instance, its record, and interruptions made on purpose."""

import csv
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import harness
import pytest

from klat.record.plan_csv import PlannedRun
from klat.running import traced_runs
from klat.running.traced_runs import SessionTraces, traced_words
from klat.tracing import instance
from klat.tracing.kept_traces import parse_run
from klat.tracing.sample_split import SplitSample, split, split_samples

KLAT = harness.ROOT / "klat"
LIMIT_SECONDS = 150
RAN = (harness.MEASURED, harness.UNTRUSTED)  # a noisy host can disturb each run


def instances_of_klat(instances: Path) -> list[str]:
    return [entry.name for entry in instances.iterdir() if entry.name.startswith("klat-")]


def explain(*arguments: str | Path) -> harness.Done:
    return harness.command([KLAT, "explain", *arguments], limit=LIMIT_SECONDS)


def test_the_parts_of_kept_samples_add_up_to_what_the_record_holds(tracing, tmp_path):
    keep = tmp_path / "kept"
    done = explain("pipes", "--above", "1us", "--runs", "1", "--iterations", "50", "--keep", keep)
    assert done.status in RAN, done.err
    (kept,) = (keep / "session" / "traces").iterdir()
    rows = list(csv.DictReader((keep / "session" / "runs.csv").open()))
    assert len(rows) == 2
    (row,) = [row for row in rows if "traced=1000" in row["params"].split(";")]
    recorded = (keep / "session" / "samples" / "pipes.u64").read_bytes()
    run = parse_run(0, kept.open())
    assert len(run.samples) + run.after_copy == run.slow == 50
    for sample in run.samples:
        at = 8 * (int(row["first_sample"]) + sample.index)
        assert sample.ticks == int.from_bytes(recorded[at : at + 8], "little")
        assert sum(part.ticks for part in split(sample, run.workers, 10**9)) == sample.ticks


def run(*arguments: str | Path) -> harness.Done:
    return harness.command([KLAT, "run", *arguments], limit=LIMIT_SECONDS)


EXPLAINED_RUN = ("syscall", "--explain-above", "1ns", "--iterations", "50", "--label", "explained")


def explained_session(directory: Path) -> Path:
    (session,) = (directory / "explained").iterdir()
    return session


def test_klat_run_explains_the_slow_samples_of_a_traced_run_for_each_run(tracing, tmp_path):
    done = run(*EXPLAINED_RUN, "--runs", "2", "--output", tmp_path)
    assert done.status in RAN, done.err
    rows = list(csv.DictReader((explained_session(tmp_path) / "runs.csv").open()))
    traced = [("traced=1" in row["params"].split(";"), row["run"]) for row in rows]
    assert sorted(traced) == [(False, "1"), (False, "2"), (True, "1"), (True, "2")]
    text = (explained_session(tmp_path) / "explained.txt").read_text()
    assert "syscall.call: 100 of 100 samples in 2 traced runs took more than 1 ns" in text
    assert "times that of an untraced one" in text
    assert text in done.err


@pytest.mark.parametrize("metric", ["timer.lateness", "noise.gap"])
def test_a_soak_explains_the_sample_that_ended_it(tracing, tmp_path, metric):
    program = metric.partition(".")[0]
    words = ("--for", "60s", "--limit", "400us", "--stop-above", "--explain", "--output", tmp_path)
    spin = ("--option", f"{program}.inject=500000", "--segment", "60s")
    done = harness.command([KLAT, "soak", program, *words, *spin], limit=LIMIT_SECONDS)
    (session,) = (path.parent for path in tmp_path.glob("*/*/runs.csv"))
    (row,) = csv.DictReader((session / "runs.csv").open())
    assert {"soak=60", "traced=400000"} <= set(row["params"].split(";"))
    assert "above_limit=1" in row["evidence"].split(";")
    assert row["status"] != "invalid", row["reason"]
    assert f"{metric}: 1 of " in done.err and "took more than 400 us" in done.err
    assert [path.name for path in (session / "traces").iterdir()] == ["0"]
    assert not instances_of_klat(tracing)


def test_a_resumed_session_explains_its_earlier_runs_too(tracing, tmp_path):
    words = (*EXPLAINED_RUN, "--runs", "4", "--pause", "200", "--output", tmp_path)
    process = subprocess.Popen(
        [KLAT, "run", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 30
        while not list(tmp_path.glob("explained/*/traces/*")) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        process.wait(20)
    finally:
        process.kill()
        process.wait()
    session = explained_session(tmp_path)
    assert "in 4 traced runs" not in (session / "explained.txt").read_text()
    done = run("--resume", session)
    assert "in 4 traced runs" in done.err, done.err


def test_klat_run_refuses_a_program_that_it_cannot_explain_before_it_runs(tracing, tmp_path):
    words = ("messages", "--explain-above", "1us", "--runs", "1", "--output", tmp_path / "none")
    done = run(*words)
    assert done.status == harness.USAGE and "mean of two directions" in done.err
    assert len(done.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_klat_run_measures_a_program_that_it_cannot_explain_beside_others(tracing, tmp_path):
    done = run("messages", *EXPLAINED_RUN, "--runs", "1", "--output", tmp_path)
    assert done.status in RAN, done.err
    assert "not explained: messages: klat explain cannot explain hop" in done.err
    rows = list(csv.DictReader((explained_session(tmp_path) / "runs.csv").open()))
    traced = [(row["benchmark"], "traced=1" in row["params"].split(";")) for row in rows]
    assert sorted(traced) == [("messages", False), ("syscall", False), ("syscall", True)]


@pytest.mark.parametrize(
    "metric, options",
    [
        ("pipes.one_way", ["mode=one-way"]),
        ("cv.round_trip", []),
        ("timer.return", []),
        ("syscall.calls_n", ["batch=10"]),
        ("switch.switch", []),
        ("switch.switch", ["peer=process", "by=futex"]),
        ("semaphore.item", []),
        ("messages.hop", ["mode=call"]),
        ("eventloop.loop", ["pairs=20", "writes=40"]),
        ("transport.round_trip", []),
    ],
)
def test_every_sample_of_a_metric_can_be_checked(tracing, two_cpus, metric, options):
    """A traced run of switch checks the samples of one direction."""
    program, name = metric.split(".")
    words = [word for option in options for word in ("--option", f"{program}.{option}")]
    chosen = ("--metric", name, "--above", "1ns", "--runs", "1", "--iterations", "60")
    done = explain(program, *chosen, "--longest", "0", *words)
    assert done.status in RAN, done.err
    checked = 30 if program == "switch" else 60
    assert f"{metric}: {checked} of {checked} samples" in done.out


@pytest.mark.parametrize(
    "metric, options, why",
    [
        ("cv.handoff", [], "the mean of two directions"),
        ("messages.hop", [], "the mean of two directions"),
        ("semaphore.wake", [], "explain item"),
        ("tlbflush.interruption", [], "explain initiator"),
        ("tlbflush.initiator", ["responders=0", "initiators=2"], "several samples"),
        ("transport.half", [], "explain round_trip"),
        ("pipes.one_way", [], "does not measure it"),
        ("pipes.none", [], "there is no such metric"),
    ],
)
def test_a_metric_that_cannot_be_explained_is_refused_with_the_reason(
    tracing, two_cpus, metric, options, why
):
    program, name = metric.split(".")
    words = [word for option in options for word in ("--option", f"{program}.{option}")]
    done = explain(program, "--metric", name, "--above", "1us", "--runs", "1", *words)
    assert done.status == harness.USAGE
    assert re.search(f"cannot explain {name}: .*{why}", done.err), done.err
    assert not done.out and len(done.err.strip().splitlines()) == 1


def test_a_program_without_such_a_metric_says_why_not_its_first(tracing, two_cpus):
    done = explain("noise", "--cpus", "0,1", "--above", "1us")
    assert done.status == harness.USAGE
    assert "cannot explain gap: each iteration has several samples" in done.err


def test_traces_are_copied_while_real_time_threads_spin_on_every_cpu(tracing, two_cpus):
    done = explain("network", "--cpus", "1,0", "--above", "1us", "--runs", "1")
    if done.status == harness.SKIPPED:
        harness.lacking(done.err)
    assert done.status in RAN and "network.interrupt_to_read: " in done.out, done


@pytest.mark.parametrize(
    "program, options",
    [
        ("network", ()),
        ("pipes", ("--option", "pipes.mode=one-way")),
        ("timer", ("--option", "timer.mode=periodic")),
        ("syscall", ("--option", "syscall.call=write-null")),
    ],
)
def test_the_copy_of_a_trace_does_not_refute_the_run(tracing, two_cpus, tmp_path, program, options):
    """A packet, message or deadline that comes during the copy does not wake the thread. The copy also
    calls read() and write(). The evidence allows for both."""
    keep = tmp_path / "kept"
    done = explain(program, "--above", "50ns", "--runs", "1", "--keep", keep, *options)
    if done.status == harness.SKIPPED:
        harness.lacking(done.err)
    rows = list(csv.DictReader((keep / "session" / "runs.csv").open()))
    (traced, *_) = [row for row in rows if "traced=50" in row["params"].split(";")]
    refuted = traced["status"] == "invalid"
    assert not refuted or not re.search("before|kernel counted", traced["reason"])


def test_traced_and_untraced_runs_take_turns_to_be_first(tracing, tmp_path):
    keep = tmp_path / "kept"
    words = ("syscall", "--above", "1ns", "--runs", "3", "--iterations", "20", "--keep", keep)
    assert explain(*words).status in RAN
    rows = list(csv.DictReader((keep / "session" / "runs.csv").open()))
    traced = ["traced=1" in row["params"].split(";") for row in rows]
    assert traced == [True, False, False, True, True, False]


@pytest.fixture
def trace(tracing: Path) -> Iterator[list[str | Path]]:
    """A command that keeps the traces of its samples in a file. A test adds the name of the file."""
    with instance.tracing_instance() as own:
        instance.switch_events(own, True)
        program = harness.path_of("pipes")
        yield [program, "--trace-above=1", f"--trace-instance={own}", "--trace-output"]


def test_a_run_is_traced_after_a_run_that_was_killed_during_a_copy(trace, tracing, tmp_path):
    with (tracing / f"klat-{os.getpid()}" / "tracing_on").open("r+") as switch:
        switch.write("0")
    kept = tmp_path / "kept"
    kept.touch()
    done = harness.command([*trace, kept, "--iterations=10"])
    assert done.status in RAN, done.err
    (sample, *_) = parse_run(0, kept.open()).samples
    assert any(sample.begin < event.time < sample.end for event in sample.cpus[sample.cpu].events)


def test_a_sample_with_more_events_than_the_buffer_holds_counts_as_overwritten(
    tracing, two_cpus, tmp_path
):
    kept = tmp_path / "kept"
    kept.touch()
    # A pipe holds 64 KiB, so the writer and the reader switch many times in a sample.
    words = [
        "--transport=pipe",
        "--wait=block",
        "--bytes=4000000",
        "--iterations=12",
        "--warmup=4",
        "--trace-above=1",
    ]
    with instance.tracing_instance(buffer_kb=4) as own:
        instance.switch_events(own, True)
        words += [f"--trace-instance={own}", f"--trace-output={kept}"]
        done = harness.command([harness.path_of("transport"), *words])
    assert done.status in RAN, done.err
    samples = parse_run(0, kept.open()).samples
    assert len(samples) > 1
    for sample in samples:
        assert sample.overwritten
        assert split(sample, {}, 10**9)[0].cause == "residual"


def test_a_full_disk_fails_a_traced_run_and_names_the_file(trace):
    done = harness.command([*trace, "/dev/full"])
    assert done.status == 1 and "/dev/full: No space left" in done.err


def test_traces_are_not_written_through_a_symbolic_link(trace, tmp_path):
    (tmp_path / "target").touch()
    (tmp_path / "link").symlink_to("target")
    done = harness.command([*trace, tmp_path / "link"])
    assert done.status == 1 and "symbolic links" in done.err
    assert not (tmp_path / "target").stat().st_size


def test_a_run_keeps_no_trace_after_its_limit_of_bytes(trace, tmp_path):
    kept = tmp_path / "kept"
    kept.touch()
    done = harness.command([*trace, kept, "--trace-bytes=1000", "--iterations=20"])
    assert done.status in RAN, done.err
    run = parse_run(0, kept.open())
    assert (len(run.samples), run.slow) == (1, 20)


def test_the_traced_median_is_without_the_samples_right_after_a_copy(tracing, tmp_path):
    """klat keeps the traces of 100 of the 500 samples. The median leaves out the four samples after each."""
    keep = tmp_path / "kept"
    done = explain("pipes", "--above", "1ns", "--runs", "1", "--keep", keep)
    assert done.status in RAN, done.err
    (kept,) = (keep / "session" / "traces").iterdir()
    found = parse_run(0, kept.open())
    samples = [900 if n % 5 else 100 for n in range(500)]
    assert len(found.samples) == 100
    assert traced_runs._undisturbed_median(samples, found) == 100


def room_of(words: Sequence[str]) -> int:
    (room,) = [word for word in words if word.startswith("--trace-bytes=")]
    return int(room.removeprefix("--trace-bytes="))


def test_the_traces_of_a_resumed_session_count_against_its_limit(tracing, tmp_path, monkeypatch):
    monkeypatch.setattr(traced_runs, "MOST_MEGABYTES", 2)
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "1").write_bytes(bytes(900_000))
    rooms = []
    with SessionTraces() as traces:
        for order in (2, 3):
            run = traces.complete(PlannedRun(order, "pipes", 1, traced_words(1000)), tmp_path)
            rooms.append(room_of(run.arguments))
            (output,) = [word for word in run.arguments if "--trace-output=" in word]
            Path(output.partition("=")[2]).write_bytes(bytes(700_000))
            traces.keep(run, tmp_path)
    assert rooms == [1_100_000, 400_000]


def test_a_session_switches_the_events_off_in_its_untraced_runs(tracing, tmp_path):
    """So the overhead in the report includes the overhead of the events."""
    event = tracing / f"klat-{os.getpid()}" / "events" / "sched" / "sched_switch" / "enable"
    plain = PlannedRun(1, "pipes", 1, ())
    traced = replace(plain, arguments=traced_words(1000))
    states = []
    with SessionTraces() as traces:
        for run in (traced, plain, traced):
            traces.complete(run, tmp_path)
            states.append(event.read_text().strip())
    assert states == ["1", "0", "1"]


def ended_by(number: int, instances: Path) -> subprocess.Popen[bytes]:
    """A klat that made its instance and was then ended by this signal."""
    words = [KLAT, "explain", "pipes", "--above", "1s", "--runs", "10000"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        own = f"klat-{process.pid}"
        harness.until(lambda: "" if own in instances_of_klat(instances) else f"no {own}")
        process.send_signal(number)
        process.wait(20)
    finally:
        process.kill()
        process.wait()
    return process


@pytest.mark.parametrize(
    "option",
    ["irq-info", "context-info", "record-cmd", "overwrite", "latency-format", "fields", "hex"],
)
def test_an_instance_does_not_inherit_the_form_of_a_line(tracing, option):
    options = tracing.parent / "trace_options"
    usual = next((o for o in options.read_text().split() if o.removeprefix("no") == option), "")
    if not usual:
        harness.lacking(f"this kernel has no trace option {option}")
    options.write_text(option if usual.startswith("no") else f"no{option}")
    try:
        with instance.tracing_instance() as own:
            assert usual in (own / "trace_options").read_text().split()
    finally:
        options.write_text(usual)


def test_an_instance_that_another_run_reads_for_a_moment_is_removed(tracing):
    with instance.tracing_instance() as directory:
        reader = (directory / "set_event").open()
        threading.Timer(0.2, reader.close).start()
    assert not directory.is_dir()


def test_a_stopped_klat_removes_its_instance(tracing):
    stopped = ended_by(signal.SIGTERM, tracing)
    assert stopped.returncode == 128 + signal.SIGTERM
    assert f"klat-{stopped.pid}" not in instances_of_klat(tracing)


def test_an_instance_in_use_or_of_another_name_is_not_removed(tracing):
    """The next klat removes an unused instance, even if another process now has the pid in its name."""
    own, other = tracing / f"klat-{os.getpid()}", tracing / f"other-{os.getpid()}"
    own.mkdir()
    other.mkdir()
    try:
        with (own / "tracing_on").open():
            instance.remove_stale(tracing)
            assert own.is_dir()

        def removed() -> str:
            # Each run on this machine opens a file of the instance for a moment.
            instance.remove_stale(tracing)
            return f"{own} is still there" if own.is_dir() else ""

        harness.until(removed)
        assert other.is_dir()
    finally:
        for left in (own, other):
            if left.is_dir():
                left.rmdir()


def test_an_instance_left_by_a_killed_klat_is_removed_by_the_next(tracing, tmp_path):
    own = f"klat-{ended_by(signal.SIGKILL, tracing).pid}"

    def removed() -> str:
        # The program in flight has the instance open until it ends.
        done = explain("pipes", "--above", "1s", "--runs", "1", "--iterations", "10")
        left = instances_of_klat(tracing)
        return "" if done.status in RAN and own not in left else f"{done.err} {left}"

    harness.until(removed)


def test_a_user_who_may_not_trace_is_told_to_be_root(tracing, as_nobody):
    if not harness.path_of("pipes").stat().st_mode & 0o001:
        harness.lacking("this test needs programs that every user may run")
    done = harness.command([*as_nobody, KLAT, "explain", "pipes", "--above", "1us"])
    assert done.status == 4 and "run as root" in done.err


def overlap(sample: SplitSample, log: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The time of the sample in interruptions, and the whole time of these interruptions."""
    end = sample.begin + sample.ticks
    hits = [(b, e) for b, e in log if b < end and e > sample.begin]
    return sum(min(e, end) - max(b, sample.begin) for b, e in hits), sum(e - b for b, e in hits)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize(
    "program, words, cpus, above, cause",
    [
        ("pipes", ("task", "1", "200"), "1,1", "100us", "task interrupter"),
        ("pipes", ("packets", "1", "0"), "1,1", "50us", "softirq NET_RX"),
        ("pipes", ("task", "0", "2000"), "1,0", "500us", "task interrupter"),
        ("noise", ("task", "1", "200"), "1", "100us", "task interrupter"),
        ("noise", ("packets", "1", "0"), "1", "50us", "softirq NET_RX"),
    ],
    ids=[
        "real-time task",
        "softirq burst",
        "held CPU of the other thread",
        "task in a gap",
        "softirq in a gap",
    ],
)
def test_an_interruption_is_named_in_the_samples_that_it_hits(
    tracing, two_cpus, tmp_path, program, words, cpus, above, cause
):
    """Takes the samples, or the gaps, in which the interruption is more than half of the time, and which have
    more than half of the interruption. At least 95 % of them name it, with about its length."""
    keep = tmp_path / "kept"
    with harness.interruptions(*words) as log:
        arguments = ("--cpus", cpus, "--above", above, "--keep", keep)
        runs = ("10", "--iterations", "5000") if program == "pipes" else ("5",)
        done = explain(program, *arguments, "--runs", *runs)
    assert done.status in RAN, done.err
    hit = named = 0
    for kept in (keep / "session" / "traces").iterdir():
        run = parse_run(0, kept.open())
        for sample in split_samples(run, 10**9):
            planted, whole = overlap(sample, log)
            if 2 * planted <= max(sample.ticks, whole):
                continue
            taken = sum(part.ticks for part in sample.parts if part.cause.startswith(cause))
            hit += 1
            named += planted < 2 * taken < 4 * planted
    assert hit >= 20
    assert named >= 0.95 * hit, f"{named} of {hit}"
