from __future__ import annotations

import hashlib
import json
from decimal import Decimal

import pytest
from written_sessions import SyntheticSession, statistics_of

from klat.record.session import SessionError, find_sessions, parse_pairs, printable, read_session

STEP_NS = 30_000_000  # between the starts of two runs of a SyntheticSession
SAMPLES = [1300 + 26 * (i % 40) for i in range(600)]


def problems(session: SyntheticSession) -> str:
    return "\n".join(read_session(session.path).problems)


def test_reads_every_column_with_its_type(writer):
    writer.run({"round_trip": SAMPLES}, order=3, run=2, steal_ms="1.5", evidence="a=1;b=2")
    session = read_session(writer.path)
    (row,) = session.rows
    expected = statistics_of(SAMPLES)
    assert (row.order, row.run, row.n, row.first_sample) == (3, 2, 600, 0)
    assert (str(row.mean), str(row.stddev)) == (expected["mean"], expected["stddev"])
    assert (row.min, row.p50, row.p99) == (1300, int(expected["p50"]), int(expected["p99"]))
    assert row.steal_ms == Decimal("1.5")
    assert row.smi is None
    assert parse_pairs(row.evidence) == {"a": "1", "b": "2"}
    assert row.options()["peer"] == "thread"
    assert session.problems == []
    assert (session.label, session.khz, session.quantum) == ("stock", 2_600_000.0, 26)


def test_fields_with_commas_and_quotes_survive(writer):
    reason = 'cannot open "/dev/net/tun", permission denied; € %s'
    writer.run(status="error", reason=reason)
    (row,) = read_session(writer.path).rows
    assert row.reason == reason
    assert not row.usable


def test_a_torn_last_line_is_ignored_and_said(writer):
    writer.run({"round_trip": SAMPLES}, order=1, run=1)
    whole = writer.runs_csv.read_bytes()
    (line,) = writer.run({"round_trip": SAMPLES}, order=2, run=2)
    for cut in range(1, len(line)):
        writer.runs_csv.write_bytes(whole + line.encode()[:cut])
        session = read_session(writer.path)
        assert session.completed_orders() == {1}, cut
        assert "torn last line" in "\n".join(session.problems)


@pytest.mark.parametrize("position", ["first", "middle", "last"])
def test_an_edited_digit_anywhere_loses_only_its_run(writer, position):
    for order in range(1, 6):
        writer.run({"round_trip": SAMPLES}, order=order, run=order)
    lines = writer.runs_csv.read_text().splitlines(keepends=True)
    index = {"first": 1, "middle": 3, "last": 5}[position]
    lines[index] = lines[index].replace("1300", "1301", 1)
    writer.runs_csv.write_text("".join(lines))
    session = read_session(writer.path)
    assert session.completed_orders() == {1, 2, 3, 4, 5} - {index}
    assert "checksum" in session.problems[0] and f"line {index + 1}" in session.problems[0]


@pytest.mark.parametrize("junk", [b"\x00" * 64, b"\xff\xfe\x80", b'"', b"nan,nan", b","])
def test_odd_bytes_between_rows_are_ignored_and_said(writer, junk):
    writer.run({"round_trip": SAMPLES}, order=1, run=1)
    with writer.runs_csv.open("ab") as out:
        out.write(junk + b"\n")
    writer.run({"round_trip": SAMPLES}, order=2, run=2)
    session = read_session(writer.path)
    assert session.completed_orders() == {1, 2}
    assert "ignored 1 row" in session.problems[0]


def test_a_run_with_a_row_missing_is_not_believed(writer):
    writer.run({"handoff": SAMPLES, "round_trip": SAMPLES}, benchmark="cv", order=1, run=1)
    before = writer.runs_csv.read_text()
    first, _ = writer.run({"handoff": SAMPLES, "round_trip": SAMPLES}, order=2, run=2)
    writer.runs_csv.write_text(before + first)
    session = read_session(writer.path)
    assert session.completed_orders() == {1}
    assert [row.metric for row in session.rows] == ["handoff", "round_trip"]
    assert "1 incomplete run" in problems(writer)


def test_a_run_repeated_after_an_incomplete_batch_counts_once(writer):
    before = writer.runs_csv.read_text()
    first, _ = writer.run({"handoff": SAMPLES, "round_trip": SAMPLES}, order=7, run=1)
    writer.runs_csv.write_text(before + first)
    writer.run({"handoff": SAMPLES, "round_trip": SAMPLES}, order=7, run=1)
    session = read_session(writer.path)
    assert len(session.rows) == 2
    assert {row.start_ns for row in session.rows} == {writer.start_ns}
    assert session.completed_orders() == {7}


@pytest.mark.parametrize(
    ("steps", "order", "said"),
    [
        (0, 1, "has the same place in the plan"),
        (1, 0, "an earlier run of the program has the same start"),
    ],
)
def test_a_run_with_the_place_or_the_start_of_another_is_ignored_and_said(
    writer, steps, order, said
):
    writer.run({"round_trip": SAMPLES}, order=order, run=1)
    started = writer.start_ns
    writer.start_ns -= STEP_NS * steps
    writer.run({"round_trip": SAMPLES}, order=order, run=1 + steps)
    assert [(row.run, row.start_ns) for row in read_session(writer.path).rows] == [(1, started)]
    assert said in problems(writer)


@pytest.mark.parametrize(
    ("steps", "evidence", "said"),
    [(1, "", False), (300, "", False), (400, "", True), (400, "clock_set_ms=-3600000", False)],
)
def test_rows_before_those_of_an_earlier_time_are_said(writer, steps, evidence, said):
    writer.run({"round_trip": SAMPLES}, run=1, evidence=evidence)
    writer.start_ns -= STEP_NS * steps + 1
    writer.run({"round_trip": SAMPLES}, run=2)
    assert len(read_session(writer.path).rows) == 2
    assert ("1 run of runs.csv ended before an earlier run" in problems(writer)) == said


