from __future__ import annotations

import json
import re

import pytest
from made_tools import script
from sweep_figures import blocks, figures, found, needs_gnuplot, nothing_published, point, summary
from written_sessions import PIPES, SyntheticSession, stepped

from klat.compare import published, sweeps
from klat.compare.sweep_shapes import crossings, knee
from klat.compare.published import Published
from klat.compare.sweeps import Sweep

pytestmark = pytest.mark.usefixtures("nothing_published")


def values(sweep: Sweep) -> dict[str, dict[float, float]]:
    return {line.name: {p.x: p.value for p in line.points} for line in sweep.lines}


def test_the_option_with_the_most_values_is_the_axis_and_the_other_makes_lines(writer):
    for size in (1, 10, 100):
        for depth in (4, 8):
            point(writer, f"size={size};depth={depth};kind=a", 1_000 * size + depth * 26)
    (sweep,) = found(writer.path)
    assert (sweep.option, sweep.name, sweep.by) == ("size", "item", ("depth",))
    assert values(sweep)["depth=8"] == {1: 1_208, 10: 10_208, 100: 100_208}
    assert values(sweep)["depth=4"][100] == 100_104


def test_options_swept_one_after_the_other_are_two_sweeps(writer):
    for size in (1, 2, 3):
        point(writer, f"size={size};depth=4", 1_000 * size)
    for depth in (8, 16):
        point(writer, f"size=1;depth={depth}", 1_000 * depth)
    by_size, by_depth = found(writer.path)
    assert (by_size.option, by_depth.option) == ("size", "depth")
    assert values(by_depth) == {"item": {4: 1_000, 8: 8_000, 16: 16_000}}


def test_the_metrics_of_one_setting_are_lines_of_one_sweep(writer):
    for size in (1, 2):
        metrics = {"item": stepped(1_000 * size), "wake": stepped(500 * size)}
        writer.run(metrics, benchmark="queue", params=f"size={size}")
    (sweep,) = found(writer.path)
    assert values(sweep) == {"item": {1: 1_000, 2: 2_000}, "wake": {1: 500, 2: 1_000}}


def test_counts_that_are_figures_are_swept_and_evidence_is_not(writer):
    for size in (1, 2):
        counts = f"locked=1;net_ticks={-26 * size};messages_per_second={1000 * size}"
        point(writer, f"size={size}", 1_000, evidence=counts)
    times, rate = found(writer.path)
    assert values(times)["net"] == {1: -26, 2: -52}
    assert (rate.name, rate.is_time) == ("messages_per_second", False)
    assert values(rate) == {"messages_per_second": {1: 1_000, 2: 2_000}}
    assert "locked" not in values(times)
    assert times.without_median == "; net: one figure a run" and not rate.without_median


def test_a_parameter_that_follows_from_the_axis_is_no_line(writer):
    for count, place in ((1, "one-cpu"), (2, "same-llc"), (3, "same-llc")):
        point(writer, f"threads={count};cpus={'0,' * count}1", 1_000 * count, placement=place)
    (sweep,) = found(writer.path)
    assert values(sweep) == {"item": {1: 1_000, 2: 2_000, 3: 3_000}}


def test_a_policy_that_follows_from_the_axis_is_no_line(writer):
    """A chain of locks has a priority for each lock."""
    for count in (1, 2, 3):
        point(writer, f"depth={count}", 1_000 * count, policy=f"high=fifo:{20 + count}")
    (sweep,) = found(writer.path)
    assert values(sweep) == {"item": {1: 1_000, 2: 2_000, 3: 3_000}}


def test_a_policy_that_is_measured_at_each_value_is_a_line(writer):
    for size in (1, 2):
        for policy, place in (("fifo:50", "one-cpu"), ("other:0", "same-llc")):
            point(writer, f"size={size}", 1_000 * size, policy=f"high={policy}", placement=place)
    (sweep,) = found(writer.path)
    assert [point.x for line in sweep.lines for point in line.points] == [1, 2, 1, 2]
    assert "policy" in sweep.by


