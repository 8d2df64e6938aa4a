"""The tail as a figure: the share of samples at or above each value, with a line for each boot."""

import re
import shutil

import numpy as np
import pytest
from sweep_figures import blocks
from written_sessions import SOAK, SyntheticSession

from klat.compare.dataset import read_datasets
from klat.report.plot.axis import Axis, common_axis
from klat.report.plot.gnuplot import BLUE, Figure
from klat.report.plot.reduction import Band, stepped
from klat.report.plot.run_order import run_series
from klat.report.plot.series import overlays
from klat.report.plot.distribution_figures import Drawn, LimitLine, tail
from klat.stats.distribution import Distribution

BODY = np.arange(1000, 1990, dtype=np.uint64)
BOOTS = [np.append(BODY, [9_000] * 10), np.append(BODY, [20_000] * 10)]


def drawn(*boots: np.ndarray) -> Drawn:
    counted = tuple(Distribution.of(boot.astype(np.uint64)) for boot in boots)
    return Drawn(Distribution.merged(counted), 1, 0.01, BLUE, "1", counted)


def curves(figure: Figure) -> list[tuple[str, np.ndarray]]:
    """The style and the points of each curve."""
    text = "\n".join(figure.commands)
    found = []
    for command in figure.curves:
        if name := re.match(r"(\$block\d+) .* with fsteps (.*)", command):
            (block,) = re.findall(rf"\{name[1]} << EOD\n(.*?)\nEOD", text, re.S)
            rows = [[float(x) for x in row.split()] for row in block.splitlines()]
            found.append((name[2], np.array(rows)))
    return found


def test_a_curve_has_the_share_of_samples_at_or_above_each_value():
    figure = Figure("x")
    note = tail(figure, [drawn(BOOTS[0])], Axis("us"))
    ((_, points),) = curves(figure)
    share = dict(points[:-1].tolist())
    assert share[10.0] == 0 and share[90.0] == pytest.approx(-2)
    assert points[-1, 0] == 90.0 and points[-1, 1] < -3, "no sample is longer"
    assert note == "all samples, to the maximum"


def test_each_boot_has_a_thin_line_to_its_own_maximum():
    figure = Figure("x")
    note = tail(figure, [drawn(*BOOTS)], Axis("us"))
    *thin, (style, whole) = curves(figure)
    assert [points[-1, 0] for _, points in thin] == [90.0, 200.0] and whole[-1, 0] == 200.0
    assert all("linewidth 0.4" in one for one, _ in thin) and "linewidth 2" in style
    assert "thin: each boot" in note


def test_both_axes_are_logarithmic():
    figure = Figure("x")
    tail(figure, [drawn(*BOOTS)], Axis("us"))
    text = "\n".join(figure.commands)
    assert "set logscale x" in text
    assert "set ytics ('1' 0, '1/10' -1, '1/100' -2, '1/1,000' -3)" in text


@pytest.mark.parametrize("value", [0.5, 100.0, 5000.0])
def test_a_limit_is_a_line_inside_the_panel(value):
    figure = Figure("x")
    tail(figure, [drawn(*BOOTS)], Axis("us"), limit=LimitLine("L", value))
    text = "\n".join(figure.commands)
    assert f"set arrow from first {value:g}, graph 0 to first {value:g}, graph 1" in text
    ((low, high),) = re.findall(r"set xrange \[(.*):(.*)\]", text)
    assert float(low) < value < float(high) and "'limit L'" in text


