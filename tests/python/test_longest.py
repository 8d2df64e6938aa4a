"""samples/longest.csv: the samples that a soak kept whole."""

import csv
import io
import os
from pathlib import Path
from typing import Any

import pytest
from written_sessions import Klat, SOAK, SyntheticSession, metrics_of

from klat.record.longest import longest_samples
from klat.record.session import SessionError, read_session

HEADER = "benchmark,run,metric,index,time_ns,cpu,value,involuntary,steal_ticks,smi"
SAMPLES = [100, 200, 300, 400]


def line(value: int, run: int = 1, index: int = 0) -> str:
    return f"pipes,{run},m,{index},1795419640149442048,1,{value},2,3,"


@pytest.fixture
def soaked(writer: SyntheticSession) -> SyntheticSession:
    writer.run({"m": SAMPLES}, params=SOAK, run=1)
    return writer


def written(writer: SyntheticSession, *lines: str) -> Path:
    path = writer.path / "samples" / "longest.csv"
    path.write_text("\n".join((HEADER, *lines, "")))
    return path


def found(writer: SyntheticSession, count: int = 5) -> tuple[list[int], list[str]]:
    """The values, and the problems."""
    problems: list[str] = []
    kept = longest_samples(read_session(writer.path), count, problems)
    return [sample.value for samples in kept.values() for sample in samples], problems


def test_the_longest_come_first_whatever_their_order(soaked):
    written(soaked, line(200), line(400), line(100), line(300), line(400))
    assert found(soaked, 3) == ([400, 400, 300], [])


def test_a_kept_sample_has_its_time_and_its_state(soaked):
    written(soaked, line(400, index=7))
    ((sample,),) = longest_samples(read_session(soaked.path), 5, []).values()
    assert (sample.index, sample.time_ns, sample.cpu) == (7, 1795419640149442048, 1)
    assert (sample.involuntary, sample.steal_ticks, sample.smi) == (2, 3, None)


def test_samples_of_a_segment_without_a_row_do_not_count(soaked):
    path = written(soaked, line(400), line(9000, run=2))
    with path.open("a") as file:
        file.write("pipes,1,m,0,17954")  # killed while writing
    assert found(soaked) == ([400], [])


def test_samples_of_an_invalid_segment_do_not_count(soaked):
    soaked.run({"m": SAMPLES}, params=SOAK, run=2, status="invalid", reason="was suspended")
    written(soaked, line(400), line(300, run=2))
    assert found(soaked) == ([400], [])


def test_a_file_that_was_cut_off_is_named(soaked):
    """The longest sample of the second segment is missing."""
    soaked.run({"m": [100, 500]}, params=SOAK, run=2)
    path = written(soaked, line(300), line(400))
    values, (problem,) = found(soaked)
    assert values == [400, 300]
    assert problem.startswith(f"{path}: lacks the longest sample of 1 segment")


def test_the_time_tells_two_soaks_of_a_session_apart(soaked):
    """Their segments have the same numbers."""
    first = soaked.start_ns
    soaked.run({"m": [100, 900]}, params=SOAK, run=1)
    lines = [line(400), line(900)]
    times = [first + 1_000, soaked.start_ns + 1_000]
    written(soaked, *(x.replace("1795419640149442048", str(t)) for x, t in zip(lines, times)))
    assert found(soaked) == ([900, 400], [])


DAMAGED = [
    "pipes,1,m,0,1,1,401,2,3,",  # longer than the row's maximum
    "pipes,1,m,0,1,1,-4,2,3,",
    "pipes,1,m,0,1,1,200,2,3",
    "pipes,1,m,0,1,1,two,2,3,",
    "",
    "x" * 5000,
]


@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_damaged_line_is_left_out_and_named(soaked, damaged):
    path = written(soaked, line(400), damaged, line(100))
    values, problems = found(soaked)
    assert values == [400, 100]
    (problem,) = problems
    assert problem.startswith(f"{path}: ignored ") and "the first is line 3" in problem


def test_a_file_that_is_not_klats_is_one_sentence(soaked, klat):
    path = soaked.path / "samples" / "longest.csv"
    path.write_text("a,b\n1,2\n")
    status, out, err = klat("summary", soaked.path)
    assert status == 2 and err.count("\n") == 1 and str(path) in err
    assert "pipes" in out


def test_a_pipe_in_its_place_does_not_block(soaked):
    path = soaked.path / "samples" / "longest.csv"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SessionError, match="not a regular file"):
        found(soaked)


