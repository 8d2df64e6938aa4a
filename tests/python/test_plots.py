from __future__ import annotations

import os
import re
from pathlib import Path

import fakes
import made_tools
import numpy as np
import pytest
from made_tools import script
from sweep_figures import blocks, needs_gnuplot
from test_matrices import write as write_matrix
from written_sessions import Klat, NewSession, RT, SideWriter, SyntheticSession, stepped

from klat.compare.dataset import read_datasets
from klat.report.plot.axis import common_axis, linear_tics, logarithmic_tics, whole_tics
from klat.report.plot.distribution_figures import distribution
from klat.report.plot.gnuplot import Figure
from klat.report.plot.reduction import Band, cumulative, edges, granularity, shares, spread_out
from klat.report.plot.reduction import thinned
from klat.report.plot.run_order import run_series
from klat.report.plot.series import overlays
from klat.stats.distribution import Distribution

FLUSH = "responders={};pages=1"


def fill(writer: SyntheticSession, runs: int = 12, median: int = 52_000) -> SyntheticSession:
    for run in range(1, runs + 1):
        writer.run({"round_trip": stepped(median + 26 * run)}, run=run)
    return writer


def figures(*paths: Path) -> tuple[Figure | None, Figure | None]:
    labels, _ = read_datasets(paths)
    (overlay,) = overlays(labels, [one for label in labels for one in label.by_session()])
    axis = common_axis(labels)
    return distribution(overlay, axis), run_series(overlay, axis)


def test_the_distribution_keeps_both_extremes_and_true_shares():
    ordered = np.sort(np.random.default_rng(1).integers(1_000, 9_000, 300_000).astype(np.uint64))
    ordered[-1] = 10**12
    curve = cumulative(Distribution.of_parts([ordered]))
    assert len(curve.values) < 2_000
    assert (curve.values[0], curve.values[-1]) == (ordered[0], 10**12)
    assert set(ordered[-40:].tolist()) <= set(curve.values.astype(int).tolist())
    assert curve.nines[-1] == pytest.approx(np.log10(len(ordered)))
    for value, nines in list(zip(curve.values, curve.nines))[::97]:
        assert np.mean(ordered >= value) == pytest.approx(10**-nines)


def test_bins_are_multiples_of_the_counters_step():
    values = (26 * np.random.default_rng(2).integers(100, 400, 50_000)).astype(np.uint64)
    values[7] += 1  # one sample off the grid must not hide it
    step = granularity(Distribution.of_parts([values]))
    assert step == 26
    ordered = np.sort(values)
    for logarithmic in (False, True):
        bounds = edges(float(ordered[0]), float(ordered[-1]), step, logarithmic)
        share = shares(Distribution.of_parts([ordered]), bounds, logarithmic)
        assert len(share) <= 130
        rises = share[2:-1] / share[1:-2]
        assert 0.5 < rises.min() and rises.max() < 2
        if not logarithmic:
            assert share.sum() == pytest.approx(1)


@needs_gnuplot
def test_instructions_one_apart_are_in_bins_of_their_own(new_session):
    writer = new_session(mode="counted", unit="instructions")  # its counter has steps of 26
    writer.run({"round_trip": [1966] * 300 + [1967] * 300})
    drawn, _ = figures(writer.path)
    assert drawn
    outline = blocks(drawn)[0]
    assert sorted(set(outline[:, 1])) == [0, 50]


def test_thinning_keeps_the_lowest_and_the_highest_run():
    n = 12_345
    draw = np.random.default_rng(3)
    band = Band(np.arange(n) + 1.0, draw.random(n), draw.random(n) + 1, draw.random(n) + 2)
    band.low[777], band.high[9_999] = -5, 50
    thin = thinned(band)
    assert len(thin.position) <= 1_000
    assert (thin.low.min(), thin.high.max()) == (-5, 50)
    assert thinned(band, n) is band


