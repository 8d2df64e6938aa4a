"""What `klat run` promises, with fake programs; the slow test at the end takes the real ones."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import pty
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import fakes
import pytest
from fakes import Klat, is_running, wait_for

from klat.base import process
from klat.running import progress
from klat.record.session import read_session


SLOW = ("--option", "all.ms=30")


@pytest.fixture
def klat(tmp_path: Path) -> Klat:
    return Klat(tmp_path)


def recorded_orders(session: Path) -> Counter[int]:
    """How often each run is in runs.csv whole, told without klat's own reader."""
    try:
        text = (session / "runs.csv").read_text()
    except FileNotFoundError:
        return Counter()
    rows: Counter[tuple[int, str, int]] = Counter()
    lines = text.splitlines(keepends=True)
    names = next(csv.reader(lines[:1]), [])
    for line in lines[1:]:
        body, _, check = line.rpartition(",")
        if hashlib.sha256(body.encode()).hexdigest()[:16] + "\n" != check:
            continue
        row = dict(zip(names, next(csv.reader([line]))))
        rows[int(row["order"]), row["start_ns"], int(row["rows"])] += 1
    return Counter(order for (order, _, expected), n in rows.items() if n == expected)


def each_once(count: int) -> Counter[int]:
    return Counter(range(1, count + 1))


# A session ----------------------------------------------------------------------------------------


def test_every_planned_run_is_recorded_once_in_its_place(klat: Klat) -> None:
    done = klat("run", "--runs", "4", "--label", "stock", "--seed", "9")
    assert done.returncode == 0, done.stderr
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


def test_standard_output_is_the_session_and_nothing_else(klat: Klat) -> None:
    done = klat("run", "pipes", "--runs", "3", "--option", "pipes.behave=talk")
    assert done.stdout == f"{klat.session().relative_to(klat.directory)}\n"


def test_a_session_is_named_by_label_and_time(klat: Klat) -> None:
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
def test_a_sweep_or_a_load_does_not_join_the_plain_label(
    klat: Klat, words: tuple[str, ...], added: str | None
) -> None:
    assert klat("run", "pipes", "--runs", "1", *words).returncode == 0
    assert klat.session().parent.name == (os.uname().release + added if added else "own")


def test_two_sessions_begun_together_do_not_meet(klat: Klat) -> None:
    both = [klat.start("run", "pipes", "--runs", "3", "--label", "x") for _ in range(2)]
    for started in both:
        started.communicate(timeout=fakes.PATIENCE)
        assert started.returncode == 0
    sessions = list((klat.directory / "results/x").iterdir())
    assert len(sessions) == 2
    assert all(recorded_orders(session) == each_once(3) for session in sessions)


def test_the_seed_is_drawn_printed_and_recorded(klat: Klat) -> None:
    done = klat("run", "pipes", "--runs", "1")
    seed = json.loads((klat.session() / "session.json").read_text())["seed"]
    assert f"seed {seed}" in done.stderr


def test_the_same_seed_gives_the_same_plan_file(klat: Klat) -> None:
    for label in ("one", "two"):
        klat("run", "cv", "pipes", "--runs", "9", "--seed", "1", "--label", label)
    one, two = (klat.directory / "results").glob("*/*/plan.csv")
    assert one.read_bytes() == two.read_bytes()


def test_options_reach_the_programs_they_are_meant_for(klat: Klat) -> None:
    klat(
        "run", "pipes", "cv", "--runs", "1", "--iterations", "7", "--cpus", "0,0",
        "--policy", "rr:5", "--option", "pipes.bytes=64", "--option", "all.warmup=3",
    )  # fmt: skip
    words = {name: set(arguments) for name, _, _, *arguments in klat.starts()}
    common = {"--iterations=7", "--cpus=0,0", "--policy=rr:5", "--warmup=3", "--quiet"}
    assert common | {"--bytes=64"} <= words["pipes"]
    assert common <= words["cv"]
    assert "--bytes=64" not in words["cv"]


def test_a_sweep_runs_each_value_as_often(klat: Klat) -> None:
    klat("run", "tlbflush", "pipes", "--runs", "3", "--sweep", "tlbflush.responders=0..2")
    rows = {(r.order, r.params) for r in read_session(klat.session()).rows}
    counts = Counter(params for _, params in rows)
    assert counts == {"": 3, "responders=0": 3, "responders=1": 3, "responders=2": 3}


