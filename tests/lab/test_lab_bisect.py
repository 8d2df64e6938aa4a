"""Which of two kernels a figure is like, and when that cannot be said."""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import explained
import made_tools
import planted
import pytest
from labs import ROOT, Lab, experiment, hash_of, write_session

from klat.base.errors import KlatError
from klat.commands import _lab_bisect
from klat.explain.explanation import Explanation
from klat.lab import bisect, explaining
from klat.lab.choosing import Wanted
from klat.lab.execution import Request
from klat.lab.bisect import BAD, GOOD, UNTESTABLE, Figures, verdict
from klat.lab.experiment import Experiment
from klat.lab.initramfs import recorded_machine_id
from klat.lab.architectures import AMD64
from klat.lab.qemu import Machine, GuestSize, find


def figures(*values: float, params: str = "cpus=0,0", unit: str = "instructions") -> Figures:
    return Figures(values, unit, params)


@pytest.mark.parametrize(
    ("good", "bad", "figure", "expected"),
    [
        ((100, 101), (200, 202), 100, GOOD),
        ((100, 101), (200, 202), 190, BAD),
        ((100, 101), (200, 202), 90, GOOD),
        ((100, 101), (200, 202), 220, BAD),
        ((100, 101), (200, 202), 300, UNTESTABLE),
        ((100, 101), (200, 202), 80, UNTESTABLE),
        ((200,), (100,), 300, UNTESTABLE),
        ((100,), (400,), 199, GOOD),
        ((100,), (400,), 201, BAD),
        ((200,), (100,), 190, GOOD),
        ((200,), (100,), 110, BAD),
    ],
)
def test_a_figure_is_like_the_one_that_it_is_nearer_to_as_a_ratio(good, bad, figure, expected):
    assert verdict(figures(*good), figures(*bad), figure) == expected


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (figures(100), figures(100)),
        (figures(100, 150), figures(140, 200)),
        (figures(0), figures(100)),
        (figures(100), figures(200, params="cpus=0,1")),
        (figures(100), figures(200, unit="ticks")),
    ],
)
def test_nothing_is_like_one_of_two_that_cannot_be_told_apart(good, bad):
    with pytest.raises(KlatError):
        verdict(good, bad, 100)


FIGURES = {"good": 100, "bad": 200, "good-fork": 1000, "bad-fork": 2000}
METRIC = ("--metric", "pipes.round_trip")
NO_LOAD: dict[str, object] = {"loads": ("none",)}


def planned(lab: Lab, **more: object) -> Experiment:
    programs = lab.directory / "programs"
    shutil.copy(programs / "pipes", programs / "load")
    facts: dict[str, object] = {
        "labels": ("good", "bad"),
        "programs": {name: hash_of(programs / name) for name in ("load", "pipes")},
        "sets": (("pipes", ("--cpus=0,0",)),),
        "loads": ("none", "fork"),
        "boots": 2,
    }
    return experiment(**facts | more)


def record(
    output: Path, of: Experiment, figures: Mapping[str, int] = FIGURES, **machines: str
) -> list[Path]:
    """All boots of the experiment, with the figures of their labels."""
    own = ""
    if not machines:
        own = recorded_machine_id(Machine(find(AMD64), "counted", GuestSize()).describe(""))
    sessions = []
    for boot in of.schedule():
        machine = machines.get(boot.label, machines.get("all", own))
        session = write_session(output, of, boot.number, machine_id=machine)
        session.run({"round_trip": [figures[boot.label]] * 10}, order=1, run=1)
        sessions.append(session.path)
    return sessions


def refused(lab: Lab, good: str, bad: str, *more: str) -> str:
    """What klat lab bisect-check says in one line before it ends the bisection."""
    kernel = planted.kernel(lab.directory / "k")
    sides = ("--good", lab.results / good, "--bad", lab.results / bad)
    done = lab.inside("bisect-check", *sides, "--kernel", kernel, *METRIC, *more)
    assert done.returncode == 255, done.stderr
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize(
    ("facts", "machines", "bad", "said"),
    [
        ({}, {"all": "m"}, "bad-fork", "under different loads: none and fork"),
        (NO_LOAD, {"good": "a", "bad": "b"}, "bad", "different QEMUs or on different machines"),
        (NO_LOAD, {"all": "b"}, "bad", "differs from the one that measured good and bad"),
        (
            NO_LOAD | {"programs": {"pipes": "another", "load": ""}},
            *({"all": "m"}, "bad", "pipes was rebuilt since"),
        ),
    ],
    ids="load machines here build".split(),
)
def test_good_and_bad_under_different_conditions_are_refused(lab, qemu, facts, machines, bad, said):
    record(lab.results, planned(lab, **facts), **machines)
    assert said in refused(lab, "good", bad)


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("runs", (1, 9), "measured with different runs"),
        ("programs", ({"pipes": "one"}, {"pipes": "another"}), "different builds of pipes"),
    ],
)
def test_good_and_bad_of_different_experiments_are_refused(lab, name, values, said):
    for side, value in zip(("good", "bad"), values):
        of = planned(lab, loads=("none",), identity=side, **{name: value})
        record(lab.results / side, of, all="m")
    assert said in refused(lab, "good/good", "bad/bad")


def test_boots_under_several_loads_are_not_one_side(lab):
    sessions = record(lab.results, planned(lab), all="m")
    mixed = lab.results / "mixed"
    for session in sessions:
        if session.parent.name in ("good", "good-fork"):
            shutil.copytree(session, mixed / session.name)
    assert "several loads (fork, none)" in refused(lab, "mixed", "bad")