def test_a_placement_that_is_measured_at_each_value_is_a_line(writer):
    for size in (1, 2):
        for place, factor in (("one-cpu", 1), ("same-llc", 3)):
            point(writer, f"size={size}", 1_000 * size * factor, placement=place)
    (sweep,) = found(writer.path)
    assert values(sweep) == {"one-cpu": {1: 1_000, 2: 2_000}, "same-llc": {1: 3_000, 2: 6_000}}


def test_runs_that_do_not_count_are_in_no_sweep(writer):
    for size in (1, 2, 3):
        point(writer, f"size={size}", 1_000 * size)
        point(writer, f"size={size}", 9_000, status="invalid", reason="moved")
    point(writer, "size=4", 4_000, status="invalid", reason="moved")
    (sweep,) = found(writer.path)
    assert values(sweep) == {"item": {1: 1_000, 2: 2_000, 3: 3_000}}


def test_the_number_of_iterations_is_not_an_axis(writer):
    for count in (500, 1_000):
        point(writer, f"size=1;iterations={count};warmup=50", 1_000)
    assert found(writer.path) == []


def test_a_shootdown_over_responders_keeps_its_own_table(writer):
    for responders in (0, 1):
        for pages in (1, 33):
            params = f"responders={responders};pages={pages}"
            writer.run({"initiator": stepped(9_000)}, benchmark="tlbflush", params=params)
    (sweep,) = found(writer.path)
    assert (sweep.option, sweep.by) == ("pages", ("responders",))


def test_labels_are_laid_over_each_other(new_session):
    one, two = new_session("stock/1"), new_session("rt/1", label="rt")
    for size in (1, 2):
        point(one, f"size={size}", 1_000 * size)
        point(two, f"size={size}", 3_000 * size)
    (sweep,) = found(one.path, two.path)
    assert values(sweep) == {"stock": {1: 1_000, 2: 2_000}, "rt": {1: 3_000, 2: 6_000}}


def crossing_session(writer: SyntheticSession, noise: int) -> None:
    """spin=1 costs what idle does; spin=0 always 5,200."""
    for idle in (1_000, 3_000, 10_000, 30_000):
        for spin, base in ((0, 5_200), (1, idle)):
            point(writer, f"idle={idle};spin={spin}", base - noise, base, base + noise)


def test_a_crossing_of_two_lines_is_found(writer):
    crossing_session(writer, 26)
    (sweep,) = found(writer.path)
    (crossing,) = crossings(sweep)
    assert (crossing.low.name, crossing.until) == ("spin=1", 3_000)
    assert (crossing.high.name, crossing.since) == ("spin=0", 10_000)


def test_a_crossing_within_the_noise_is_not_found(writer):
    crossing_session(writer, 700)
    for idle in (1_000, 3_000, 10_000, 30_000):
        point(writer, f"idle={idle};spin=0", 26_000)
    (sweep,) = found(writer.path)
    assert crossings(sweep) == []


def test_a_crossing_within_the_variation_of_boots_is_not_found(new_session):
    # Of each boot every run is alike, and in two of three boots the lines change places.
    paths = []
    for boot, (first, last) in enumerate(((100, -100), (90, -90), (-110, 110))):
        writer = new_session(f"stock/{boot}", boot_id=f"boot-{boot}")
        for idle, ahead in ((1, first), (2, last)):
            for spin in (0, 1):
                middle = 5_200 + spin * ahead
                point(writer, f"idle={idle};spin={spin}", middle - 1, middle, middle + 1)
        paths.append(writer.path)
    (sweep,) = found(paths[0].parent)
    assert crossings(sweep) == []
    (alone,) = found(paths[0])
    assert len(crossings(alone)) == 1


def test_a_crossing_within_a_step_of_the_counter_is_not_found(writer):
    for idle, ahead in ((1, 26), (2, 26), (3, -26), (4, -26)):
        for spin in (0, 1):
            middle = 5_200 + spin * ahead
            point(writer, f"idle={idle};spin={spin}", middle, middle, middle)
    (sweep,) = found(writer.path)
    assert crossings(sweep) == []


