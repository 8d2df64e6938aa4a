"""What `klat ab` promises, with fake programs and real prefixes."""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
from collections import Counter
from pathlib import Path

import fakes
import pytest
from fakes import SLOW, Klat, each_once, is_running, processes_of, recorded_orders, wait_for, klat

from klat.record import plan_csv
from klat.record.session import read_session

TWO = ("ab", "--a", "left", "--b", "right")
# With this seed A has the first turn of the first block, and of all blocks where a turn is one run.
A_FIRST = ("--seed", "5")
# The fewest runs.
ONE_BLOCK = ("--blocks", "1", "--runs-per-block", "1")


def sessions(klat: Klat) -> list[Path]:
    """A's and B's."""
    found = [list((klat.directory / "results" / label).iterdir()) for label in ("left", "right")]
    assert [len(x) for x in found] == [1, 1]
    return [x[0] for x in found]


def facts(session: Path) -> dict[str, object]:
    return dict(json.loads((session / "run.json").read_text()))


def log_to(name: str, text: str) -> str:
    return f"printf {text} >> {name}"


def label_of(words: list[str]) -> str:
    return next(w for w in words if w.startswith("--label=")).removeprefix("--label=")


def test_each_block_is_abba_or_baab_and_runs_as_planned(klat):
    klat(*TWO, "pipes", "cv", "--blocks", "6", "--runs-per-block", "1", "--seed", "1", status=0)
    order = [label_of(words)[0] for words in klat.starts()][::2]
    blocks = ["".join(order[i : i + 4]) for i in range(0, len(order), 4)]
    assert set(blocks) == {"lrrl", "rllr"}
    assert [recorded_orders(s) for s in sessions(klat)] == [each_once(24)] * 2
    recorded = {
        place: label
        for label, session in zip("lr", sessions(klat))
        for _, _, place in facts(session)["turns"]  # type: ignore[attr-defined]
    }
    assert [recorded[place] for place in sorted(recorded)] == order


def test_either_setting_begins_about_half_of_the_blocks():
    (_, a), _ = plan_csv.take_turns([[("pipes", ())]] * 2, 1_000, 1, 7)
    # 500 expected, standard deviation 16.
    assert 420 < sum(turn.place % 4 == 1 for turn in a) < 580


SETS = [("tlbflush", ("--responders=0",)), ("tlbflush", ("--responders=1",)), ("pipes", ())]


def test_each_turn_runs_every_parameter_set_in_its_own_order():
    turns = [
        tuple((run.benchmark, run.arguments) for run in plan[turn.first - 1 : turn.last])
        for plan, taken in plan_csv.take_turns([SETS] * 2, 2, 3, 5)
        for turn in taken
    ]
    assert len(turns) == 8 and all(Counter(turn) == dict.fromkeys(SETS, 3) for turn in turns)
    assert len(set(turns)) > 5


def test_the_seed_decides_the_order_of_both():
    first, same, other = (plan_csv.take_turns([SETS] * 2, 1, 3, seed) for seed in (1, 1, 2))
    assert first == same != other
    assert first[0] != first[1]


def test_the_record_names_the_block_of_each_run(klat):
    klat(*TWO, "pipes", "--blocks", "3", "--runs-per-block", "2")
    told = [facts(s)["pairing"] for s in sessions(klat)]
    assert told[0] == told[1]
    assert told[0]["pairs"] == [[1, 4, "1"], [5, 8, "2"], [9, 12, "3"]]  # type: ignore[index]
    starts = {
        (label_of(words), int(words[1])): i for i, words in enumerate(klat.starts())
    }  # place in time
    for label in ("left", "right"):
        for first, last, block in told[0]["pairs"]:  # type: ignore[index]
            moments = [starts[label, order] // 8 for order in range(first, last + 1)]
            assert set(moments) == {int(block) - 1}


def test_compare_takes_the_block_as_the_unit_of_a_setting(klat):
    done = klat(*TWO, "pipes", "--blocks", "6", "--runs-per-block", "1", "--b-prefix", "env X=1")
    (advice,) = re.findall(r"next: (.*)", done.stderr)
    words = shlex.split(advice)
    assert words[1] == "compare" and [Path(w).parent.name for w in words[2:]] == ["left", "right"]
    compared = klat(*words[1:], "--quantile", "mean")
    text = " ".join(compared.stdout.split())
    assert "Student over pairs of blocks, 5.0 degrees of freedom" in text
    assert "the prefix: none | env X=1" in text
    assert "not comparable" not in text


def test_a_setting_apart_from_its_turns_is_not_compared_in_silence(klat):
    began = klat(*TWO, "pipes", *ONE_BLOCK, "--b-prefix", "env X=1")
    assert "note: with --blocks 1, klat compare cannot call anything slower or" in began.stderr
    klat("run", "pipes", "--runs", "4", "--label", "plain")
    (plain,) = (klat.directory / "results/plain").iterdir()
    done = klat("compare", str(plain), str(sessions(klat)[1]))
    assert done.returncode == 4 and "prefix" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("ab", "pipes"), "two settings"),
        (("ab", "--a", "x", "pipes"), "two settings"),
        (("ab", "--a", "x", "--b", "x", "pipes"), "distinguish them"),
        ((*TWO, "pipes", "--blocks", "0"), "--blocks"),
        ((*TWO, "pipes", "--a-prefix", "/no/such/command x"), "/no/such/command"),
        ((*TWO, "pipes", "--b-prefix", "'env"), "prefix"),
        ((*TWO, "pipes", "--b-prefix", " "), "--b-prefix is empty"),
        ((*TWO, "pipes", "--a-setup", ""), "--a-setup is empty"),
        ((*TWO, "pipes", "--b-setup", "true"), "--a-setup is missing: without it"),
        ((*TWO, "pipes", "--restore", ""), "--restore is empty"),
    ],
)
def test_a_contradiction_is_refused_in_one_line(klat, words, sentence):
    assert sentence in klat.refused(*words)
    assert not (klat.directory / "results").exists()


