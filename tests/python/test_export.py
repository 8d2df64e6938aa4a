"""`klat export`, on sessions written from docs/record.md alone, each format read by hand."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from written_sessions import RT, Klat, samples, write_label
from fakes import ROOT

from klat.export import RUNS, VERDICTS
from klat.report.renderers.cases import WRITERS

TEXT = [name for name in RUNS if name != "parquet"]
ODD = 'a/b #1 "x" \\ <é> %=\u2028\x1b[31m'


def export(klat: Klat, form: str, *words: object, status: int = 0) -> tuple[str, str]:
    found, out, err = klat("export", "--format", form, *words)
    assert found == status, err
    if status:
        assert out == "" and err.splitlines()[-1].startswith("klat export: ")
    return out, err


def test_gobench_has_a_line_per_run_under_the_configuration_of_its_label(new_session, klat):
    stock, rt = write_label(new_session), write_label(new_session, "rt", 1.1, **RT)
    out, err = export(klat, "gobench", stock, rt)
    assert err == ""
    configuration: dict[str, str] = {}
    lines: dict[str, list[list[str]]] = {}
    for line in out.splitlines():
        if line.startswith("Benchmark"):
            lines.setdefault(configuration["label"], []).append(line.split(" "))
        elif match := re.fullmatch(r"([a-z]+): (.*)", line):
            configuration[match[1]] = match[2]
    machine = {"goos": "linux", "goarch": "amd64", "cpu": "Test CPU", "machine": "6d61"}
    assert configuration == machine | {"mode": "virtual", "label": "rt"}
    assert [len(found) for found in lines.values()] == [16, 16]
    assert {line[0] for found in lines.values() for line in found} == {
        "BenchmarkPipes/metric=round_trip/placement=same-llc/policy=fifo:50"
        "/bytes=1/peer=thread/wait=read/mode=round-trip/cpus=writer%3D1,reader%3D0/program=000000000000"
    }
    first = lines["stock"][0]
    values = dict(zip(first[3::2], map(float, first[2::2])))
    expected = samples(52_026)
    assert first[1] == "600"
    assert values["ns/op"] == pytest.approx(sum(expected) / 600 / 2.6, abs=0.001)
    assert values["p50-ns"] == pytest.approx(sorted(expected)[299] / 2.6, abs=0.001)
    assert values["max-ns"] == pytest.approx(max(expected) / 2.6, abs=0.001)
    assert list(values) == ["ns/op", "p50-ns", "p90-ns", "p99-ns", "max-ns"]


def test_gobench_differs_between_labels_in_nothing_that_would_split_the_table(new_session, klat):
    configurations = []
    for path in (write_label(new_session), write_label(new_session, "rt", **RT)):
        out, _ = export(klat, "gobench", path)
        assert "6.1.0" in out
        configurations.append(set(re.findall(r"^([a-z].*)$", out, re.MULTILINE)))
    assert configurations[0] ^ configurations[1] == {"label: stock", "label: rt"}


NAMED = re.compile(r'Benchmark\S+|"name": ".*?"|klat_sample_seconds_count{.*}|klat_runs{.*"ok"}')
OTHERS: dict[str, dict[str, Any]] = {
    "way": {"evidence": "wakeups=600;wake_interrupts=300"},
    "policy": {"policy": "writer=fifo:40;reader=fifo:50"},
    "cpus": {"cpus": "writer=3;reader=2"},
    "invalid": {
        "status": "invalid",
        "reason": "moved",
        "evidence": "wakeups=600;wake_interrupts=300",
    },
    "build": {},
    "load": {},
}


def names(klat: Klat, form: str, path: Path, directory: Path) -> list[str]:
    if form != "hgrm":
        return NAMED.findall(export(klat, form, path)[0])
    export(klat, form, path, "-o", f"{directory}/")
    return [file.name for file in directory.iterdir()]


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("form", ["gobench", "googlebench", "pyperf", "openmetrics", "hgrm"])
def test_other_runs_of_the_label_do_not_change_a_name(new_session, tmp_path, klat, form, other):
    run = {"evidence": "wakeups=600;wake_interrupts=600", "policy": "writer=fifo:50;reader=fifo:40"}
    first = new_session("stock/1")
    first.run({"round_trip": samples(52_000)}, **run)
    alone = names(klat, form, first.path.parent, tmp_path / "alone")
    programs = {"pipes": "1" * 64} if other == "build" else first.info["programs"]
    second = new_session("stock/2", boot_id="other", programs=programs)
    second.run({"round_trip": samples(62_000)}, run=2, **(run | OTHERS[other]))
    if other == "load":
        second.write_facts({"schema": 1, "load": "populate"})
        if form in ("googlebench", "pyperf"):
            return  # a file of these holds no two loads
    both = names(klat, form, first.path.parent, tmp_path / "both")
    assert set(alone) <= set(both)
    assert (len(set(both)) > len(set(alone))) is (other != "invalid" or form == "openmetrics")


@pytest.mark.parametrize("form", ["gobench", "openmetrics", "hgrm"])
def test_kinds_of_sessions_that_no_name_tells_apart_are_refused(new_session, tmp_path, klat, form):
    for number, setup in enumerate(("true", "false")):
        facts = {"schema": 1, "setup": setup}
        session = new_session(f"stock/{number}", boot_id=setup, facts=facts)
        session.run({"m": samples(5000)})
    output = f"{tmp_path}/{'d/' if form == 'hgrm' else 'file'}"
    _, err = export(klat, form, session.path.parent, "-o", output, status=2)
    assert "does not combine (setup: true | setup: false)" in err
    assert names(klat, form, session.path, tmp_path / "d")


@pytest.mark.parametrize("form", ["gobench", "hgrm"])
def test_figures_up_to_2_to_the_64_are_exact(new_session, klat, form):
    session = new_session(mode="counted", unit="instructions")
    session.run({"m": [*range(600), 2**64 - 1]})
    out, _ = export(klat, form, session.path)
    assert re.search(r"(?<!\d)18446744073709551615.000", out)
    assert "18446744073709551616" not in out


def test_a_gobench_name_never_ends_in_a_number_of_cpus(new_session, klat):
    new_session(programs={}).run({"m": samples(5000)}, cpus="a b/c-16")
    out, _ = export(klat, "gobench", new_session("stock/2").path.parent)
    assert re.search(r"^BenchmarkPipes/.*/cpus=a%20b%2Fc%2D16 600 ", out, re.MULTILINE)


def test_googlebench_has_an_entry_per_run_and_aggregates_over_them(new_session, klat):
    document = json.loads(export(klat, "googlebench", write_label(new_session))[0])
    assert document["context"]["label"] == "stock"
    assert document["context"]["mhz_per_cpu"] == 2600
    entries = document["benchmarks"]
    runs = [entry for entry in entries if entry["run_type"] == "iteration"]
    assert [run["repetition_index"] for run in runs] == list(range(16))
    assert {run["repetitions"] for run in runs} == {16}
    assert {run["time_unit"] for run in runs} == {"ns"}
    assert runs[0]["real_time"] == pytest.approx(sum(samples(52_026)) / 600 / 2.6, abs=0.001)
    assert runs[0]["cpu_time"] == 0
    aggregates = {e["aggregate_name"]: e for e in entries if e["run_type"] == "aggregate"}
    assert list(aggregates) == ["mean", "median", "stddev", "cv"]
    times = [run["real_time"] for run in runs]
    assert aggregates["mean"]["real_time"] == pytest.approx(sum(times) / 16, abs=0.001)
    for name, entry in aggregates.items():
        assert entry["name"] == f"{runs[0]['name']}_{name}"
        assert entry["run_name"] == runs[0]["name"]


def test_pyperf_has_one_value_per_run_in_seconds(new_session, klat):
    document = json.loads(export(klat, "pyperf", write_label(new_session))[0])
    assert document["version"] == "1.0"
    (benchmark,) = document["benchmarks"]
    assert benchmark["metadata"]["unit"] == "second"
    assert len(benchmark["runs"]) == 16
    (value,) = benchmark["runs"][0]["values"]
    assert value == pytest.approx(sum(samples(52_026)) / 600 / 2.6e9, abs=1e-12)
    assert benchmark["runs"][0]["metadata"]["loops"] == 600


def distribution(text: str) -> list[list[float]]:
    lines = text.splitlines()
    assert lines[0].split() == ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
    assert lines[1] == ""
    return [[float(word) for word in line.split()] for line in lines[2:] if line[0] != "#"]


def test_hgrm_holds_exact_percentiles_of_all_samples_and_names_its_unit(new_session, klat):
    out, _ = export(klat, "hgrm", write_label(new_session, boots=1))
    pool = sorted(x for run in range(1, 5) for x in samples(52_000 + 26 * run))
    rows = distribution(out)
    for value, share, count, *inverse in rows:
        rank = max(1, math.ceil(share * len(pool) - 1e-6))
        assert value == pytest.approx(pool[rank - 1] / 2600, abs=0.0005)
        assert count == sum(x <= pool[rank - 1] for x in pool)
        assert inverse == ([pytest.approx(1 / (1 - share), abs=0.01)] if share < 1 else [])
    assert rows[-1][1:] == [1.0, 2400.0]
    assert rows == sorted(rows, key=lambda row: row[1])
    assert re.search(r"^#\[Unit +=  *microseconds,", out, re.MULTILINE)
    assert re.search(r"^#\[Max .*Total count    =  *2400\]$", out, re.MULTILINE)


def test_hgrm_of_several_distributions_needs_a_directory(new_session, tmp_path, klat):
    session = new_session()
    for responders in (1, 2):
        params = f"responders={responders};pages=1"
        session.run({"initiator": samples(5000)}, benchmark="tlbflush", params=params)
    _, err = export(klat, "hgrm", session.path, status=2)
    assert "holds one distribution, and there are 2" in err and "-o DIR/" in err
    export(klat, "hgrm", session.path, "-o", f"{tmp_path}/made/here/")
    assert sorted(path.name for path in (tmp_path / "made/here").iterdir()) == [
        f"stock-tlbflush-initiator-placement-same-llc-policy-fifo_50-responders-{n}-pages-1-{digest}.hgrm"
        for n, digest in ((1, "c4dd418f"), (2, "dc638393"))
    ]


def test_openmetrics_is_a_summary_in_seconds_and_ends_with_eof(new_session, klat):
    path = write_label(new_session, ODD, boots=1)
    out, _ = export(klat, "openmetrics", path)
    pool = sorted(x for run in range(1, 5) for x in samples(52_000 + 26 * run))
    assert out.endswith("\n# EOF\n")
    assert "# TYPE klat_sample_seconds summary\n# UNIT klat_sample_seconds seconds\n" in out
    assert r'label="a/b #1 \"x\" \\ <é> %=\\u2028\\x1b[31m"' in out
    found = dict(re.findall(r'^klat_sample_seconds\{.*quantile="([0-9.]+)"\} (\S+)$', out, re.M))
    assert list(found) == ["0.5", "0.9", "0.99"]  # 2,400 samples do not bear out p99.9
    assert float(found["0.99"]) == pytest.approx(pool[2375] / 2.6e9, rel=1e-9)
    assert re.search(r"^klat_sample_seconds_count\{[^}]*\} 2400$", out, re.MULTILINE)
    (total,) = re.findall(r"^klat_sample_seconds_sum\{.*\} (\S+)$", out, re.MULTILINE)
    assert float(total) == pytest.approx(sum(pool) / 2.6e9, rel=1e-9)


# Only one test a metric.
MEDIAN = ("--quantile", "median")


def test_junit_fails_slower_and_skips_inconclusive_with_the_reason(new_session, klat):
    stock = write_label(new_session)
    outcomes = {}
    others = {
        "slower": write_label(new_session, "slow", 1.2, **RT),
        "same": write_label(new_session, "like", **RT),
        "faster": write_label(new_session, "fast", 0.8, **RT),
        "cannot be attributed": write_label(new_session, "one", 1.2, boots=1, **RT),
        "not comparable": write_label(new_session, "other", 1.2, cpu_model="Another"),
    }
    for verdict, path in others.items():
        out, _ = export(klat, "junit", stock, path, *MEDIAN)
        suite = ElementTree.fromstring(out.split("\n", 1)[1])[0]
        (case,) = suite.findall("testcase")
        assert case.get("classname") == "pipes.round_trip"
        (child,) = case
        outcomes[verdict] = child.tag
        message = child.get("message") or child.text or ""
        assert message.startswith(verdict), message
        counts = {name: int(suite.get(name, "")) for name in ("tests", "failures", "skipped")}
        assert counts["tests"] == 1
        assert counts["failures"] == (child.tag == "failure")
        assert counts["skipped"] == (child.tag == "skipped")
    passed = {"slower": "failure", "same": "system-out", "faster": "system-out"}
    skipped = dict.fromkeys(("cannot be attributed", "not comparable"), "skipped")
    assert outcomes == passed | skipped


# The grammar of Documentation/dev-tools/ktap.rst, for results that are not nested.
KTAP_RESULT = re.compile(r"(ok|not ok) ([0-9]+) ([^#\n]+?)( # (SKIP|TODO|XFAIL)( [^\n]*)?)?")


def ktap(text: str) -> list[tuple[str, str]]:
    """Each test's result and its directive."""
    version, plan, *lines = text.splitlines()
    assert version == "KTAP version 1"
    results = [line for line in lines if not line.startswith("# ")]
    assert plan == f"1..{len(results)}"
    found = []
    for number, line in enumerate(results, start=1):
        match = KTAP_RESULT.fullmatch(line)
        assert match and int(match[2]) == number, line
        found.append((match[1], (match[4] or "").strip()))
    return found