def test_a_warning_is_shown_once_with_its_count(klat: Klat) -> None:
    done = klat("run", "pipes", "--runs", "12", "--option", "pipes.behave=warn")
    lines = [line for line in done.stderr.splitlines() if "fell back" in line]
    assert lines == ["  12 x pipes: warning: the policy fell back to other"]


def test_the_runner_needs_the_standard_library_only(klat: Klat) -> None:
    loaded = (
        "import sys; sys.path.insert(0, sys.argv.pop(1));"
        "from klat.cli import main; status = main(sys.argv[1:]);"
        "print(sorted({'numpy', 'scipy'} & set(sys.modules))); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", loaded, fakes.ROOT / "scripts", "run", "pipes", "--runs", "1"],
        cwd=klat.directory,
        env=klat.environment(),
        capture_output=True,
        text=True,
        timeout=fakes.PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_programs_start_with_signals_as_usual(tmp_path: Path) -> None:
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


# What became of the runs --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pipes", "cv", "status"),
    [
        ("ok", "ok", 0),
        ("disturbed", "ok", 0),
        ("invalid", "ok", 3),
        ("error", "ok", 1),
        ("error", "invalid", 1),
        ("skipped", "skipped", 4),
        ("skipped", "ok", 0),
        ("skipped", "invalid", 3),
        ("fail", "ok", 1),
        ("crash", "ok", 1),
    ],
)
def test_the_exit_status_tells_the_worst_outcome(
    klat: Klat, pipes: str, cv: str, status: int
) -> None:
    done = klat(
        "run", "pipes", "cv", "--runs", "2",
        "--option", f"pipes.behave={pipes}", "--option", f"cv.behave={cv}",
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    for name, behaviour in (("pipes", pipes), ("cv", cv)):
        if behaviour in ("disturbed", "invalid", "error", "skipped"):
            assert re.search(rf"2 x {behaviour}: {name}: planted, on CPU [01]", done.stderr)


def test_a_failure_without_a_record_is_told(klat: Klat) -> None:
    options = ("--option", "pipes.behave=crash")
    done = klat("run", "pipes", "cv", "--runs", "2", *options)
    assert "2 x pipes: killed by signal 11" in done.stderr
    assert "2 of 4 runs recorded: 2 ok" in done.stderr


@pytest.mark.parametrize(("behaviour", "status"), [("fail", 1), ("crash", 1)])
def test_a_program_that_cannot_work_is_not_started_500_times(
    klat: Klat, behaviour: str, status: int
) -> None:
    done = klat("run", "pipes", "--option", f"pipes.behave={behaviour}")
    assert len(klat.starts()) == 3
    assert done.returncode == status
    assert "failed alike" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_option_that_a_program_refuses_stops_at_once_and_leaves_nothing(klat: Klat) -> None:
    done = klat("run", "pipes", "--runs", "2", "--option", "pipes.behave=usage")
    assert len(klat.starts()) == 1
    assert done.returncode == 2
    assert "--resume" not in done.stderr
    assert not list((klat.directory / "results").glob("*/*"))


def test_a_parameter_set_that_cannot_work_stops_a_session_in_which_others_do(klat: Klat) -> None:
    done = klat("run", "pipes", "--runs", "50", "--sweep", "pipes.behave=ok,fail", "--seed", "4")
    assert Counter("--behave=fail" in words for words in klat.starts())[True] == 3
    assert done.returncode == 1
    assert "/dev/net/tun: No such device" in done.stderr


def test_a_failure_now_and_then_does_not_stop_a_session(klat: Klat) -> None:
    # Run by run the same parameter set: it fails on every third start.
    program = klat.programs / "pipes/pipes"
    real = program.with_name("real")
    program.rename(real)
    program.write_text(
        '#!/bin/sh\ncase "$*" in *--order=[369]*) echo "pipes: no luck" >&2; exit 1;; esac\n'
        f'exec -a pipes {shlex.quote(str(real))} "$@"\n'.replace("exec -a pipes", "exec")
    )
    program.chmod(0o755)
    done = klat("run", "pipes", "--runs", "9")
    assert done.returncode == 1
    assert "3 x pipes: no luck" in done.stderr
    assert "6 of 9 runs recorded" in done.stderr


def test_a_program_that_can_no_longer_be_started_stops_the_session_with_the_way_to_resume(
    klat: Klat,
) -> None:
    started = klat.start("run", "pipes", "--runs", "50", *SLOW)
    wait_for(lambda: len(klat.starts()) >= 3, "the third run")
    (klat.programs / "pipes/pipes").chmod(0o644)
    _, err = started.communicate(timeout=fakes.PATIENCE)
    assert started.returncode == 1
    assert "pipes cannot be started: Permission denied" in err
    assert "--resume" in err
    assert "Traceback" not in err


def test_nothing_is_left_of_a_session_in_which_nothing_could_run(klat: Klat) -> None:
    done = klat("run", "pipes", "--option", "pipes.behave=usage")
    assert "there is no CPU 99" in done.stderr
    assert list((klat.directory / "results").iterdir()) == []


def test_a_full_disk_stops_the_session_at_once(klat: Klat) -> None:
    done = klat("run", "pipes", "--option", "pipes.behave=full")
    assert len(klat.starts()) == 1
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("No space left on device")


def test_a_run_without_an_end_is_ended_with_all_it_started_and_counted_as_failed(
    klat: Klat,
) -> None:
    options = ("--option", "pipes.behave=peer+hang", "--time-limit", "1")
    done = klat("run", "pipes", "--runs", "1", *options)
    assert done.returncode == 1
    assert "ended after 1 s without a result" in done.stderr
    assert not processes_of(klat)


def processes_of(klat: Klat) -> list[int]:
    """Running processes that were started with a path below the test's directory."""
    mark = os.fsencode(klat.programs)
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "cmdline").read_bytes() and is_running(int(entry.name)):
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


