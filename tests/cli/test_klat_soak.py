"""`klat soak` with a real program: from the command to the summary, and on a full disk."""

from __future__ import annotations

import csv
from pathlib import Path

import harness
import pytest
from harness import FAILED, MEASURED, UNTRUSTED, command

pytestmark = pytest.mark.alone

KLAT = harness.ROOT / "klat"
LIMIT_SECONDS = 60

# Fills the disk once two segments are on it.
FULL_DISK = """
mount -t tmpfs -o size=2m klat "$1" || exit 4
klat=$2
(
    until [ "$(cat "$1"/x/*/runs.csv 2>/dev/null | wc -l)" -ge 3 ]; do sleep 0.1; done
    cat /dev/zero >"$1/filling" 2>/dev/null
) &
"$klat" soak timer --for 50s --segment 1s --limit 1s --label x --output "$1"
status=$?
rm "$1/filling"
"$klat" summary --verify "$1" || exit 9
exit $status
"""


def test_a_soak_is_a_session_with_its_answer(tmp_path: Path, real_time: None) -> None:
    words = [
        "--for",
        "3s",
        "--segment",
        "1s",
        "--limit",
        "1s",
        "--load",
        "sleep 99",
        "--label",
        "x",
    ]
    done = command([KLAT, "soak", "timer", *words, "--output", tmp_path], limit=LIMIT_SECONDS)
    assert done.status in (MEASURED, UNTRUSTED), str(done)
    (session,) = (tmp_path / "x").iterdir()
    assert done.out == f"{session}\n"
    for told in ("load: sleep 99", "lateness: soaked", "lateness, longest", "limit 1s"):
        assert told in done.err
    with (session / "runs.csv").open(newline="") as file:
        assert [row["run"] for row in csv.DictReader(file)] == ["1", "2", "3"]
    verified = command([KLAT, "summary", "--verify", session], limit=LIMIT_SECONDS)
    assert verified.status == 0, str(verified)


def test_a_full_disk_ends_a_soak_that_keeps_its_segments(
    tmp_path: Path, root: None, real_time: None
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    script = ["unshare", "--mount", "sh", "-c", FULL_DISK, "sh", disk, KLAT]
    done = command(script, limit=LIMIT_SECONDS)
    if done.status == harness.SKIPPED:
        harness.lacking(done.err.strip())
    assert done.status == FAILED, str(done)
    assert done.err.count("No space left on device") == 1
    assert "lateness: soaked" in done.err and "lateness: soaked" in done.out
