"""No sample stands out by its place, counted: without noise, in every program that can run there."""

import re
from pathlib import Path

import pytest
from test_lab_boots import CLOCK, klat, lab_run

pytestmark = pytest.mark.slow

SHORT = ("--mode", "counted", "--boots", "1", "--runs", "12", "--iterations", "150", *CLOCK)
ON_ONE_CPU = ("messages.cpus=0,0", "transport.cpus=0,0", "transport.wait=block")
PROGRAMS = ("pipes", "cv", "tlbflush", "timer", "network", "switch", "syscall")


def summary(where: Path, options: tuple[str, ...], programs: tuple[str, ...], seed: int = 5) -> str:
    """Of one boot's session, on one line."""
    words = [word for option in options for word in ("--option", option)]
    out = where / f"seed-{seed}"
    own = ("--kernel", "debian:stock", *SHORT, "--seed", str(seed), "--output", out)
    lab_run(*own, *words, *programs, cwd=where)
    return " ".join(klat("summary", out, cwd=where).stdout.split())


def test_no_place_stands_out(tmp_path):
    def places(seed: int) -> set[tuple[str, str]]:
        found = summary(tmp_path, ON_ONE_CPU, (*PROGRAMS, "messages", "transport"), seed)
        assert "12 runs of 150 samples, all ok" in found
        return set(re.findall(r"warning: (\w+): (.*?) is (?:the|among)", found))

    # In about one boot of 12, the scheduler's tick is in the same sample of most runs: without noise, each run begins
    # at the same phase of the tick. In another boot it is in another sample.
    assert not (first := places(5)) or not first & places(6)


def test_work_at_the_edges_is_seen(tmp_path):
    found = summary(tmp_path, ("all.plant=edges",), ("pipes", "cv"))
    # A run whose samples are those of another one does not count.
    runs = re.findall(r"the last sample is the longest in (1[0-2]) of \1 runs", found)
    assert len(runs) == 2, found
