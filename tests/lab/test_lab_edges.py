"""No sample stands out by its place, counted: without noise, in every program that can run there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_lab_boots import CLOCK, klat, lab_run

pytestmark = pytest.mark.slow

SHORT = (
    "--mode",
    "counted",
    "--boots",
    "1",
    "--runs",
    "12",
    "--iterations",
    "150",
    "--seed",
    "5",
    *CLOCK,
)
ON_ONE_CPU = ("messages.cpus=0,0", "transport.cpus=0,0", "transport.wait=block")
PROGRAMS = ("pipes", "cv", "tlbflush", "timer", "network", "switch", "syscall")


def summary(where: Path, options: tuple[str, ...], programs: tuple[str, ...]) -> str:
    """Of one boot's session, on one line."""
    words = [word for option in options for word in ("--option", option)]
    own = ("--kernel", "debian:stock", *SHORT, "--output", where / "out")
    lab_run(*own, *words, *programs, cwd=where)
    return " ".join(klat("summary", where / "out", cwd=where).stdout.split())


def test_no_place_stands_out(tmp_path: Path) -> None:
    found = summary(tmp_path, ON_ONE_CPU, (*PROGRAMS, "messages", "transport"))
    assert "12 runs of 150 samples, all ok" in found
    assert "warning" not in found


def test_work_at_the_edges_is_seen(tmp_path: Path) -> None:
    found = summary(tmp_path, ("all.plant=edges",), ("pipes", "cv"))
    # A run whose samples are those of another one does not count.
    runs = re.findall(r"the last sample is the longest in (1[0-2]) of \1 runs", found)
    assert len(runs) == 2, found