def test_ktap_follows_the_grammar_also_for_odd_labels(new_session, klat):
    stock = write_label(new_session)
    odd = write_label(new_session, ODD, 1.2, **RT)
    other = write_label(new_session, "x # SKIP y", cpu_model="Another # CPU")
    assert ktap(export(klat, "ktap", stock, odd, *MEDIAN)[0]) == [("not ok", "")]
    out, _ = export(klat, "ktap", stock, odd, other, *MEDIAN)
    (slow, skipped) = ktap(out)
    assert slow == ("not ok", "")
    assert skipped[0] == "ok" and skipped[1].startswith("# SKIP not comparable: ")
    assert skipped[1].endswith(r"and Another \x23 CPU in NEW; measure both alike, or --allow cpu")


def test_nothing_in_common_is_a_skipped_test_and_no_empty_file(new_session, klat):
    stock = write_label(new_session)
    other = new_session("rt/1", label="rt", boot_id="rt", environment={})
    other.run({"delivery": samples(5000)}, benchmark="timer", params="kind=signal")
    results = ktap(export(klat, "ktap", stock, other.path, *MEDIAN)[0])
    assert [result for result, _ in results] == ["ok", "ok"]
    assert [directive.partition(": ")[::2] for _, directive in results] == [
        ("# SKIP inconclusive", "not measured in NEW"),
        ("# SKIP only in NEW", "BASE: not measured"),
    ]


