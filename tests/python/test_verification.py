"""A row counts only if it agrees with its samples. A checksum is not enough: whoever edits a row can
compute the checksum again."""

import numpy as np
import pytest
from written_sessions import SyntheticSession, statistics_of

from klat.record import samples
from klat.record.session import SessionError, read_session
from klat.compare.sources import read_sources
from klat.record.verification import verify

SAMPLES = [52_000 + 26 * (i % 40) for i in range(600)]
FIGURES = ("mean", "stddev", "min", "p50", "p90", "p99", "max")
LARGEST = 2**64 - 1


def another(figure: str) -> str:
    """The next figure in its last digit."""
    digits = int(figure.replace(".", "") or "7")
    digits += -1 if digits else 1
    return f"{digits // 1000}.{digits % 1000:03d}" if "." in figure else str(digits)


@pytest.mark.parametrize("piece", [7, 100, 1 << 17])
@pytest.mark.parametrize(
    "sizes", [[1], [4, 9, 10, 11], [49, 50, 50, 50, 500, 500, 1000], [30] * 12]
)
def test_a_row_stands_only_with_every_digit_of_its_samples(writer, monkeypatch, piece, sizes):
    monkeypatch.setattr(samples, "PIECE", piece)
    draw = np.random.default_rng(len(sizes))
    edited: dict[int, str] = {}
    line = 1
    for reach in (1, 50, 10**6, 2**33, LARGEST):
        for number, n in enumerate(sizes):
            held = draw.integers(0, reach, n, dtype=np.uint64, endpoint=True).tolist()
            writer.run({"m": held})
            column = FIGURES[number % len(FIGURES)]
            told = statistics_of(held)[column]
            wrong = another(told)
            writer.run({"m": held}, **{column: wrong})
            line += 2
            edited[line] = f"{column} is {wrong} in the row and {told or 'empty'} from the samples"
    found = verify(read_session(writer.path))
    assert (found.rows, found.unread) == (line - 1, {})
    assert found.refuted == {at: [said] for at, said in edited.items()}


def test_rows_of_the_largest_samples_stand(writer):
    for _ in range(3):
        writer.run({"m": [LARGEST] * 600})
    found = verify(read_session(writer.path))
    assert (found.rows, found.refuted, found.unread) == (3, {}, {})


def forged(writer: SyntheticSession) -> SyntheticSession:
    """Each run has two metrics. Of the third, the median of the second says half of the truth."""
    for run in range(1, 5):
        slow = [x + 26 * run for x in SAMPLES]
        if run == 3:
            writer.run({"handoff": [26_000] * 600, "round_trip": slow}, order=3, run=3, p50=26_000)
        else:
            writer.run({"handoff": slow, "round_trip": slow}, order=run, run=run)
    return writer


def test_a_run_with_a_refuted_row_is_left_out(new_session):
    writer = forged(new_session())
    by_label, problems = read_sources(writer.path)
    (source,) = by_label["stock"]
    assert source.session.completed_orders() == {1, 2, 4} and len(source.session.rows) == 6
    (problem,) = problems
    assert "left out 1 run whose rows contradict their samples" in problem
    assert "line 7: p50 is 26000 in the row and" in problem and "--verify" in problem


def test_a_copy_of_a_run_does_not_count_as_another_run(writer):
    for run in (1, 2):
        writer.run({"m": SAMPLES}, order=run, run=run)
    file = writer.samples_file("pipes")
    kept = file.read_bytes()
    for run, first in ((3, 600), (4, 1)):
        writer.run({"m": SAMPLES}, order=run, run=run, first_sample=first)
        file.write_bytes(kept)
    by_label, problems = read_sources(writer.path)
    assert by_label["stock"][0].session.completed_orders() == {1, 2}
    assert "left out 2 runs whose rows contradict their samples" in problems[0]
    assert "line 4: it shares samples with line 3" in problems[0]


@pytest.mark.parametrize(
    "words",
    [
        ["summary"],
        ["summary", "--format", "json"],
        ["compare", "OTHER"],
        ["history"],
        ["plan"],
        ["export", "--format", "gobench"],
        ["export", "--format", "openmetrics"],
        ["export", "OTHER", "--format", "ktap"],
    ],
)
def test_every_command_that_uses_rows_says_that_one_is_refuted(new_session, klat, words):
    path = str(forged(new_session()).path)
    other = new_session("rt/1", label="rt", boot_id="rt")
    other.run({"round_trip": SAMPLES})
    command, *rest = words
    assert (
        "left out 1 run whose rows contradict their samples"
        in klat(command, path, *(other.path if word == "OTHER" else word for word in rest))[2]
    )


def test_nothing_is_shown_where_all_rows_are_refuted(writer, klat):
    writer.run({"m": SAMPLES}, mean="1.000")
    with pytest.raises(SessionError, match="contradict their samples.*nothing to show or compare"):
        read_sources(writer.path)
    status, _, err = klat("summary", "--verify", writer.path)
    assert status == 1
    assert "mean is 1.000 in the row" in err


@pytest.mark.parametrize("keep", [None, 600, 1199])
def test_rows_whose_samples_are_gone_are_used_and_said_to_be_unverified(writer, keep):
    for _ in range(2):
        writer.run({"m": SAMPLES})
    file = writer.samples_file("pipes")
    if keep is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[: 8 * keep])
    by_label, (problem,) = read_sources(writer.path)
    assert len(by_label["stock"][0].session.rows) == 2
    count = "2 rows" if keep is None else "1 row"
    assert f"not verified: the samples of {count} cannot be read" in problem
