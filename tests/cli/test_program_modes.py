"""What the programs say and record in which mode: copies of them that a test can tell their mode, for the programs
themselves ask the machine."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import harness
import pytest
from harness import MEASURED, Done, Session, command, json_of, rows_of

KLAT = harness.ROOT / "klat"
FIGURES = ("first_sample", "mean", "stddev", "min", "p50", "p90", "p99", "max", "floor")
SHORT = ("--iterations", "20", "--warmup", "2")


def cpu() -> str:
    return str(min(os.sched_getaffinity(0)))


def planted(mode: str, program: str, *words: str | Path, one: bool = False) -> Done:
    """`one`: on a machine of one CPU."""
    told = {"KLAT_TEST_MODE": mode} | ({"KLAT_TEST_CPU": cpu()} if one else {})
    path = harness.path_of(program, "planted")
    for _ in range(harness.RETRIES):
        done = command([path, *SHORT, *words], env=os.environ | told)
        if done.status == MEASURED:
            break
    assert done.status == MEASURED, str(done)
    return done


def klat(*words: str | Path) -> Done:
    return command([sys.executable, "-B", KLAT, *words])


def test_path_lengths_of_one_cpu_are_instructions() -> None:
    own = f"{cpu()},{cpu()}"
    done = planted("counted", "pipes", "--cpus", own, one=True)
    assert "instructions  " in done.out and "not measurable" not in done.out, str(done)
    assert "ticks" not in done.out and "\nns " not in done.out, str(done)
    result = json_of(planted("counted", "pipes", "--cpus", own, "--json", one=True))
    assert (result["mode"], result["unit"]) == ("counted", "instructions")
    (metric,) = result["metrics"]
    assert metric["n"] == 20 and metric["mean"] > 0 and "mean_ns" not in metric


@pytest.mark.parametrize(("mode", "unit"), [("counted", "instructions"), ("emulated", "ticks")])
def test_what_crosses_cpus_has_no_number_in_an_emulator(
    two_cpus: None, mode: str, unit: str
) -> None:
    done = planted(mode, "cv")
    assert done.out.count(": not measurable in this mode\n") == 2, str(done)
    assert "average" not in done.out and "evidence: ok" in done.out, str(done)
    result = json_of(planted(mode, "cv", "--json"))
    for metric in result["metrics"]:
        assert metric.pop("name") in ("handoff", "round_trip") and metric.pop("n") == 0
        assert set(metric.values()) == {None}, metric
    assert result["evidence"]["counts"]["mismatches"] == 0
    for row in rows_of(planted(mode, "cv", "--csv").out):
        assert (row["unit"], row["n"], row["evidence"] != "") == (unit, "0", True), row
        assert {row[name] for name in FIGURES} == {""}, row


def test_one_cpu_of_several_is_not_measurable(two_cpus: None) -> None:
    """The emulator runs them in turns, and what the others execute would count."""
    done = planted("counted", "pipes", "--cpus", f"{cpu()},{cpu()}")
    assert "round_trip: not measurable in this mode\n" in done.out, str(done)


def test_nothing_is_measurable_where_instructions_are_not_counted() -> None:
    done = planted("emulated", "timer", one=True)
    assert done.out.count(": not measurable in this mode\n") == 3, str(done)
    assert "timer floor" not in done.out, str(done)
    assert json_of(planted("emulated", "timer", "--json", one=True))["floor"] is None


def test_the_ordinary_programs_do_not_believe_the_environment() -> None:
    told = os.environ | {"KLAT_TEST_MODE": "counted", "KLAT_TEST_CPU": cpu()}
    result = json_of(command([harness.path_of("timer"), *SHORT, "--json"], env=told))
    assert result["mode"] in ("hardware", "virtual") and result["metrics"][0]["n"] == 20


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A session of an emulator that counts: one metric with figures, two without."""
    path = tmp_path / "results" / "emu" / "1"
    words = ("--record", path, "--label", "emu")
    planted("counted", "pipes", "--cpus", f"{cpu()},{cpu()}", *words, one=True)
    planted("counted", "cv", *words)
    return path


def test_no_sample_is_recorded_of_what_is_not_measurable(two_cpus: None, recorded: Path) -> None:
    session = Session(recorded)
    assert session.info["mode"] == "counted" and session.info["unit"] == "instructions"
    assert {p.name for p in (recorded / "samples").iterdir()} == {"pipes.u64"}
    assert [row["n"] for row in session.rows if row["benchmark"] == "cv"] == ["0", "0"]
    assert [row["n"] for row in session.rows if row["benchmark"] == "pipes"] == ["20"]


def test_readers_name_what_is_not_measurable_and_show_no_number_for_it(
    two_cpus: None, recorded: Path, tmp_path: Path
) -> None:
    done = klat("summary", "--verify", recorded)
    assert done.status == 0 and "handoff  not measurable in this mode" in done.out, str(done)
    assert "evidence  locked 1, " in done.out and "mismatches 0" in " ".join(done.out.split()), str(
        done
    )
    assert "round_trip  instructions" in done.out and "ticks" not in done.out, str(done)
    told = json.loads(klat("summary", "--format", "json", recorded).out)
    (cv,) = [s for s in told["labels"][0]["settings"] if s["benchmark"] == "cv"]
    assert [m["measurable"] for m in cv["metrics"]] == [False, False]
    assert {m["median"] for m in cv["metrics"]} == {None}
    done = klat("export", "--format", "gobench", recorded)
    assert done.status == 0 and "handoff" not in done.out, str(done)
    assert "not measurable in this mode: cv handoff, round_trip" in done.err, str(done)
    done = klat("plot", recorded, "-o", tmp_path / "plots")
    assert "not measurable in this mode: cv handoff" in done.err, str(done)
    if done.status == 0:
        assert not [p for p in (tmp_path / "plots").iterdir() if p.name.startswith("cv")]
    done = klat("history", recorded.parent)
    assert done.status == 3 and "not measurable in this mode: cv" in done.out, str(done)
