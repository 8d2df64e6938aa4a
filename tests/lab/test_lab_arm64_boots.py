"""Kernels of arm64, booted for real on a machine of another architecture, counted."""

import json
import math
import re
import shutil
import struct
from pathlib import Path

import harness
import pytest
from test_lab_boots import CLOCK, KERNELS, PROGRAMS, SHORT, klat, lab_run, samples, session_of
from test_lab_explain import explained_samples, median

from klat.lab.architectures import ARM64
from klat.record import evidence
from klat.record.session import read_session

pytestmark = pytest.mark.slow

LABELS = ("lab-arm64-stock", "lab-arm64-rt")
METRICS = {
    "pipes.round_trip",
    "cv.handoff",
    "cv.round_trip",
    "timer.lateness",
    "tlbflush.initiator",
    "network.send_to_read",
}


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
def test_all_programs_count_instructions_and_the_same_boot_gives_the_same_bytes(twice, label):
    first, second = (session_of(output, label) for output in twice)
    record = read_session(first)
    assert (record.mode, record.unit) == ("counted", "instructions")
    assert record.info["architecture"] == "aarch64" and record.problems == []
    assert record.info["preemption"] == ("rt" if label == LABELS[1] else "voluntary")
    assert {(row.benchmark, row.status) for row in record.rows} == {(p, "ok") for p in PROGRAMS}
    assert samples(first) == samples(second)
    assert (first / "runs.csv").read_bytes() == (second / "runs.csv").read_bytes()


def test_the_counter_counts_single_instructions(twice):
    for label in LABELS:
        # A program can have a few values only, all of them even.
        held = b"".join(samples(session_of(twice[0], label)).values())
        assert math.gcd(*struct.unpack(f"<{len(held) // 8}Q", held)) == 1


def test_the_two_kernels_can_be_compared(twice, tmp_path):
    done = klat("compare", *(twice[0] / label for label in LABELS), cwd=tmp_path)
    assert done.returncode in (0, 1, 3), done.stderr
    assert "instructions counted by QEMU" in " ".join(done.stdout.split())


def test_a_kernel_of_ones_own_boots_without_modules(twice, tmp_path):
    from klat.lab import kernels
    from klat.lab.apt import Archive

    archive = Archive(lambda line: None, ARM64.name)
    debian = kernels.obtain(kernels.parse("debian:stock"), archive, ARM64)
    words = ("--arch", "arm64", "--kernel", f"mine={debian.image.path}", *SHORT, "pipes")
    lab_run(*words, cwd=tmp_path)
    session = session_of(tmp_path / "results", "mine")
    assert [row.status for row in read_session(session).rows] == ["ok"]


@pytest.mark.parametrize("label", LABELS)
def test_the_functions_add_up_to_the_sample_of_each_metric(twice, label):
    found = explained_samples(session_of(twice[0], label))
    assert found.keys() >= METRICS
    for metric, sample in found.items():
        # timer waits in user space, and an interrupt enters the kernel. The others make a system call.
        assert sample.functions.calls["el0t_64_sync"] or metric == "timer.lateness"


def test_stock_and_rt_differ_by_what_rt_adds_to_each_lock(twice, tmp_path):
    sessions = [session_of(twice[0], label) for label in LABELS]
    words = ("--metric", "pipes.round_trip", "--format", "json")
    done = klat("lab", "explain", *sessions, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    base, new = (side["sample"] for side in found["sides"])
    assert (base, new) == tuple(median(session, "pipes", "round_trip") for session in sessions)
    differences = {row["function"]: row["difference"] for row in found["differences"]}
    assert sum(differences.values()) == new - base > 0
    assert differences["migrate_enable"] > 0 and differences["rt_spin_lock"] > 0


def worst_beside_a_load(arch: str, label: str, cwd: Path) -> str:
    """What klat says that ran during the worst sample."""
    words = ("--arch", arch, "--kernel", "debian:stock", "--load", "populate", *SHORT, *CLOCK)
    few = ("--iterations", "30")  # all that runs beside them is traced
    lab_run(*words, *few, "--option", "timer.method=nanosleep", "timer", cwd=cwd)
    session = session_of(cwd / "results", f"{label}-populate")
    done = klat("lab", "explain", session, "--worst", "timer.lateness", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("what ran, in order:")[2]


def test_what_ran_during_the_worst_sample_beside_a_load(tmp_path):
    """Page faults of the load, an interrupt, and the names of the tasks."""
    shown = worst_beside_a_load("arm64", LABELS[0], tmp_path)
    assert re.search(r"\bel[01][ht]_64_irq in load: wakes \d+ tasks?\b", shown), shown
    assert re.search(r"^ *[\d,]+  timer: ", shown, re.MULTILINE), shown


@pytest.mark.parametrize(
    ("operation", "kernel", "responders", "delivery"),
    [
        ("membarrier", "stock", "got each of", ""),
        ("munmap", "newest", "fault when they access the pages", "delivery=broadcast"),
    ],
)
def test_an_operation_reaches_every_cpu(twice, tmp_path, operation, kernel, responders, delivery):
    """The kernel interrupts the CPUs for a membarrier only. It makes a few other function calls beside either."""
    words = ("--kernel", f"debian:{kernel}", "--cpus", "4", "--iterations", "20")
    arm64 = ("--arch", "arm64", "--operation", operation)
    done = klat("lab", "shootdown", *arm64, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"4 CPUs on 2 nodes\n  3 of 3 responders {responders}" in done.stdout
    calls = "by the row of function calls, which also counts "
    assert (calls in done.stdout) == (operation == "membarrier")
    label = f"lab-arm64-{kernel}-4cpus"
    (row,) = read_session(session_of(tmp_path / "results", label)).rows[:1]
    assert row.options()["operation"] == operation and evidence.state_of(row) == delivery