# Where a session goes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "label", ["two words", "a,b;c", "it's", 'say "x"', "größe", "内核", "-v", "$HOME `id`", "100%"]
)
def test_an_odd_label_is_a_label(klat: Klat, label: str) -> None:
    done = klat("run", "pipes", "--runs", "2", f"--label={label}")
    assert done.returncode == 0, done.stderr
    assert klat.session().parent.name == label
    assert read_session(klat.session()).label == label


@pytest.mark.parametrize(
    "label",
    [
        "",
        "a/b",
        "/",
        "..",
        ".hidden",
        "a\nb",
        "a\x1b[31m",
        "x" * 256,
        "ü" * 128,
        "\udcff",
        "a\u202eb",
        "\u2066a",
        "a\u200f",
        "\u061ca",
    ],
)
def test_a_label_that_cannot_be_a_directory_is_refused_in_one_line(klat: Klat, label: str) -> None:
    done = klat("run", "pipes", "--runs", "1", f"--label={label}")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "label" in done.stderr
    assert "\x1b" not in done.stderr
    assert not klat.starts()
    assert not (klat.directory / "results").exists()


@pytest.mark.parametrize(("locale", "mode"), [("C", "0"), ("POSIX", "0"), ("C", "")])
def test_a_label_is_utf8_in_any_locale(klat: Klat, locale: str, mode: str) -> None:
    """PYTHONUTF8=0 makes Python take what the locale says, as one of ISO-8859-1 would."""
    more = {"LC_ALL": locale, "PYTHONUTF8": mode, "PYTHONCOERCECLOCALE": "0"}
    done = klat("run", "pipes", "--runs", "1", "--label", "größe é", more=more)
    assert done.returncode == 0, done.stderr
    session = klat.session()
    assert os.fsencode(session.parent.name) == "größe é".encode()
    for name in ("run.json", "session.json"):
        assert json.loads((session / name).read_bytes())["label"] == "größe é"


@pytest.mark.parametrize("output", ["file", "file/below", "/proc/klat"])
def test_an_unwritable_output_is_refused_in_one_line(klat: Klat, output: str) -> None:
    (klat.directory / "file").touch()
    done = klat("run", "pipes", "--runs", "1", "--output", output)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_a_disk_too_full_for_the_plan_is_told_in_one_line(klat: Klat) -> None:
    small = klat.directory / "small"
    small.mkdir()
    script = 'mount -t tmpfs -o size=16k klat "$1" && shift && exec "$@"'
    possible = (
        shutil.which("unshare")
        and not subprocess.run(
            ["unshare", "-m", "sh", "-c", script, "sh", small, "true"],
            capture_output=True,
            check=False,
        ).returncode
    )
    if not possible:
        pytest.skip("needs to mount a file system of its own")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", small, sys.executable, fakes.KLAT]
        + ["run", "--output", small],
        cwd=klat.directory,
        env=klat.environment(),
        capture_output=True,
        text=True,
        timeout=fakes.PATIENCE,
        check=False,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "No space left on device" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as under sudo")
