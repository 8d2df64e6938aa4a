"""--record: the disk holds what was measured, and a failed run leaves earlier runs unchanged."""

import hashlib
import json
import os
import subprocess

import harness
import pytest
from written_sessions import statistics_of
from harness import FAILED, MEASURED, Session, assert_one_line, command, on_two, path_of, works


# eventloop has four metrics.
@pytest.mark.parametrize("program", ["pipes", "eventloop"])
def test_recording_twice_appends_and_rows_equal_their_samples(program, tmp_path):
    session = Session(tmp_path / "label" / "session")
    for number in ("1", "2"):
        numbers = ("--run", number, "--order", number)
        works(program, "--quiet", *numbers, "--record", session.path)
    text = (session.path / "runs.csv").read_text()
    assert text.startswith("boot,order,benchmark,")
    for line in text.splitlines()[1:]:
        body, _, check = line.rpartition(",")
        assert check == hashlib.sha256(body.encode()).hexdigest()[:16]
    rows = session.rows
    assert {row["run"] for row in rows} == {"1", "2"}
    expected = 0
    for row in rows:
        assert int(row["first_sample"]) == expected
        expected += int(row["n"])
        again = statistics_of(session.samples(row))
        assert {name: row[name] for name in again} == again
        assert row["order"] == row["run"]
        assert row["boot"] == session.info["boot_id"]
        same = [other for other in rows if other["start_ns"] == row["start_ns"]]
        assert len(same) == int(row["rows"])
    samples = session.path / "samples" / f"{program}.u64"
    assert samples.stat().st_size == 8 * expected


@on_two
def test_the_session_is_described_once(program, tmp_path):
    works(program, "--quiet", "--record", tmp_path, "--label", "stock", "--seed", "7")
    before = (tmp_path / "session.json").read_bytes()
    works(program, "--quiet", "--record", tmp_path)
    assert (tmp_path / "session.json").read_bytes() == before
    info = json.loads(before)
    assert info["schema"] == 1
    assert info["label"] == "stock"
    assert info["seed"] == 7
    binary = path_of(program).read_bytes()
    assert info["programs"] == {program: hashlib.sha256(binary).hexdigest()}
    release = os.uname().release
    assert info["kernel_release"] == release
    environment = tmp_path / "environment"
    assert (environment / "proc/sys/kernel/osrelease").read_text().strip() == release


@pytest.mark.parametrize(
    "boot, why",
    [
        (
            "0f3c1a52-7d5e-4a0b-9c39-1be1f7e5d0aa",
            "cannot read this program, /proc/self/exe: No such",
        ),
        ("", "random/boot_id has no boot id"),
    ],
)
def test_a_program_without_proc_says_what_it_lacks(boot, why, tmp_path, root):
    script = (
        "mount -t tmpfs none /proc && mkdir -p /proc/sys/kernel/random &&"
        ' echo "$2" >/proc/sys/kernel/random/boot_id && exec "$0" --record "$1" --iterations 20'
    )
    done = command(["unshare", "-m", "sh", "-c", script, path_of("pipes"), tmp_path, boot])
    assert_one_line(done, "pipes", FAILED)
    assert why in done.err


@on_two
def test_an_unwritable_directory_is_one_line(program, published, as_nobody):
    closed = published / "closed"
    closed.mkdir(mode=0o755)
    for place in (closed, closed / "below"):
        done = command([*as_nobody, published / program, "--record", place], cwd="/")
        assert_one_line(done, program, FAILED)
        assert os.strerror(13) in done.err


def test_programs_at_once_in_one_session_lose_nothing(tmp_path):
    words = [str(path_of("pipes")), "--quiet", "--policy", "other", "--record", str(tmp_path)]
    several = [subprocess.Popen(words, stderr=subprocess.DEVNULL) for _ in range(12)]
    for process in several:
        assert process.wait(60) in (MEASURED, harness.UNTRUSTED)
    session = Session(tmp_path)
    assert len(session.rows) == 12
    places = sorted((int(row["first_sample"]), int(row["n"])) for row in session.rows)
    assert places == [(500 * number, 500) for number in range(12)]
    for row in session.rows:
        assert statistics_of(session.samples(row))["mean"] == row["mean"]


def test_output_that_cannot_be_written_is_told_apart_from_the_record(tmp_path):
    record = tmp_path / "r"
    with open("/dev/full", "w") as full:
        done = command([path_of("timer"), "--iterations", "9", "--record", record], stdout=full)
    assert done.status == FAILED
    told = f"timer: recorded in {record}; standard output: No space left on device"
    assert done.err.splitlines()[-1] == told
    assert {row["n"] for row in Session(record).rows} == {"9"}
