"""No sample stands out by its place, counted: without noise, in every program that can run there."""

from __future__ import annotations

import shutil
from pathlib import Path

import harness
import pytest
from test_lab_boots import ARCHIVE, klat

pytestmark = pytest.mark.slow

SHORT = ("--mode", "counted", "--boots", "1", "--runs", "12", "--iterations", "150", "--seed", "5")
ON_ONE_CPU = ("messages.cpus=0,0", "transport.cpus=0,0", "transport.wait=block")
PROGRAMS = ("pipes", "cv", "tlbflush", "timer", "network", "switch", "syscall")


def summary(where: Path, options: tuple[str, ...], programs: tuple[str, ...]) -> str:
    """Of one boot's session, on one line."""
    if not shutil.which("qemu-system-x86_64"):
        harness.lacking("there is no qemu-system-x86_64")
    words = [word for option in options for word in ("--option", option)]
    done = klat(
        *("lab", "run", "--kernel", "debian:stock", *SHORT, *words),
        *("--output", where / "out", *programs),
        cwd=where,
    )
    if done.returncode == 2 and any(word in done.stderr for word in ARCHIVE):
        harness.lacking(f"Debian's kernels cannot be had: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return " ".join(klat("summary", where / "out", cwd=where).stdout.split())


def test_no_place_stands_out(tmp_path: Path) -> None:
    found = summary(tmp_path, ON_ONE_CPU, (*PROGRAMS, "messages", "transport"))
    assert "12 runs of 150 samples, all ok" in found
    assert "warning" not in found


def test_work_at_the_edges_is_seen(tmp_path: Path) -> None:
    found = summary(tmp_path, ("all.plant=edges",), ("pipes", "cv"))
    assert found.count("the last sample is the longest in 12 of 12 runs") == 2
