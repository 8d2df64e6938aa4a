"""Kernels of arm64 and riscv64, booted for real on a machine of another architecture, counted."""

import functools
import json
import math
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import harness
import pytest
from test_lab_boots import CLOCK, PROGRAMS, SHORT, klat, lab_run, samples, session_of
from test_lab_explain import explained_samples, median

from klat.lab import kernels
from klat.lab.apt import Archive
from klat.lab.architectures import ARCHITECTURES
from klat.record import evidence
from klat.record.session import read_session

pytestmark = pytest.mark.slow

KERNELS = {"arm64": ("stock", "rt"), "riscv64": ("stock",)}
MACHINES = {"arm64": "aarch64", "riscv64": "riscv64"}
# The kernel's functions of entry: for a system call, and for an interrupt during a load.
ENTRIES = {
    "arm64": ("el0t_64_sync", r"el[01][ht]_64_irq"),
    "riscv64": ("do_trap_ecall_u", "do_irq"),
}
METRICS = {
    "pipes.round_trip",
    "cv.handoff",
    "cv.round_trip",
    "timer.lateness",
    "tlbflush.initiator",
    "network.send_to_read",
}


class Boots:
    """Of each kernel of one architecture: two sessions that differ in nothing."""

    def __init__(self, name: str, where: Path) -> None:
        self.name = name
        self.arch = ("--arch", name)
        self.labels = [f"lab-{name}-{kernel}" for kernel in KERNELS[name]]
        self.outputs = (where / "first", where / "second")
        words = [w for each in KERNELS[name] for w in ("--kernel", f"debian:{each}")]
        for output in self.outputs:
            own = (*self.arch, *words, *SHORT, *CLOCK, "--output", str(output), *PROGRAMS)
            assert lab_run(*own, cwd=where) == [str(output / label) for label in self.labels]
        self.sessions, self.others = (
            [session_of(output, label) for label in self.labels] for output in self.outputs
        )


@pytest.fixture(scope="module")
def boots_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Boots]:
    """Each architecture boots once."""
    return functools.cache(lambda name: Boots(name, tmp_path_factory.mktemp(name)))


@pytest.fixture(params=KERNELS)
def boots(request: pytest.FixtureRequest, boots_of: Callable[[str], Boots]) -> Boots:
    architecture = ARCHITECTURES[request.param]
    for tool in (architecture.emulator, f"{architecture.compiler}gcc"):
        if not shutil.which(tool):
            harness.lacking(f"there is no {tool}")
    return boots_of(request.param)


ARM64 = pytest.mark.parametrize("boots", ["arm64"], indirect=True)
RISCV64 = pytest.mark.parametrize("boots", ["riscv64"], indirect=True)


def test_all_programs_count_instructions_and_the_same_boot_gives_the_same_bytes(boots):
    for first, second in zip(boots.sessions, boots.others):
        record = read_session(first)
        assert (record.mode, record.unit) == ("counted", "instructions")
        assert record.info["architecture"] == MACHINES[boots.name]
        assert record.problems == []
        assert {(r.benchmark, r.status) for r in record.rows} == {(p, "ok") for p in PROGRAMS}
        assert samples(first) == samples(second)
        assert (first / "runs.csv").read_bytes() == (second / "runs.csv").read_bytes()


def test_the_preemption_of_a_kernel_is_recorded(boots):
    found = [read_session(session).info["preemption"] for session in boots.sessions]
    (config,) = boots.sessions[0].glob("environment/boot/config-*")
    stock = "lazy" if "CONFIG_PREEMPT_LAZY=y" in config.read_text() else "voluntary"
    assert found == [stock, "rt"][: len(found)]


def divisor(held: bytes) -> int:
    return math.gcd(*struct.unpack(f"<{len(held) // 8}Q", held))


def test_the_counter_counts_single_instructions(boots):
    for session in boots.sessions:
        # A program can have a few values only, all of them even.
        assert divisor(b"".join(samples(session).values())) == 1


@RISCV64
def test_the_counter_is_not_that_of_time(boots):
    (session,) = boots.sessions
    tsc = read_session(session).info["tsc"]
    # `time` would give 1e4. The kernel's clock, which has the deadlines of timer, advances in the steps of `time`.
    assert (tsc["counter"], tsc["khz"]) == ("cycle", 1e6)
    for program in ("pipes", "timer"):
        assert divisor(samples(session)[f"{program}.u64"]) == 1, program


@ARM64
def test_two_kernels_can_be_compared(boots, tmp_path):
    done = klat("compare", *(boots.outputs[0] / label for label in boots.labels), cwd=tmp_path)
    assert done.returncode in (0, 1, 3), done.stderr
    assert "instructions counted by QEMU" in " ".join(done.stdout.split())


