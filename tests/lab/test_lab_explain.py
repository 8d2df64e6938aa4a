"""klat explains samples of Debian's kernels to the instruction."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from labs import pipes_with_write
from test_lab_boots import CLOCK, KERNELS, LABELS, klat, lab_run, session_of

from klat.explain import explanation, windows
from klat.explain.explanation import ExplainedSample
from klat.explain.windows import Sample
from klat.lab import explaining, reading as reading_module
from klat.lab.choosing import Subject, Wanted
from klat.lab.reading import Reading
from klat.record.samples import SampleFiles
from klat.record.session import read_session

pytestmark = pytest.mark.slow

PROGRAMS = ("pipes", "cv", "timer", "switch", "messages", "semaphore")
METRICS = {
    "pipes.round_trip",
    "cv.handoff",
    "cv.round_trip",
    "timer.lateness",
    "switch.switch",
    "messages.hop",
    "semaphore.wake",
}
RUNS, ITERATIONS = 3, 400
WORDS = ("--mode", "counted", "--boots", "1", "--seed", "5", *CLOCK)
RECORDED = (*WORDS, "--runs", str(RUNS), "--iterations", str(ITERATIONS))


def explain(cwd: Path, *words: str | Path) -> str:
    done = klat("lab", "explain", *words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def median(session: Path, benchmark: str, metric: str) -> int:
    """The median of all samples of a session. Between two values, the lower one."""
    record = read_session(session)
    rows = [r for r in record.rows if (r.benchmark, r.metric) == (benchmark, metric) and r.n]
    every = np.sort(np.concatenate([SampleFiles(record).read(row) for row in rows]))
    return int(every[(len(every) - 1) // 2])


def explained_samples(session: Path) -> dict[str, ExplainedSample]:
    """The typical sample of each metric. It has the median's length, and the functions add up to it."""
    found, failures = explaining.explain_every(session, Wanted("", ""), print)
    assert not failures
    samples = {each.metric: each.sides[0].sample for each in found}
    for metric, sample in samples.items():
        assert not sample.residual and not sample.doubt, metric
        assert sample.ticks // sample.windows == median(session, *metric.split("."))
        assert sum(sample.functions.own.values()) + sample.idle == sample.ticks
    return samples


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("explained")
    lab_run(*KERNELS, *RECORDED, "--output", where, *PROGRAMS, cwd=where)
    return where


@pytest.fixture(scope="module")
def readings(recorded: Path) -> Iterator[list[tuple[Subject, Reading]]]:
    """Each metric of both kernels, with the trace of its boot."""
    found: list[tuple[Subject, Reading]] = []
    original = reading_module.explained

    def explained(subject: Subject, reading: Reading) -> object:
        found.append((subject, reading))
        return original(subject, reading)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading_module, "explained", explained)
        for label in LABELS:
            explaining.explain_every(session_of(recorded, label), Wanted("", ""), print)
        yield found