def test_the_interval_of_a_point_has_half_a_step_of_the_counter_at_each_end(writer):
    for size in (1, 2):
        counts = f"net_ticks={520 * size};items_per_second={70 * size}"
        point(writer, f"size={size}", *[1_014 * size] * 3, evidence=counts)
    medians, nets, rates = (
        [line.interval(held) for held in line.points]
        for sweep in found(writer.path)
        for line in sweep.lines
    )
    assert medians == [(1_001, 1_027), (2_015, 2_041)]
    assert nets == [(507, 533), (1_027, 1_053)]
    assert rates == [(70, 70), (140, 140)]


def test_a_point_that_the_counter_does_not_resolve_has_no_digits_below_its_step(writer, klat):
    for size, nets in ((1, (1_000, 1_000, 1_000)), (2, (1_000, 1_060, 1_120))):
        for run, net in enumerate(nets):
            counts, held = f"net_ticks={net}", stepped(1_000)[run:]
            writer.run({"item": held}, benchmark="queue", params=f"size={size}", evidence=counts)
    rows = [line.split() for line in summary(klat, writer.path).splitlines()]
    assert ["size", "runs", "item", "net"] in rows
    assert ["1", "3", "380", "380"] in rows  # 385 ns, and a step of 10
    assert ["2", "3", "380", "408"] in rows


def test_metrics_are_not_held_against_each_other(writer):
    for size, item in ((1, 1_000), (2, 9_000)):
        for _ in range(2):
            metrics = {"item": stepped(item), "wake": stepped(5_000)}
            writer.run(metrics, benchmark="queue", params=f"size={size}")
    (sweep,) = found(writer.path)
    assert crossings(sweep) == []


@pytest.mark.parametrize(
    "rates, end", [((10, 19, 36, 60), 4), ((10, 17, 40, 80), 1), ((10, 20, 39, 73), None)]
)
def test_the_knee_is_where_pairs_begin_to_share(writer, klat, rates, end):
    for pairs, rate in zip((1, 2, 4, 8), rates):
        point(writer, f"pairs={pairs}", 1_000, evidence=f"iterations_per_second={rate}")
    times, sweep = found(writer.path)
    assert knee(sweep, sweep.lines[0]) == end
    assert knee(times, times.lines[0]) is None
    sentence = f"the knee of iterations_per_second is at pairs={end}: at the next value it is less"
    assert (sentence in " ".join(summary(klat, writer.path).split())) == (end is not None)
    drawn = [any("graph 1 nohead" in c for c in figure.commands) for figure in figures(writer.path)]
    assert drawn == [False, end is not None]


def test_the_table_has_a_row_for_each_value(writer, klat):
    crossing_session(writer, 26)
    out = summary(klat, writer.path)
    table = out[out.index("queue item by idle, for each spin") :].splitlines()
    rows = [line.split() for line in table]
    assert ["idle", "runs", "spin=0", "spin=1"] in rows
    assert ["3,000", "3", "2,000", "1,154"] in rows  # nanoseconds of 2.6 ticks
    assert "item is shorter for spin=1 up to idle=3,000, for spin=0 from 10,000 on" in " ".join(
        out.split()
    )
    document = json.loads(summary(klat, writer.path, "--format", "json"))
    (sweep,) = document["labels"][0]["sweeps"]
    assert sweep["option"] == "idle" and sweep["by"] == ["spin"]
    first = sweep["lines"][1]["points"][0]
    low, high = first.pop("interval")
    assert first == {"x": 1_000, "runs": 3, "value": 1_000} and low < 1_000 < high


def test_a_point_that_is_missing_is_not_invented(writer, klat):
    for size, kinds in ((1, "ab"), (2, "a"), (3, "ab")):
        for kind in kinds:
            point(writer, f"size={size};kind={kind}", 2_600 * size)
    rows = [line.split() for line in summary(klat, writer.path).splitlines()]
    assert ["2", "1", "2,000", "n/a"] in rows


def test_many_lines_are_folded_into_80_columns(writer, klat):
    kinds = [f"a-long-name-{i}" for i in range(14)]
    for size in (1, 10**9):
        for kind in kinds:
            point(writer, f"size={size};kind={kind}", 2_600)
    out = summary(klat, writer.path)
    assert max(map(len, out.splitlines())) <= 80
    assert all(re.search(rf" {kind}\b", out[out.index("queue item by") :]) for kind in kinds)


FIGURE = Published("item", "size=10;kind=a", 16_000, "ns", "another machine")


