"""What --profile makes of a session, and what reports make of its record."""

import json
import re
import shlex
from pathlib import Path

import pytest
from fakes import CORE, Klat
from written_sessions import samples

from klat.base import programs
from klat.record import plan_csv, profiles
from klat.record.profiles import PROFILES
from klat.running import loads

RT = PROFILES["rt"]


@pytest.fixture
def runner(tmp_path: Path) -> Klat:
    return Klat(tmp_path, (*CORE, "messages", "transport"))


def test_the_programs_take_the_options_of_their_sets():
    found, left_out = profiles.variants(RT, RT.benchmarks, None, False)
    for name, words in plan_csv.parameter_sets(RT.benchmarks, {}, variants=found):
        status, said = programs.check_options(programs.require(name), words, "virtual", 2)
        assert status == 0, said
    assert not left_out


def test_the_loads_of_a_profile_exist():
    assert {*RT.loads} <= {loads.IDLE, *loads.names()}


def test_each_load_has_a_session_that_names_the_profile(runner):
    words = ("--runs", "1", "--label", "x", "--load", "none", "--load", "sleep 60")
    runner("run", "--profile", "rt", "--cpus", "0,1", *words, status=0)
    for label in ("x", "x-sleep"):
        (session,) = (runner.directory / "results" / label).iterdir()
        assert json.loads((session / "run.json").read_text())["profile"] == "rt"
        planned = plan_csv.from_csv((session / "plan.csv").read_text())
        assert len(planned) == len(RT.sets)


def test_the_last_session_advises_one_command_for_all(runner):
    done = runner(
        "run", "--runs", "1", "--load", "none", "--load", "sleep 60", "--label", "x", "timer"
    )
    assert done.stderr.count("next: ") == 1
    advice = done.stderr.split("next: ")[1].splitlines()[0]
    assert re.fullmatch(r"\S*klat summary results/x/\S+ results/x-sleep/\S+", advice)


def test_the_default_label_says_that_it_is_of_a_profile(runner):
    done = runner("run", "--profile", "rt", "--runs", "1", "--load", "none", "timer", status=0)
    assert Path(done.stdout.strip()).parent.name.endswith("-profile-rt")


def options_of(runner: Klat, *words: str) -> dict[str, list[set[str]]]:
    """The options of each run, by program."""
    runner("run", "--profile", "rt", "--runs", "1", "--load", "none", *words, status=0)
    found: dict[str, list[set[str]]] = {}
    for name, _, _, *arguments in runner.starts():
        found.setdefault(name, []).append(set(arguments))
    return found


def test_an_option_of_the_user_overrides_that_of_the_profile(runner):
    words = ("--option", "timer.period=250", "--option", "cv.primitive=futex", "--cpus", "0,1")
    found = options_of(runner, "timer", "cv", *words)
    assert {"--period=250", "--method=nanosleep"} <= found["timer"][0]
    assert len(found["cv"]) == 1 and "--primitive=futex" in found["cv"][0]


@pytest.mark.parametrize(
    ("typed", "one_cpu", "expected"),
    [
        (None, False, {"timer": [None], "pipes": [None, "one"], "cv": [None] * 2}),
        (None, True, {"timer": ["one"], "pipes": ["one"], "cv": ["one"] * 2}),
        ("3,2", False, {"timer": ["3"], "pipes": ["3,2", "3,3"], "cv": ["3,2"] * 2}),
        ("3", False, {"timer": ["3"], "pipes": ["3,3"], "cv": ["3,3"] * 2}),
    ],
)
def test_a_set_has_the_cpus_that_it_is_about(typed, one_cpu, expected):
    variants, left_out = profiles.variants(RT, ["timer", "pipes", "cv", "tlbflush"], typed, one_cpu)
    cpus = {name: [variant.get("cpus") for variant in variants[name]] for name in expected}
    assert cpus == expected
    gone = [] if len(expected["pipes"]) == 2 else ["pipes on two CPUs", "tlbflush on two CPUs"]
    assert left_out == gone


def test_sets_that_need_two_cpus_are_left_out_in_one_line(runner):
    done = runner("run", "--profile", "rt", "--cpus", "0", "--load", "none", "--runs", "1")
    line = "profile rt: left out, because there is one CPU: pipes on two CPUs, tlbflush"
    assert line in done.stderr and "tlbflush" not in [name for name, *_ in runner.starts()]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("--profile rt syscall", 2, "--profile rt has no syscall; it has timer"),
        ("--profile nothing", 2, "invalid choice: 'nothing' (choose from"),
        ("--profile rt --cpus 0 --load none tlbflush", 4, "nothing is left to measure on one CPU"),
    ],
)
def test_what_a_profile_cannot_do_is_one_line(runner, words, status, said):
    done = runner("run", *shlex.split(words), status=status)
    assert said in done.stderr.splitlines()[-1] and not runner.starts()


@pytest.mark.parametrize("profile", [None, "rt"])
def test_reports_show_the_metric_first_that_the_profile_names(new_session, klat, profile):
    boots = [
        [{"initiator": samples(20_000 + boot), "interruption": samples(9_000 + boot)}]
        for boot in range(5)
    ]
    row = {"benchmark": "tlbflush", "params": "responders=1"}
    paths = [
        new_session.label(label, boots, run=row, facts={"profile": profile}) for label in ("a", "b")
    ]
    _, summary, _ = klat("summary", paths[0])
    _, verdicts, _ = klat("compare", *paths)
    for text in (summary, verdicts):
        first = text.index("interruption") < text.index("initiator")
        assert first == (profile is not None), text