def test_what_is_made_under_sudo_belongs_to_the_caller(klat: Klat) -> None:
    (klat.directory / "results").mkdir()
    more = {"SUDO_UID": "65534", "SUDO_GID": "65533"}
    klat("run", "pipes", "--runs", "1", "--load", "sleep 60", more=more)
    session = klat.session()
    made = [session.parent, session] + [session / n for n in ("plan.csv", "run.json", "load.log")]
    assert {(p.stat().st_uid, p.stat().st_gid) for p in made} == {(65534, 65533)}
    assert (klat.directory / "results").stat().st_uid == 0


# Stopping and resuming ----------------------------------------------------------------------------


def stop_within(klat: Klat, number: int, *words: str) -> tuple[subprocess.Popen[str], str, str]:
    """Start a session and signal klat when the third program has been started."""
    started = klat.start("run", *words)
    wait_for(lambda: len(klat.starts()) >= 3, "the third run")
    started.send_signal(number)
    out, err = started.communicate(timeout=fakes.PATIENCE)
    return started, out, err


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_stopped_session_is_valid_and_its_own_advice_completes_it(
    klat: Klat, number: int, status: int
) -> None:
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
    resumed = subprocess.run(
        advice,
        shell=True,
        cwd=klat.directory,
        env=klat.environment(),
        capture_output=True,
        text=True,
        timeout=fakes.PATIENCE,
        check=False,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert recorded_orders(session) == each_once(40)
    assert (session / "runs.csv").read_bytes().startswith(kept)


def test_ctrl_c_reaches_a_program_once_and_as_that(klat: Klat) -> None:
    program = klat.programs / "pipes/pipes"
    heard = klat.directory / "heard"
    program.write_text(
        "#!/bin/sh\ntrap 'echo INT >> heard; exit 130' INT\ntrap 'echo TERM >> heard' TERM\n"
        'echo pipes 1 $$ >> "$FAKE_LOG"\nwhile :; do sleep 0.05; done\n'
    )
    started = klat.start("run", "pipes", "--runs", "3")
    wait_for(klat.starts, "the first run")
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=fakes.PATIENCE)
    assert started.returncode == 130
    assert heard.read_text() == "INT\n"


def test_a_program_deaf_to_ctrl_c_ends_when_the_user_insists(klat: Klat) -> None:
    started = klat.start("run", "pipes", "--runs", "3", "--option", "pipes.behave=deaf+hang")
    wait_for(klat.starts, "the first run")
    pid = int(klat.starts()[0][2])
    wait_for(lambda: ignores_sigint(pid), "the program to be deaf")
    started.send_signal(signal.SIGINT)
    while started.poll() is None:
        time.sleep(0.1)
        started.send_signal(signal.SIGINT)
    assert started.wait(fakes.PATIENCE) == 130
    assert not is_running(pid)


