"""The background load of `klat run`."""

import ctypes
import fcntl
import json
import os
import resource
import shlex
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import fakes
import pytest
from klat.base.errors import KlatError, worst
from klat.base.process import Process
from klat.compare.conditions import LOAD_PAUSE, OTHER_SESSIONS, is_allowable
from klat.machine import kernel_files
from klat.running.loads import Activity, reset_scheduling
from klat.running.recording import drop_rows_after

from fakes import SLOW, Klat, is_running, read_number, recorded_orders, stop_within, wait_for, klat
from made_tools import script


# A grandchild as well: ending the shell alone would leave it.
LOAD = "echo $$ > load.pid; sleep 3600 & echo $! > load.child; wait"


def load_pids(klat: Klat) -> list[int]:
    wait_for(lambda: read_number(klat.directory / "load.child"), "the load")
    return [read_number(klat.directory / name) for name in ("load.pid", "load.child")]


def test_a_load_runs_beside_the_session_and_ends_with_it(klat):
    started = klat.start("run", "pipes", "--runs", "10", "--load", LOAD, *SLOW)
    pids = load_pids(klat)
    wait_for(klat.starts, "the first run")
    assert all(map(is_running, pids))
    started.communicate(timeout=fakes.PATIENCE)
    assert started.returncode == 0
    assert not any(map(is_running, pids))
    assert json.loads((klat.session() / "run.json").read_text())["load"] == LOAD
    assert all("--under-load" in words for words in klat.starts())
    klat("run", "pipes", "--runs", "1", status=0)
    assert "--under-load" not in klat.starts()[-1]


@pytest.mark.parametrize(
    "words", [("run", "pipes", "--runs", "5", *SLOW), ("soak", "pipes", "--for", "1s")]
)
def test_another_session_beside_a_load_is_named(klat, words):
    """Its programs add to the load that the session names."""
    other = klat.start("run", "pipes", "--runs", "100", "--label", "other", *SLOW)
    wait_for(klat.starts, "the first run")
    try:
        done = klat(*words, "--label", "loaded", "--load", "sleep 60", status=0)
    finally:
        other.terminate()
        other.communicate(timeout=fakes.PATIENCE)
    said = "the load was as named and later with another klat session beside it"
    assert said in " ".join(done.stderr.split())
    (facts,) = klat.directory.glob("results/loaded*/*/run.json")
    assert is_allowable(OTHER_SESSIONS)
    assert OTHER_SESSIONS in {key for key, *_ in json.loads(facts.read_text())["changed"]}


WORK = "while :; do :; done"


@pytest.mark.parametrize(
    ("load", "pauses"),
    [(f"sleep 2; {WORK}", True), (f"sh -c '{WORK}'; :", False), ("sleep 60", False)],
)
def test_a_load_that_begins_late_is_named(klat, load, pauses):
    """The session would name a load that did not work in its first runs."""
    done = klat("run", "pipes", "--runs", "40", "--load", load, *SLOW, status=0)
    said = "the load was at work for a time and later idle for a time"
    assert (said in " ".join(done.stderr.split())) == pauses
    assert is_allowable(LOAD_PAUSE)


@pytest.mark.parametrize(
    ("seconds", "pauses"),
    [
        ("b" * 20, False),
        ("i" * 20, False),
        ("iii" + "b" * 10, True),
        ("b" * 10 + "iii", True),
        ("bbbiiibbb", True),
        ("iii" + "l" * 3 + "b" * 10, True),
        ("i" + "b" * 20, False),
        ("b" + "i" * 20, False),  # the client of a daemon
        ("bbbiii" * 2, False),
    ],
)
def test_a_load_pauses_if_it_begins_late_or_stops_working(seconds, pauses):
    """By seconds in which it is busy, idle, or works a little."""
    ticks = {"b": 100, "i": 0, "l": 5}
    activity = Activity()
    for second in seconds:
        activity.add(1.0, ticks[second])
    assert activity.paused == pauses


@pytest.mark.alone  # the sessions of other tests are other sessions
def test_a_load_that_is_klat_and_a_lock_that_is_not_are_no_other_session(klat):
    load = f"exec {shlex.join(map(str, [sys.executable, fakes.KLAT]))} run pipes --runs 99 --label own {' '.join(SLOW)}"
    descriptor = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        done = klat("run", "pipes", "--runs", "9", "--label", "x", "--load", load, *SLOW, status=0)
    finally:
        os.close(descriptor)
    assert "later with another klat session" not in " ".join(done.stderr.split())


def state_of_load(klat: Klat, inherits: Callable[[], object]) -> tuple[str, str, str, set[int]]:
    """Timer slack, nice value, policy and CPUs of a load when klat `inherits` others."""
    load = "cat /proc/$$/timerslack_ns /proc/$$/stat /proc/$$/status >state; exec sleep 60"
    words = (sys.executable, fakes.KLAT, "run", "pipes", "--runs", "1", "--load", load)
    done = klat.run(*words, preexec_fn=inherits)
    assert done.returncode == 0, done.stderr
    slack, stat, *status = (klat.directory / "state").read_text().splitlines()
    fields = stat.rpartition(")")[2].split()
    (cpus,) = (line.split()[1] for line in status if line.startswith("Cpus_allowed_list:"))
    return slack, fields[16], fields[38], set(kernel_files.cpu_list(cpus))