def test_a_prefix_goes_before_the_programs_of_its_setting_only(klat):
    prefix = "sh -c 'echo \"$*\" >> prefixed; exec \"$@\"' 'my sh'"
    klat(*TWO, "pipes", *ONE_BLOCK, "--b-prefix", prefix, status=0)
    lines = (klat.directory / "prefixed").read_text().splitlines()
    assert len(lines) == 2 and all("--label=right" in line for line in lines)
    assert [facts(s)["prefix"] for s in sessions(klat)] == [None, prefix]


@pytest.mark.parametrize(("behaviour", "status"), [("invalid", 3), ("skipped", 0), ("crash", 1)])
def test_a_prefix_keeps_exit_statuses(klat, behaviour, status):
    option = ("--option", f"cv.behave={behaviour}")
    prefixes = ("--a-prefix", "env A=1", "--b-prefix", "setsid --wait")
    words = (*ONE_BLOCK, *option)
    done = klat(*TWO, "pipes", "cv", *words, *prefixes)
    assert done.returncode == status, done.stderr


def test_a_prefix_that_runs_nothing_stops_the_session(klat):
    done = klat(*TWO, "pipes", "--blocks", "100", "--a-prefix", "true", *A_FIRST, status=1)
    assert "3 runs in succession failed in the same way" in done.stderr
    assert "nothing was recorded, although true ended with status 0" in done.stderr
    assert not klat.starts() and not list((klat.directory / "results").iterdir())


def test_set_up_goes_before_each_turn_and_restore_after_all(klat):
    klat(
        *TWO, *A_FIRST, "pipes", "--blocks", "2", "--runs-per-block", "1", "--a-prefix",
        "sh -c 'printf a >> log; exec \"$@\"' sh", "--a-setup", log_to("log", "A"),
        "--b-setup", log_to("log", "B"), "--restore", log_to("log", "R"),
        status=0,
    )  # fmt: skip
    assert (klat.directory / "log").read_text() == "AaBBAaAaBBAaR"


def test_a_set_up_that_fails_ends_the_session_with_its_message_and_the_machine_as_it_was(klat):
    fail = "test $(wc -c < log) -lt 4 && printf B >> log || { echo no such knob >&2; exit 7; }"
    done = klat(
        *TWO, *A_FIRST, "pipes", "--blocks", "3", "--runs-per-block", "1",
        "--a-setup", log_to("log", "A"), "--b-setup", fail, "--restore", log_to("log", "R"),
        status=1,
    )  # fmt: skip
    assert "the set-up of right" in done.stderr
    assert "ended with status 7: no such knob" in done.stderr
    assert (klat.directory / "log").read_text() == "ABBAAR"
    assert "ab --resume" in done.stderr
    assert [len(recorded_orders(s)) for s in sessions(klat)] == [3, 2]


def test_a_first_set_up_that_fails_leaves_nothing_but_the_machine_as_it_was(klat):
    words = ("--a-setup", "exit 3", "--b-setup", "true", "--restore", log_to("log", "R"))
    done = klat(*TWO, "pipes", "--blocks", "3", *A_FIRST, *words)
    assert done.returncode == 1 and "status 3" in done.stderr
    assert (klat.directory / "log").read_text() == "R"
    assert not klat.starts() and not list((klat.directory / "results").iterdir())


