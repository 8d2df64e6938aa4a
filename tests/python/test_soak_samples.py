"""The samples of a soak are pairs of a value and its count. They count only if they are exactly those of
the row."""

import csv
import io
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written_sessions import Klat, NewSession, PIPES, RT, SOAK, SideWriter, as_words, statistics_of

from klat.record import samples
from klat.record.samples import DamagedPairs, SampleFiles
from klat.record.session import SessionError, read_session
from klat.record.verification import verify

HELD = [
    [7, 7, 7, 9],
    [2**64 - 1, 0, 5, 2**40] * 300,
    [52_000 + 26 * (i % 40) for i in range(600)],
]


def test_a_soak_and_a_run_of_one_program_lie_in_files_of_their_own(writer):
    writer.run({"m": [4, 2, 2, 4]}, params=SOAK)
    writer.run({"m": [9, 8, 8]})
    session = read_session(writer.path)
    assert verify(session).refuted == {}
    for row, values, counts in zip(session.rows, ([2, 4], [8, 9]), ([2, 2], [2, 1])):
        found = SampleFiles(session).distribution(row)
        assert (found.values.tolist(), found.counts.tolist()) == (values, counts)


@pytest.mark.parametrize("column", ["mean", "stddev", "min", "p50", "p90", "p99", "max"])
@pytest.mark.parametrize("held", HELD, ids=["few", "extremes", "many"])
def test_a_row_counts_only_if_every_digit_is_that_of_its_pairs(writer, column, held):
    told = statistics_of(held)[column]
    wrong = told[:-1] + str((int(told[-1]) + 9) % 10) if told else "7"
    writer.run({"m": held}, params=SOAK)
    writer.run({"m": held}, params=SOAK, **{column: wrong})
    found = verify(read_session(writer.path))
    said = f"{column} is {wrong} in the row and {told or 'empty'} from the samples"
    assert (found.rows, found.refuted, found.unread) == (2, {3: [said]}, {})


DAMAGED = {
    "add up to more than 6 samples": [5, 2, 7, 5],
    "have a count of 0": [5, 2, 6, 0, 7, 4],
    "are not in ascending order of their values": [7, 4, 5, 2],
    "wrap": [5, 2**63, 7, 2**63 + 6],
    "equal values": [5, 2, 5, 4],
}


@pytest.mark.parametrize("what", DAMAGED)
def test_pairs_that_are_not_of_the_row_refute_it(writer, what):
    writer.run({"m": [5, 5, 7, 7, 7, 7]}, params=SOAK)
    file = writer.histogram_file("pipes")
    file.write_bytes(as_words(DAMAGED[what]))
    found = verify(read_session(writer.path))
    said = {"wrap": "add up to", "equal values": "ascending"}.get(what, what)
    assert found.unread == {} and list(found.refuted) == [2] and said in found.refuted[2][0]


@pytest.mark.parametrize("kept", [0, 8, 16, 24])
def test_pairs_that_were_cut_off_are_said_to_lack_samples(writer, kept):
    writer.run({"m": [5, 5, 7, 7, 7, 7]}, params=SOAK)
    file = writer.histogram_file("pipes")
    file.write_bytes(file.read_bytes()[:kept])
    lacking = 6 if kept < 16 else 4
    found = verify(read_session(writer.path))
    assert found.refuted == {} and f"lack {lacking} of 6 samples" in found.unread[2]


def test_only_one_of_two_rows_that_share_a_pair_counts(writer):
    writer.run({"m": [5, 5, 7]}, params=SOAK)
    writer.run({"m": [7]}, params=SOAK, first_sample=1)
    found = verify(read_session(writer.path))
    assert found.refuted == {3: ["it shares samples with line 2"]}


def test_more_pairs_than_a_soak_can_hold_are_not_read(writer, monkeypatch):
    monkeypatch.setattr(samples, "MOST_PAIRS", 4)
    monkeypatch.setattr(samples, "_PAIRS", 2)
    writer.run({"m": range(5)}, params=SOAK)
    session = read_session(writer.path)
    with pytest.raises(DamagedPairs, match="are more than 4"):
        SampleFiles(session).distribution(session.rows[0])