def test_a_published_figure_stands_at_its_value_of_the_option(writer, klat, monkeypatch):
    others = [
        Published("item", "kind=a", 1, "ns", "not placed"),
        Published("item", "size=10;kind=a", 2, "cycles", "of an unknown frequency"),
        Published("wake", "size=10;kind=a", 3, "ns", "another metric"),
        Published("item", "size=11;kind=a", 4, "ns", "not measured here"),
    ]
    monkeypatch.setattr(sweeps, "published", lambda benchmark: (FIGURE, *others))
    for size in (1, 10):
        for kind in "ab":
            point(writer, f"size={size};kind={kind}", 2_600)
    (sweep,) = found(writer.path)
    assert [line.published for line in sweep.lines] == [[(10, FIGURE)], []]
    out = summary(klat, writer.path)
    assert "published, size=10, a: 16,000 ns; another machine" in out
    assert out.count("published,") == 1


def test_published_figures_come_from_the_program(tmp_path, monkeypatch):
    row = '{"metric": "item", "params": "size=10;kind=a", "value": 16000.0, "unit": "ns", '
    row += '"about": "another machine"}'
    described = f"[ $1 = --print-benchmark ] && echo '{{\"published\": [{row}]}}'"
    program = script(tmp_path / "queue", f"[ $1 = --help ] && echo --record\n{described}\nexit 0")
    monkeypatch.setenv("KLAT_PROGRAMS", str(tmp_path))
    published.published.cache_clear()
    assert published.published("queue") == (FIGURE,)
    program.write_text("#!/bin/sh\n[ $1 = --help ] && echo --record || echo nonsense\n")
    published.published.cache_clear()
    assert published.published("queue") == ()
    assert published.published("absent") == ()
    published.published.cache_clear()


def test_an_axis_over_decades_is_logarithmic_and_another_is_not(writer):
    for size in (1, 100, 10_000):
        point(writer, f"size={size}", 2_600)
    (figure,) = figures(writer.path)
    assert figure.name == "queue-by-size"
    assert "set logscale x" in figure.commands and "set logscale y" not in figure.commands


def test_the_figure_holds_each_run_and_the_mean(writer):
    for size in (1, 2):
        point(writer, f"size={size}", 2_600 * size, 7_800 * size)
    (figure,) = figures(writer.path)
    runs, means = blocks(figure)
    assert runs.tolist() == [[1, 1], [1, 3], [2, 2], [2, 6]]
    assert means.tolist() == [[1, 2], [2, 4]]


def test_zero_has_a_place_on_a_logarithmic_axis(writer):
    for size in (0, 10, 1_000):
        point(writer, f"size={size}", 2_600)
    (figure,) = figures(writer.path)
    places = blocks(figure)[1][:, 0]
    assert 0 < places[0] < 10 and places[1:].tolist() == [10, 1_000]
    assert any("'0' " in command for command in figure.commands)


def test_more_lines_than_colours_are_several_figures(writer):
    for size in (1, 2):
        for kind in range(13):
            point(writer, f"size={size};kind=k{kind}", 2_600)
    assert [f.name for f in figures(writer.path)] == ["queue-item-by-size", "queue-item-by-size-2"]


@needs_gnuplot
def test_sweeps_alone_can_be_drawn(writer, klat, tmp_path):
    for size in (0, 1, 1_000):
        counts = f"messages_per_second={1000 * size};net_ticks={size - 500}"
        for kind in "ab":
            point(writer, f"size={size};kind={kind}", 520 * (size + 1), 530, evidence=counts)
    status, _, err = klat("plot", "--sweeps", writer.path, "-o", tmp_path / "plots")
    assert (status, err) == (0, "")
    assert {path.name for path in (tmp_path / "plots").glob("*.svg")} == {
        "queue-item-by-size.svg",
        "queue-net-by-size.svg",
        "queue-messages_per_second-by-size.svg",
    }


def test_without_a_sweep_there_is_nothing_to_draw(writer, klat):
    writer.run({"round_trip": stepped(5_000)}, params=PIPES)
    status, _, err = klat("plot", "--sweeps", writer.path)
    assert status == 2
    assert err == (
        "klat plot: no option was swept, or none changed a figure: there is nothing to draw\n"
    )
