"""A kernel of riscv64, booted for real on a machine of another architecture, counted."""

import math
import re
import shutil
import struct
from pathlib import Path

import harness
import pytest
from test_lab_arm64_boots import METRICS, worst_beside_a_load
from test_lab_boots import CLOCK, PROGRAMS, SHORT, klat, lab_run, samples, session_of
from test_lab_explain import explained_samples

from klat.lab import kernels
from klat.lab.apt import Archive
from klat.lab.architectures import RISCV64
from klat.record.session import read_session

pytestmark = pytest.mark.slow

LABEL = "lab-riscv64-stock"
ARCH = ("--arch", "riscv64")


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two sessions that differ in nothing."""
    for tool in (RISCV64.emulator, f"{RISCV64.compiler}gcc"):
        if not shutil.which(tool):
            harness.lacking(f"there is no {tool}")
    where = tmp_path_factory.mktemp("riscv64")
    outputs = [where / "first", where / "second"]
    for output in outputs:
        words = (*ARCH, "--kernel", "debian:stock", *SHORT, *CLOCK, "--output", output, *PROGRAMS)
        assert lab_run(*words, cwd=where) == [str(output / LABEL)]
    return [session_of(output, LABEL) for output in outputs]


def test_all_programs_count_and_the_same_boot_gives_the_same_bytes(twice):
    first, second = twice
    record = read_session(first)
    assert (record.mode, record.unit) == ("counted", "instructions")
    assert record.info["architecture"] == "riscv64" and record.problems == []
    config = (first / f"environment/boot/config-{record.info['kernel_release']}").read_text()
    assert (record.info["preemption"] == "lazy") == ("CONFIG_PREEMPT_LAZY=y" in config)
    assert {(row.benchmark, row.status) for row in record.rows} == {(p, "ok") for p in PROGRAMS}
    assert samples(first) == samples(second)
    assert (first / "runs.csv").read_bytes() == (second / "runs.csv").read_bytes()


@pytest.mark.parametrize("program", ["pipes", "timer"])
def test_the_counter_counts_single_instructions(twice, program):
    record = read_session(twice[0])
    assert record.info["tsc"]["counter"] == "cycle"
    # `time` would give 1e4. The kernel's clock, which has the deadlines of timer, advances in the steps of `time`.
    assert record.info["tsc"]["khz"] == 1e6
    held = samples(twice[0])[f"{program}.u64"]
    assert math.gcd(*struct.unpack(f"<{len(held) // 8}Q", held)) == 1


def test_a_kernel_of_ones_own_boots_without_modules(twice, tmp_path):
    archive = Archive(lambda line: None, RISCV64.name)
    debian = kernels.obtain(kernels.parse("debian:stock"), archive, RISCV64)
    lab_run(*ARCH, "--kernel", f"mine={debian.image.path}", *SHORT, "pipes", cwd=tmp_path)
    session = session_of(tmp_path / "results", "mine")
    assert [row.status for row in read_session(session).rows] == ["ok"]


def test_the_functions_add_up_to_the_sample_of_each_metric(twice):
    found = explained_samples(twice[0])
    assert found.keys() >= METRICS
    for metric, sample in found.items():
        own, calls = sample.functions.own, sample.functions.calls
        assert not own["?"] and not own["firmware"], metric
        # timer waits in user space, and an interrupt enters the kernel. The others make a system call.
        assert calls["do_irq"] if metric == "timer.lateness" else calls["do_trap_ecall_u"]


def test_what_ran_during_the_worst_sample_beside_a_load(tmp_path):
    shown = worst_beside_a_load("riscv64", LABEL, tmp_path)
    assert re.search(r"\bdo_irq in load: wakes \d+ tasks?\b", shown), shown
    assert re.search(r"^ *[\d,]+  timer: ", shown, re.MULTILINE), shown


def test_membarrier_interrupts_every_cpu(twice, tmp_path):
    words = ("lab", "shootdown", *ARCH, "--operation", "membarrier", "--cpus", "4")
    done = klat(*words, "--iterations", "20", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 of 3 responders got each of " in done.stdout
    assert "by the row of function calls, which also counts " in done.stdout


def test_a_guest_that_cannot_count_skips_its_runs_with_the_reason(twice, tmp_path):
    kernel = "mine=debian:stock,append=initcall_blacklist=pmu_sbi_devinit"
    done = klat("lab", "run", *ARCH, "--kernel", kernel, *SHORT, "pipes", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    words = " ".join(done.stderr.split())
    assert "1 x skipped: pipes: the counter cycle" in words and "CONFIG_RISCV_PMU_SBI" in words
    (row,) = read_session(session_of(tmp_path / "results", "mine")).rows
    assert row.status == "skipped" and "CONFIG_RISCV_PMU_SBI" in row.reason
