"""`klat soak` with a real program: from the command to the summary, and on a full disk."""

import csv

import harness
import pytest
from harness import MEASURED, UNTRUSTED, USAGE, command

KLAT = harness.ROOT / "klat"
LIMIT_SECONDS = 60

# Fills the disk once two segments are on it. Beside a load, interrupts of other work make no segment invalid.
FULL_DISK = """
mount -t tmpfs -o size=2m klat "$1" || exit 4
klat=$2
(
    until [ "$(cat "$1"/x/*/runs.csv 2>/dev/null | wc -l)" -ge 3 ]; do sleep 0.1; done
    cat /dev/zero >"$1/filling" 2>/dev/null
) &
"$klat" soak timer --for 50s --segment 1s --limit 1s --label x --load "sleep 99" --output "$1"
status=$?
rm "$1/filling"
"$klat" summary --verify "$1" || exit 9
exit $status
"""


# Too small for a copy of the environment.
SMALL_DISK = """
mount -t tmpfs -o size=40k klat "$1" && cd "$1" || exit 4
shift
"$@"
status=$?
find . -mindepth 2
exit $status
"""


@pytest.mark.parametrize(
    "words",
    [
        ("soak", "timer", "--for", "3s"),
        ("run", "timer", "--runs", "1", "--load", "zero", "--load", "idle"),
        ("ab", "--a", "a", "--b", "b", "--b-option", "timer.dma-latency=0", "timer"),
    ],
)
def test_a_full_disk_at_the_start_leaves_no_session(tmp_path, root, words):
    (tmp_path / "disk").mkdir()
    script = ["unshare", "--mount", "sh", "-c", SMALL_DISK, "sh", tmp_path / "disk", KLAT]
    done = command([*script, *words, "--output", "out"], limit=LIMIT_SECONDS)
    if done.status == harness.SKIPPED:
        harness.lacking(done.err.strip())
    assert done.status == USAGE, str(done)
    assert done.err.count("No space left on device") == 1 and not done.out


def test_a_soak_is_a_session_with_its_answer(tmp_path, real_time):
    words = "soak timer --for 2s --segment 1s --limit 1s --label x --load".split()
    done = command([KLAT, *words, "sleep 99", "--output", tmp_path], limit=LIMIT_SECONDS)
    assert done.status in (MEASURED, UNTRUSTED), str(done)
    (session,) = (tmp_path / "x").iterdir()
    assert done.out == f"{session}\n"
    for told in ("load: sleep 99", "lateness: soaked", "lateness, longest", "limit 1s"):
        assert told in done.err
    with (session / "runs.csv").open(newline="") as file:
        assert [row["run"] for row in csv.DictReader(file)] == ["1", "2"]
    verified = command([KLAT, "summary", "--verify", session], limit=LIMIT_SECONDS)
    assert verified.status == 0, str(verified)


def test_a_full_disk_ends_a_soak_that_keeps_its_segments(tmp_path, root, real_time):
    disk = tmp_path / "disk"
    disk.mkdir()
    script = ["unshare", "--mount", "sh", "-c", FULL_DISK, "sh", disk, KLAT]
    done = command(script, limit=LIMIT_SECONDS)
    if done.status == harness.SKIPPED:
        harness.lacking(done.err.strip())
    assert done.status == USAGE, str(done)
    assert done.err.count("No space left on device") == 1
    assert "lateness: soaked" in done.err and "lateness: soaked" in done.out