def test_a_load_inherits_no_scheduling_from_klat(klat):
    is_root = os.geteuid() == 0  # another user may not leave SCHED_IDLE or a nice value

    def inherits() -> None:
        os.setpriority(os.PRIO_PROCESS, 0, 5 if is_root else 0)
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        ctypes.CDLL(None).prctl(29, 1)  # PR_SET_TIMERSLACK
        os.sched_setscheduler(0, os.SCHED_IDLE if is_root else os.SCHED_BATCH, os.sched_param(0))

    ordinary = ("50000", "0", str(os.SCHED_OTHER), os.sched_getaffinity(0))
    assert state_of_load(klat, inherits) == ordinary


@pytest.mark.parametrize("isolated", ["", "0", "0-8191"])
def test_a_load_is_kept_off_isolated_cpus_unless_there_is_no_other(isolated, monkeypatch):
    usable = os.sched_getaffinity(0)
    monkeypatch.setattr(kernel_files, "text", lambda path: isolated)
    process = Process(["/bin/sleep", "60"])
    try:
        reset_scheduling(process.pid)
        expected = usable.difference(kernel_files.cpu_list(isolated)) or usable
        assert os.sched_getaffinity(process.pid) == expected
    finally:
        process.signal_group(signal.SIGKILL)
        process.reap()


@pytest.mark.parametrize(
    ("inherits", "said"),
    [
        (lambda: os.nice(5), "cannot give a load nice 0 and all CPUs: Permission denied"),
        (
            lambda: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)),
            "cannot change the inherited scheduling policy",
        ),
    ],
)
def test_a_load_that_cannot_be_ordinary_is_refused(klat, inherits, said):
    def without_right() -> None:
        inherits()
        ctypes.CDLL(None).prctl(24, 23, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_SYS_NICE
        resource.setrlimit(resource.RLIMIT_NICE, (0, 0))

    words = (sys.executable, fakes.KLAT, "run", "pipes", "--runs", "1", "--load", "sleep 60")
    done = klat.run(*words, preexec_fn=without_right)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert not klat.starts() and not list((klat.directory / "results").iterdir())


def test_a_load_ends_when_the_session_is_stopped_and_returns_when_it_is_resumed(klat):
    stop_within(klat, signal.SIGINT, "pipes", "--runs", "10", "--load", LOAD, *SLOW)
    first = load_pids(klat)
    assert not any(map(is_running, first))
    klat("run", "--resume", str(klat.session()), status=0)
    second = load_pids(klat)
    assert set(second).isdisjoint(first)
    assert not any(map(is_running, second))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "words",
    [
        ("run", "pipes", "--load", "sleep 99"),
        ("ab", "--a", "a", "--b", "b", "--a-setup", "sleep 99", "--b-setup", "sleep 99", "pipes"),
        ("soak", "timer", "--for", "9s", "--load", "sleep 99"),
    ],
    ids=lambda words: words[0],
)
def test_a_command_that_is_stopped_before_its_first_run_leaves_no_session(klat, words, number):
    started = klat.start(*words)
    wait_for(lambda: list(klat.directory.glob("results/*")), "the directory of the label")
    started.send_signal(number)
    _, err = started.communicate(timeout=fakes.PATIENCE)
    assert (started.returncode, err.count("Traceback")) == (128 + number, 0), err
    assert not list(klat.directory.glob("results/*")), err


def test_a_load_does_not_outlive_a_killed_runner(klat):
    started = klat.start("run", "pipes", "--runs", "100", "--load", LOAD, *SLOW)
    pids = load_pids(klat)
    wait_for(klat.starts, "the first run")
    started.kill()
    started.communicate(timeout=fakes.PATIENCE)
    wait_for(lambda: not any(map(is_running, pids)), "the load to end")


def test_a_load_that_ends_early_stops_the_session(klat):
    load = "while ! test -e go; do sleep 0.02; done; echo out of memory >&2; exit 7"
    started = klat.start("run", "pipes", "--runs", "200", "--load", load, *SLOW)
    wait_for(lambda: len(klat.starts()) >= 2, "the second run")
    (klat.directory / "go").touch()
    _, err = started.communicate(timeout=fakes.PATIENCE)
    assert started.returncode == 1
    assert "ended by itself with status 7: out of memory" in err
    assert "--resume" in err
    assert 1 <= len(recorded_orders(klat.session())) < 200


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("exit 7", "ended by itself with status 7"),
        ("kill -STOP $$", "was stopped by a signal"),
        ("(sleep 0.2; kill -CONT $$) & kill -STOP $$; wait; sleep 60", "was stopped by a signal"),
    ],
)
def test_a_run_in_which_the_load_ends_or_stops_is_not_recorded(klat, does, said):
    load = f"while ! test -e go; do sleep 0.02; done; {does}"
    slow = ("--option", "all.ms=5000")
    started = klat.start("run", "pipes", "--runs", "2", "--load", load, *slow)
    wait_for(klat.starts, "the first run")
    (klat.directory / "go").touch()
    _, err = started.communicate(timeout=fakes.PATIENCE)
    assert started.returncode == 1
    assert said in err and "nothing was recorded" not in err
    assert not list(klat.directory.glob("results/*"))