def ignores_sigint(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(int(ignored.split()[1], 16) & 1 << (signal.SIGINT - 1))


def test_ignored_signals_stay_ignored(klat: Klat) -> None:
    script = 'trap "" HUP; exec "$@"'
    started = subprocess.Popen(
        [
            "sh",
            "-c",
            script,
            "sh",
            sys.executable,
            fakes.KLAT,
            "run",
            "pipes",
            "--runs",
            "8",
            *SLOW,
        ],
        cwd=klat.directory,
        env=klat.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(klat.starts, "the first run")
    started.send_signal(signal.SIGHUP)
    assert started.wait(fakes.PATIENCE) == 0


def interrupted(klat: Klat) -> str:
    stop_within(klat, signal.SIGINT, "pipes", "--runs", "20", *SLOW)
    return str(klat.session())


def refused(klat: Klat, session: str, *words: str) -> str:
    """The one line with which resuming is refused."""
    count = len(klat.starts())
    before = recorded_orders(Path(session))
    done = klat("run", "--resume", session, *words)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert len(klat.starts()) == count
    assert recorded_orders(Path(session)) == before
    return done.stderr


def test_a_label_that_is_to_be_resumed_is_answered_with_a_session_of_it(klat: Klat) -> None:
    assert klat("run", "--runs", "1").returncode == 0
    done = klat("run", "--resume", str(klat.session().parent))
    assert done.returncode == 2 and str(klat.session()) in done.stderr, done.stderr


def test_resuming_refuses_an_edited_plan(klat: Klat) -> None:
    session = interrupted(klat)
    plan = Path(session) / "plan.csv"
    plan.write_text(plan.read_text().replace("--ms=30", "--ms=31", 1))
    assert "plan.csv" in refused(klat, session)


def test_resuming_refuses_a_missing_plan(klat: Klat) -> None:
    session = interrupted(klat)
    (Path(session) / "plan.csv").unlink()
    assert "plan.csv" in refused(klat, session)


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"schema": 1}', '{"schema": 7}'])
def test_resuming_refuses_a_session_it_did_not_begin(klat: Klat, text: str | None) -> None:
    session = interrupted(klat)
    facts = Path(session) / "run.json"
    if text is None:
        facts.unlink()
    else:
        facts.write_text(text)
    assert "run.json" in refused(klat, session)


def test_resuming_refuses_facts_of_the_wrong_kind(klat: Klat) -> None:
    session = interrupted(klat)
    edit_facts(session, pause_ms="soon")
    assert "run.json is damaged" in refused(klat, session)


def test_resuming_refuses_another_boot(klat: Klat) -> None:
    session = interrupted(klat)
    edit_facts(session, boot_id="00000000-0000-4000-8000-000000000000")
    assert "boot" in refused(klat, session)


def edit_facts(session: str, **changes: object) -> None:
    path = Path(session) / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_resuming_refuses_a_program_built_anew(klat: Klat) -> None:
    session = interrupted(klat)
    with open(klat.programs / "pipes/pipes", "a") as file:
        file.write("\n# changed\n")
    assert "built anew" in refused(klat, session)


def test_resuming_refuses_a_record_of_another_plan(klat: Klat) -> None:
    session = interrupted(klat)
    klat("run", "cv", "--runs", "30", "--label", "other")
    (other,) = (klat.directory / "results/other").iterdir()
    shutil.copy(other / "runs.csv", session)
    assert "runs.csv" in refused(klat, session)


def test_resuming_takes_no_other_settings(klat: Klat) -> None:
    session = interrupted(klat)
    assert "--runs" in refused(klat, session, "--runs", "5")
    assert "benchmarks" in refused(klat, session, "pipes")


def test_resuming_refuses_where_no_session_is(klat: Klat) -> None:
    assert "no such session" in refused(klat, "results/none")


def test_resuming_a_whole_session_starts_nothing(klat: Klat) -> None:
    klat("run", "pipes", "--runs", "3")
    done = klat("run", "--resume", str(klat.session()))
    assert done.returncode == 0
    assert len(klat.starts()) == 3


def test_two_runners_do_not_share_a_session(klat: Klat) -> None:
    first = klat.start("run", "pipes", "--runs", "20", *SLOW)
    wait_for(lambda: len(klat.starts()) >= 2, "the second run")
    second = klat("run", "--resume", str(klat.session()))
    assert second.returncode == 2
    assert "another klat run is at work" in second.stderr
    first.communicate(timeout=fakes.PATIENCE)
    assert first.returncode == 0
    assert recorded_orders(klat.session()) == each_once(20)


def test_a_run_in_flight_when_the_runner_is_killed_is_waited_for_and_not_repeated(
    klat: Klat,
) -> None:
    started = klat.start("run", "pipes", "--runs", "2", "--option", "pipes.ms=2000")
    wait_for(klat.starts, "the first run")
    started.kill()
    started.communicate(timeout=fakes.PATIENCE)
    resumed = klat("run", "--resume", str(klat.session()))
    assert resumed.returncode == 0, resumed.stderr
    assert "in flight" in resumed.stderr
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
            continue
        session = sessions[0].parent
        words = ["run", "--resume", str(session)]
        now = recorded_orders(session)
        assert not known - now, "a completed run was lost"
        known = now
    assert session, "never killed late enough for a plan"
    done = klat(*words)
    assert done.returncode in statuses, done.stderr
    planned = (session / "plan.csv").read_text().count("\n") - 1
    assert recorded_orders(session) == each_once(planned)
    assert read_session(session).completed_orders() == set(range(1, planned + 1))


def kill_children(runner: subprocess.Popen[str], too: bool) -> None:
    """SIGKILL the runner, and what it runs `too`."""
    victims = children(runner.pid) if too else []
    runner.kill()
    for pid in victims:
        os.kill(pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def test_nothing_completed_is_lost_or_repeated_by_kill_9(klat: Klat) -> None:
    begin = ["pipes", "cv", "--runs", "60", "--option", "all.ms=2"]
    kill_and_resume(klat, 20, 1, begin, longest=0.8, statuses=(0,))


@pytest.mark.slow
def test_nothing_completed_is_lost_or_repeated_by_kill_9_of_the_real_programs(
    tmp_path: Path,
) -> None:
    klat = Klat(tmp_path)
    klat.programs = fakes.ROOT
    built = [name for name in fakes.CORE if (fakes.ROOT / name / name).is_file()]
    if not built:
        pytest.skip("no program is built")
    points = int(os.environ.get("KLAT_KILL_POINTS", "200"))
    begin = [*built, "--runs", str(2 * points), "--iterations", "100"]
    kill_and_resume(klat, points, 2, begin, longest=1.0, statuses=(0, 3))  # 3: noise


# A background load --------------------------------------------------------------------------------

# A grandchild as well: ending the shell alone would leave it.
LOAD = "echo $$ > load.pid; sleep 3600 & echo $! > load.child; wait"


def load_pids(klat: Klat) -> list[int]:
    wait_for(lambda: read_number(klat.directory / "load.child"), "the load")
    return [read_number(klat.directory / name) for name in ("load.pid", "load.child")]


def read_number(path: Path) -> int:
    try:
        return int(path.read_text() or "0")
    except FileNotFoundError:
        return 0


def test_a_load_runs_beside_the_session_and_ends_with_it(klat: Klat) -> None:
    started = klat.start("run", "pipes", "--runs", "10", "--load", LOAD, *SLOW)
    pids = load_pids(klat)
    wait_for(klat.starts, "the first run")
    assert all(map(is_running, pids))
    started.communicate(timeout=fakes.PATIENCE)
    assert started.returncode == 0
    assert not any(map(is_running, pids))
    assert json.loads((klat.session() / "run.json").read_text())["load"] == LOAD


def test_a_load_ends_when_the_session_is_stopped_and_returns_when_it_is_resumed(
    klat: Klat,
) -> None:
    stop_within(klat, signal.SIGINT, "pipes", "--runs", "10", "--load", LOAD, *SLOW)
    first = load_pids(klat)
    assert not any(map(is_running, first))
    done = klat("run", "--resume", str(klat.session()))
    assert done.returncode == 0, done.stderr
    second = load_pids(klat)
    assert set(second).isdisjoint(first)
    assert not any(map(is_running, second))


def test_a_load_does_not_outlive_a_killed_runner(klat: Klat) -> None:
    started = klat.start("run", "pipes", "--runs", "100", "--load", LOAD, *SLOW)
    pids = load_pids(klat)
    wait_for(klat.starts, "the first run")
    started.kill()
    started.communicate(timeout=fakes.PATIENCE)
    wait_for(lambda: not any(map(is_running, pids)), "the load to end")


def test_a_load_that_ends_early_is_told_and_stops_the_session(klat: Klat) -> None:
    load = "while ! test -e go; do sleep 0.02; done; echo out of memory >&2; exit 7"
    started = klat.start("run", "pipes", "--runs", "200", "--load", load, *SLOW)
    wait_for(lambda: len(klat.starts()) >= 2, "the second run")
    (klat.directory / "go").touch()
    _, err = started.communicate(timeout=fakes.PATIENCE)
    assert started.returncode == 1
    assert "ended by itself with status 7: out of memory" in err
    assert "--resume" in err
    assert 2 <= len(recorded_orders(klat.session())) < 200


def test_a_load_log_of_any_size_is_read_at_its_end(klat: Klat) -> None:
    load = "truncate -s 1T /proc/self/fd/2; echo >&2; echo out of memory >&2; exit 7"
    done = klat("run", "pipes", "--load", load)
    assert done.returncode == 1
    assert done.stderr.endswith("ended by itself with status 7: out of memory\n")


def test_a_load_that_cannot_start_stops_the_session_before_its_first_run(klat: Klat) -> None:
    done = klat("run", "pipes", "--load", "/no/such/load")
    assert done.returncode == 1
    assert "/no/such/load" in done.stderr
    assert not klat.starts()
    assert list((klat.directory / "results").iterdir()) == []


# Progress -----------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def follow(stream: Terminal, step: float, **environment: str) -> None:
    """A session of 200 runs, `step` seconds each."""
    clock = Clock()
    shown = progress.Progress(200, 0, stream, environment, clock)
    left = progress.TimeLeft({"pipes": 100, "tlbflush": 100})
    for run in range(200):
        name = ("pipes", "tlbflush")[run % 2]
        shown.before(run, name, left.seconds())
        clock.now += step
        left.ran(name, step)
    shown.clear()


def test_the_bar_fits_80_columns_and_goes_away() -> None:
    stream = Terminal(True)
    follow(stream, 60, TERM="xterm", NO_COLOR="1")
    frames = re.split("[\r\n]", stream.getvalue().replace("\x1b[K", ""))
    assert max(map(len, frames)) <= 80
    assert any(
        re.fullmatch(r"\[#+\.+\] 100/200 +50 % +1 h 40 min left +pipes *", f) for f in frames
    )
    assert stream.getvalue().endswith("\r\x1b[K")


def test_the_bar_stays_as_long_as_it_is() -> None:
    stream = Terminal(True)
    follow(stream, 17, TERM="xterm", NO_COLOR="1")
    bars = re.findall(r"\[[#.]+\]", stream.getvalue())
    assert len(bars) == 200
    assert len({len(bar) for bar in bars}) == 1


def test_the_bar_is_redrawn_ten_times_a_second_at_most() -> None:
    stream = Terminal(True)
    follow(stream, 0.001, TERM="xterm")
    assert stream.getvalue().count("/200 ") <= 4  # 0.2 s, and once more after the announcement


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({}, True)],
)
def test_no_color_is_honoured(environment: dict[str, str], coloured: bool) -> None:
    stream = Terminal(True)
    follow(stream, 1, **environment)
    assert bool(re.search(r"\x1b\[[0-9]+m", stream.getvalue())) == coloured