def test_runs_without_a_plan_are_all_kept_and_complete_no_place(writer):
    for _ in range(3):
        writer.run({"round_trip": SAMPLES})
    session = read_session(writer.path)
    assert len(session.runs) == 3
    assert session.completed_orders() == set()


def test_a_copied_line_counts_once(writer):
    (line,) = writer.run({"round_trip": SAMPLES})
    with writer.runs_csv.open("a") as out:
        out.write(line)
    assert len(read_session(writer.path).rows) == 1
    assert "repeats" in problems(writer)


def test_failed_and_skipped_runs_complete_their_place(writer):
    writer.run(status="error", reason="no", order=1, run=1)
    writer.run(status="skipped", reason="no", order=2, run=2)
    assert read_session(writer.path).completed_orders() == {1, 2}


def test_an_unknown_column_is_named_and_the_rest_is_read(writer):
    writer.run({"round_trip": SAMPLES})
    lines = writer.runs_csv.read_text().splitlines()
    rewritten = [lines[0].replace(",check", ",colour,check")]
    for line in lines[1:]:
        body = line.rpartition(",")[0] + ",blue"
        rewritten.append(f"{body},{hashlib.sha256(body.encode()).hexdigest()[:16]}")
    writer.runs_csv.write_text("\n".join(rewritten) + "\n")
    session = read_session(writer.path)
    assert len(session.rows) == 1
    assert "colour" in session.problems[0]


@pytest.mark.parametrize("cut", [1, 9, 100])
def test_a_torn_header_loses_no_run_recorded_after_it(writer, cut):
    header = writer.runs_csv.read_text()
    writer.runs_csv.write_text(header[: -1 - cut] + "\n")
    writer.run({"round_trip": SAMPLES}, order=1, run=1)
    session = read_session(writer.path)
    assert session.completed_orders() == {1}
    assert "header" in session.problems[0]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["no mark", "byte-order mark"])
def test_carriage_returns_of_rfc_4180_are_accepted(writer, mark):
    writer.run({"round_trip": SAMPLES})
    writer.runs_csv.write_bytes(mark + writer.runs_csv.read_bytes().replace(b"\n", b"\r\n"))
    session = read_session(writer.path)
    assert len(session.rows) == 1 and session.problems == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"boot": "another"}, "boot is not the boot_id"),
        ({"unit": "instructions"}, "unit is not"),
        ({"status": "good"}, "not known"),
        ({"first_sample": ""}, "no first_sample"),
    ],
)
def test_a_row_that_contradicts_its_session_is_ignored_and_said(writer, change, said):
    writer.run({"round_trip": SAMPLES}, **change)
    session = read_session(writer.path)
    assert session.rows == []
    assert said in session.problems[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 2}, "newer klat"),
        ({"schema": 0}, "edited"),
        ({"schema": True}, "schema"),
        ({"label": None}, "label"),
        ({"mode": "warp"}, "mode"),
        ({"unit": "bananas"}, "unit"),
        ({"tsc": None}, "tsc"),
        ({"tsc": {"khz": float("nan")}}, "khz"),
    ],
)
def test_a_session_that_cannot_be_understood_is_refused_in_one_sentence(new_session, change, said):
    writer = new_session(**change)
    with pytest.raises(SessionError, match=said) as raised:
        read_session(writer.path)
    assert "\n" not in str(raised.value)


def test_paths_that_are_no_session_are_refused(writer, tmp_path):
    with pytest.raises(SessionError, match="no such directory$"):
        read_session(tmp_path / "missing")
    meant = f"no such directory, did you mean '{writer.path}'\\?$"
    with pytest.raises(SessionError, match=meant):
        find_sessions(f"{writer.path}x")
    with pytest.raises(SessionError, match="not a directory"):
        read_session(writer.runs_csv)
    with pytest.raises(SessionError, match="no session.json"):
        read_session(tmp_path)
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "missing", tmp_path / "empty", writer.runs_csv):
        with pytest.raises(SessionError, match=path.name):
            find_sessions(path)


@pytest.mark.parametrize("content", [None, b"", b"boot,order"])
def test_a_session_before_its_first_run_is_empty_and_says_so(writer, content):
    writer.runs_csv.unlink()
    if content is not None:
        writer.runs_csv.write_bytes(content)
    session = read_session(writer.path)
    assert session.rows == []
    assert "no run has been recorded" in session.problems[0]


def test_a_header_without_a_column_is_refused_by_name(writer):
    writer.runs_csv.write_text(writer.runs_csv.read_text().replace(",p99", ""))
    with pytest.raises(SessionError, match="p99"):
        read_session(writer.path)


def test_sessions_are_found_by_session_label_and_results(new_session, tmp_path):
    one, two = new_session("stock/1").path, new_session("stock/2").path
    rt = new_session("rt/1", label="rt").path
    results = tmp_path / "results"
    assert find_sessions(one) == [one]
    assert find_sessions(results / "stock") == [one, two]
    assert find_sessions(results) == [rt, one, two]
    assert find_sessions([two, results / "stock"]) == [two, one]


def test_text_for_the_terminal_holds_no_control_bytes():
    assert printable("a\x1b[31m\n\udcff€") == "a\\x1b[31m\\n\\udcff€"
    assert printable("a\u202eb\u2066\u200f\u061c") == "a\\u202eb\\u2066\\u200f\\u061c"
