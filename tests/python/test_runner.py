"""What `klat run` promises, with fake programs."""

import csv
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections import Counter

import fakes
import made_tools
import pytest
from fakes import SLOW, each_once, processes_of, recorded_orders, wait_for, klat

from klat.base import process
from klat.record.session import read_session


def test_every_planned_run_is_recorded_once_in_its_place(klat):
    klat("run", "--runs", "4", "--label", "stock", "--seed", "9", status=0)
    session = klat.session()
    assert recorded_orders(session) == each_once(20)
    planned = list(csv.DictReader(io.StringIO((session / "plan.csv").read_text())))
    started = [(name, order) for name, order, *_ in klat.starts()]
    assert started == [(run["benchmark"], run["order"]) for run in planned]
    rows = {row.order: row for row in read_session(session).rows}
    for run in planned:
        row = rows[int(run["order"])]
        assert (row.benchmark, str(row.run)) == (run["benchmark"], run["run"])
    info = json.loads((session / "session.json").read_text())
    assert (info["label"], info["seed"]) == ("stock", 9)


def test_a_session_is_named_by_label_and_time(klat):
    klat("run", "pipes", "--runs", "1")
    assert klat.session().parent.name == os.uname().release
    assert re.fullmatch(r"\d{8}T\d{6}Z", klat.session().name)


@pytest.mark.parametrize(
    ("words", "added"),
    [
        (("--load", "/bin/sleep 60"), "-sleep"),
        (("--sweep", "pipes.bytes=1,2"), "-pipes.bytes"),
        (("--load", "sleep 60", "--sweep", "pipes.bytes=1,2"), "-sleep-pipes.bytes"),
        (("--load", "sleep 60", "--label", "own"), None),
    ],
)
def test_a_sweep_or_a_load_does_not_join_the_plain_label(klat, words, added):
    assert klat("run", "pipes", "--runs", "1", *words).returncode == 0
    assert klat.session().parent.name == (os.uname().release + added if added else "own")


