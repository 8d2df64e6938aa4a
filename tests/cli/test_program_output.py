"""What a program prints: for people, as CSV, as JSON, and that these agree."""

import re
from typing import Any

import harness
import pytest
from harness import Session, json_of, on_two, rows_of, traits, works

STATISTICS = ("mean", "stddev", "min", "p50", "p90", "p99", "max")


@on_two
def test_bare_it_prints_what_is_understood_without_the_source(program):
    done = works(program)
    assert done.out.startswith(f"{program}: ")
    header = rf"^{traits(program).iterations} records +average +stdev +min +p50 +p99 +max$"
    assert re.search(header, done.out, re.MULTILINE)
    assert re.search(r"^ticks( +([\d.]+|n/a)){6}$", done.out, re.MULTILINE)
    assert re.search(r"^timer floor \d+ ticks", done.out, re.MULTILINE)
    assert re.search(r"^evidence: (ok|disturbed|invalid)", done.out, re.MULTILINE)
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 79
    for above, below in zip(lines, lines[1:]):
        if " records " in above:
            ends = [match.end() for match in re.finditer(r"\S+", above)][2:]
            assert [match.end() for match in re.finditer(r"\S+", below)][1:] == ends, done.out


@pytest.mark.parametrize("iterations", ["9", "499", "500"])
def test_a_quantile_that_is_not_supported_is_not_given(iterations):
    n = int(iterations)
    program, words = "pipes", ("--iterations", iterations)
    done = works(program, *words, "--json")
    for metric in json_of(done)["metrics"]:
        series = metric["n"] // n
        for name, tail in (("p50", 50), ("p90", 10), ("p99", 1)):
            known = series * n * tail >= 500
            assert (metric[name] is not None) == known, (name, metric)
            assert (metric[f"{name}_ns"] is not None) == known, (name, metric)
    shown = works(program, *words).out
    tables = re.findall(r"^(\d+) records .*\nticks +(.*)$", shown, re.MULTILINE)
    assert len(tables) == len(json_of(done)["metrics"])
    for count, figures in tables:
        average, stdev, least, p50, p99, most = figures.split()
        assert (p50 != "n/a", p99 != "n/a") == (int(count) >= 10, int(count) >= 500), shown
        assert "n/a" not in (average, stdev, least, most)


def test_json_is_one_object_with_the_promised_keys_and_agrees_with_the_recorded_row(
    program, tmp_path
):
    result = json_of(works(program, "--json", "--record", tmp_path))
    wanted = "program version parameters unit tsc_khz floor status reason evidence metrics".split()
    assert set(wanted) <= set(result)
    assert result["program"] == program
    assert result["status"] in ("ok", "disturbed", "invalid")
    assert bool(result["reason"]) == (result["status"] != "ok")
    assert result["floor"] > 0
    assert result["metrics"]
    for metric in result["metrics"]:
        assert metric["n"] % traits(program).iterations == 0
        known = [name for name in STATISTICS if metric[name] is not None]
        for name in known:
            assert metric[f"{name}_ns"] == pytest.approx(metric[name] * 1e6 / result["tsc_khz"])
        ordered = [metric[name] for name in known if name not in ("mean", "stddev")]
        assert len(ordered) >= 3 and ordered == sorted(ordered)
        assert metric["min"] <= metric["mean"] <= metric["max"]
    for worker in result["evidence"]["workers"]:
        assert worker["pinned"] is True
    assert_recorded(program, result, Session(tmp_path))


def assert_recorded(program: str, result: dict[str, Any], session: Session) -> None:
    rows = session.rows
    assert result["tsc_khz"] == pytest.approx(session.info["tsc"]["khz"], rel=1e-10)
    assert [row["metric"] for row in rows] == [metric["name"] for metric in result["metrics"]]
    for row, metric in zip(rows, result["metrics"]):
        assert row["benchmark"] == program
        assert row["params"] == result["parameters"]
        assert row["status"] == result["status"]
        assert row["reason"] == result["reason"]
        assert row["unit"] == result["unit"]
        assert row["cpus"].split(";") == [str(cpu) for cpu in result["cpus"]]
        assert row["placement"] == result["placement"]
        assert int(row["floor"]) == result["floor"]
        assert int(row["n"]) == metric["n"]
        assert int(row["elapsed_ns"]) == result["elapsed_ns"]
        for name in STATISTICS:
            if metric[name] is None:
                assert row[name] == ""
            else:
                assert float(row[name]) == pytest.approx(metric[name], rel=1e-10), name


@on_two
def test_csv_is_the_recorded_row_but_for_where_its_samples_are(program, tmp_path):
    done = works(program, "--iterations", "50", "--quiet", "--record", tmp_path)
    assert done.out == ""
    printed = rows_of(works(program, "--csv", "--record", tmp_path).out)
    recorded = Session(tmp_path).rows[-len(printed) :]
    header = (tmp_path / "runs.csv").read_text().splitlines()[0]
    assert list(printed[0]) == header.split(",")
    for row, kept in zip(printed, recorded):
        assert int(kept["first_sample"]) > int(row["first_sample"])
        for name in set(row) - {"first_sample", "check"}:
            assert row[name] == kept[name], name


def test_params_tell_every_option_that_shapes_the_measurement(program):
    common = {"iterations", "warmup"}
    aside = set(
        "cpus policy record label seed run order under-load csv json quiet published version help".split()
    )
    optional = {"dma-latency", "guest-halt-poll", "inject", "plant"}
    optional |= {"soak", "segment", "limit", "stop-above"}
    parameters = json_of(works(program, "--iterations", "20", "--json"))["parameters"]
    names = {pair.partition("=")[0] for pair in parameters.split(";")}
    assert common <= names
    own = set(harness.help_options(program)) - common - aside - optional
    # What names a place or a patience, or counts beside the samples, shapes nothing.
    harmless = {"address", "count-syscalls", "device", "port", "wait-for"}
    harmless |= {"listen", "connect", "interface"}
    assert own - names <= harmless, own - names
