"""Rows to which an emulator gives no number: shown as such, and never as one."""

import io
from pathlib import Path
from typing import Any

import pytest
from written_sessions import NewSession, SyntheticSession
from klat.record.session import read_session

COUNTED = {"mode": "counted", "unit": "instructions"}
EMULATED = {"mode": "emulated"}
FLUSH = "responders=79;pages=1;operation=munmap"
RT = {"kernel_version": "#1 SMP PREEMPT_RT", "kernel_release": "6.1.0-rt", "preemption": "rt"}


def without_number(writer: SyntheticSession, run: int = 1, **values: Any) -> None:
    evidence = f"responders_reached=79;least_delivered={run + 550}"
    usual = {"params": FLUSH, "first_sample": "", "floor": "", "evidence": evidence, "run": run}
    writer.run({"initiator": [], "interruption": []}, benchmark="tlbflush", **usual | values)


@pytest.mark.parametrize("mode", [COUNTED, EMULATED])
def test_a_row_without_a_number_is_read(new_session, mode):
    writer = new_session(**mode)
    without_number(writer)
    session = read_session(writer.path)
    assert session.problems == [] and len(session.rows) == 2
    assert not any(session.measurable(row) or row.usable for row in session.rows)


def test_where_there_is_time_a_row_without_a_number_is_damaged(writer):
    without_number(writer)
    assert read_session(writer.path).rows == []


def test_figures_without_samples_are_not_believed(new_session):
    writer = new_session(**COUNTED)
    without_number(writer, mean="12.000")
    session = read_session(writer.path)
    assert session.rows == [] and "has figures, but no samples" in session.problems[0]


def test_summary_shows_the_evidence_in_place_of_figures(new_session, klat):
    writer = new_session(**EMULATED)
    without_number(writer, 1)
    without_number(writer, 5, status="disturbed", reason="other shootdowns")
    status, out, _ = klat("summary", "--verify", writer.path)
    assert status == 0
    for metric in ("initiator", "interruption"):
        assert f"    {metric}  not measurable in this mode\n" in out
    assert "evidence  responders_reached 79, least_delivered 551 to 555" in out
    assert "2 runs: 1 ok, 1 disturbed" in out


def test_a_sweep_without_numbers_has_no_table(new_session, klat):
    writer = new_session(**EMULATED)
    for responders in (1, 2, 79):
        without_number(writer, params=FLUSH.replace("79", str(responders)))
    status, out, _ = klat("summary", writer.path)
    assert status == 0 and out.count("not measurable in this mode") == 6
    assert "T(k)" not in out and "sweep" not in out


def test_a_table_of_other_programs_has_empty_fields(new_session, klat):
    import csv

    writer = new_session(**EMULATED)
    without_number(writer)
    _, out, _ = klat("summary", "--format", "csv", writer.path)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["metric"], row["measurable"], row["samples"], row["median"]) for row in rows] == [
        ("initiator", "0", "0", ""),
        ("interruption", "0", "0", ""),
    ]


def pair(new_session: NewSession, **mode: str) -> list[Path]:
    sides = []
    for label, more in (("stock", {}), ("rt", RT)):
        for boot in range(4):
            writer = new_session(
                f"{label}/{boot}", label=label, boot_id=f"{label}-{boot}", **mode, **more
            )
            for run in range(3):
                if mode == COUNTED:
                    writer.run({"round_trip": [11_805 + i % 7 for i in range(100)]}, run=run)
                without_number(writer, run)
        sides.append(writer.path.parent)
    return sides


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_compare_names_metrics_that_are_not_measurable(new_session, klat, form):
    sides = pair(new_session, **COUNTED)
    status, out, _ = klat("compare", "--format", form, *sides)
    assert status == 0, out
    assert "not measurable in this mode (BASE and NEW): tlbflush" in out
    assert "instructions" in out and "only in" not in out
    assert "instructions counted by an" in out and "NEW takes more instructions" in out


def test_compare_of_nothing_measurable_is_not_comparable(new_session, klat, tmp_path):
    sides = pair(new_session, **EMULATED)
    for words in ([], ["--format", "json"], ["--format", "csv"], ["--html", tmp_path / "c.html"]):
        status, out, _ = klat("compare", *words, *sides)
        assert status == 4 and ("not measurable" in out or '"unmeasurable"' in out), out
    assert "not measurable in this mode" in (tmp_path / "c.html").read_text()


def test_metrics_that_are_not_measurable_are_skipped_test_cases(new_session, klat):
    out = klat("export", "--format", "ktap", *pair(new_session, **COUNTED))[1]
    assert out.count("# SKIP not comparable: not measurable in this mode (BASE and NEW)") == 2


@pytest.mark.parametrize(
    "words", [["export", "--format", "gobench"], ["plot", "-o", "plots"], ["history"], ["plan"]]
)
def test_nothing_measurable_is_one_sentence_and_no_traceback(
    new_session, klat, monkeypatch, tmp_path, words
):
    monkeypatch.chdir(tmp_path)
    stock, _ = pair(new_session, **EMULATED)
    status, out, err = klat(*words, stock)
    assert status == 2 and "not measurable in this mode" in err and out == "", err
