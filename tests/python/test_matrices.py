"""Figures by pair of CPUs: `klat run --matrix`, and its map in a summary, a plot and a page."""

import itertools

from written_sessions import words

from klat.compare.dataset import read_datasets
from klat.compare.matrices import matrices

# Two nodes of two caches of two cores of two CPUs, numbered as Linux does: the second CPUs of all cores come last.
CPUS = range(16)
LENGTHS = {"one-cpu": 5_000, "same-core": 8_000, "same-llc": 20_000, "same-node": 30_000}
LENGTHS |= {"cross-node": 60_000}


def placement(a: int, b: int) -> str:
    levels = zip(("one-cpu", "same-core", "same-llc", "same-node"), (lambda c: c, *LEVELS))
    return next((word for word, level in levels if level(a) == level(b)), "cross-node")


LEVELS = (lambda cpu: cpu % 8, lambda cpu: cpu % 8 // 2, lambda cpu: cpu % 8 // 4)


def write(writer, pairs, types="", **values) -> None:
    for run, (a, b) in enumerate(pairs, 1):
        word = placement(a, b)
        samples = [LENGTHS[word] + 26 * (i % 40) for i in range(600)]
        named = f"{word}:{types}" if types else word
        placed = {"cpus": f"{a};{b}", "placement": named, "run": run, "order": run}
        writer.run({"round_trip": samples}, **placed | values)


def matrix_of(writer):
    labels, _ = read_datasets([writer.path])
    (matrix,) = matrices(labels[0])
    return matrix


def test_cpus_of_a_core_a_cache_and_a_node_are_beside_each_other(writer):
    write(writer, itertools.product(CPUS, CPUS))
    matrix = matrix_of(writer)
    assert matrix.cpus == (0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15)
    assert matrix.starts == ({4}, {2, 4, 6})
    assert [(word, len(figures)) for word, figures in matrix.by_placement()] == [
        ("one-cpu", 16), ("same-core", 16), ("same-llc", 32), ("same-node", 64), ("cross-node", 128)
    ]  # fmt: skip
    assert matrix.pairs[0, 8].value == LENGTHS["same-core"] + 26 * 19


def test_a_run_of_another_number_of_cpus_is_no_pair(writer):
    write(writer, [(0, 1), (1, 0)])
    writer.run({"round_trip": [1000] * 600}, cpus="0;1;2", run=9, order=9)
    assert set(matrix_of(writer).pairs) == {(0, 1), (1, 0)}


def test_runs_of_one_pair_are_no_matrix(writer):
    write(writer, [(0, 1)])
    labels, _ = read_datasets([writer.path])
    assert not list(matrices(labels[0]))


def test_a_pair_whose_runs_do_not_count_is_empty(writer, klat):
    write(writer, [(0, 0), (0, 1), (1, 1)])
    write(writer, [(1, 0)], status="invalid", reason="no event", run=9, order=9)
    status, out, _ = klat("summary", writer.path)
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()[-12:] if line.strip()}
    assert status == 0
    assert rows["1"] == ["n/a", "2,113"] and rows["0"] == ["2,113", "7,882"], out


def test_few_pairs_keep_their_rows(writer, klat):
    write(writer, [(0, 1), (1, 0)])
    out = klat("summary", writer.path)[1]
    assert "cpus=0/1, same-llc" in out and "cpus=1/0, same-llc" in out and "p99" in out


def test_a_summary_has_one_line_for_thousands_of_pairs(writer, klat):
    write(writer, itertools.product(CPUS, CPUS))
    status, out, _ = klat("summary", writer.path)
    assert status == 0 and "256 pairs of CPUs" in out and len(out.splitlines()) < 60
    assert max(map(len, out.splitlines())) <= 80
    assert "256 runs of 600 samples, all ok" in out


def test_types_of_cores_are_named_beside_their_cpus(writer, klat):
    write(writer, [(0, 0)], types="core")
    write(writer, [(0, 1)], types="core+atom", run=2, order=2)
    assert matrix_of(writer).types == {0: "core", 1: "atom"}
    assert "0 core" in klat("summary", writer.path)[1]


def test_a_plot_and_a_page_have_the_map(writer, klat, tmp_path):
    write(writer, itertools.product(CPUS, CPUS))
    status, out, err = klat("plot", "--sweeps", writer.path, "-o", tmp_path / "plots")
    assert status == 0 and out.startswith("1 plot"), (out, err)
    drawn = (tmp_path / "plots/pipes-round_trip-matrix.svg").read_text()
    assert "by pair of CPUs" in drawn and "cross-node" in drawn
    status, _, err = klat("summary", writer.path, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert status == 0 and page.count("<figure") == 1 and "<svg" in page.split("<figure")[1], err