def test_boots_of_several_kernels_or_experiments_are_not_one_side(lab):
    record(lab.results / "both", planned(lab, loads=("none",)), all="m")
    assert "several kernels (bad, good)" in refused(lab, "both", "both/bad")
    for number, identity in enumerate(("x", "y")):
        of = planned(lab, loads=("none",), boots=1, identity=identity)
        record(lab.results / str(number), of, all="m")
    shutil.copytree(lab.results / "1/good/1", lab.results / "0/good/another")
    assert "several experiments (x, y)" in refused(lab, "0/good", "0/bad")


def test_a_verdict_that_cannot_be_printed_ends_the_bisection(lab):
    record(lab.results, planned(lab, loads=("none",)), all="m")
    kernel = planted.kernel(lab.directory / "k")
    sides = ["--good", lab.results / "good", "--bad", lab.results / "bad"]
    words = ["lab", "bisect-check", *map(str, sides), "--kernel", str(kernel), *METRIC]
    program = (
        "import sys; from klat import cli; from klat.lab import bisect;"
        " bisect._measure = lambda *_: 100; sys.exit(cli.main(sys.argv[1:]))"
    )
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        environment = kept | {"PYTHONPATH": str(ROOT / "scripts")}
        python = (sys.executable, "-B", "-c", program)
        done = made_tools.run(*python, *words, env=environment, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 255, done.stderr


def test_boots_of_different_machines_are_not_one_side(lab):
    sessions = record(lab.results, planned(lab, loads=("none",)), all="m")
    one = next(path for path in sessions if path.parent.name == "good") / "session.json"
    one.write_text(one.read_text().replace('"machine_id": "m"', '"machine_id": "n"'))
    assert "not all of one QEMU and one machine" in refused(lab, "good", "bad")


def test_sessions_that_are_not_of_the_lab_are_refused(lab):
    sessions = record(lab.results, planned(lab, loads=("none",)), all="m")
    (sessions[0] / "run.json").write_text("{}")
    assert "is not a session of klat lab" in refused(lab, "good", "bad")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--metric pipes.no_such", "no run with figures of pipes.no_such"),
        ("--metric pipes", "'pipes' is not BENCHMARK.METRIC"),
        ("--statistic worst", "'worst'"),
        ("--good missing", "missing: no such directory"),
        ("--bad results/good", "do not differ in every boot"),
        ("--kernel missing", "there is no missing"),
        ("--kernel ..", "there is no ../arch/x86/boot/bzImage: build it"),
        ("--kernel /etc/passwd", "/etc/passwd: "),
    ],
)
def test_a_bisection_ends_where_its_command_line_is_wrong(lab, words, said):
    record(lab.results, planned(lab, loads=("none",)))
    assert said in refused(lab, "good", "bad", *words.split())


@pytest.mark.parametrize(("load", "ends"), [("none", ""), ("fork", "-fork")])
def test_a_kernel_is_measured_under_the_load_of_good_and_bad_and_no_other(
    lab, monkeypatch, qemu, load, ends
):
    asked: list[Request] = []

    class Attempt:
        """Boots, under each load, a kernel that is like the bad one."""

        def __init__(self, *_: object, **__: object) -> None:
            self.recorded: list[Path] = []

        def begin(self, request: Request, output: Path, jobs: int | None) -> int:
            asked.append(request)
            of = planned(
                lab,
                identity="fresh",
                kernels=("k",),
                labels=("bisected",),
                loads=tuple(request.loads),
                boots=request.boots,
            )
            figures = {"bisected": FIGURES["bad"], "bisected-fork": FIGURES["bad-fork"]}
            self.recorded = record(output, of, figures)
            return 0

    monkeypatch.setattr(bisect, "Attempt", Attempt)
    monkeypatch.setenv("XDG_CACHE_HOME", str(lab.cache))
    monkeypatch.setenv("KLAT_PROGRAMS", lab.environment["KLAT_PROGRAMS"])
    record(lab.results, planned(lab))
    arguments = argparse.Namespace(
        good=lab.results / f"good{ends}",
        bad=lab.results / f"bad{ends}",
        metric="pipes.round_trip",
        statistic="median",
        kernel=planted.kernel(lab.directory / "k"),
        modules=None,
        boots=3,
        time_limit=None,
    )
    assert bisect.check(arguments, ["klat"]) == BAD
    (request,) = asked
    assert (list(request.loads), request.boots) == ([load], 3)


@pytest.mark.parametrize("possible", [True, False])
def test_good_against_bad_is_explained_after_the_verdict_and_does_not_change_it(
    monkeypatch, capsys, possible
):
    asked: list[object] = []

    def explain(paths: list[Path], wanted: Wanted, say: object) -> Explanation:
        asked.append((paths, f"{wanted.benchmark}.{wanted.metric}", wanted.quantile))
        if possible:
            return explained.explanation(explained.BASE, explained.NEW)
        raise KlatError("no kernel")

    monkeypatch.setattr(bisect, "check", lambda *_: BAD)
    monkeypatch.setattr(explaining, "explain", explain)
    good, bad = Path("good"), Path("bad")
    arguments = argparse.Namespace(explain=True, good=good, bad=bad, metric="pipes.round_trip")
    assert _lab_bisect._bisect_check(arguments) == BAD
    assert asked == [([good, bad], "pipes.round_trip", 0.5)]
    shown = capsys.readouterr()
    if possible:
        assert "NEW-BASE" in shown.out
    else:
        assert shown.err == "good and bad cannot be explained: no kernel\n"
