"""Which sample `klat lab explain` takes of a record."""

from __future__ import annotations

import argparse
from pathlib import Path

import explained
import pytest
from written_sessions import PIPES, SyntheticSession

from klat.commands import _lab_explain
from klat.base.errors import KlatError
from klat.lab import choosing, explaining
from klat.lab.choosing import Wanted

ONE, MANY = (f"{params};iterations=3;warmup=2" for params in (PIPES, PIPES.replace("=1", "=64")))


@pytest.fixture
def label(tmp_path: Path) -> Path:
    """Runs of two parameter sets by turns, and a metric that only one of them has."""
    session = SyntheticSession(tmp_path / "label/1", mode="counted", unit="instructions")
    session.run({"round_trip": [10, 11, 12]}, params=ONE, order=1, run=1)
    session.run({"round_trip": [20, 21, 22], "more": [5, 5, 5]}, params=MANY, order=2, run=1)
    session.run({"round_trip": [13, 14, 15]}, params=ONE, order=3, run=2)
    return tmp_path / "label"


def test_the_typical_sample_is_one_of_the_wanted_parameters(label: Path) -> None:
    found = choosing.choose(label, Wanted("pipes", "round_trip", where=(("bytes", "64"),)))
    assert (found.sample, found.run, found.own) == (21, 1, [1])
    found = choosing.choose(label, Wanted("pipes", "round_trip", where=(("bytes", "1"),)))
    assert (found.sample, found.run, found.own) == (12, 0, [0, 2])
    assert found.params == (("bytes", "1"),)


@pytest.mark.parametrize("where", [(), (("bytes", "65"),), (("byte", "1"),)])
def test_a_refusal_lists_the_parameters_that_are_there(label: Path, where: choosing.Params) -> None:
    with pytest.raises(KlatError, match="bytes=1; bytes=64$"):
        choosing.choose(label, Wanted("pipes", "round_trip", where=where))


def test_every_metric_comes_with_each_parameter_set_that_has_it(label: Path) -> None:
    one, many = (("bytes", "1"),), (("bytes", "64"),)
    assert [(each.metric, each.where) for each in choosing.every(label, ())] == [
        ("round_trip", one),
        ("round_trip", many),
        ("more", ()),
    ]
    assert [each.metric for each in choosing.every(label, one)] == ["round_trip"]


def test_a_metric_that_cannot_be_explained_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [explained.explanation(explained.BASE)]
    failures = {"eventloop.total": KlatError("not found")}
    monkeypatch.setattr(explaining, "explain_every", lambda *_: (found, failures))
    parser = argparse.ArgumentParser()
    _lab_explain.add_parser(parser.add_subparsers())
    arguments = parser.parse_args(["explain", "results"])
    assert arguments.func(arguments) == 1
    shown = capsys.readouterr()
    assert "pipes.round_trip, typical sample" in shown.out
    assert shown.err == "eventloop.total cannot be explained: not found\n"
