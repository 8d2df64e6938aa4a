"""No reader of a record ends in anything but a sentence, whatever lies in its files.

The slow test tries a million inputs, the fast one a few thousand of them. `KIND NUMBER` of a failure names
the input: try_one(Bench(directory), KIND, NUMBER) tries it again.
"""

import contextlib
import hashlib
import io
import multiprocessing
import os
import random
import secrets
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import fuzzed
import pytest
from written_sessions import COLUMNS, SyntheticSession, run_facts

from klat.record import json_files, plan_csv, session_directory
from klat.cli import main
from klat.base.errors import KlatError, SessionError
from klat.export import RUNS
from klat.lab import experiment, guest
from klat.lab.qemu import GuestSize
from klat.record.evidence import other_work
from klat.record.samples import SampleFiles
from klat.record.session import read_session
from klat.compare.sources import Source
from klat.running.alternation import Partner
from klat.record.verification import believed

# Of a million: how many are of each kind.
SHARES = {
    "session.json": 220_000,
    "run.json": 220_000,
    "plan.csv": 150_000,
    "runs.csv": 260_000,
    "samples": 50_000,
    "tar": 100_000,
}
BATCH = 2_000
# One input in so many is also shown, compared or exported by a command.
COMMANDS_EVERY = 100
SECONDS_MAX = 120  # for one input, after which it counts as hanging
COMMANDS = [
    ["summary", "DIR"],
    ["summary", "DIR", "--verify", "--tail"],
    ["summary", "LABEL", "--format", "csv"],
    ["summary", "LABEL", "--format", "json"],
    ["compare", "LABEL", "OTHER"],
    ["compare", "OTHER", "LABEL", "--format", "csv"],
    ["compare", "LABEL", "OTHER", "--format", "json", "--limit", "20us"],
    ["compare", "DIR", "OTHER", "--format", "markdown", "--quantile", "p99.9"],
    ["history", "LABEL"],
    ["plan", "LABEL"],
    ["plan", "DIR", "--format", "json"],
    ["plot", "DIR", "-o", "OUT"],
    ["plot", "LABEL", "-o", "OUT"],
    *(["export", "DIR", "--format", name, "-o", "FILE"] for name in RUNS if name != "parquet"),
    ["export", "LABEL", "OTHER", "--format", "junit", "-o", "FILE"],
    ["export", "LABEL", "OTHER", "--format", "ktap", "-o", "FILE"],
]


