"""Which sample of a record `klat lab explain` chooses."""

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import explained
import pytest
from labs import experiment, write_session
from written_sessions import PIPES, SyntheticSession

from klat.commands import _lab_explain
from klat.base.errors import KlatError
from klat.compare.dataset import read_dataset
from klat.explain import stamps
from klat.lab import choosing, explaining, trend
from klat.lab.architectures import ARM64, HOST
from klat.lab.choosing import GuestPrograms, Wanted
from klat.record.session import find_sessions

ONE, MANY = (f"{params};iterations=3;warmup=2" for params in (PIPES, PIPES.replace("=1", "=64")))


@pytest.fixture
def label(tmp_path: Path) -> Path:
    """Runs that alternate between two parameter sets. One of the sets has a further metric."""
    session = SyntheticSession(tmp_path / "label/1", mode="counted", unit="instructions")
    session.run({"round_trip": [10, 11, 12]}, params=ONE, order=1, run=1)
    session.run({"round_trip": [20, 21, 22], "more": [5, 5, 5]}, params=MANY, order=2, run=1)
    session.run({"round_trip": [13, 14, 15]}, params=ONE, order=3, run=2)
    return tmp_path / "label"


def test_the_typical_sample_is_one_of_the_wanted_parameters(label):
    chosen = choosing.choose(label, Wanted("pipes", "round_trip", where=(("bytes", "64"),)))
    assert (chosen.sample, chosen.run, chosen.wanted_runs) == (21, 1, [1])
    chosen = choosing.choose(label, Wanted("pipes", "round_trip", where=(("bytes", "1"),)))
    assert (chosen.sample, chosen.run, chosen.wanted_runs) == (12, 0, [0, 2])
    assert chosen.params == (("bytes", "1"),)


@pytest.mark.parametrize("where", [(), (("bytes", "65"),), (("byte", "1"),)])
def test_a_refusal_lists_the_parameters_that_are_there(label, where):
    with pytest.raises(KlatError, match="bytes=1; bytes=64$"):
        choosing.choose(label, Wanted("pipes", "round_trip", where=where))


def two_boots(tmp_path: Path, samples: list[int], **facts: Any) -> Path:
    """A label with a boot of an experiment, and its second boot or one of an experiment with other facts."""
    own: dict[str, Any] = {
        "kernels": ("k",),
        "labels": ("label",),
        "releases": ("6.1",),
        "hashes": ("a",),
    }
    for number, values in ((1, [10, 10, 10]), (2, samples)):
        planned = experiment(**(own | facts if number == 2 else own))
        session = write_session(tmp_path, planned, number)
        session.run({"round_trip": values}, params=ONE)
    return tmp_path / "label"


def test_the_quantile_is_of_all_boots_of_an_experiment(tmp_path):
    label = two_boots(tmp_path, [20, 21, 22])
    chosen = choosing.choose(label, Wanted("pipes", "round_trip", quantile=5 / 6))
    assert (chosen.sample, chosen.session.path.name) == (21, "2")


def test_the_choice_does_not_depend_on_which_boot_ended_first(tmp_path):
    """Parallel guests end in any order, and the names of sessions are times. A second report would explain other samples."""
    label = two_boots(tmp_path, [10, 10, 10])
    for first, second in (("1", "2"), ("b", "a")):
        for old, new in zip("12", (first, second)):
            (label / old).rename(label / new)
        assert choosing.choose(label, Wanted("pipes", "round_trip")).session.path.name == first
        dataset = read_dataset(label)
        (key,) = dataset.cells
        (session,) = trend.sessions_to_repeat([(dataset, key, 10.0)])
        assert session.name == first


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("kernel", {"hashes": ("b",)}),
        ("program", {"programs": {"pipes": "1"}}),
        ("command line", {"append": "quiet"}),
    ],
)
def test_sessions_of_different_conditions_are_not_pooled(tmp_path, name, facts):
    label = two_boots(tmp_path, [20, 21, 22], **facts)
    with pytest.raises(KlatError, match=f"differ in {name}; give one session: 1, 2$"):
        choosing.choose(label, Wanted("pipes", "round_trip"))
    assert choosing.choose(label / "2", Wanted("pipes", "round_trip")).sample == 21


def test_sessions_without_the_metric_do_not_matter(tmp_path):
    label = two_boots(tmp_path, [], hashes=("b",))
    assert choosing.choose(label, Wanted("pipes", "round_trip")).sample == 10


