"""`klat soak`: one program for a long time, under loads, with fakes in place of the programs."""

import csv
import json
import os
import signal
import subprocess

import fakes
import pytest
from fakes import Klat, is_running, read_number, wait_for, klat


LOADS = ("echo $$ > first.pid; exec sleep 3600", "echo $$ > second.pid; exec sleep 3601")
UNDER_LOADS = ("--load", LOADS[0], "--load", LOADS[1])


def load_pids(klat: Klat) -> list[int]:
    return [read_number(klat.directory / f"{name}.pid") for name in ("first", "second")]


def rows(klat: Klat) -> list[dict[str, str]]:
    with (klat.session() / "runs.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def soaking(klat: Klat, *words: str) -> subprocess.Popen[str]:
    """A soak whose program has been started."""
    started = klat.start("soak", "pipes", "--for", "1h", *words)
    wait_for(klat.starts, "the program")
    return started


def test_all_loads_run_beside_the_program_and_end_with_it(klat):
    started = soaking(klat, *UNDER_LOADS)
    pids = load_pids(klat)
    assert all(pids) and all(map(is_running, pids))
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=fakes.PATIENCE)
    assert not any(map(is_running, pids))
    assert json.loads((klat.session() / "run.json").read_text())["load"] == " + ".join(LOADS)


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_soak_that_is_ended_early_is_recorded_and_summed_up(klat, sent, status):
    started = soaking(klat)
    started.send_signal(sent)
    out, err = started.communicate(timeout=fakes.PATIENCE)
    assert started.returncode == status
    assert out == f"{klat.session().relative_to(klat.directory)}\n"
    assert "ended early: SIG" in err and "one: soaked" in err
    assert [row["metric"] for row in rows(klat)] == ["one", "two"]


def test_a_load_that_ends_ends_the_soak(klat):
    load = "while ! test -e go; do sleep 0.02; done; echo out of memory >&2; exit 7"
    started = soaking(klat, "--load", load)
    (klat.directory / "go").touch()
    _, err = started.communicate(timeout=fakes.PATIENCE)
    assert started.returncode == 1
    assert "ended by itself with status 7: out of memory" in err
    assert rows(klat)


def test_a_load_that_never_starts_leaves_no_session(klat):
    done = klat("soak", "pipes", "--for", "1h", "--load", "exit 7", status=1)
    assert "'exit 7' ended by itself with status 7" in done.stderr
    assert not klat.starts() and not [*(klat.directory / "results").glob("*/*")]


def test_the_program_of_a_killed_soak_records_and_ends_with_the_loads(klat):
    started = soaking(klat, *UNDER_LOADS)
    pids = [*load_pids(klat), int(klat.starts()[0][1])]
    assert "--under-load" in klat.starts()[0]
    started.kill()
    started.communicate(timeout=fakes.PATIENCE)
    wait_for(lambda: not any(map(is_running, pids)), "the program and the loads to end")
    assert rows(klat)


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ((), ["--method=nanosleep", "--mode=periodic"]),
        (("timer.mode=one-shot",), ["--method=nanosleep", "--mode=one-shot"]),
        (("timer.method=signal",), ["--method=signal"]),
    ],
)
def test_timer_soaks_as_cyclictest_does_unless_told_otherwise(klat, typed, given):
    words = [word for option in typed for word in ("--option", option)]
    done = klat("soak", "timer", "--for", "1s", *words, status=0)
    started = [word for word in klat.starts()[0] if word.startswith(("--method", "--mode"))]
    assert sorted(started) == given
    assert ("as cyclictest does" in done.stderr) == (not typed)


def test_the_idle_states_that_cyclictest_disables_are_named(klat):
    words = ("soak", "timer", "--for", "1s")
    assert "cyclictest disables idle states" in klat(*words, status=0).stderr
    done = klat(*words, "--option", "timer.dma-latency=0", status=0)
    assert "idle states" not in done.stderr


def test_the_limit_reaches_the_program_and_gives_the_exit_status(klat):
    words = ("--for", "1s", "--segment", "2min", "--limit", "1us")
    done = klat("soak", "timer", *words, "--share", "0.9", "--stop-above", status=0)
    told = {"--soak=1", "--segment=120", "--limit=1000", "--stop-above"}
    assert told <= set(klat.starts()[0])
    assert "2 within" in done.stderr
    klat("soak", "timer", *words, status=3)  # too few samples for a share of 0.001