def test_marks_keep_the_smallest_and_the_largest():
    values = np.random.default_rng(4).random(5_000)
    kept = spread_out(values, 60)
    assert len(kept) <= 60 and {values.min(), values.max()} <= set(kept)


@pytest.mark.parametrize(
    ("low", "high"), [(0.01, 500), (20, 90), (1, 10**9), (999, 1001), (4.8, 6.2), (5e4, 5e4 + 7)]
)
def test_every_axis_has_a_readable_number_of_tics(low, high):
    assert 2 <= linear_tics(low, high).count(",  ") + linear_tics(low, high).count("' ") <= 12
    if high > 4 * low:
        assert 2 <= logarithmic_tics(low, high).count("' ") <= 12


@pytest.mark.parametrize(
    ("low", "high", "most", "places"),
    [
        (1, 9, 9, "1 1.5 2 3 4 5 7"),
        (1, 9, 8, "1 1.5 2 3 5"),
        (1, 20, 9, "1 2 5 10 20"),
        (1, 200, 8, "1 3 10 30 100"),
        (1, 4e5, 9, "1 10 100 1,000 10,000 100,000"),
        (1, 4e5, 4, "1 1,000"),
    ],
)
def test_where_there_are_few_decades_tics_are_between_them(low, high, most, places):
    assert " ".join(re.findall("'([^']+)'", logarithmic_tics(low, high, most))) == places


def test_counts_have_whole_tics():
    for most in (1, 9, 20, 500, 12_345):
        places = re.findall(r"' ([0-9.]+)", whole_tics(0.5, most + 0.5))
        assert places and all(float(place).is_integer() for place in places)


def test_a_distribution_shows_the_longest_sample_of_all_runs(writer):
    fill(writer)
    writer.run({"round_trip": [*stepped(52_000), 26_000_000]}, status="disturbed", reason="steal")
    figure, _ = figures(writer.path)
    assert figure is not None
    assert max(block[:, 0].max() for block in blocks(figure)) == pytest.approx(10_000)
    text = "\n".join(figure.commands)
    assert "set logscale x" in text, "a tail of 500 medians"
    for said in ("stock", "6.1.0-test", "13 runs", "8,191 samples", "max 10,000 us"):
        assert said in text


def test_invalid_runs_are_marked_and_in_no_distribution(writer):
    fill(writer)
    writer.run({"round_trip": stepped(99_000)}, status="invalid", reason="moved")
    writer.run({"round_trip": stepped(60_000)}, status="disturbed", reason="steal")
    spread, series = figures(writer.path)
    assert spread is not None and series is not None
    assert max(block[:, 0].max() for block in blocks(spread)) < 99_000 / 2600
    text = "\n".join(series.commands)
    assert "disturbed, counts (1)" in text and "invalid, does not count (1)" in text
    band, disturbed, invalid = blocks(series)
    assert len(band) == 13 and 13 not in band[:, 0]
    assert disturbed.tolist() == [[14, pytest.approx(60_000 / 2600)]]
    assert invalid.tolist() == [[13, pytest.approx(99_000 / 2600)]]


def test_runs_are_drawn_in_the_order_taken_whatever_the_clock_says(writer):
    later = writer.start_ns + 10**12
    writer.run({"round_trip": stepped(9_100)}, start_ns=later)
    for median in (5_200, 5_460):
        writer.run({"round_trip": stepped(median)})
    _, series = figures(writer.path)
    assert series is not None
    assert blocks(series)[0][:, 2].tolist() == pytest.approx([3.5, 2.0, 2.1])


def test_labels_and_sessions_are_laid_over_each_other(new_session):
    one = fill(new_session("stock/monday"))
    two = fill(new_session("rt/1", label="rt"), median=60_000)
    for figure in figures(one.path, two.path):
        assert figure is not None
        text = "\n".join(figure.commands)
        assert "'stock: Linux" in text and "'rt: Linux" in text
    fill(new_session("stock/tuesday", boot_id="another"))
    spread, _ = figures(one.path.parent)
    assert spread is not None
    text = "\n".join(spread.commands)
    assert "stock/monday" in text and "stock/tuesday" in text