def test_a_matrix_measures_every_ordered_pair_of_cpus(klat):
    """The fake programs take any --cpus, so a CPU is also paired with itself."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("a pair needs two CPUs")
    assert klat("run", "pipes", "--matrix", "--runs", "2").returncode == 0
    assert klat.session().parent.name == f"{os.uname().release}-matrix"
    pairs = Counter(word for _, _, _, *words in klat.starts() for word in words if "cpus" in word)
    assert pairs == Counter({f"--cpus={a},{b}": 2 for a in cpus for b in cpus})


def test_a_matrix_and_cpus_exclude_each_other(klat):
    said = klat.refused("run", "pipes", "--matrix", "--cpus", "0,1")
    assert "--matrix chooses the CPUs of pipes" in said


def test_two_sessions_begun_together_do_not_meet(klat):
    both = [klat.start("run", "pipes", "--runs", "3", "--label", "x") for _ in range(2)]
    for started in both:
        started.communicate(timeout=fakes.PATIENCE)
        assert started.returncode == 0
    sessions = list((klat.directory / "results/x").iterdir())
    assert len(sessions) == 2
    assert all(recorded_orders(session) == each_once(3) for session in sessions)


def test_the_seed_is_drawn_printed_and_recorded(klat):
    done = klat("run", "pipes", "--runs", "1")
    seed = json.loads((klat.session() / "session.json").read_text())["seed"]
    assert f"seed {seed}" in done.stderr


def test_options_reach_the_programs_they_are_meant_for(klat):
    klat(
        "run", "pipes", "cv", "--runs", "1", "--iterations", "7", "--cpus", "0,0",
        "--policy", "rr:5", "--option", "pipes.bytes=64", "--option", "all.warmup=3",
    )  # fmt: skip
    words = {name: set(arguments) for name, _, _, *arguments in klat.starts()}
    common = {"--iterations=7", "--cpus=0,0", "--policy=rr:5", "--warmup=3", "--quiet"}
    assert common | {"--bytes=64"} <= words["pipes"]
    assert common <= words["cv"]
    assert "--bytes=64" not in words["cv"]


def test_a_warning_is_shown_once_with_its_count(klat):
    done = klat("run", "pipes", "--runs", "12", "--option", "pipes.behave=warn")
    lines = [line for line in done.stderr.splitlines() if "fell back" in line]
    assert lines == ["  12 x pipes: warning: the policy fell back to other"]


def test_programs_with_one_warning_share_its_line(klat):
    options = [f"--option={name}.behave=warn" for name in ("pipes", "cv")]
    done = klat("run", "pipes", "cv", "--runs", "3", "--seed", "1", *options)
    (line,) = [line for line in done.stderr.splitlines() if "fell back" in line]
    assert re.fullmatch("  6 x (pipes, cv|cv, pipes): warning: the policy fell back to other", line)


def test_the_runner_needs_the_standard_library_only(klat):
    loaded = (
        "import sys; sys.path.insert(0, sys.argv.pop(1));"
        "from klat.cli import main; status = main(sys.argv[1:]);"
        "print(sorted({'numpy', 'scipy'} & set(sys.modules))); sys.exit(status)"
    )
    words = (fakes.ROOT / "scripts", "run", "pipes", "--runs", "1")
    done = klat.run(sys.executable, "-c", loaded, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_programs_start_with_signals_as_usual(tmp_path):
    said = tmp_path / "said"
    with process.Signals() as signals, open(said, "wb") as file:
        script = "grep -E '^Sig(Blk|Ign)' /proc/self/status >&2"
        status = process.run(
            ["/bin/sh", "-c", script], signals, seconds=60, stderr=file.fileno(), inherit=()
        )
    assert status == 0
    blocked, ignored = (int(line.split()[1], 16) for line in said.read_text().splitlines())
    ours = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)
    assert not (blocked | ignored) & sum(1 << (number - 1) for number in ours)


@pytest.mark.parametrize(
    ("pipes", "cv", "status"),
    [
        ("disturbed", "ok", 0),
        ("invalid", "ok", 3),
        ("error", "invalid", 1),
        ("skipped", "skipped", 4),
        ("skipped", "ok", 0),
        ("skipped", "invalid", 3),
        ("crash", "ok", 1),
    ],
)
def test_the_exit_status_is_that_of_the_worst_outcome(klat, pipes, cv, status):
    done = klat(
        "run", "pipes", "cv", "--runs", "2",
        "--option", f"pipes.behave={pipes}", "--option", f"cv.behave={cv}",
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    for name, behaviour in (("pipes", pipes), ("cv", cv)):
        if behaviour in ("disturbed", "invalid", "error", "skipped"):
            assert re.search(rf"2 x {behaviour}: {name}: planted, on CPU [01]", done.stderr)
    if pipes == "crash":
        assert "2 x pipes: killed by signal 11" in done.stderr
        assert "2 of 4 runs recorded: 2 ok" in done.stderr


def test_a_program_that_cannot_work_is_started_three_times(klat):
    done = klat("run", "pipes", "--option", "pipes.behave=crash")
    assert len(klat.starts()) == 3
    assert done.returncode == 1 and "failed in the same way" in done.stderr


def test_an_option_that_a_program_refuses_stops_at_once_and_leaves_nothing(klat):
    done = klat("run", "pipes", "--runs", "2", "--option", "pipes.behave=usage")
    assert len(klat.starts()) == 1
    assert done.returncode == 2
    assert "there is no CPU 99" in done.stderr and "--resume" not in done.stderr
    assert list((klat.directory / "results").iterdir()) == []


@pytest.mark.parametrize("command", [("run",), ("ab", "--a", "a", "--b", "b")], ids=" ".join)
def test_options_are_checked_before_the_first_run(klat, command):
    words = ("pipes", "timer", "--option", "timer.bogus=1")
    assert "timer: unknown option '--bogus=1'" in klat.refused(*command, *words)
    assert not (klat.directory / "results").exists()


def test_a_parameter_set_that_cannot_work_stops_a_session_in_which_others_do(klat):
    done = klat("run", "pipes", "--runs", "50", "--sweep", "pipes.behave=ok,fail", "--seed", "4")
    assert Counter("--behave=fail" in words for words in klat.starts())[True] == 3
    assert done.returncode == 1
    assert "/dev/net/tun: No such device" in done.stderr


def test_the_end_has_the_result_then_the_place_then_the_next_commands(klat):
    words = ("run", "pipes", "--seed", "1", "--sweep", "pipes.behave=ok,fail")
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = klat.run(sys.executable, fakes.KLAT, *words, **both)
    parts = ("runs recorded: ", "stopped: ", "results/", "to complete it: ", "next: ")
    assert re.search(".*\n(.*\n)*".join(parts), done.stdout), done.stdout


def test_a_failure_now_and_then_does_not_stop_a_session(klat):
    # Run by run the same parameter set: it fails on every third start.
    program = klat.programs / "pipes/pipes"
    real = program.with_name("real")
    program.rename(real)
    made_tools.script(
        program,
        'case "$*" in *--order=[369]*) echo "pipes: no luck" >&2; exit 1;; esac\n'
        f'exec {shlex.quote(str(real))} "$@"',
    )
    done = klat("run", "pipes", "--runs", "9", status=1)
    assert "3 x pipes: no luck" in done.stderr
    assert "6 of 9 runs recorded" in done.stderr


def test_a_program_that_can_no_longer_be_started_stops_the_session_with_the_way_to_resume(klat):
    started = klat.start("run", "pipes", "--runs", "50", *SLOW)
    wait_for(lambda: len(klat.starts()) >= 3, "the third run")
    (klat.programs / "pipes/pipes").chmod(0o644)
    _, err = started.communicate(timeout=fakes.PATIENCE)
    assert started.returncode == 1
    assert "pipes cannot be started: Permission denied" in err
    assert "--resume" in err
    assert "Traceback" not in err


def test_a_full_disk_stops_the_session_at_once(klat):
    done = klat("run", "pipes", "--option", "pipes.behave=full")
    assert len(klat.starts()) == 1
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("No space left on device")


def test_a_run_without_an_end_is_ended_with_all_it_started_and_counted_as_failed(klat):
    options = ("--option", "pipes.behave=peer+hang", "--time-limit", "1")
    done = klat("run", "pipes", "--runs", "1", *options, status=1)
    assert "ended after 1 s without a result" in done.stderr
    assert not processes_of(klat)


@pytest.mark.parametrize("label", ["a,b;c", "it's", "größe 内核", "-v", "$HOME `id`"])
def test_an_odd_label_is_a_label(klat, label):
    klat("run", "pipes", "--runs", "2", f"--label={label}", status=0)
    assert klat.session().parent.name == label
    assert read_session(klat.session()).label == label


@pytest.mark.parametrize(
    "label", ["", "..", "a/b", ".hidden", "a\x1b[31m", "ü" * 128, "\udcff", "a\u202eb"]
)
def test_a_label_that_cannot_be_a_directory_is_refused_in_one_line(klat, label):
    said = klat.refused("run", "pipes", "--runs", "1", f"--label={label}")
    assert "label" in said and "\x1b" not in said
    assert not (klat.directory / "results").exists()


@pytest.mark.parametrize("output", ["file/below", "/proc/klat"])
def test_an_unwritable_output_is_refused_in_one_line(klat, output):
    (klat.directory / "file").touch()
    assert output in klat.refused("run", "pipes", "--runs", "1", "--output", output)


def test_a_disk_too_full_for_the_plan_is_one_line(klat):
    small = klat.directory / "small"
    small.mkdir()
    script = 'mount -t tmpfs -o size=16k klat "$1" && shift && exec "$@"'
    mounted = ("unshare", "-m", "sh", "-c", script, "sh", small)
    if not shutil.which("unshare") or klat.run(*mounted, "true").returncode:
        pytest.skip("needs to mount a file system of its own")
    done = klat.run(*mounted, sys.executable, fakes.KLAT, "run", "--output", small)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "No space left on device" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as under sudo")
def test_new_files_under_sudo_belong_to_the_caller(klat):
    (klat.directory / "results").mkdir()
    more = {"SUDO_UID": "65534", "SUDO_GID": "65533"}
    klat("run", "pipes", "--runs", "1", "--load", "sleep 60", more=more)
    session = klat.session()
    made = [session.parent, session] + [session / n for n in ("plan.csv", "run.json", "load.log")]
    assert {(p.stat().st_uid, p.stat().st_gid) for p in made} == {(65534, 65533)}
    assert (klat.directory / "results").stat().st_uid == 0


def test_a_setting_that_changes_during_a_session_is_recorded_said_and_a_condition(klat, tmp_path):
    """The load stands in for a daemon: klat reads another value at the end than the first program recorded."""
    klat("run", "pipes", "--runs", "2", "--label", "before", status=0)
    file = "environment/proc/sys/kernel/sched_rt_period_us"
    (before,) = (klat.directory / "results/before").glob("*")
    made_tools.write(before / file, "777777\n")
    daemon = made_tools.script(
        tmp_path / "daemon",
        "cd results/during/*\nuntil test -f runs.csv; do sleep 0.01; done\n"
        f"mkdir -p ${{PWD}}/{file.rpartition('/')[0]}\necho 777777 >{file}\nexec sleep 60",
    )
    words = ("pipes", "--runs", "5", "--label", "during", "--load", str(daemon), *SLOW)
    done = klat("run", *words, status=0)
    (session,) = (klat.directory / "results/during").iterdir()
    said = "the machine changed during the session, so its runs are not of one setting"
    name = "proc/sys/kernel/sched_rt_period_us"
    assert said in done.stderr and f"{name} was 777777 and later" in done.stderr
    # Other tests can be other sessions.
    changed = {key: c for key, *c in json.loads((session / "run.json").read_text())["changed"]}
    assert changed["rt-throttling"][:2] == [name, "777777"]
    assert said in klat("summary", str(session)).stderr
    refused = klat("compare", "results/before", "results/during", "--allow", "load", status=4)
    assert "not comparable  rt-throttling" in refused.stdout