@pytest.mark.parametrize("pairs_at_once", [1, 2, 3, samples._PAIRS])
def test_a_soak_reads_back_as_the_distribution_of_its_samples(writer, monkeypatch, pairs_at_once):
    monkeypatch.setattr(samples, "_PAIRS", pairs_at_once)
    rows: Sequence[Sequence[int]] = ([1, 1, 2, 3, 9], [1, 4, 6], *HELD)
    for held in rows:
        writer.run({"m": held}, params=SOAK)
    session = read_session(writer.path)
    for row, held in zip(session.rows, rows):
        found = SampleFiles(session).distribution(row)
        assert np.repeat(found.values, found.counts).tolist() == sorted(held)


def test_the_order_of_a_soak_cannot_be_read(writer):
    writer.run({"m": [5, 5, 7]}, params=SOAK)
    session = read_session(writer.path)
    with pytest.raises(SessionError, match="line 2 of runs.csv are those of a soak"):
        SampleFiles(session).read(session.rows[0])


def as_reported(klat: Klat, root: Path, params: str) -> list[str]:
    """What each command that needs no order of samples says of two labels."""
    sides = SideWriter(NewSession(root))
    stock = sides("stock", run={"params": params})
    rt = sides("rt", 1.2, run={"params": params}, **RT)
    found = []
    for words in (
        ("summary", "--format", "csv", stock),
        ("compare", "--format", "csv", "--quantile", "p90", "--quantile", "mean", stock, rt),
        ("compare", "--limit", "50us", stock, rt),
        ("history", stock),
        *(("export", "--format", form, stock) for form in ("gobench", "hgrm", "openmetrics")),
    ):
        status, out, err = klat(*words)
        assert out and not err, words
        found.append(f"{status}: {without_columns_of_soaks(out) if 'summary' in words else out}")
    return found


def without_columns_of_soaks(table: str) -> str:
    rows = csv.DictReader(io.StringIO(table))
    names = itertools.takewhile(lambda name: name != "soaked_s", rows.fieldnames or ())
    kept = list(names)
    return "\n".join(",".join(row[name] for name in kept) for row in rows)


def test_a_soak_is_reported_as_the_runs_with_the_same_samples(klat, tmp_path):
    soaks = as_reported(klat, tmp_path / "soaks", SOAK)
    runs = as_reported(klat, tmp_path / "runs", PIPES)
    assert list(map(without_soak, soaks)) == list(map(without_soak, runs))


def without_soak(report: str) -> str:
    report = report.replace("soaks/", "runs/").replace("segment", "run")
    return re.sub(r"[\s;/]*soak=60|\s+", "", report)


def test_a_comparison_of_soaks_speaks_of_segments(side, klat):
    soak: dict[str, Any] = {"run": {"params": SOAK, "policy": "fifo:50"}}
    stock, rt = side("stock", **soak), side("rt", 1.01, noise=0.05, **soak, **RT)
    for extra in ((), ("--limit", "50us")):
        _, out, _ = klat("compare", stock, rt, *extra)
        assert "segments: 20 ok" in out and not re.search(r"\bruns?\b", out)


def test_soaks_compare_whatever_the_length_of_their_segments(side, klat):
    minutes, seconds = (
        side(f"{length}s", run={"params": f"{PIPES};soak={length}", "policy": "fifo:50"})
        for length in (60, 10)
    )
    _, out, _ = klat("compare", minutes, seconds)
    assert "not comparable" not in out and "segments: 20 ok" in out
    _, out, _ = klat("compare", minutes, side("runs"))
    assert "the option soak is given in BASE and absent in NEW" in " ".join(out.split())


def test_runs_and_segments_of_a_side_are_counted_apart(side, klat):
    stock = side("stock")
    side.add("stock", "round_trip", 52_000, params=SOAK)
    _, out, _ = klat("compare", stock, side("rt", **RT))
    assert "runs: 20 ok; segments of soaks: 5 ok" in " ".join(out.split())


def test_export_refuses_a_soak_in_a_table_of_samples(klat, writer):
    writer.run({"m": [5, 5, 7]}, params=SOAK)
    status, _, err = klat("export", "--format", "parquet", writer.path)
    assert status == 2 and "pipes m of label stock is a soak" in err and "hgrm" in err