@pytest.mark.parametrize(("terminal", "term"), [(False, "xterm"), (True, "dumb")])
def test_without_a_terminal_there_are_plain_lines_now_and_then(terminal: bool, term: str) -> None:
    stream = Terminal(terminal)
    follow(stream, 2, TERM=term)
    lines = stream.getvalue().splitlines()
    assert "\x1b" not in stream.getvalue()
    assert "\r" not in stream.getvalue()
    assert lines[:3] == [
        "about 6 min 20 s for the 190 runs to come",
        "10 of 200 runs (5 %), about 6 min 20 s left",
        "20 of 200 runs (10 %), about 6 min 0 s left",
    ]
    assert len(lines) == 20


def test_a_short_session_does_not_chatter() -> None:
    stream = Terminal(False)
    follow(stream, 0.01)
    assert len(stream.getvalue().splitlines()) <= 3


def test_the_time_left_counts_what_is_left_of_each_benchmark() -> None:
    left = progress.TimeLeft({"pipes": 10, "tlbflush": 20})
    for _ in range(10):
        left.ran("pipes", 1)
    for _ in range(10):
        left.ran("tlbflush", 30)
    assert left.seconds() == pytest.approx(300)


def test_nothing_is_drawn_while_a_program_runs(klat: Klat) -> None:
    """On a terminal, and with every redraw told apart from the run that follows it by time."""
    master, slave = pty.openpty()
    started = subprocess.Popen(
        [sys.executable, fakes.KLAT, "run", "pipes", "--runs", "3", "--option", "pipes.ms=400"],
        cwd=klat.directory,
        env=klat.environment({"TERM": "xterm"}),
        stdout=subprocess.DEVNULL,
        stderr=slave,
    )
    os.close(slave)
    during = b""
    for order in range(1, 4):
        wait_for(lambda order=order: len(klat.starts()) >= order, "a run")  # type: ignore[misc]
        pid = int(klat.starts()[-1][2])
        os.read(master, 65536)  # what was drawn before the run
        os.set_blocking(master, False)
        while is_running(pid):
            try:
                drawn = os.read(master, 65536)
            except BlockingIOError:
                drawn = b""
            if is_running(pid):
                during += drawn
            time.sleep(0.01)
        os.set_blocking(master, True)
    assert during == b""
    started.wait(fakes.PATIENCE)
    os.close(master)