def residuals(subject: Subject, reading: Reading) -> list[int]:
    """The explanation of each sample of each run. Samples of the same length and path share one."""
    stamps, runs = reading_module.find(subject, reading)
    known: dict[tuple[int, ...], int] = {}

    def residual(sample: Sample) -> int:
        paths = (path for window in sample.windows for path in stamps.paths(window))
        key = (sample.ticks, *paths)
        if key not in known:
            contents = windows.contents(stamps, sample, subject.bounds.from_deadline)
            known[key] = explanation.explain(contents, reading.names, sample.ticks).residual
        return known[key]

    for run, number in zip(runs, subject.chosen.wanted_runs):
        means = [sample.ticks // len(sample.windows) for sample in run]
        assert means == subject.chosen.runs[number].samples.tolist()
    return [residual(sample) for run in runs for sample in run]


def test_the_functions_of_every_sample_add_up_to_it(readings):
    by_metric = {
        (subject.chosen.session.label, f"{subject.wanted.benchmark}.{subject.wanted.metric}"): (
            residuals(subject, reading)
        )
        for subject, reading in readings
    }
    assert {metric for _, metric in by_metric} >= METRICS
    assert {key: any(found) for key, found in by_metric.items()} == dict.fromkeys(by_metric, False)
    assert {len(found) for found in by_metric.values()} == {RUNS * ITERATIONS}
    assert sum(map(len, by_metric.values())) >= 10_000


def test_a_deadline_lies_in_the_idle_time_that_its_interrupt_ends(readings):
    for subject, reading in readings:
        if not subject.bounds.from_deadline:
            continue
        stamps, runs = reading_module.find(subject, reading)
        early = [not windows.contents(stamps, s, True)[0].idle for run in runs for s in run]
        # In others, the CPU was not idle at the deadline.
        assert sum(early) <= len(early) / 100


def test_two_replays_give_the_same_explanation_of_the_record(recorded):
    sessions = [session_of(recorded, label) for label in LABELS]
    words = ("--metric", "cv.handoff")
    first, second = (explain(recorded, *sessions, *words, "--format", "json") for _ in range(2))
    assert first == second
    for label, side in zip(LABELS, json.loads(first)["sides"]):
        total = sum(function["own"] for function in side["functions"]) + side["idle"]
        assert total == side["sample"]
        assert total // side["windows"] == median(session_of(recorded, label), "cv", "handoff")


def test_a_boot_of_another_seed_than_the_record_explains_nothing(delayed, tmp_path):
    session = tmp_path / "label" / "session"
    shutil.copytree(delayed[0], session)
    facts = json.loads((session / "run.json").read_text())
    facts["lab"]["experiment"]["seed"] += 1
    (session / "run.json").write_text(json.dumps(facts))
    done = klat("lab", "explain", session, "--metric", "pipes.round_trip", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert f"{session}: 2 repeated boots gave other samples of " in done.stderr.splitlines()[-1]


# A loop before each write, with two instructions for each turn. It changes only a register that a callee
# may change. The function has its own page, so its length does not move other functions.
DELAYED_WRITE = """
	.section .text.delayed,"ax",@progbits
	.balign 4096
	.globl __wrap_write
	.type __wrap_write, @function
__wrap_write:
	mov ${turns}, %ecx
1:	dec %ecx
	jnz 1b
	jmp __real_write
	.size __wrap_write, . - __wrap_write
	.section .note.GNU-stack,"",@progbits
"""


@pytest.fixture(scope="module")
def delayed(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Sessions of pipes with 1 and 65 turns of a loop before each write."""
    where = tmp_path_factory.mktemp("delayed")
    sessions = []
    for turns in (1, 65):
        source = where / f"delayed-{turns}.S"
        source.write_text(DELAYED_WRITE.replace("{turns}", str(turns)))
        programs = pipes_with_write(source, where / f"programs-{turns}", "-g")
        output = where / str(turns)
        kernel = ("--kernel", "debian:stock")
        words = (*kernel, *RECORDED, "--output", output, "pipes")
        lab_run(*words, cwd=where, KLAT_PROGRAMS=str(programs))
        sessions.append(session_of(output, LABELS[0]))
    return sessions


def test_a_loop_of_known_length_is_found_to_the_instruction(delayed):
    """In about half of the samples of each session, enqueue_top_rt_rq takes 24 instructions more. So the
    medians can have different paths. At 10 %, both sessions have the shorter one."""
    options = ("--metric", "pipes.round_trip", "--quantile", "10", "--format", "json")
    found = json.loads(explain(delayed[0], *delayed, *options))
    differences = {row["function"]: row for row in found["differences"] if row["difference"]}
    assert list(differences) == ["__wrap_write"]
    planted = differences["__wrap_write"]
    # A round trip has two writes.
    assert (planted["base"]["own"], planted["new"]["own"]) == (2 * 4, 2 * (4 + 2 * 64))
    assert (planted["base"]["calls"], planted["new"]["calls"]) == (2, 2)
    base, new = (side["sample"] for side in found["sides"])
    assert new - base == 2 * 2 * 64


def test_a_sample_of_millions_of_instructions_is_explained_among_all_metrics(tmp_path):
    """The first repetition writes no path of this length, so a second one does."""
    longer = ("--iterations", "25", "--option", "eventloop.writes=3000")
    words = (*WORDS, "--runs", "1", *longer, "--output", tmp_path)
    lab_run("--kernel", "debian:stock", *words, "pipes", "eventloop", cwd=tmp_path)
    session = session_of(tmp_path, LABELS[0])
    found, _ = explaining.explain_every(session, Wanted("", ""), print)
    (loop,) = [each for each in found if each.metric == "eventloop.loop"]
    assert loop.sides[0].sample.ticks == median(session, "eventloop", "loop") > 10_000_000
    assert loop.valid


def test_a_quantile_is_explained_of_samples_in_which_an_instruction_starts_twice(tmp_path):
    """After a page fault. klat sees it only in paths that the trace has: the first repetition has too few of them."""
    words = (*WORDS, "--runs", "1", "--iterations", "100", "--output", tmp_path)
    lab_run("--kernel", "debian:stock", *words, "fault", cwd=tmp_path)
    session = session_of(tmp_path, LABELS[0])
    options = ("--metric", "fault.fault", "--quantile", "99", "--format", "json")
    (side,) = json.loads(explain(tmp_path, session, *options))["sides"]
    record = read_session(session)
    samples = sorted(SampleFiles(record).read(next(row for row in record.rows if row.n)).tolist())
    assert side["sample"] == samples[98] > 1.2 * samples[50]


def test_two_metrics_that_begin_at_one_stamp_are_explained_by_one_repetition(tmp_path):
    words = (*WORDS, "--runs", "1", "--output", tmp_path)
    lab_run("--kernel", "debian:stock", *words, "wakeup", cwd=tmp_path)
    said: list[str] = []
    session = session_of(tmp_path, LABELS[0])
    found, errors = explaining.explain_every(session, Wanted("", ""), said.append)
    assert not errors and len(said) == 1, (errors, said)
    samples = {each.metric: each.sides[0].sample for each in found if each.valid}
    assert samples.keys() == {"wakeup.wake", "wakeup.request"}
    assert samples["wakeup.request"].ticks == median(session, "wakeup", "request")