def test_a_kernel_of_ones_own_boots_without_modules(boots, tmp_path):
    archive = Archive(lambda line: None, boots.name)
    debian = kernels.obtain(kernels.parse("debian:stock"), archive, ARCHITECTURES[boots.name])
    kernel = f"mine={debian.image.path}"
    lab_run(*boots.arch, "--kernel", kernel, *SHORT, "pipes", cwd=tmp_path)
    session = session_of(tmp_path / "results", "mine")
    assert [row.status for row in read_session(session).rows] == ["ok"]


def test_the_functions_add_up_to_the_sample_of_each_metric(boots):
    system_call, _ = ENTRIES[boots.name]
    for session in boots.sessions:
        found = explained_samples(session)
        assert found.keys() >= METRICS
        for metric, sample in found.items():
            own, calls = sample.functions.own, sample.functions.calls
            # timer waits in user space, and an interrupt enters the kernel. The others make a system call.
            assert calls[system_call] or metric == "timer.lateness"
            if boots.name == "riscv64":
                assert not own["?"] and not own["firmware"], metric
                assert calls["do_irq"] or metric != "timer.lateness"


@ARM64
def test_stock_and_rt_differ_by_what_rt_adds_to_each_lock(boots, tmp_path):
    sessions = boots.sessions
    words = ("--metric", "pipes.round_trip", "--format", "json")
    done = klat("lab", "explain", *sessions, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    base, new = (side["sample"] for side in found["sides"])
    assert (base, new) == tuple(median(session, "pipes", "round_trip") for session in sessions)
    differences = {row["function"]: row["difference"] for row in found["differences"]}
    assert sum(differences.values()) == new - base > 0
    assert differences["migrate_enable"] > 0 and differences["rt_spin_lock"] > 0


def test_what_ran_during_the_worst_sample_beside_a_load(boots, tmp_path):
    """Page faults of the load, an interrupt, and the names of the tasks."""
    words = (*boots.arch, "--kernel", "debian:stock", "--load", "populate", *SHORT, *CLOCK)
    few = ("--iterations", "30")  # all that runs beside them is traced
    lab_run(*words, *few, "--option", "timer.method=nanosleep", "timer", cwd=tmp_path)
    session = session_of(tmp_path / "results", f"{boots.labels[0]}-populate")
    done = klat("lab", "explain", session, "--worst", "timer.lateness", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.partition("what ran, in order:")[2]
    _, interrupt = ENTRIES[boots.name]
    assert re.search(rf"\b{interrupt} in load: wakes \d+ tasks?\b", shown), shown
    assert re.search(r"^ *[\d,]+  timer: ", shown, re.MULTILINE), shown


@pytest.mark.parametrize(
    ("boots", "operation", "kernel", "responders", "delivery"),
    [
        ("arm64", "membarrier", "stock", "got each of", ""),
        ("riscv64", "membarrier", "stock", "got each of", ""),
        ("arm64", "munmap", "newest", "fault when they access the pages", "delivery=broadcast"),
    ],
    ids=["arm64", "riscv64", "arm64-broadcast"],
    indirect=["boots"],
)
def test_an_operation_reaches_every_cpu(boots, tmp_path, operation, kernel, responders, delivery):
    """The kernel interrupts the CPUs for a membarrier only. It makes a few other function calls beside either."""
    words = ("--kernel", f"debian:{kernel}", "--cpus", "4", "--iterations", "20")
    done = klat("lab", "shootdown", *boots.arch, "--operation", operation, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    nodes = " on 2 nodes" if boots.name == "arm64" else ""
    assert f"4 CPUs{nodes}\n  3 of 3 responders {responders}" in done.stdout
    calls = "by the row of function calls, which also counts "
    assert (calls in done.stdout) == (operation == "membarrier")
    label = f"lab-{boots.name}-{kernel}-4cpus"
    (row,) = read_session(session_of(tmp_path / "results", label)).rows[:1]
    assert row.options()["operation"] == operation and evidence.state_of(row) == delivery


@RISCV64
def test_a_guest_that_cannot_count_skips_its_runs_with_the_reason(boots, tmp_path):
    kernel = "mine=debian:stock,append=initcall_blacklist=pmu_sbi_devinit"
    done = klat("lab", "run", *boots.arch, "--kernel", kernel, *SHORT, "pipes", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    words = " ".join(done.stderr.split())
    assert "1 x skipped: pipes: the counter cycle" in words and "CONFIG_RISCV_PMU_SBI" in words
    (row,) = read_session(session_of(tmp_path / "results", "mine")).rows
    assert row.status == "skipped" and "CONFIG_RISCV_PMU_SBI" in row.reason