def test_a_set_up_without_end_is_ended(klat):
    setups = ("--a-setup", "sleep 3600 & echo $! > pid; wait", "--b-setup", "true")
    words = (*setups, "--time-limit", "1")
    done = klat(*TWO, "pipes", "--blocks", "3", *words)
    assert done.returncode == 1 and "did not end within 1 s" in done.stderr
    assert not is_running(int((klat.directory / "pid").read_text()))


def test_a_failed_restore_is_named_and_ends_with_status_1(klat):
    done = klat(*TWO, "pipes", *ONE_BLOCK, "--restore", "echo read-only >&2; exit 9", status=1)
    assert "the machine may not be as it was" in done.stderr and "9: read-only" in done.stderr


def test_a_stopped_session_restores_and_its_own_advice_completes_it(klat):
    words = ("--blocks", "2", "--runs-per-block", "3", "--restore", log_to("restored", "R"), *SLOW)
    started = klat.start(*TWO, "pipes", "cv", *words)
    wait_for(lambda: len(klat.starts()) >= 9, "the second turn")
    started.send_signal(signal.SIGTERM)
    _, err = started.communicate(timeout=fakes.PATIENCE)
    assert started.returncode == 128 + signal.SIGTERM
    assert not processes_of(klat)
    assert (klat.directory / "restored").read_text() == "R"
    kept = [(s / "runs.csv").read_bytes() for s in sessions(klat)]
    (advice,) = re.findall(r"to complete it: (.*)", err)
    klat(*shlex.split(advice)[1:], status=0)
    assert (klat.directory / "restored").read_text() == "RR"
    for session, before in zip(sessions(klat), kept):
        assert recorded_orders(session) == each_once(24)
        assert (session / "runs.csv").read_bytes().startswith(before)


def test_a_killed_klat_restores_once_the_run_in_flight_is_over_and_resuming_waits_for_it(klat):
    restore = "cat results/left/*/runs.csv | wc -l >> at; sleep 0.5; printf R >> log"
    setup = ("--a-setup", "printf A >> log", "--b-setup", "true")
    words = (*A_FIRST, *ONE_BLOCK, "--option", "pipes.ms=700")
    started = klat.start(*TWO, "pipes", *words, "--restore", restore, *setup)
    wait_for(klat.starts, "the first run")
    started.kill()
    started.communicate(timeout=fakes.PATIENCE)
    klat("ab", "--resume", str(sessions(klat)[0]), status=0)
    assert int((klat.directory / "at").read_text().split()[0]) > 1  # the run had been recorded
    # Restored before the set-up of A's other turn, and after it.
    assert (klat.directory / "log").read_text() == "ARAR"
    assert [recorded_orders(s) for s in sessions(klat)] == [each_once(2)] * 2
    assert len(klat.starts()) == 4


def test_the_watch_over_the_machine_ends_with_klat(klat):
    mark = f"true {klat.directory}/watch"
    assert klat(*TWO, "pipes", *ONE_BLOCK, "--restore", mark).returncode == 0
    left = [
        p
        for p in Path("/proc").glob("[0-9]*/cmdline")
        if os.fsencode(mark) in read(p) and is_running(int(p.parent.name))
    ]
    assert not left


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("which", [0, 1])
def test_either_session_resumes_both_in_their_turns(klat, which):
    words = ("--blocks", "3", "--runs-per-block", "2", "--a-setup", log_to("log", "A"))
    started = klat.start(*TWO, "pipes", *words, "--b-setup", log_to("log", "B"), *SLOW)
    wait_for(lambda: len(klat.starts()) >= 8, "the end of the first block")
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=fakes.PATIENCE)
    klat("ab", "--resume", str(sessions(klat)[which]), status=0)
    assert [recorded_orders(s) for s in sessions(klat)] == [each_once(12)] * 2
    turns = read_turns(sessions(klat))
    assert turns == sorted(turns)


def read_turns(both: list[Path]) -> list[int]:
    """The turn of each run, by the time at which it was run."""
    moments = {}
    for session in both:
        turns = facts(session)["turns"]
        for row in read_session(session).rows:
            for first, last, place in turns:  # type: ignore[attr-defined]
                if first <= row.order <= last:
                    moments[row.start_ns] = place
    return [moments[start] for start in sorted(moments)]


def test_run_does_not_resume_one_of_two(klat):
    klat(*TWO, "pipes", *ONE_BLOCK)
    assert "klat ab --resume" in klat.refused("run", "--resume", str(sessions(klat)[0]))


def test_ab_does_not_resume_a_session_that_took_no_turns(klat):
    klat("run", "pipes", "--runs", "1")
    assert "klat run --resume" in klat.refused("ab", "--resume", str(klat.session()))