def test_each_table_has_the_longest_of_its_own_segments(writer, klat):
    """Segments whose sleepers were woken in another way are another table."""
    states = {500_000: "wakeups=9;wake_interrupts=9", 400_000: "wakeups=9;wake_interrupts=0"}
    for run, (longest, evidence) in enumerate(states.items(), start=1):
        writer.run({"m": [100, longest]}, params=SOAK, run=run, evidence=evidence)
    written(writer, line(500_000, 1), line(400_000, 2))
    _, out, _ = klat("summary", writer.path)
    shown = [x.split()[3] for x in out.splitlines() if x.startswith("      2026-11-23")]
    assert sorted(shown) == ["153,850", "192,310"]


@pytest.fixture
def drifting(writer: SyntheticSession) -> SyntheticSession:
    """Four segments, the last two of which are slower. One sample of the last is kept."""
    for run, shift in enumerate((0, 0, 100, 100), start=1):
        held = [1000 + shift + i % 40 for i in range(6000 + run)]
        writer.run({"m": held}, params=SOAK, run=run)
    (writer.path / "run.json").write_text('{"schema": 1, "soak": {"seconds": 9}}')
    written(writer, line(1139, run=4, index=5))
    return writer


DRIFT = "last quarter of 4 segments: median"


def test_summary_shows_them_with_the_drift(drifting, klat):
    status, out, _ = klat("summary", drifting.path)
    said = " ".join(out.split())
    assert status == 0
    assert "m: soaked" in said and DRIFT in said
    assert "(+10 %), p99.9" in said
    assert "2026-11-23" in out


def test_the_soaks_of_several_sessions_are_numbered(new_session, klat):
    path = new_session.label("stock", [[{"m": SAMPLES}]] * 2, run={"params": SOAK}, environment={})
    _, out, _ = klat("summary", path)
    assert "m, soak 1 of 2: soaked" in out and "m, soak 2 of 2: soaked" in out


def metrics(klat: Klat, path: Path) -> dict[str, Any]:
    return {m["metric"]: m for m in metrics_of(klat, path)}


def test_json_has_the_drift_and_the_longest(drifting, klat):
    (soak,) = metrics(klat, drifting.path)["m"]["soaks"]
    drift = {each.pop("figure"): (each["first"], each["last"]) for each in soak["drift"]}
    assert drift == {"median": (1019, 1119), "p99.9": (1039, 1139), "max": (1039, 1139)}
    assert soak["drift"][0]["first_ns"] == pytest.approx(1019 / 2.6, abs=1e-3)
    assert (soak["soaked_s"], soak["asked_s"], soak["segments"]) == (0.08, 9, 4)
    (longest,) = soak["longest"]
    shown = ("value", "time_ns", "cpu", "segment", "index", "samples", "involuntary", "steal_ticks")
    assert [longest[name] for name in shown] == [1139, 1795419640149442048, 1, 4, 5, 1, 2, 3]