@pytest.mark.parametrize("form", TEXT)
def test_instructions_and_emulated_ticks_are_never_called_a_time(new_session, klat, form):
    for mode, unit in (("counted", "instructions"), ("emulated", "ticks")):
        session = new_session(f"{mode}/1", label=mode, mode=mode, unit=unit)
        session.run({"round_trip": samples(5000)})
        if form == "googlebench":
            _, err = export(klat, form, session.path, status=2)
            assert f"label {mode} is in {unit} of mode {mode}, which are none" in err
            continue
        out, err = export(klat, form, session.path)
        assert unit in out
        assert not re.search(r"\bns\b|-ns\b|second|microsec|_ns\b", out)
        if mode == "emulated":
            assert "its ticks are not exported as time" in err


@pytest.mark.parametrize("form", TEXT)
def test_only_usable_runs_are_exported_and_the_others_counted(new_session, klat, form):
    session = new_session()
    session.run({"round_trip": samples(5000)}, run=1)
    session.run({"round_trip": samples(5000)}, run=2, status="disturbed", reason="steal")
    before, _ = export(klat, form, session.path)
    session.run({"round_trip": samples(77_777)}, run=3, status="invalid", reason="moved")
    session.run(status="error", run=4, reason="no device")
    session.run(status="skipped", run=5, reason="no CPUs")
    after, err = export(klat, form, session.path)
    assert "left out, because they count in no figure: 1 invalid, 1 error, 1 skipped" in err
    if form == "openmetrics":
        before, after = (re.sub(r"(?m)^klat_runs.*\n", "", text) for text in (before, after))
    assert before == after