def test_emulated_ticks_are_drawn_as_ticks(new_session):
    writer = fill(new_session(mode="emulated"))
    spread, _ = figures(writer.path)
    assert spread is not None
    text = "\n".join(spread.commands)
    assert "latency (ticks)" in text and "us" not in re.findall(r"\((\w+)\)", text)


@needs_gnuplot
def test_files_have_predictable_names_and_both_kinds(writer, klat, tmp_path):
    fill(writer)
    for count in (0, 2):
        for run in range(3):
            writer.run(
                {"initiator": stepped(15_000 + 20_000 * count + 26 * run)},
                benchmark="tlbflush",
                params=FLUSH.format(count),
            )
    output = tmp_path / "it's" / "plots"
    status, out, err = klat("plot", writer.path, "-o", output)
    assert (status, err) == (0, "")
    assert out.count("\n") == 1 and str(output) in out
    names = {
        "pipes-round_trip-distribution",
        "pipes-round_trip-runs",
        "tlbflush-initiator-responders-0-distribution",
        "tlbflush-initiator-responders-0-runs",
        "tlbflush-initiator-responders-2-distribution",
        "tlbflush-initiator-responders-2-runs",
        "tlbflush-initiator-scaling",
    }
    assert {path.name for path in output.iterdir()} == {
        f"{name}.{kind}" for name in names for kind in ("svg", "png")
    }
    for path in output.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    for path in output.glob("*.svg"):
        assert path.read_text().rstrip().endswith("</svg>")
    assert "slope 7.69 us per responder" in (output / "tlbflush-initiator-scaling.svg").read_text()


@needs_gnuplot
@pytest.mark.parametrize(
    "label", ["", "it's \"%s{}^_", "`id`$(id)", "x\\n\\", "\x1b[31m\n", "ø漢\udcff", "L" * 300]
)
def test_odd_labels_are_drawn_as_they_are(new_session, klat, tmp_path, label):
    writer = fill(new_session(label=label, kernel_release=label))
    status, _, err = klat("plot", writer.path, "-o", tmp_path / "plots")
    assert (status, err) == (0, "")


@needs_gnuplot
@pytest.mark.parametrize(
    "kind", ["one run", "few samples", "constant", "coarse", "zero", "huge", "largest", "invalid"]
)
def test_scarce_and_extreme_data_are_drawn_without_a_complaint(writer, klat, tmp_path, kind):
    data = {
        "one run": [stepped(5_000)],
        "few samples": [[52], [78, 26]],
        "constant": [[520] * 600] * 3,
        "coarse": [[1966] * 625 + [1967] * 5] * 3,  # less apart than a step
        "zero": [[0] * 300 + stepped(9_000), [0] * 630, [0] * 600 + [2600] * 30],
        "huge": [[2**64 - 1, 1] * 300] * 3,
        "largest": [[2**64 - 1] * 600] * 3,
        "invalid": [stepped(5_000)],
    }[kind]
    for run in data:
        status = "invalid" if kind == "invalid" else "ok"
        writer.run({"round_trip": run}, status=status, reason="moved" if status != "ok" else "")
    status_code, _, err = klat("plot", writer.path, "-o", tmp_path / "plots")
    assert (status_code, err) == (0, "")


