"""summary with --horizon."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from written_sessions import PIPES, Klat, NewSession, SyntheticSession, words

from klat.compare.horizon import Horizon
from klat.report.text.horizon_text import significant

TIMER = "method=nanosleep;mode=periodic;period=1000;iterations=2000;warmup=0"


def fill(session: SyntheticSession, seed: int = 2, runs: int = 10, **values: object) -> None:
    """Runs of 2,000 samples in 2 s, from 52,000 ticks on, with an exponential tail."""
    draw = np.random.default_rng(seed)
    values = {"benchmark": "timer", "params": TIMER, "elapsed_ns": 2 * 10**9, **values}
    for run in range(1, runs + 1):
        made = 52_000 + draw.exponential(5_000, 2_000)
        session.run({"lateness": [int(x) for x in made]}, run=run, **values)  # type: ignore[arg-type]


def metric(out: str) -> dict[str, object]:
    (found,) = json.loads(out)["labels"][0]["settings"][0]["metrics"]
    assert isinstance(found, dict)
    return found


def test_a_horizon_in_time_counts_the_samples_of_a_periodic_program(
    writer: SyntheticSession, klat: Klat
) -> None:
    fill(writer)
    status, out, err = klat("summary", writer.path, "--horizon", "1h")
    assert (status, err) == (0, "")
    assert "lateness: 3,600,000 samples, 180 times those measured" in out
    assert "95 % interval" in words(out) and "not a guarantee" in words(out)
    assert "states that this boot showed" in words(out)
    by_number = klat("summary", writer.path, "--horizon", "3.6e6", "--format", "json")[1]
    by_time = klat("summary", writer.path, "--horizon", "60min", "--format", "json")[1]
    assert metric(by_number)["horizon"] == metric(by_time)["horizon"]


def test_the_level_is_that_of_the_tail_in_every_format(
    writer: SyntheticSession, klat: Klat
) -> None:
    fill(writer)
    found = metric(klat("summary", writer.path, "--horizon", "1e6", "--format", "json")[1])
    tail = found["horizon"]
    assert isinstance(tail, dict)
    true = 52_000 + 5_000 * np.log(1e6)
    assert tail["level_low"] < true < tail["level_high"]
    assert tail["level_ns"] == pytest.approx(tail["level"] / 2.6)
    assert tail["no_extrapolation"] is None
    out = klat("summary", writer.path, "--horizon", "1e6", "--format", "csv")[1]
    (row,) = csv.DictReader(io.StringIO(out))
    assert float(row["level"]) == tail["level"] and row["peaks"] == str(tail["peaks"])


def test_a_horizon_within_what_was_measured_is_the_maximum(
    writer: SyntheticSession, klat: Klat
) -> None:
    fill(writer)
    out = klat("summary", writer.path, "--horizon", "20000")[1]
    assert "the maximum above: the horizon is not longer than the measurement" in words(out)
    found = metric(klat("summary", writer.path, "--horizon", "20s", "--format", "json")[1])
    tail = found["horizon"]
    assert isinstance(tail, dict) and tail["level"] == found["max"] and tail["shape"] is None


def test_a_reason_stands_in_place_of_a_level(new_session: NewSession, klat: Klat) -> None:
    session = new_session(mode="counted", unit="instructions")
    session.run({"round_trip": [340] * 19_990 + list(range(400, 410))})
    status, out, _ = klat("summary", session.path, "--horizon", "1e9")
    assert status == 0
    assert "no extrapolation: too few different values" in words(out)
    assert max(map(len, out.splitlines())) <= 80


def test_runs_that_repeat_each_other_show_nothing_new(new_session: NewSession, klat: Klat) -> None:
    for boot in ("a", "b"):
        session = new_session(f"stock/{boot}", boot_id=boot)
        fill(session)
    out = words(klat("summary", session.path.parent, "--horizon", "1e9")[1])
    assert "no extrapolation: 10 of 20 runs repeat another one exactly" in out


def test_a_longer_sample_that_does_not_count_is_not_hidden(
    writer: SyntheticSession, klat: Klat
) -> None:
    fill(writer)
    writer.run({"lateness": [9_000_000]}, benchmark="timer", params=TIMER, status="invalid")
    out = words(klat("summary", writer.path, "--horizon", "1e9")[1])
    assert "a run that does not count has a longer sample (9,000,000 ticks)" in out


def test_boots_that_differ_are_named(new_session: NewSession, klat: Klat) -> None:
    first = new_session("stock/a", boot_id="a")
    second = new_session("stock/b", boot_id="b")
    fill(first, seed=1)
    draw = np.random.default_rng(2)
    for run in range(1, 11):
        made = [int(x) for x in 52_000 + draw.exponential(8_000, 2_000)]
        second.run({"lateness": made}, benchmark="timer", params=TIMER, run=run)
    out = words(klat("summary", first.path.parent, "--horizon", "1e9")[1])
    assert "no extrapolation: peaks come more often in some boots than in others" in out
    assert "states that these 2 boots showed" in out


def test_a_soak_is_extrapolated_by_the_maxima_of_its_segments(
    writer: SyntheticSession, klat: Klat
) -> None:
    draw = np.random.default_rng(1)
    params = "method=nanosleep;mode=periodic;period=1000;soak=60"
    for run in range(1, 81):
        made = [int(x) for x in 52_000 + draw.exponential(5_000, 500)]
        values = {"benchmark": "timer", "params": params, "elapsed_ns": 60 * 10**9}
        writer.run({"lateness": made}, run=run, **values)  # type: ignore[arg-type]
    out = klat("summary", writer.path, "--horizon", "8h")[1]
    assert "lateness: 240,000 samples, 6.00 times those measured" in out
    assert "block maxima  of 80 segments" in out and "95 % interval" in words(out)


@pytest.mark.parametrize(
    ("horizon", "message"),
    [
        ("8hours", "must be a time, for example 8h"),
        ("0", "must be more than 0"),
        ("-5", "must be a time"),
        ("1e99", "must be more than 0 and at most 1e+18"),
        ("2.5", "whole number of samples"),
        ("", "must be a time"),
        ("1h", "needs a periodic program"),
    ],
)
def test_a_bad_horizon_is_one_line(
    writer: SyntheticSession, klat: Klat, horizon: str, message: str
) -> None:
    writer.run({"round_trip": [52_000, 52_026]}, params=PIPES)
    status, out, err = klat("summary", writer.path, f"--horizon={horizon}")
    assert (status, out) == (2, "")
    assert message in err and err.count("\n") == 1


def test_counted_mode_refuses_a_horizon_in_time(new_session: NewSession, klat: Klat) -> None:
    session = new_session(mode="counted", unit="instructions")
    fill(session, runs=1)
    status, _, err = klat("summary", session.path, "--horizon", "8h")
    assert status == 2 and "give a number of samples" in err


def test_a_horizon_is_read_as_typed() -> None:
    assert Horizon.parse("1e9").samples == 1e9
    assert Horizon.parse("1.5h").seconds == 5_400
    assert Horizon.parse("2d").seconds == 172_800
    assert Horizon.parse("1,000,000").samples == 1e6
    with pytest.raises(ValueError, match="must be a time"):
        Horizon.parse("1,5h")  # not 15 h
    assert [significant(x) for x in (0.0123456, 5.0, 61_234.5, -0.5)] == [
        "0.0123",
        "5.00",
        "61,200",
        "-0.500",
    ]