@pytest.mark.parametrize("form", [*TEXT, *VERDICTS])
def test_the_same_record_gives_the_same_bytes(new_session, tmp_path, form):
    paths = [write_label(new_session, ODD)]
    if form in VERDICTS:
        paths.append(write_label(new_session, "rt", 1.2, **RT))
    found = set()
    for seed in ("0", "1"):
        file = tmp_path / f"{seed}.out"
        command = [sys.executable, str(ROOT / "klat"), "export", "--format", form, "-o", str(file)]
        subprocess.run([*command, *map(str, paths)], env={"PYTHONHASHSEED": seed}, check=True)
        found.add(file.read_bytes())
    assert len(found) == 1
    text = found.pop().decode("utf-8")
    assert "\x1b" not in text and "\u2028" not in text


def test_a_file_is_there_whole_or_as_before(new_session, tmp_path, klat):
    path = write_label(new_session)
    file = tmp_path / "out" / "file"
    file.parent.mkdir()
    file.write_text("before")
    cut = path / "2" / "samples" / "pipes.u64"
    cut.write_bytes(cut.read_bytes()[:80])
    _, err = export(klat, "hgrm", path, "-o", file, status=2)
    assert "the file was cut" in err
    assert file.read_text() == "before"
    assert list(file.parent.iterdir()) == [file]
    export(klat, "gobench", path, "-o", file)  # needs no samples
    assert "BenchmarkPipes" in file.read_text()
    assert list(file.parent.iterdir()) == [file]