def test_csv_agrees_with_json(drifting, klat):
    _, out, _ = klat("summary", drifting.path, "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    (soak,) = metrics(klat, drifting.path)["m"]["soaks"]
    for name in ("soaked_s", "asked_s", "segments"):
        assert float(row[name]) == soak[name]
    for name, drift in zip(("median", "p999", "max"), soak["drift"]):
        for end in ("first", "last", "first_ns", "last_ns"):
            assert float(row[f"{name}_{end}"]) == drift[end]
    for name in ("time_ns", "cpu", "segment", "samples"):
        assert int(row[f"longest_{name}"]) == soak["longest"][0][name]


def test_a_csv_line_of_two_soaks_has_the_figures_of_neither(drifting, new_session, klat):
    new_session("stock/2", boot_id="other").run({"m": SAMPLES}, params=SOAK, run=1)
    _, out, _ = klat("summary", drifting.path.parent, "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert row["sessions"] == "2" and row["soaked_s"] == row["max_last"] == ""
    found = metrics(klat, drifting.path.parent)["m"]["soaks"]
    assert [soak["segments"] for soak in found] == [4, 1]


def test_runs_have_no_columns_of_soaks(writer, klat):
    writer.run({"m": SAMPLES})
    _, out, _ = klat("summary", writer.path, "--format", "csv")
    assert "soaked_s" not in out and "soaks" not in metrics(klat, writer.path)["m"]


@pytest.mark.parametrize("lacks", ["is missing", "is empty"])
def test_without_longest_samples_summary_shows_all_else(lacks, drifting, klat):
    path = drifting.path / "samples" / "longest.csv"
    path.unlink()
    if lacks == "is empty":
        path.touch()
    status, out, err = klat("summary", drifting.path)
    assert (status, err) == (0, "")
    assert f"m, longest delays: {path} {lacks}" in " ".join(out.split())
    assert DRIFT in " ".join(out.split())
    (soak,) = metrics(klat, drifting.path)["m"]["soaks"]
    assert soak["longest"] is None and len(soak["drift"]) == 3


def test_a_damaged_file_does_not_hide_the_drift(drifting, klat):
    (drifting.path / "samples" / "longest.csv").write_text("a,b\n")
    status, out, _ = klat("summary", drifting.path)
    assert status == 2 and DRIFT in " ".join(out.split())


def test_samples_of_one_delay_are_one_line(writer, klat):
    writer.run({"m": [1000 + i for i in range(300)]}, params=SOAK, run=1)
    written(writer, *(line(1000 + i, index=i) for i in (9, 7, 8, 5, 200)))
    _, out, _ = klat("summary", writer.path)
    delays = [row.split()[-4:] for row in out.splitlines() if row.strip().startswith("2026-")]
    assert [row[1:] for row in delays] == [["1", "1", "1"], ["3", "1", "1"], ["1", "1", "1"]]


def test_the_usual_samples_of_a_short_soak_do_not_join_its_delays(writer, klat):
    values = [100 + i % 7 for i in range(150)]
    values[20], values[90] = 5000, 4000
    writer.run({"m": values}, params=SOAK, run=1)
    written(writer, *(line(value, index=i) for i, value in enumerate(values)))
    _, out, _ = klat("summary", writer.path)
    delays = [row.split()[-4:] for row in out.splitlines() if row.strip().startswith("2026-")]
    assert [row[1] for row in delays[:2]] == ["1", "1"]


@pytest.mark.parametrize(("apart_ns", "said"), [(0, "common causes"), (10**7, "no common cause")])
def test_delays_on_two_cpus_at_the_same_times_have_common_causes(apart_ns, said, writer, klat):
    lines = []
    for cpu in (0, 1):
        own = f"{SOAK};together=2;cpus={cpu}"
        writer.run({"m": SAMPLES}, params=own, run=1, cpus=str(cpu), elapsed_ns=10**13)
        lines += [
            f"pipes,1,m,{2 * i},{10**18 + 10**10 * i + cpu * apart_ns},{cpu},200,0,0,"
            for i in range(20)
        ]
    written(writer, *lines)
    _, out, _ = klat("summary", writer.path)
    assert said in " ".join(out.split())


@pytest.mark.parametrize("cpus", [2, 3])
def test_more_cpus_need_a_smaller_p(cpus, writer, klat):
    """One delay on each CPU in 4 s, two at the same time: by chance once in 2,000."""
    lines = []
    for cpu in range(cpus):
        own = f"{SOAK};together={cpus};cpus={cpu}"
        writer.run({"m": SAMPLES}, params=own, run=1, cpus=str(cpu), elapsed_ns=4 * 10**9)
        lines.append(f"pipes,1,m,2,{10**18 + cpu // 2 * 10**9},{cpu},400,0,0,")
    written(writer, *lines)
    _, out, _ = klat("summary", writer.path)
    assert ("they have common causes" in " ".join(out.split())) == (cpus == 2)


def test_a_clock_that_was_set_is_said_and_hides_no_common_cause(writer, klat):
    """On CPU 0 the delays are after the setting and in the next segment, on CPU 1 they are in the same
    segment."""
    hour, lines = 3600 * 10**9, []
    for cpu, run in ((0, 2), (1, 1)):
        own: dict[str, Any] = {"params": f"{SOAK};together=2;cpus={cpu}", "cpus": str(cpu)}
        counts = "periods=4;clock_set_ms=-3600000"
        writer.run({"m": SAMPLES}, run=1, evidence=counts, elapsed_ns=10**13, **own)
        writer.run({"m": SAMPLES}, run=2, elapsed_ns=10**13, **own)
        lines += [
            f"pipes,{run},m,{2 * i},{10**18 + 10**10 * i - hour * (run - 1)},{cpu},200,0,0,"
            for i in range(20)
        ]
    written(writer, *lines)
    _, out, _ = klat("summary", writer.path)
    said = " ".join(out.split())
    assert said.count("the clock was set by -60 min in segment 1;") == 2
    assert "they have common causes" in said
    (soak, *_) = metrics(klat, writer.path)["m"]["soaks"]
    assert soak["clock_sets"] == [{"segment": 1, "ns": -hour}]