def test_several_labels_are_refused(tmp_path):
    for label in ("b", "a"):
        session = SyntheticSession(tmp_path / label / "1", label=label)
        session.run({"round_trip": [10, 11, 12]}, params=ONE)
    for refused in (
        lambda: choosing.choose(tmp_path, Wanted("pipes", "round_trip")),
        lambda: choosing.every(tmp_path, ()),
    ):
        with pytest.raises(KlatError, match="holds sessions of 2 labels; give one: a, b$"):
            refused()


def test_one_session_is_not_two_sides(label):
    wanted = Wanted("pipes", "round_trip", where=(("bytes", "1"),))
    sides = [choosing.choose(path, wanted) for path in (label, label / "1")]
    with pytest.raises(KlatError, match="label/1: is BASE and NEW; give two sessions$"):
        choosing.check_sides(*sides)


def side(path: Path, params: str) -> choosing.Chosen:
    session = SyntheticSession(path, mode="counted", unit="instructions")
    session.run({"round_trip": [10, 11, 12]}, params=params)
    return choosing.choose(path, Wanted("pipes", "round_trip"))


def test_sides_with_different_options_are_refused(tmp_path):
    base, new = side(tmp_path / "a/1", ONE), side(tmp_path / "b/1", MANY)
    with pytest.raises(KlatError, match="b/1: NEW ran with bytes=64, and BASE with bytes=1; give"):
        choosing.check_sides(base, new)
    more = ONE.replace("warmup=2", "warmup=3")
    choosing.check_sides(base, side(tmp_path / "c/1", more))


def test_every_metric_comes_with_each_parameter_set_that_has_it(label):
    one, many = (("bytes", "1"),), (("bytes", "64"),)
    assert [(each.metric, each.where) for each in choosing.every(label, ())] == [
        ("round_trip", one),
        ("round_trip", many),
        ("more", ()),
    ]
    assert [each.metric for each in choosing.every(label, one)] == ["round_trip"]


def test_a_metric_that_cannot_be_explained_leaves_the_others(monkeypatch, capsys):
    chosen = [explained.explanation(explained.BASE)]
    failures = {"eventloop.total": KlatError("not found")}
    monkeypatch.setattr(explaining, "explain_every", lambda *_: (chosen, failures))
    parser = argparse.ArgumentParser()
    _lab_explain.add_parser(parser.add_subparsers())
    arguments = parser.parse_args(["explain", "results"])
    assert arguments.func(arguments) == 1
    shown = capsys.readouterr()
    assert "pipes.round_trip, typical sample" in shown.out
    assert shown.err == "eventloop.total cannot be explained: not found\n"


def test_every_metric_is_of_all_sessions(tmp_path, monkeypatch):
    """Each session may have run other programs."""
    for number, name in ((1, "pipes"), (2, "cv")):
        session = write_session(tmp_path, experiment(labels=("label", "label")), number)
        session.run({"m": [10, 11, 12]}, benchmark=name, params=ONE)
    guests = {
        session: SimpleNamespace(
            boot=SimpleNamespace(programs={name: b""}), programs=GuestPrograms(tmp_path / name)
        )
        for session, name in zip(find_sessions(tmp_path / "label"), ("pipes", "cv"))
    }
    monkeypatch.setattr(stamps, "bounds_of_all", lambda program: {"m": None})
    emulator = SimpleNamespace(architecture=HOST)
    replays = explaining._Replays(emulator, *[None] * 4, 1, guests)  # type: ignore[arg-type, call-arg]
    chosen = replays.explainable(tmp_path / "label", Wanted("", ""))
    assert [each.benchmark for each in chosen] == ["cv", "pipes"]


def test_the_metrics_of_another_architectures_program_are_those_of_this_machines(lab, monkeypatch):
    """This machine cannot run the guest's program."""
    monkeypatch.setenv("KLAT_PROGRAMS", lab.environment["KLAT_PROGRAMS"])
    emulator = SimpleNamespace(architecture=ARM64)
    replays = explaining._Replays(emulator, *[None] * 4)  # type: ignore[arg-type]
    guests = lab.directory / "pipes"
    assert replays._runnable(guests) == lab.directory / "programs/pipes"
    with pytest.raises(KlatError, match="no benchmark|no pipe|unknown|there is no"):
        replays._runnable(lab.directory / "pipe")


def test_a_program_without_stamps_has_another_command_as_its_cure(monkeypatch, tmp_path):
    replays = explaining._Replays.__new__(explaining._Replays)
    monkeypatch.setattr(choosing, "every", lambda path, where: [])
    monkeypatch.setattr(
        explaining._Replays, "_programs", lambda _, path, names: {"noise": tmp_path}
    )
    monkeypatch.setattr(explaining._Replays, "_bounds", lambda _, path: [])
    with pytest.raises(KlatError, match="no sample of noise begins.*; klat explain noise traces"):
        replays.explainable(tmp_path, Wanted("", ""))
