"""Work of others on the CPUs under test is told wherever a session is."""

from dataclasses import replace
from pathlib import Path

import pytest
from written_sessions import SyntheticSession

from klat.record.evidence import other_work
from klat.record.session import Session, read_session


def session(path: Path, busy: int, error: int = 1, runs: int = 10, load: str = "") -> Session:
    """Runs of 100 ms on two CPUs, each with so many microseconds of other work."""
    written = SyntheticSession(path, facts={"load": load or None})
    for _ in range(runs):
        evidence = f"cpu_us=200000;other_busy_us={busy};other_busy_error_us={error}"
        written.run({"round_trip": [100] * 20}, evidence=evidence)
    return read_session(path)


@pytest.mark.parametrize("busy, warned", [(9_000, False), (11_000, True), (-5_000, False)])
def test_more_than_a_twentieth_is_a_warning(tmp_path, busy, warned):
    assert bool(other_work([session(tmp_path / "a", busy)])) is warned


def test_the_share_is_of_all_runs(tmp_path):
    both = [session(tmp_path / "a", 0), session(tmp_path / "b", 100_000)]
    assert "other work took 25 %" in other_work(both)


@pytest.mark.parametrize("runs, warned", [(10, False), (1000, True)])
def test_less_than_the_clock_resolves_is_not_a_warning(tmp_path, runs, warned):
    """One run errs by 20 ms; many of them together by less."""
    assert bool(other_work([session(tmp_path / "a", 15_000, 20_000, runs)])) is warned


@pytest.mark.parametrize("busy, warned", [(-30_000, True), (-5_000, False)])
def test_less_work_than_the_run_itself_did_is_no_count(tmp_path, busy, warned):
    assert ("is unknown" in other_work([session(tmp_path / "a", busy)])) is warned


@pytest.mark.parametrize("unknown, warned", [(10, True), (1, False)])
def test_runs_without_a_count_are_said(tmp_path, unknown, warned):
    session(tmp_path / "a", 0, runs=30)
    written = SyntheticSession(tmp_path / "b")
    for _ in range(unknown):
        written.run({"round_trip": [100] * 20}, evidence="other_busy_unknown=1")
    both = [read_session(tmp_path / name) for name in "ab"]
    assert ("is unknown" in other_work(both)) is warned


def test_a_load_is_meant_to_be_there(tmp_path):
    assert not other_work([session(tmp_path / "a", 100_000, load="populate")])
    by_hand = session(tmp_path / "b", 100_000)
    assert not other_work([replace(by_hand, info=by_hand.info | {"under_load": True})])


def test_a_session_without_these_counts_says_nothing(tmp_path):
    written = SyntheticSession(tmp_path / "a")
    written.run({"round_trip": [100] * 20})
    assert not other_work([read_session(tmp_path / "a")])


def test_summary_and_compare_repeat_it(tmp_path, klat):
    session(tmp_path / "quiet/1", 0)
    session(tmp_path / "busy/1", 100_000)
    for words in (
        ["summary", tmp_path / "busy"],
        ["compare", tmp_path / "quiet", tmp_path / "busy"],
    ):
        out = " ".join(klat(*words)[1].split())
        assert "other work took 50 %" in out and out.count("other work took") == 1