def test_without_pyarrow_parquet_says_what_to_install(new_session, monkeypatch, klat, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    file = tmp_path / "x.parquet"
    label = write_label(new_session)
    _, err = export(klat, "parquet", label, "-o", file, status=2)
    assert "parquet needs pyarrow" in err and "make a venv, pip install pyarrow numpy" in err
    monkeypatch.setattr(sys, "prefix", "/venv")
    _, err = export(klat, "parquet", label, "-o", file, status=2)
    assert err.endswith(" install pyarrow\n") and "make a venv" not in err
    assert not file.exists()


@pytest.mark.parametrize("form", ["googlebench", "pyperf"])
def test_a_file_that_holds_one_label_is_not_given_two(new_session, klat, form):
    paths = write_label(new_session, boots=1), write_label(new_session, "rt", boots=1, **RT)
    _, err = export(klat, form, *paths, status=2)
    assert "there are 2: stock on Linux 6.1.0-test, rt on Linux 6.1.0-rt" in err


def test_bad_input_is_one_sentence(new_session, tmp_path, klat):
    path = write_label(new_session, boots=1)
    empty = new_session("empty/1", label="empty").path
    spoilt = new_session("spoilt/1", label="spoilt")
    spoilt.run({"round_trip": samples(5000)}, status="invalid", reason="moved")
    for words, said in {
        ("gobench", tmp_path / "nowhere"): "nowhere: no such directory",
        ("gobench", empty): "there is nothing to show or compare",
        ("gobench", spoilt.path): "no run counts (1 invalid), so there is nothing to export",
        ("gobench", path, "--metric", "nothing"): "'nothing'; there are round_trip",
        ("gobench", path, "--benchmark", "cv"): "'cv'; there are pipes",
        ("gobench", path, "--alpha", "1%"): "--alpha is for verdicts, and gobench holds runs",
        ("junit", path): "give two paths, BASE NEW",
        ("junit", path, tmp_path / "nowhere"): "nowhere: no such directory",
        ("junit", path, path): "is on both sides",
        ("junit", path, path, "--benchmark", "pipes"): "junit takes --metric",
        ("junit", path, path, "--quantile", "best"): "'best' must be median",
        ("gobench", path, "-o", tmp_path): "is a directory; gobench is written into one file",
        ("gobench", path, "-o", tmp_path / "no" / "file"): "No such file or directory",
        ("gobench", path, "-o", ""): "the name of a file cannot be empty",
    }.items():
        _, err = export(klat, *words, status=2)
        assert said in err, words
    with_zero = new_session("zero/1", label="zero")
    with_zero.run({"round_trip": [0] * 20})
    assert "is 0, which pyperf refuses" in export(klat, "pyperf", with_zero.path, status=2)[1]
    for form in ("gobench", "googlebench", "hgrm", "openmetrics"):
        export(klat, form, with_zero.path)


def test_verdicts_are_held_to_the_rules_that_compare_takes(new_session, klat):
    paths = write_label(new_session), write_label(new_session, "rt", 1.05, **RT)
    assert ktap(export(klat, "ktap", *paths, *MEDIAN)[0]) == [("not ok", "")]
    assert ktap(export(klat, "ktap", *paths, *MEDIAN, "--margin", "10%")[0]) == [("ok", "")]
    out, _ = export(klat, "ktap", *paths, "--quantile", "median", "--quantile", "mean")
    assert [result for result, _ in ktap(out)] == ["not ok", "not ok"]


def test_completion_and_documentation_know_every_format():
    formats = [*RUNS, *VERDICTS]
    assert f'"{" ".join(formats)}"' in (ROOT / "scripts/completion.bash").read_text()
    table = re.findall(r"^\| `(\w+)`", (ROOT / "docs/exporting.md").read_text(), re.MULTILINE)
    assert table == formats
    modules = {path.stem for path in (ROOT / "scripts/klat/export").glob("*.py")}
    assert set(formats) <= modules | {*WRITERS}
