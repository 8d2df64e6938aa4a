"""The exported files, given to the programs that they are made for.

These come from their registries into directories of the test's own and are used from there. Where
a registry does not answer, the test is skipped.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written_sessions import RT, NewSession, samples, write_label
from fakes import ROOT
from test_export import MEDIAN, ODD

pytestmark = [pytest.mark.network, pytest.mark.slow]

LIMIT = 300  # seconds until a registry is given up
Export = Callable[..., Path]


def tried(command: list[str], what: str, **more: Any) -> None:
    """Run what needs a registry."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT, check=False, **more
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{what} did not come within {LIMIT} s")
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no word of it"]
        pytest.skip(f"cannot have {what}: {lines[-1]}")


def checked(command: list[str], **more: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def venv(directory: Path, *packages: str) -> Path:
    """The interpreter of a venv that has the packages."""
    made = subprocess.run(
        [sys.executable, "-m", "venv", str(directory)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        reason = "this Python makes no venv: apt install python3-venv"
        if os.environ.get("KLAT_REQUIRE") == "1":
            pytest.fail(f"KLAT_REQUIRE is set, and {reason}")
        pytest.skip(reason)
    pip = [str(directory / "bin/python"), "-m", "pip", "install", "--quiet", "--retries", "1"]
    pip += ["--timeout", "15", "--disable-pip-version-check", "--only-binary", ":all:"]
    tried([*pip, *packages], " ".join(packages))
    return directory / "bin/python"


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    wanted = ("pyperf~=2.10", "hdrhistogram~=0.10", "prometheus-client~=0.22")
    directory = tmp_path_factory.mktemp("readers") / "venv"
    return str(venv(directory, *wanted, "junitparser~=5.0", "tap.py~=3.2"))


@pytest.fixture
def export(tmp_path: Path) -> Export:
    def run(form: str, *words: object, python: str = sys.executable) -> Path:
        number = len(list(tmp_path.glob(f"{form}-*")))
        file = tmp_path / f"{form}-{number}.{form}"
        command = [python, str(ROOT / "klat"), "export", "--format", form, "-o", str(file)]
        checked([*command, *map(str, words)])
        return file

    return run


def asked(python: str, program: str, *files: Path) -> Any:
    """What a program that prints JSON says of the files."""
    return json.loads(checked([python, "-c", program, *map(str, files)]))


def test_pyperf_reads_runs_and_compares_labels(python, export, new_session):
    base = export("pyperf", write_label(new_session, ODD))
    new = export("pyperf", write_label(new_session, "rt", 1.2, **RT))
    program = """
import json, pyperf, sys
(bench,) = pyperf.BenchmarkSuite.load(sys.argv[1])
print(json.dumps([bench.get_nrun(), bench.get_nvalue(), bench.mean(), bench.get_unit(),
                  bench.get_name(), bench.get_metadata()["klat_mode"], bench.get_loops()]))
"""
    runs, values, mean, unit, name, mode, loops = asked(python, program, base)
    assert (runs, values, unit, mode, loops) == (16, 16, "second", "virtual", 600)
    assert name.startswith("pipes round_trip placement=same-llc policy=fifo:50")
    assert mean == pytest.approx(52_117 * 1.03 / 2.6e9, rel=0.001)
    told = checked([python, "-m", "pyperf", "compare_to", str(base), str(new)])
    assert "1.20x slower" in told


def test_hgrm_agrees_with_hdrhistogram_line_by_line(python, export, new_session):
    """With five significant digits, samples below 2^17 have a bucket each. The Python port does not
    truncate the power of two that its originals in Java and C truncate; here it does."""
    session = new_session(mode="emulated")
    drawn = np.random.default_rng(7).lognormal(8, 0.8, 20_000).clip(1, 130_000).astype(int)
    for part in np.split(drawn, 40):
        session.run({"round_trip": part.tolist()})
    program = """
import io, json, math, sys
from hdrh.histogram import HdrHistogram
from hdrh.iterators import PercentileIterator
def increment(self):
    level = self.percentile_to_iterate_to
    half = 2 ** (int(math.log2(100 / (100 - level))) + 1) if level < 100 else math.inf
    self.percentile_to_iterate_to += 100 / (self.percentile_ticks_per_half_distance * half)
PercentileIterator.increment_iteration_level = increment
histogram = HdrHistogram(1, 200_000, 5)
for value in open(sys.argv[1]):
    histogram.record_value(int(value))
out = io.BytesIO()
histogram.output_percentile_distribution(out, 1)
print(json.dumps(out.getvalue().decode()))
"""
    values = session.path / "values"
    values.write_text("".join(f"{x}\n" for x in drawn))
    theirs = asked(python, program, values).splitlines()
    ours = export("hgrm", session.path).read_text().splitlines()

    def rows(lines: list[str]) -> list[list[float]]:
        return [list(map(float, line.split())) for line in lines[2:] if line[0] != "#"]

    assert ours[0].split() == theirs[0].split()
    assert len(rows(ours)) > 50
    assert rows(ours) == rows(theirs)


def test_the_reference_parser_reads_openmetrics(python, export, new_session):
    write_label(new_session, ODD)
    new_session("sim/1", label="sim", mode="counted", unit="instructions").run(
        {"round_trip": samples(5000)}
    )
    results = new_session("emulated/1", label="emulated", mode="emulated")
    results.run({"round_trip": samples(5000)})
    program = """
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
text = open(sys.argv[1], newline="").read()
print(json.dumps([
    [f.name, f.type, f.unit, [[s.name, s.labels, s.value] for s in f.samples]]
    for f in text_string_to_metric_families(text)
]))
"""
    found = asked(python, program, export("openmetrics", results.path.parents[1]))
    families = {name: (kind, unit, held) for name, kind, unit, held in found}
    for unit in ("seconds", "instructions", "ticks"):
        assert families[f"klat_sample_{unit}"][:2] == ("summary", unit)
        assert families[f"klat_sample_max_{unit}"][:2] == ("gauge", unit)
    assert families["klat_label"][0] == "info"
    labels = {held[1]["label"] for held in families["klat_label"][2]}
    assert labels == {"sim", "emulated", ODD.replace("\u2028", r"\u2028").replace("\x1b", r"\x1b")}


def verdicts(export: Export, new_session: NewSession) -> Path:
    paths = [write_label(new_session), write_label(new_session, ODD, 1.2, **RT)]
    return export("ktap", *paths, write_label(new_session, "x # TODO", boots=1, **RT), *MEDIAN)


def test_the_kernels_own_parser_takes_ktap(tmp_path, export, new_session):
    source = "linux-source-6.1"
    tried(["apt-get", "download", source], source, cwd=tmp_path)
    (package,) = tmp_path.glob("*.deb")
    unpack = (
        f"dpkg-deb --fsys-tarfile {package.name} | tar -xO ./usr/src/{source}.tar.xz"
        f" | tar -xJ {source}/tools/testing/kunit"
    )
    subprocess.run(["sh", "-c", unpack], cwd=tmp_path, check=True)
    program = f"""
import json, sys
sys.path.insert(0, {str(tmp_path / source / "tools/testing/kunit")!r})
sys.stdout = sys.stderr
import kunit_parser
with open(sys.argv[1]) as file:
    found = kunit_parser.parse_run_tests(file)
def tests(test):
    return [test.name, test.status.name, test.counts.errors, [tests(one) for one in test.subtests]]
json.dump(tests(found), sys.__stdout__)
"""
    name, status, errors, found = asked(sys.executable, program, verdicts(export, new_session))
    assert (name, status, errors) == ("main", "FAILURE", 0)
    assert [test[1] for test in found] == ["FAILURE", "SKIPPED"]


def test_google_benchmarks_compare_reads_both_labels(export, new_session, tmp_path):
    if not shutil.which("apt-get"):
        pytest.skip("its compare.py comes from Debian's libbenchmark-tools, and there is no apt")
    tried(["apt-get", "download", "libbenchmark-tools"], "libbenchmark-tools", cwd=tmp_path)
    (package,) = tmp_path.glob("*.deb")
    checked(["dpkg-deb", "-x", str(package), str(tmp_path / "tools")])
    (compare,) = (tmp_path / "tools").rglob("compare.py")
    files = [
        export("googlebench", write_label(new_session, ODD)),
        export("googlebench", write_label(new_session, "rt", 1.2, **RT)),
    ]
    dump = tmp_path / "compared.json"
    command = [sys.executable, str(compare), "--no-color", "-d", str(dump), "benchmarks"]
    told = checked([*command, *map(str, files)])
    assert "U Test, Repetitions: 16 vs 16" in told
    means = [found for found in json.loads(dump.read_text()) if found["name"].endswith("_mean")]
    (mean,) = means
    assert mean["measurements"][0]["time"] == pytest.approx(0.2, abs=0.001)


def test_benchstat_compares_two_labels_in_one_table(export, new_session, tmp_path_factory):
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not Path(go).exists():
        pytest.skip("no go to build benchstat with")
    directory = tmp_path_factory.mktemp("go")
    places = {"GOBIN": str(directory), "GOPATH": str(directory / "path")}
    places |= {"GOCACHE": str(directory / "cache"), "GOFLAGS": "-modcacherw"}
    tried(
        [go, "install", "golang.org/x/perf/cmd/benchstat@latest"],
        "benchstat",
        env=os.environ | places,
    )
    stock, odd = write_label(new_session), write_label(new_session, ODD, 1.2, **RT)
    for files in ([export("gobench", stock, odd)], [export("gobench", p) for p in (stock, odd)]):
        command = [str(directory / "benchstat"), "-col", "label", *map(str, files)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        units = ["sec/op", "p50-sec", "p90-sec", "p99-sec", "max-sec"]
        assert [done.stdout.count(f" {unit} ") for unit in units] == [2] * 5
        rows = [line for line in done.stdout.splitlines() if line.startswith("Pipes/")]
        assert len(rows) == 5
        assert "+20.0" in rows[0] and "n=16" in rows[0]
    sim = new_session("sim/1", label="sim", mode="counted", unit="instructions")
    sim.run({"round_trip": samples(5000)})
    told = checked([str(directory / "benchstat"), str(export("gobench", sim.path))])
    assert "instructions/op" in told and "sec/op" not in told


def test_pyarrow_reads_every_sample(export, new_session, tmp_path_factory):
    python = str(venv(tmp_path_factory.mktemp("arrow") / "venv", "pyarrow", "numpy", "scipy"))
    write_label(new_session, boots=2)
    sim = new_session("sim/1", label="sim", mode="counted", unit="instructions")
    sim.run({"round_trip": samples(5000)}, status="disturbed", reason="steal")
    sim.run({"round_trip": samples(9000)}, status="invalid", reason="moved")
    results = sim.path.parents[1]
    file = export("parquet", results, python=python)
    assert file.read_bytes() == export("parquet", results, python=python).read_bytes()
    program = """
import json, sys
import pyarrow.parquet
table = pyarrow.parquet.read_table(sys.argv[1])
names = ["label", "status", "unit", "boot", "run", "sample_index", "sample", "ns"]
sessions = json.loads(table.schema.metadata[b"klat:sessions"])
print(json.dumps([table.num_rows, {name: table[name].to_pylist() for name in names},
                  [session["label"] for session in sessions]]))
"""
    rows, columns, sessions = asked(python, program, file)
    assert rows == 600 * 9
    assert columns["sample"][:600] == samples(5000)
    assert columns["unit"][0] == "instructions" and set(columns["ns"][:600]) == {None}
    assert columns["status"][0] == "disturbed" and columns["label"][0] == "sim"
    assert columns["sample"][600:1200] == samples(52_026)
    assert columns["ns"][600] == pytest.approx(samples(52_026)[0] / 2.6)
    assert columns["sample_index"][600:1200] == list(range(600))
    assert set(columns["boot"][600:]) == {"boot-0-of-5-1.0", "boot-1-of-5-1.0"}
    assert sessions == ["sim", "stock", "stock"]