def test_a_soak_is_drawn_by_segment_with_its_p999_and_its_maximum(writer):
    for number in range(3):
        held = [2600 * (1 + i % 9) for i in range(6000)]
        held[0] = 260_000 * (1 + number)
        held[1:11] = [26_000 * (2 + number)] * 10
        writer.run({"m": held}, params=SOAK, run=number + 1)
    labels, _ = read_datasets([writer.path])
    (overlay,) = overlays(labels, labels)
    figure = run_series(overlay, common_axis(labels), LimitLine("150us", 150.0))
    assert figure is not None and figure.name == "pipes-m-segments"
    text = "\n".join(figure.commands)
    assert not re.search(r"\bruns?\b", text)
    for said in ("segment by segment", "minimum to p99.9", "3 segments", "'segment of 60 s, in"):
        assert said in text
    written = re.findall(r"<< EOD\n(.*?)\nEOD", text, re.S)
    band, longest = ([line.split() for line in block.splitlines()] for block in written)
    steps = [["1", "5", "20"], ["1", "5", "30"], ["1", "5", "40"]]
    assert [row[1:] for row in band[:-1:2]] == [row[1:] for row in band[1::2]] == steps
    assert [row[0] for row in band] == ["0.5", "1.5", "1.5", "2.5", "2.5", "3.5", "NaN"]
    assert longest == [["1", "100"], ["2", "200"], ["3", "300"]]
    assert "from graph 0, first 150 to graph 1, first 150 nohead front" in text


def soak_figure(writer: SyntheticSession, *statuses: str, last: int = 6000) -> Figure:
    """Of a soak with a segment for each status, the last of `last` samples."""
    for number, status in enumerate(statuses, 1):
        held = [2600 * (1 + i % 9) for i in range(last if number == len(statuses) else 6000)]
        reason = "" if status == "ok" else "was suspended"
        writer.run({"m": held}, params=SOAK, run=number, status=status, reason=reason)
    labels, _ = read_datasets([writer.path])
    (overlay,) = overlays(labels, labels)
    figure = run_series(overlay, common_axis(labels))
    assert figure is not None
    return figure


def test_the_band_of_a_soak_has_a_gap_at_each_invalid_segment(writer):
    statuses = ("invalid", "ok", "invalid", "invalid", "ok", "ok")
    band, longest, invalid = blocks(soak_figure(writer, *statuses))
    steps = [1.5, 2.5, np.nan, 4.5, 5.5, 5.5, 6.5, np.nan]
    np.testing.assert_array_equal(band[:, 0], steps)
    assert longest[:, 0].tolist() == [2, 5, 6] and invalid[:, 0].tolist() == [1, 3, 4]


def test_a_last_segment_that_was_cut_short_leaves_the_others_their_p999(writer):
    figure = soak_figure(writer, "ok", "ok", "ok", last=300)
    assert "minimum to p99.9" in "\n".join(figure.commands)
    band, longest = blocks(figure)
    np.testing.assert_array_equal(np.isnan(band[:, 3]), [False] * 4 + [True] * 3)
    assert longest[:, 0].tolist() == [1, 2, 3]


def test_a_long_soak_keeps_its_gaps_and_its_extremes():
    n = 5_000
    draw = np.random.default_rng(5).random(n)
    position = np.arange(n) + 1.0
    kept = position != 2_500
    band = Band(position[kept], draw[kept], draw[kept] + 1, draw[kept] + 2)
    pieces = band.pieces()
    assert [len(piece.position) for piece in pieces] == [2_499, 2_500]
    columns = np.hstack([stepped(piece, n) for piece in pieces])
    assert columns.shape[1] < 2_100
    assert (np.nanmin(columns[1]), np.nanmax(columns[3])) == (band.low.min(), band.high.max())


@pytest.mark.skipif(not shutil.which("gnuplot"), reason="gnuplot is not installed")
def test_plot_draws_a_limit_that_has_the_unit_of_the_samples(new_session, klat, tmp_path):
    timed: SyntheticSession = new_session("a/1")
    timed.run({"m": [52_000 + i for i in range(99)]})
    counted = new_session("b/1", label="b", mode="counted", unit="instructions")
    counted.run({"m": [12_000 + i for i in range(99)]})
    for session, limit, other in ((timed, "30us", "30000"), (counted, "20000", "30us")):
        assert klat("plot", "-o", tmp_path / "p", "--limit", limit, session.path)[0] == 0
        assert f"limit {limit}" in (tmp_path / "p/pipes-m-distribution.svg").read_text()
        status, out, err = klat("plot", "-o", tmp_path / "q", "--limit", other, session.path)
        assert (status, out) == (2, "") and err.count("\n") == 1