def test_resuming_without_the_partner_is_refused(klat):
    klat(*TWO, "pipes", *ONE_BLOCK)
    one, two = sessions(klat)
    two.rename(two.with_name("elsewhere"))
    assert "took turns with" in klat.refused("ab", "--resume", str(one))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs real-time priorities")
@pytest.mark.skipif(not (fakes.ROOT / "pipes/pipes").is_file(), reason="pipes is not built")
def test_a_real_program_keeps_its_record_and_status_behind_a_prefix(klat):
    klat.programs = fakes.ROOT
    words = ("--blocks", "2", "--runs-per-block", "1", "--iterations", "100", "--cpus", "0,0")
    done = klat(*TWO, "pipes", *words, "--a-prefix", "env A=1", "--b-prefix", "setsid --wait")
    assert done.returncode in (0, 3), done.stderr  # 3: noise
    assert [recorded_orders(s) for s in sessions(klat)] == [each_once(4)] * 2
    done = klat("compare", *(str(s) for s in sessions(klat)))
    assert done.returncode in (0, 1, 3), done.stderr
    assert "Student over pairs of blocks, 1.0 degrees" in " ".join(done.stdout.split())


def compared(klat: Klat, *words: str) -> tuple[subprocess.CompletedProcess[str], str]:
    found = sessions(klat)
    done = klat("compare", *map(str, found), "--quantile", "mean", *words)
    return done, " ".join(done.stdout.split())


def test_an_option_of_one_setting_alone_is_under_test(klat):
    words = ("--a-option", "pipes.bytes=1", "--b-option", "pipes.bytes=64")
    words += ("--blocks", "6", "--runs-per-block", "1", "--option", "all.ms=1")
    done = klat(*TWO, "pipes", "cv", *words, status=0)
    for session, told in zip(sessions(klat), ("pipes.bytes=1", "pipes.bytes=64")):
        assert facts(session)["options"] == [told]
        (plan_of,) = {
            line.partition(",")[2]
            for line in (session / "plan.csv").read_text().splitlines()
            if ",pipes,1," in line
        }
        assert f"--{told.partition('.')[2]}" in plan_of
    done, text = compared(klat)
    assert done.returncode == 0, text
    assert "under test: bytes: 1 | 64 one, mean: same" in text
    assert "only in" not in text and "not comparable" not in text
    row, *_ = csv.DictReader(compared(klat, "--format", "csv")[0].stdout.splitlines())
    assert (row["params"], row["under_test"]) == ("bytes=1", "bytes: 1 | 64")
    markdown = compared(klat, "--format", "markdown")[1]
    assert "pipes, bytes: 1 \\| 64 |" in markdown
    assert "n/a ticks" not in text and "n/a ns" not in markdown


def test_only_declared_options_may_differ(klat):
    words = ("--a-option", "pipes.bytes=1", "--b-option", "pipes.bytes=64")
    klat(*TWO, "pipes", "--blocks", "2", "--runs-per-block", "1", *words)
    for session in sessions(klat):
        told = json.loads((session / "run.json").read_text())
        told["options"] = ["pipes.responders=1"]
        (session / "run.json").write_text(json.dumps(told))
    done, text = compared(klat)
    said = "pipes bytes=1 one, mean: inconclusive not measured in NEW"
    assert done.returncode == 4 and said in text


def test_sweeps_pair_value_by_value_beside_an_option_under_test(klat):
    words = ("--sweep", "pipes.responders=1,2", "--b-option", "pipes.bytes=64")
    klat(*TWO, "pipes", "--blocks", "6", "--runs-per-block", "1", *words)
    done, text = compared(klat, "--metric", "one")
    assert done.returncode == 0 and text.count("under test: bytes: absent | 64") == 2


def test_an_option_said_for_both_and_for_one_is_refused(klat):
    words = ("--option", "pipes.bytes=1", "--b-option", "pipes.bytes=64")
    assert "pipes.bytes is set twice" in klat.refused(*TWO, "pipes", *words)
    said = klat.refused(*TWO, "pipes", "--b-option", "cv.bytes=64")
    assert "cv is not among the benchmarks" in said


def test_a_session_with_options_of_its_own_is_resumed_with_them(klat):
    words = ("--b-option", "pipes.bytes=64", "--restore", "true")
    klat(*TWO, "pipes", "--blocks", "2", "--runs-per-block", "1", *words)
    for session in sessions(klat):
        (session / "runs.csv").write_text("".join((session / "runs.csv").read_text().splitlines(True)[:-4]))  # fmt: skip
    before = len(klat.starts())
    klat("ab", "--resume", str(sessions(klat)[0]), status=0)
    again = klat.starts()[before:]
    assert len(again) == 4
    assert all(("--bytes=64" in w) == (label_of(w) == "right") for w in again)