@pytest.mark.parametrize("recorded", [0, 1])
def test_rows_are_dropped_if_the_load_ends_before_klat_sees_the_end_of_the_run(klat, recorded):
    rows = 2 * (recorded + 1)
    load = f"until test $(cat results/*/*/runs.csv | grep -c ,pipes,) = {rows}; do sleep 0.02; done"
    lingers = ("--option", "pipes.behave=linger")  # between its rows and its end
    done = klat("run", "pipes", "--runs", "3", "--load", f"{load}; exit 7", *lingers, status=1)
    assert "ended by itself with status 7" in done.stderr
    assert recorded_orders(klat.session()).total() == recorded


@pytest.mark.parametrize("size", [0, 5])
@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_rows_behind_a_link_are_not_dropped(tmp_path, link, size):
    target = tmp_path / "target"
    target.write_text("a file of another user\n")
    session = tmp_path / "session"
    session.mkdir()
    link(session / "runs.csv", target)
    with suppress(KlatError):
        drop_rows_after(session, size)
    assert target.read_text() == "a file of another user\n"


def test_a_process_that_ended_meanwhile_was_not_stopped():
    ended = Process(["/bin/true"])
    wait_for(ended.ended, "its end")
    assert not ended.stopped()
    assert ended.reap() == 0


def test_a_load_log_of_any_size_is_read_at_its_end(klat):
    load = "truncate -s 1T /proc/self/fd/2; echo >&2; echo out of memory >&2; exit 7"
    done = klat("run", "pipes", "--load", load, status=1)
    assert done.stderr.endswith("ended by itself with status 7: out of memory\n")


def test_a_load_that_cannot_start_stops_the_session_before_its_first_run(klat):
    done = klat("run", "pipes", "--load", "/no/such/load", status=1)
    assert "/no/such/load" in done.stderr
    assert not klat.starts()
    assert list((klat.directory / "results").iterdir()) == []


def loads_by_label(klat: Klat) -> dict[str, str | None]:
    return {
        file.parents[1].name: json.loads(file.read_text())["load"]
        for file in (klat.directory / "results").glob("*/*/run.json")
    }


def test_each_of_several_loads_has_a_session_and_a_label(klat):
    loads = ("--load", "none", "--load", "sleep 60")
    done = klat("run", "pipes", "--runs", "2", "--label", "x", *loads, status=0)
    assert loads_by_label(klat) == {"x": None, "x-sleep": "sleep 60"}
    assert len(klat.starts()) == 4 and "not begun" not in done.stderr
    assert done.stderr.count("next: ") == 1


def test_two_loads_that_would_have_one_label_are_refused(klat):
    said = klat.refused("run", "pipes", "--load", "sleep 60", "--load", "sleep 61")
    assert "two loads would have the label" in said


def test_the_status_is_that_of_the_worst_session(klat):
    ends = f"until grep -q '^pipes 3 ' {shlex.quote(str(klat.log))}; do sleep 0.01; done"
    loads = ("--load", ends, "--load", "none")
    klat("run", "pipes", "--runs", "8", "--label", "x", *loads, *SLOW, status=1)
    assert len(loads_by_label(klat)) == 2


def test_a_stopped_session_names_those_that_were_not_begun(klat):
    words = ("pipes", "--runs", "10", "--label", "x", "--load", "none", "--load", "sleep 60", *SLOW)
    started, _, err = stop_within(klat, signal.SIGINT, *words)
    assert started.returncode == 130 and "not begun: x-sleep" in err
    assert err.count("next: ") == 1
    assert list(loads_by_label(klat)) == ["x"]


def test_a_disk_that_fills_up_ends_the_session_and_begins_no_other(klat):
    program = klat.programs / "pipes/pipes"
    real = program.rename(program.with_name("real"))
    text = 'case "$*" in *--order=3*) set -- "$@" --behave=full;; esac\n'
    script(program, f'{text}exec {shlex.quote(str(real))} "$@"')
    loads = ("--load", "none", "--load", "sleep 60")
    done = klat("run", "pipes", "--runs", "9", "--label", "x", *loads, status=2)
    assert "stopped: " in done.stderr and "No space left on device" in done.stderr
    assert "2 of 9 runs recorded" in done.stderr and "Traceback" not in done.stderr
    assert "not begun: x-sleep" in done.stderr and list(loads_by_label(klat)) == ["x"]


@pytest.mark.parametrize(
    "several, status",
    [((4, 4), 4), ((4, 0), 0), ((0, 3), 3), ((3, 2), 2)]
    + [((2, 1), 1), ((1, 130), 130), ((0, 77), 1)],
)
def test_the_worst_of_several_statuses(several, status):
    assert worst(several) == worst(several[::-1]) == status
