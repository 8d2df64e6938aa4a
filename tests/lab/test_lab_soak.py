"""Soaks in a real guest while its clock is set, its CPUs go offline and it is suspended."""

import re
from pathlib import Path

import pytest
from harness import FAILED, ROOT, MEASURED, UNTRUSTED, Session, command
from soaking_guest import soak

pytestmark = [pytest.mark.slow, pytest.mark.alone]

# Suspensions that the kernel simulates: one of a second that is real but for its last step, and one that gives up
# when all threads have been stopped for a second.
SCENES = """
soak() {
    where=/results/$1
    shift
    mkdir -p $where
    timer --method nanosleep --mode periodic --limit 9000000000 --label x --record $where "$@" >$where/out 2>$where/err
    echo $? >>$where/statuses
}
# Until the scene $1 has recorded $2 segments.
recorded() {
    until [ "$(cat /results/$1/runs.csv 2>/dev/null | wc -l)" -gt $2 ]; do sleep 0.1; done
}
set_clock() { /bin/busybox date -s @$(($(/bin/busybox date +%s) + $1)) >/dev/null; }

(recorded clock 1; set_clock -3600; recorded clock 2; set_clock 7200) &
soak clock --cpus 1 --soak 4 --segment 1

echo 1 >/sys/module/suspend/parameters/pm_test_delay
echo core >/sys/power/pm_test
(recorded suspend 1; echo mem >/sys/power/state) &
soak suspend --cpus 1 --soak 9 --segment 1

echo freezer >/sys/power/pm_test
(recorded freeze 1; echo mem >/sys/power/state) &
soak freeze --cpus 1 --soak 4 --segment 1

(sleep 1.5; echo mem >/sys/power/state) &
timer --method nanosleep --mode periodic --iterations 20000 --record /results/run >/dev/null

(recorded offline 2; echo 0 >/sys/devices/system/cpu/cpu2/online) &
soak offline --cpus 1 --together 2 --soak 4 --segment 1 &
other=$!
soak offline --cpus 2 --together 2 --soak 60 --segment 1
wait $other
exit 0
"""
CANNOT_TELL = 3  # of a share of 0, which no number of samples shows
VALID = ("ok", "disturbed")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return soak(tmp_path_factory.mktemp("guest"), SCENES)


def summary(session: Path) -> str:
    """With a limit that only a sample of a suspension can exceed."""
    done = command([ROOT / "klat", "summary", "--verify", session])
    assert done.status == 0, str(done)
    done = command([ROOT / "klat", "summary", "--share", "0", "--limit", "9s", session])
    assert done.status == CANNOT_TELL and done.err == "", str(done)
    return " ".join(done.out.split())


def rows(session: Path, cpu: str) -> list[dict[str, str]]:
    return [row for row in Session(session).rows if row["cpus"] == cpu]


def test_a_clock_that_is_set_changes_no_sample(results):
    session = results / "clock"
    assert (session / "statuses").read_text() == f"{MEASURED}\n"
    segments = rows(session, "1")
    assert all(row["status"] in VALID for row in segments), segments
    for row in segments:
        assert abs(int(row["elapsed_ns"]) / 1e9 - 1) < 0.5
    evidence = " ".join(row["evidence"] for row in segments)
    sets = re.findall(r"clock_set_ms=(-?\d+)", evidence)
    assert [round(int(ms) / 3.6e6, 2) for ms in sets] == [-1, 2]
    assert "the clock was set by" in summary(session)
    begun = [int(row["start_ns"]) / 3.6e12 for row in segments]
    assert begun[2] - begun[1] == pytest.approx(-1, abs=0.01)


def test_a_suspension_refutes_its_segment_alone(results):
    session = results / "suspend"
    assert (session / "statuses").read_text() == f"{UNTRUSTED}\n"
    segments = rows(session, "1")
    (refuted,) = [row for row in segments if row["status"] not in VALID]
    assert re.search(r"the machine was suspended for \d+ ms", refuted["reason"])
    assert "suspended" in (session / "err").read_text()
    assert f"{len(segments)} segments" in summary(session)
    # What it measured is what it says that it measured: the clock stood still meanwhile.
    assert int(refuted["elapsed_ns"]) > 5e9
    assert abs(int(refuted["n"]) - int(refuted["elapsed_ns"]) / 1e6) < 0.1 * int(refuted["n"])


def test_a_suspension_that_gives_up_refutes_its_segment(results):
    session = results / "freeze"
    segments = rows(session, "1")
    (refuted,) = [row for row in segments if row["status"] not in VALID]
    assert refuted["reason"].endswith("began to suspend, which stops every thread, and gave up")
    late = int(refuted["max"]) / Session(session).info["tsc"]["khz"]
    assert late > 900 and "suspend" in summary(session)
    # All samples that the suspension made late are in this segment.
    assert all(int(row["max"]) < int(refuted["max"]) / 4 for row in segments if row != refuted)


def test_a_suspension_that_gives_up_refutes_an_ordinary_run(results):
    (run,) = Session(results / "run").rows
    assert run["status"] == "invalid" and "began to suspend" in run["reason"], run["reason"]


def test_a_cpu_that_goes_offline_ends_its_soak_alone(results):
    session = results / "offline"
    assert sorted((session / "statuses").read_text().split()) == [str(MEASURED), str(FAILED)]
    *valid, refuted, end = rows(session, "2")
    assert valid and all(row["status"] in VALID for row in valid), valid
    assert refuted["status"] == "invalid"
    assert "the waiter was not held to CPU 2" in refuted["reason"] and not refuted["irq_loc"]
    assert end["status"] == "error"
    assert end["reason"].startswith("CPU 2 went offline, and the kernel moved the waiter")
    others = rows(session, "1")
    assert others and all(row["status"] in VALID for row in others), others
    # Less than the counts of a CPU since its boot, with 32 bits.
    assert all(int(row["irq_loc"].rpartition("=")[2]) < 1 << 31 for row in others)
    assert "CPU 2 went offline" in summary(session)
