"""integration/kernel-gate with kernels that boot, and one that does not."""

import os
from pathlib import Path

import harness
import planted
import pytest
from labs import ROOT

pytestmark = pytest.mark.slow

OFF = "off=debian:6.1,append=mitigations=off"


def test_the_gate_passes_the_faster_kernel_and_stops_the_slower_and_the_broken_one(tmp_path):
    summary = tmp_path / "summary"
    # With the user's own kernels, which are no job's cache.
    environment = {name: text for name, text in os.environ.items() if name != "CI"}
    environment |= {"GITHUB_STEP_SUMMARY": str(summary)}
    few = ("--output", "kept", "--boots", "4", "--iterations", "100", "--margin", "1%", "pipes")

    def gate(base: str | Path, new: str | Path) -> tuple[int, str]:
        words = [ROOT / "integration/kernel-gate", base, new, *few]
        done = harness.command(words, cwd=tmp_path, env=environment, limit=600)
        return done.status, done.out + done.err

    status, said = gate("debian:6.1", OFF)
    assert status == 0 and "nothing is slower (status 0)" in said, said
    assert "1 faster: no regression" in summary.read_text()
    status, said = gate(OFF, "debian:6.1")
    assert status == 1 and "something is slower (status 1)" in said, said
    assert " boots of " not in said, "the kept boots are used"
    broken = planted.kernel(tmp_path / "k", "Kernel panic - not syncing: x\n", planted.RESET)
    status, said = gate("debian:6.1", f"broken={broken}")
    assert status == 4 and "no verdict: klat lab: there is no kernel to compare with" in said
    assert "panic" in summary.read_text().splitlines()[-1]
