"""Kernels of arm64, booted for real on a machine of another architecture, counted."""

from __future__ import annotations

import math
import shutil
import struct
from pathlib import Path

import harness
import pytest
from test_lab_boots import CLOCK, KERNELS, PROGRAMS, SHORT, klat, lab_run, samples, session_of

from klat.lab.architectures import ARM64
from klat.record.session import read_session

pytestmark = pytest.mark.slow

UNEXPLAINED = "klat cannot explain samples of arm64, only those of amd64"
LABELS = ("lab-arm64-stock", "lab-arm64-rt")


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The outputs of two experiments that differ in nothing."""
    for tool in (ARM64.emulator, f"{ARM64.compiler}gcc"):
        if not shutil.which(tool):
            harness.lacking(f"there is no {tool}")
    where = tmp_path_factory.mktemp("arm64")
    outputs = [where / "first", where / "second"]
    words = ("--arch", "arm64", *KERNELS, *SHORT, *CLOCK)
    for output in outputs:
        shown = lab_run(*words, "--output", output, *PROGRAMS, cwd=where)
        assert shown == [str(output / label) for label in LABELS]
    return outputs


@pytest.mark.parametrize("label", LABELS)
def test_all_programs_count_instructions_and_the_same_boot_gives_the_same_bytes(
    twice: list[Path], label: str
) -> None:
    first, second = (session_of(output, label) for output in twice)
    record = read_session(first)
    assert (record.mode, record.unit) == ("counted", "instructions")
    assert record.info["architecture"] == "aarch64" and record.problems == []
    assert record.info["preemption"] == ("rt" if label == LABELS[1] else "voluntary")
    assert {(row.benchmark, row.status) for row in record.rows} == {(p, "ok") for p in PROGRAMS}
    assert samples(first) == samples(second)
    assert (first / "runs.csv").read_bytes() == (second / "runs.csv").read_bytes()


def test_the_counter_counts_single_instructions(twice: list[Path]) -> None:
    for label in LABELS:
        held = samples(session_of(twice[0], label))["pipes.u64"]
        assert math.gcd(*struct.unpack(f"<{len(held) // 8}Q", held)) == 1


def test_the_two_kernels_can_be_compared(twice: list[Path], tmp_path: Path) -> None:
    done = klat("compare", *(twice[0] / label for label in LABELS), cwd=tmp_path)
    assert done.returncode in (0, 1, 3), done.stderr
    assert "instructions counted by QEMU" in " ".join(done.stdout.split())


def test_a_kernel_of_ones_own_boots_without_modules(twice: list[Path], tmp_path: Path) -> None:
    from klat.lab import kernels
    from klat.lab.apt import Archive

    archive = Archive(lambda line: None, ARM64.name)
    debian = kernels.obtain(kernels.parse("debian:stock"), archive, ARM64)
    words = ("--arch", "arm64", "--kernel", f"mine={debian.image.path}", *SHORT, "pipes")
    lab_run(*words, cwd=tmp_path)
    session = session_of(tmp_path / "results", "mine")
    assert [row.status for row in read_session(session).rows] == ["ok"]


def test_samples_of_arm64_cannot_be_explained(twice: list[Path], tmp_path: Path) -> None:
    done = klat("lab", "explain", twice[0] / LABELS[0], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"klat lab: {UNEXPLAINED}\n")