class Bench:
    """A label of two sessions and another label, of which one file is changed at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.other = root / "rt"
        self.victim = _session(root / "stock" / "1", "boot-1", "stock")
        _session(root / "stock" / "2", "boot-2", "stock")
        for boot in ("boot-3", "boot-4"):
            _session(self.other / boot, boot, "rt")
        self.path = self.victim.path
        schedule = plan_csv.make([("pipes", ("--bytes=1",)), ("tlbflush", ("--x='a b'",))], 3, 1)
        self.plan = plan_csv.to_csv(schedule)
        self.facts: dict[str, Any] = run_facts() | {"lab": _lab_facts()}
        lines = self.victim.lines()
        self.rows = [dict(zip(COLUMNS, line.split(","))) for line in lines]
        self.samples = self.victim.samples_file("pipes").read_bytes()
        self.pairs = self.victim.histogram_file("timer").read_bytes()
        self._whole = {p: p.read_bytes() for p in self.path.rglob("*") if p.is_file()}
        self.tar = fuzzed.tar_of(
            {
                "session.json": (self.path / "session.json").read_bytes(),
                "runs.csv": self.victim.runs_csv.read_bytes(),
                "samples/pipes.u64": self.samples[:200],
                "environment/" + "long/" * 30 + "name": b"x",
                "lab/programs.log": b"1 1 pipes: failed\n",
            }
        )

    def restore(self, kind: str) -> None:
        """What trying an input of that kind changed."""
        if kind in ("session.json", "runs.csv"):
            self._put(self.path / kind)
        if kind in ("samples", "runs.csv"):
            for name in ("pipes", "tlbflush"):
                self._put(self.victim.samples_file(name))
            self._put(self.victim.histogram_file("timer"))
        for name in ("run.json", "plan.csv"):
            (self.path / name).unlink(missing_ok=True)

    def _put(self, path: Path) -> None:
        path.write_bytes(self._whole[path])


def _session(path: Path, boot: str, label: str) -> SyntheticSession:
    writer = SyntheticSession(path, boot_id=boot, label=label)
    (path / "environment/proc").mkdir()
    (path / "environment/proc/cmdline").write_text("quiet mitigations=off")
    draw = random.Random(f"{boot} {label}")
    for run in range(1, 4):
        held = [52_000 + 26 * draw.randrange(40) for _ in range(30)]
        evidence = "delivered=30;wakeups=30;wake_interrupts=30;net_ticks=52"
        evidence += ";cpu_us=1000;other_busy_us=1;other_busy_error_us=1"
        writer.run(
            {"round_trip": held, "handoff": held[:10]}, run=run, order=run, evidence=evidence
        )
        for responders in (0, 1):
            params = f"responders={responders};iterations=30"
            writer.run({"initiator": held}, benchmark="tlbflush", params=params, run=run)
        writer.run({"lateness": held}, benchmark="timer", params="period=1;soak=60", run=run)
    writer.run(status="skipped", reason="not delivered: x", benchmark="cv", run=1)
    return writer


def _lab_facts() -> dict[str, Any]:
    held = experiment.Experiment(
        identity="x", kernels=("a",), labels=("stock",), releases=("a",), hashes=("a",),
        programs={"pipes": "0"}, mode="counted", why="", shape=GuestSize(),
        sets=(("pipes", ("--cpus=0,0",)),), loads=("none",), append="", boots=2, runs=3, seed=5,
        clock="2026-01-01T00:00:00", time_limit_s=60,
    )  # fmt: skip
    return {"experiment": held.facts(), "boot": 1, "round": 1}


def _read_all(bench: Bench) -> None:
    """What is asked of a session before any figure."""
    recorded = read_session(bench.path)
    files = SampleFiles(recorded)
    session = believed(recorded, files)
    Source.of(session, files, json_files.read_run_json(session.path))
    session.completed_orders()
    other_work([session])


def _session_json(bench: Bench, draw: random.Random) -> None:
    data = fuzzed.changed_json(draw, bench.victim.info)
    (bench.path / "session.json").write_bytes(data)
    _read_all(bench)


def _run_json(bench: Bench, draw: random.Random) -> None:
    (bench.path / "run.json").write_bytes(fuzzed.changed_json(draw, bench.facts))
    for read in (
        lambda: json_files.failures({bench.path: json_files.read_run_json(bench.path)}),
        lambda: Partner.of(bench.path, session_directory.read_facts(bench.path)),
        lambda: experiment.of_session(bench.path),
        lambda: _read_all(bench) if draw.random() < 0.1 else None,
    ):
        with contextlib.suppress(KlatError, SessionError):
            read()


def _plan_csv(bench: Bench, draw: random.Random) -> None:
    data = fuzzed.changed_plan(draw, bench.plan)
    (bench.path / "plan.csv").write_bytes(data)
    facts = {"plan_sha256": hashlib.sha256(data).hexdigest()}
    for run in plan_csv.from_csv(session_directory.read_plan(bench.path, facts)):
        assert run.order > 0 and "\0" not in "".join(run.arguments) and "/" not in run.benchmark


def _runs_csv(bench: Bench, draw: random.Random) -> None:
    bench.victim.runs_csv.write_bytes(fuzzed.changed_rows(draw, bench.rows))
    if draw.random() < 0.5:  # rows that nothing refutes
        bench.victim.samples_file("pipes").unlink()
        bench.victim.samples_file("tlbflush").write_bytes(b"")
        bench.victim.histogram_file("timer").unlink()
    _read_all(bench)


def _samples(bench: Bench, draw: random.Random) -> None:
    if draw.random() < 0.5:
        bench.victim.samples_file("pipes").write_bytes(fuzzed.changed_bytes(draw, bench.samples))
    else:
        bench.victim.histogram_file("timer").write_bytes(fuzzed.changed_bytes(draw, bench.pairs))
    _read_all(bench)


def _tar(bench: Bench, draw: random.Random) -> None:
    into = bench.root / "unpacked"
    into.mkdir()
    try:
        guest.unpack(fuzzed.changed_tar(draw, bench.tar), into)
    finally:
        for held, names, files in os.walk(into):
            assert not any(os.path.islink(os.path.join(held, name)) for name in names + files)
        shutil.rmtree(into)
    assert sorted(p.name for p in bench.root.iterdir()) == ["rt", "stock"]


TRY: dict[str, Callable[[Bench, random.Random], None]] = {
    "session.json": _session_json,
    "run.json": _run_json,
    "plan.csv": _plan_csv,
    "runs.csv": _runs_csv,
    "samples": _samples,
    "tar": _tar,
}


def _command(bench: Bench, draw: random.Random) -> None:
    out = bench.root / "out"
    names = {"DIR": bench.path, "LABEL": bench.path.parent, "OTHER": bench.other}
    names |= {"OUT": out, "FILE": out / "file"}
    words = [str(names.get(word, word)) for word in draw.choice(COMMANDS)]
    out.mkdir()
    said, complaint = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaint):
            main(words)
    finally:
        shutil.rmtree(out)
    assert said.getvalue().replace("\n", "").isprintable(), words
    assert complaint.getvalue().replace("\n", "").isprintable(), words


def try_one(bench: Bench, kind: str, number: int) -> None:
    """What is raised, but for a sentence, is a defect."""
    draw = fuzzed.draw_of(kind, number)
    try:
        with contextlib.suppress(KlatError, SessionError):
            TRY[kind](bench, draw)
        if kind not in ("plan.csv", "tar") and number % COMMANDS_EVERY == 0:
            _command(bench, draw)
    finally:
        bench.restore(kind)


def _end(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS_MAX} s")


@contextlib.contextmanager
def _without_gnuplot() -> Iterator[None]:
    """Figures are made and not drawn, which takes longest and reads nothing of a record."""
    from klat.report.plot import gnuplot

    drawn = gnuplot.draw
    gnuplot.draw = lambda figures, directory: None  # type: ignore[assignment]
    try:
        yield
    finally:
        gnuplot.draw = drawn


def _try_batch(kind: str, numbers: range) -> list[str]:
    """The failures among these inputs."""
    found = []
    before = signal.signal(signal.SIGALRM, _end)
    with tempfile.TemporaryDirectory() as scratch, _without_gnuplot():
        bench = Bench(Path(scratch) / "results")
        for number in numbers:
            signal.alarm(SECONDS_MAX)
            try:
                try_one(bench, kind, number)
            except Exception:
                found.append(f"{kind} {number}: {traceback.format_exc(limit=-4)}")
            finally:
                signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    return found


@pytest.mark.parametrize("kind", SHARES)
def test_a_few_changed_inputs_end_in_a_sentence_at_worst(kind):
    failures = _try_batch(kind, range(SHARES[kind] // 400))
    assert not failures, "\n".join(failures[:3])


def _try_many(first: int, divisor: int) -> None:
    """Inputs from number `first` on: 1,000,000 / `divisor` of them, in parallel."""
    batches = [
        (kind, range(first + start, first + min(start + BATCH, count // divisor)))
        for kind, count in SHARES.items()
        for start in range(0, count // divisor, BATCH)
    ]
    workers = len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        every = [pool.submit(_try_batch, kind, numbers) for kind, numbers in batches]
        failures = [failure for one in every for failure in one.result()]
    assert not failures, f"{len(failures)} failures\n" + "\n".join(failures[:5])


@pytest.mark.slow
def test_many_changed_inputs_end_in_a_sentence_at_worst():
    """Each call tries other inputs. A failure prints the number of its input."""
    _try_many(10**6 * secrets.randbelow(10**6), 25)


@pytest.mark.long
def test_a_million_changed_inputs_end_in_a_sentence_at_worst():
    _try_many(0, 1)