@pytest.mark.parametrize(("name", "said"), [("all", "there are: pipes"), ("tymer", "'timer'?")])
def test_what_is_no_program_is_refused(klat, name, said):
    line = klat.refused("soak", name, "--for", "1s")
    assert f"there is no benchmark '{name}'" in line and said in line


@pytest.mark.parametrize(
    ("lasts", "segment"), [("8h", 60), ("20min", 60), ("1199s", 10), ("200s", 10), ("199s", 1)]
)
def test_a_short_soak_has_short_segments(klat, lasts, segment):
    started = klat.start("soak", "pipes", "--for", lasts)
    wait_for(klat.starts, "the program")
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=fakes.PATIENCE)
    assert f"--segment={segment}" in klat.starts()[0]


def test_without_a_segment_that_counts_the_summary_says_why(klat):
    words = ("--for", "1s", "--limit", "1us", "--option", "timer.behave=invalid")
    done = klat("soak", "timer", *words, status=3)
    assert "1 invalid: planted" in done.stderr and "no share to judge" in done.stderr


def test_with_all_threads_each_cpu_has_a_program_and_one_failure_ends_all(klat):
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) == 1:
        pytest.skip("needs two CPUs")
    started = klat.start("soak", "timer", "--for", "1h", "--threads", "all")
    wait_for(lambda: len(klat.starts()) == len(cpus), "the programs")
    starts = klat.starts()
    assert {f"--cpus={cpu}" for cpu in cpus} == {w for s in starts for w in s if "--cpus" in w}
    assert all(f"--together={len(cpus)}" in start for start in starts)
    os.kill(int(starts[0][1]), signal.SIGKILL)
    _, err = started.communicate(timeout=fakes.PATIENCE)
    assert started.returncode == 1 and "timer: was killed by signal 9" in err
    assert not any(is_running(int(start[1])) for start in starts)


@pytest.mark.parametrize(
    ("cpus", "numbers"), [("3", ["3"]), ("5-7,3", ["3", "5", "6", "7"]), ("2,2", ["2"])]
)
def test_all_threads_are_those_of_the_cpus_that_are_named(klat, cpus, numbers):
    klat("soak", "timer", "--for", "1s", "--threads", "all", "--cpus", cpus, status=0)
    starts = klat.starts()
    given = [word for start in starts for word in start if "--cpus" in word]
    assert sorted(given) == [f"--cpus={cpu}" for cpu in numbers]
    together = [word for word in starts[0] if word.startswith("--together")]
    assert together == ([f"--together={len(numbers)}"] if numbers[1:] else [])


REFUSED = {
    "--threads all takes a list": ("timer", "--for", "1s", "--threads", "all", "--cpus", "one"),
    "did you mean 'timer'": ("timr", "--for", "1s"),
    "neither a load nor a command": ("timer", "--for", "1s", "--load", "popluate"),
    "8min": ("timer", "--for", "8"),
    "--limit 100: give a unit": ("timer", "--for", "1s", "--limit", "100"),
    "--stop-above: needs --limit": ("timer", "--for", "1s", "--stop-above"),
    "--explain: needs --stop-above": ("timer", "--for", "1s", "--limit", "9us", "--explain"),
    "choose one by --cpus": ("cv", "--for", "1s", "--profile", "rt", "--load", "none"),
    "--share: needs --limit": ("timer", "--for", "1s", "--share", "0"),
    "named twice": ("timer", "--for", "1s", "--load", "sleep 9", "--load", "sleep 9"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_wrong_is_one_line_before_anything_starts(klat, what):
    assert what in klat.refused("soak", *REFUSED[what])
    assert not (klat.directory / "results").exists()


def test_a_soak_cannot_be_resumed(klat):
    klat("soak", "timer", "--for", "1s", status=0)
    said = klat.refused("run", "--resume", str(klat.session()))
    assert "cannot be resumed; start a new soak" in said


def test_a_profile_gives_the_options(klat):
    klat("soak", "timer", "--for", "1s", "--profile", "rt", "--load", "none", status=0)
    assert {"--dma-latency=0", "--method=nanosleep"} <= set(klat.starts()[0])
    assert json.loads((klat.session() / "run.json").read_text())["profile"] == "rt"
