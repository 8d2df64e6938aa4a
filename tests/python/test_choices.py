"""Sweeps over options whose values are words, which have no place on a scale."""

import json
import re

import numpy as np
import pytest
from sweep_figures import blocks, figures, found, needs_gnuplot, nothing_published, point, summary

from klat.compare import sweeps
from klat.compare.published import Published
from klat.stats.descriptive import mean_interval

pytestmark = pytest.mark.usefixtures("nothing_published")


def test_choices_stand_from_the_lowest_figure_to_the_highest(writer):
    for kind, median in (("pipe", 5_200), ("futex", 2_600), ("queue", 7_800)):
        point(writer, f"kind={kind};size=1", median, median + 520)
    (sweep,) = found(writer.path)
    assert (sweep.option, sweep.choices) == ("kind", ("futex", "pipe", "queue"))
    assert [(sweep.text(p.x), p.value) for p in sweep.lines[0].points] == [
        ("futex", 2_860),
        ("pipe", 5_460),
        ("queue", 8_060),
    ]


def test_a_number_that_is_swept_too_is_the_axis(writer):
    for kind in "abcd":
        for size in (1, 2):
            point(writer, f"kind={kind};size={size}", 2_600)
    (sweep,) = found(writer.path)
    assert (sweep.option, sweep.by, sweep.choices) == ("size", ("kind",), ())


def test_choices_beside_a_sweep_of_one_of_them_are_shown_too(writer):
    for size in (1, 2):
        point(writer, f"kind=a;size={size}", 2_600)
    point(writer, "kind=b;size=1", 5_200)
    assert [sweep.option for sweep in found(writer.path)] == ["size", "kind"]


def test_of_two_options_the_one_with_more_choices_is_the_axis(writer):
    for kind in "abc":
        for side in ("near", "far"):
            point(writer, f"side={side};kind={kind}", 2_600)
    (sweep,) = found(writer.path)
    assert (sweep.option, sweep.by) == ("kind", ("side",))
    assert {line.name for line in sweep.lines} == {"near", "far"}


def test_an_obtained_policy_is_not_a_choice(writer):
    point(writer, "kind=a", 2_600, policy="caller=fifo:50")
    point(writer, "kind=a", 2_600, policy="caller=other:0")
    assert found(writer.path) == []


def test_a_choice_without_a_usable_run_is_left_out(writer):
    for kind in "ab":
        point(writer, f"kind={kind}", 2_600)
    point(writer, "kind=c", 2_600, status="invalid", reason="moved")
    assert [sweep.choices for sweep in found(writer.path)] == [("a", "b")]


def test_the_table_names_the_choices(writer, klat):
    for kind, median in (("pipe", 5_200), ("futex", 2_600)):
        point(writer, f"kind={kind};size=1", median, median + 520, evidence="calls_per_item=3")
    rows = [line.split() for line in summary(klat, writer.path).splitlines()]
    at = rows.index(["kind", "runs", "item"])
    assert rows[at + 1 : at + 3] == [["futex", "2", "1,100"], ["pipe", "2", "2,100"]]
    assert ["kind", "runs", "calls_per_item"] in rows
    document = json.loads(summary(klat, writer.path, "--format", "json"))
    points = document["labels"][0]["sweeps"][0]["lines"][0]["points"]
    assert [p["x"] for p in points] == ["futex", "pipe"]


def test_published_figures_of_no_choice_stand_below_the_table(writer, klat, monkeypatch):
    rows = (
        Published("item", "size=1", 16_000, "ns", "another machine"),
        Published("item", "size=2", 1, "ns", "another size"),
        Published("wake", "size=1", 2, "ns", "another metric"),
        Published("item", "size=1;kind=pipe", 17_000, "ns", "a pipe"),
    )
    monkeypatch.setattr(sweeps, "published", lambda benchmark: rows)
    for kind in ("pipe", "futex"):
        point(writer, f"kind={kind};size=1", 2_600)
    out = summary(klat, writer.path)
    assert "published, item: 16,000 ns; another machine" in out
    assert "published, kind=pipe, item: 17,000 ns; a pipe" in out
    assert out.count("published,") == 2


def test_the_interval_of_a_mean_is_students():
    """Of 10, 12, 11, 13, 9, in which there is no positive correlation: t of 4 degrees is 2.776."""
    values = np.array([10.0, 12.0, 11.0, 13.0, 9.0])
    interval = mean_interval(values)
    assert interval is not None
    assert interval[1] - 11 == pytest.approx(2.776 * values.std(ddof=1) / 5**0.5, rel=1e-3)
    assert interval[0] + interval[1] == pytest.approx(22)
    assert mean_interval(np.array([1.0])) is None


def test_runs_of_several_boots_have_no_interval(new_session):
    first, second = new_session("stock/1"), new_session("stock/2", boot_id="another")
    for writer in (first, second):
        for kind in "ab":
            point(writer, f"kind={kind}", 2_600, 2_626, 2_652)
    (one,) = found(first.path)
    (both,) = found(first.path, second.path)
    assert one.lines[0].interval(one.lines[0].points[0]) is not None
    assert both.lines[0].interval(both.lines[0].points[0]) is None


def test_the_figure_has_each_run_the_mean_and_its_interval(writer):
    for kind, median in (("pipe", 5_200), ("futex", 2_600)):
        point(writer, f"kind={kind}", median, median + 520, median + 260)
    (figure,) = figures(writer.path)
    text = "\n".join(figure.commands)
    runs, means = (block.tolist() for block in blocks(figure))
    assert sorted(x for x, _ in runs) == [1, 1.1, 1.2, 2, 2.1, 2.2]
    assert [(round(x, 6), y) for x, y, _, _ in means] == [(1.1, 0), (2.1, -1)]
    assert all(low < x < high for x, _, low, high in means)
    assert "set ytics ('futex' 0, 'pipe' -1)" in text
    assert re.search(r"^set xrange \[0:", text, re.M), "zero is in sight"


@needs_gnuplot
def test_every_kind_of_choice_can_be_drawn(writer, klat, tmp_path):
    for number, kind in enumerate(("a", "it's b", "c" * 60)):
        for side in ("near", "far"):
            counts = f"calls_per_item={number};empty_per_item=0"
            point(writer, f"kind={kind};side={side}", 2_600 + number, evidence=counts)
    status, _, err = klat("plot", "--sweeps", writer.path, "-o", tmp_path / "plots")
    assert (status, err) == (0, "")
    assert {path.name for path in (tmp_path / "plots").glob("*.svg")} == {
        "queue-item-by-kind.svg",
        "queue-calls_per_item-by-kind.svg",
    }
