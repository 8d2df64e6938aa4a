"""Stopping, killing and resuming `klat run`, with fake programs; the slow test takes the real ones."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import fakes
import pytest
from fakes import SLOW, Klat, each_once, is_running, kill_children, processes_of, recorded_orders
from fakes import stop_within, wait_for, klat
from made_tools import write

from klat.running.changed_machine import changes

from klat.record.session import read_session


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_stopped_session_is_valid_and_its_own_advice_completes_it(klat, number, status):
    words = ("pipes", "cv", "--runs", "20", "--label", "two words", *SLOW)
    started, out, err = stop_within(klat, number, *words)
    assert started.returncode == status
    assert not processes_of(klat)
    session = klat.session()
    assert out == f"{session.relative_to(klat.directory)}\n"
    before = recorded_orders(session)
    assert 2 <= len(before) < 40
    assert not read_session(session).problems
    kept = (session / "runs.csv").read_bytes()

    (advice,) = re.findall(r"to complete it: (.*)", err)
    resumed = klat.run("sh", "-c", advice)
    assert resumed.returncode == 0, resumed.stderr
    assert recorded_orders(session) == each_once(40)
    assert (session / "runs.csv").read_bytes().startswith(kept)


def test_ctrl_c_reaches_a_program_once_and_as_that(klat):
    program = klat.programs / "pipes/pipes"
    heard = klat.directory / "heard"
    program.write_text(
        '#!/bin/sh\ncase "$*" in *--check-for*) exit;; esac\n'
        "trap 'echo INT >> heard; exit 130' INT\ntrap 'echo TERM >> heard' TERM\n"
        'echo pipes 1 $$ >> "$FAKE_LOG"\nwhile :; do sleep 0.05; done\n'
    )
    started = klat.start("run", "pipes", "--runs", "3")
    wait_for(klat.starts, "the first run")
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=fakes.PATIENCE)
    assert started.returncode == 130
    assert heard.read_text() == "INT\n"


def test_a_program_deaf_to_ctrl_c_ends_when_the_user_insists(klat):
    started = klat.start("run", "pipes", "--runs", "3", "--option", "pipes.behave=deaf+hang")
    wait_for(klat.starts, "the first run")
    pid = int(klat.starts()[0][2])
    wait_for(lambda: ignores_sigint(pid), "the program to be deaf")
    while is_running(pid):
        started.send_signal(signal.SIGINT)
        time.sleep(0.1)
    assert started.wait(fakes.PATIENCE) == 130
    assert not is_running(pid)


def ignores_sigint(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(int(ignored.split()[1], 16) & 1 << (signal.SIGINT - 1))


def test_ignored_signals_stay_ignored(klat):
    words = ("run", "pipes", "--runs", "8", *SLOW)
    started = subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, fakes.KLAT, *words],
        cwd=klat.directory,
        env=klat.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(klat.starts, "the first run")
    started.send_signal(signal.SIGHUP)
    assert started.wait(fakes.PATIENCE) == 0


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Klat, Path]:
    """A session that was stopped, for tests that leave it as it is."""
    klat = Klat(tmp_path_factory.mktemp("interrupted"))
    stop_within(klat, signal.SIGINT, "pipes", "--runs", "20", *SLOW)
    return klat, klat.session()


def replaced(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, 1)


def with_fact(**changes: object) -> Callable[[str], str]:
    return lambda text: json.dumps(json.loads(text) | changes)


@pytest.mark.parametrize(
    ("name", "edit", "said"),
    [
        ("plan.csv", replaced("--ms=30", "--ms=31"), "plan.csv"),
        ("plan.csv", None, "plan.csv"),
        ("run.json", None, "run.json"),
        ("run.json", lambda _: "{", "run.json"),
        ("run.json", lambda _: '{"schema": 7}', "run.json"),
        ("run.json", with_fact(pause_ms="soon"), "run.json is damaged"),
        ("run.json", with_fact(boot_id="00000000-0000-4000-8000-000000000000"), "boot"),
    ],
)
def test_resuming_refuses_a_session_that_was_changed(interrupted, name, edit, said):
    klat, session = interrupted
    before = (session / name).read_text()
    (session / name).unlink()
    if edit:
        (session / name).write_text(edit(before))
    try:
        assert said in refused(klat, session)
    finally:
        (session / name).write_text(before)


@pytest.mark.parametrize(
    ("name", "value"),
    [("proc/sys/kernel/sched_rt_runtime_us", "12345"), ("sys/devices/system/cpu/online", "0-8191")],
)
def test_resuming_refuses_a_machine_that_was_set_otherwise(interrupted, name, value):
    klat, session = interrupted
    write(session / "environment" / name, f"{value}\n")
    try:
        assert f"{name} was {value} and is" in refused(klat, session)
    finally:
        shutil.rmtree(session / "environment")


@pytest.mark.parametrize(
    "changed", ["sys/devices/system/cpu/vulnerabilities/l1tf", "proc/sys/net/ipv4/tcp_mtu_probing"]
)
def test_what_changes_by_itself_refuses_no_resumption(tmp_path, changed):
    write(tmp_path / changed, "another text\n")
    write(tmp_path / "live" / changed, "a text\n")
    assert changes(tmp_path, tmp_path / "live") == []


def test_resuming_refuses_a_rebuilt_program(interrupted):
    klat, session = interrupted
    program = klat.programs / "pipes/pipes"
    before = program.read_text()
    program.write_text(before + "\n# changed\n")
    try:
        assert "built" in refused(klat, session)
    finally:
        program.write_text(before)


def test_resuming_refuses_the_record_of_another_plan(klat):
    stop_within(klat, signal.SIGINT, "pipes", "--runs", "20", *SLOW)
    session = klat.session()
    klat("run", "cv", "--runs", "30", "--label", "other")
    (other,) = (klat.directory / "results/other").iterdir()
    shutil.copy(other / "runs.csv", session)
    assert "runs.csv" in refused(klat, session)


def test_resuming_refuses_other_settings_and_other_paths(interrupted):
    klat, session = interrupted
    assert "--runs" in refused(klat, session, "--runs", "5")
    assert "benchmarks" in refused(klat, session, "pipes")
    assert "no such session" in refused(klat, Path("results/none"))
    assert str(session) in refused(klat, session.parent), "a session of the label"


def refused(klat: Klat, session: Path, *words: str) -> str:
    """The one line with which resuming is refused."""
    return klat.refused("run", "--resume", str(session), *words)


def test_resuming_a_whole_session_starts_nothing(klat):
    klat("run", "pipes", "--runs", "3")
    klat("run", "--resume", str(klat.session()), status=0)
    assert len(klat.starts()) == 3


def test_two_runners_do_not_share_a_session(klat):
    first = klat.start("run", "pipes", "--runs", "20", *SLOW)
    wait_for(lambda: len(klat.starts()) >= 2, "the second run")
    second = klat("run", "--resume", str(klat.session()))
    assert second.returncode == 2
    assert "another klat run is at work" in second.stderr
    first.communicate(timeout=fakes.PATIENCE)
    assert first.returncode == 0
    assert recorded_orders(klat.session()) == each_once(20)


def test_a_run_in_flight_when_the_runner_is_killed_is_waited_for_and_not_repeated(klat):
    started = klat.start("run", "pipes", "--runs", "2", "--option", "pipes.ms=1000")
    wait_for(klat.starts, "the first run")
    program = int(klat.starts()[0][2])
    # The kernel ends a stopped program with SIGHUP when its runner ends, so it is stopped afterwards.
    started.kill()
    started.wait(fakes.PATIENCE)
    os.kill(program, signal.SIGSTOP)
    resumed = klat.start("run", "--resume", str(klat.session()))
    assert resumed.stderr and any("in flight" in line for line in resumed.stderr)
    assert len(klat.starts()) == 1
    os.kill(program, signal.SIGCONT)
    resumed.communicate(timeout=fakes.PATIENCE)
    assert resumed.returncode == 0
    assert len(klat.starts()) == 2
    assert recorded_orders(klat.session()) == each_once(2)


def kill_and_resume(
    klat: Klat, points: int, seed: int, begin: list[str], longest: float, statuses: tuple[int, ...]
) -> None:
    """SIGKILL the runner, or it and its program, at random moments; each run is recorded once."""
    draw = random.Random(seed)
    words = ["run", *begin]
    known: Counter[int] = Counter()
    session: Path | None = None
    for _ in range(points):
        started = klat.start(*words)
        try:
            started.wait(draw.uniform(0, longest))
        except subprocess.TimeoutExpired:
            kill_children(started, draw.random() < 0.5)
        started.communicate(timeout=fakes.PATIENCE)
        sessions = list((klat.directory / "results").glob("*/*/plan.csv"))
        if not sessions:
            shutil.rmtree(klat.directory / "results", ignore_errors=True)
            longest *= 1.5  # a busy machine takes longer to begin
            continue
        session = sessions[0].parent
        words = ["run", "--resume", str(session)]
        now = recorded_orders(session)
        assert not known - now, "a completed run was lost"
        known = now
    assert session, "never killed late enough for a plan"
    done = klat(*words, patience=600)  # hundreds of runs can be left
    assert done.returncode in statuses, done.stderr
    planned = (session / "plan.csv").read_text().count("\n") - 1
    assert recorded_orders(session) == each_once(planned)
    assert read_session(session).completed_orders() == set(range(1, planned + 1))


def test_nothing_completed_is_lost_or_repeated_by_kill_9(klat):
    begin = ["pipes", "cv", "--runs", "20", "--option", "all.ms=2"]
    kill_and_resume(klat, 10, 1, begin, longest=0.8, statuses=(0,))


@pytest.mark.slow
def test_nothing_completed_is_lost_or_repeated_by_kill_9_of_the_real_programs(tmp_path):
    klat = Klat(tmp_path)
    klat.programs = fakes.ROOT
    built = [name for name in fakes.CORE if (fakes.ROOT / name / name).is_file()]
    if not built:
        pytest.skip("no program is built")
    begin = [*built, "--runs", "200", "--iterations", "100"]
    kill_and_resume(klat, 100, 2, begin, longest=1.0, statuses=(0, 3))  # 3: noise