@needs_gnuplot
def test_a_cut_samples_file_does_not_stop_the_other_figures(writer, klat, tmp_path):
    fill(writer)
    writer.run({"handoff": stepped(8_000)}, benchmark="cv", params="")
    writer.samples_file("pipes").write_bytes(bytes(80))
    status, _, err = klat("plot", writer.path, "-o", tmp_path / "plots")
    assert status == 2
    assert re.fullmatch(r"(klat plot: .*pipes.u64: holds 10 samples.*\n){2}", err)
    assert (tmp_path / "plots" / "cv-handoff-distribution.svg").exists()


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("echo 'line 7: unknown terminal' >&2; exit 1", "unknown terminal"),
        ("exit 0", "wrote nothing"),
    ],
)
def test_a_gnuplot_that_draws_nothing_is_one_line(
    new_session, klat, tmp_path, monkeypatch, does, said
):
    writer = fill(new_session())
    fake = script(tmp_path / "bin/gnuplot", does)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    status, _, err = klat("plot", writer.path, "-o", tmp_path / "plots")
    assert status == 2 and said in err and err.count("\n") == 1


def test_labels_that_share_no_axis_are_refused_by_name(new_session, klat, tmp_path):
    one = fill(new_session("stock/1"))
    two = fill(new_session("icount/1", label="icount", mode="counted", unit="instructions"))
    status, _, err = klat("plot", one.path, two.path, "-o", tmp_path / "plots")
    assert status == 2
    assert "stock" in err and "icount" in err and "instructions" in err
    assert not (tmp_path / "plots").exists()


def test_nothing_to_draw_is_one_line(writer, klat, tmp_path):
    writer.run(status="skipped", reason="needs 2 CPUs")
    status, _, err = klat("plot", writer.path, "-o", tmp_path / "plots")
    assert status == 2
    assert re.fullmatch(r"klat plot: no run has samples.+\n", err)


SENTENCE = "The page has no figures, because gnuplot is not installed; on Debian and Ubuntu: apt install gnuplot-nox."


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("jinja2")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "page.html"


def check(page: Path, err: str) -> None:
    text = page.read_text()
    assert err.count(SENTENCE) == 1
    assert text.count(SENTENCE) == 1 and "<figure" not in text and 'class="figures"' not in text


def test_a_comparison_has_its_page_without_figures(side: SideWriter, klat: Klat, page: Path):
    status, out, err = klat("compare", side("stock"), side("rt", 1.2, **RT), "--html", page)
    assert status == 1 and "slower" in out
    check(page, err)
    assert "2 slower: regression" in page.read_text()


def test_a_history_has_its_page_without_figures(new_session: NewSession, klat: Klat, page: Path):
    boots = [[[50_000 + boot] * 600] * 3 for boot in range(8)]
    path = new_session.label("stock", boots)
    _, _, err = klat("history", path, "--html", page)
    check(page, err)


def test_a_summary_has_its_page_without_its_map(writer: SyntheticSession, klat: Klat, page: Path):
    write_matrix(writer, [(0, 1), (1, 0)])
    status, _, err = klat("summary", writer.path, "--html", page)
    assert status == 0
    check(page, err)


def test_a_page_that_never_has_figures_says_nothing(side: SideWriter, klat: Klat, page: Path):
    status, _, err = klat("summary", side("stock"), "--html", page)
    assert (status, err) == (0, "") and SENTENCE not in page.read_text()


def test_a_plot_is_an_error_with_its_cure(writer: SyntheticSession, klat: Klat, page: Path):
    writer.run({"round_trip": [50_000] * 600})
    status, out, err = klat("plot", writer.path, "-o", page.parent / "plots")
    assert (status, out) == (2, "")
    assert re.fullmatch(r"klat plot: .*apt install gnuplot-nox\n", err)


@pytest.mark.parametrize("is_installed", [True, False])
def test_a_session_advises_a_plot_only_with_gnuplot(is_installed: bool, tmp_path: Path):
    directory = tmp_path / "bin"
    directory.mkdir()
    if is_installed:
        made_tools.script(directory / "gnuplot", "exit 0")
    done = fakes.Klat(tmp_path)(
        "run", "pipes", "--runs", "1", status=0, more={"PATH": str(directory)}
    )
    advice = done.stderr.split("next: ")[1]
    assert "klat summary" in advice and ("klat plot" in advice) == is_installed
