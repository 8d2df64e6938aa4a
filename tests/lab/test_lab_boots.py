"""Real kernels of Debian's, booted for real, counted: the same boot twice is the same bytes."""

import csv
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import harness
import made_tools
import planted
import pytest
from labs import ROOT

from klat import cli
from klat.lab import qemu
from klat.lab.modules import Tree
from klat.record.session import read_session

pytestmark = pytest.mark.slow

PROGRAMS = ("pipes", "cv", "tlbflush", "timer", "network")
LABELS = ("lab-stock", "lab-rt")
KERNELS = ("--kernel", "debian:stock", "--kernel", "debian:rt")
SHORT = ("--mode", "counted", "--boots", "1", "--runs", "1", "--iterations", "100", "--seed", "5")
SLEEPS = ("--mode", "counted", "--boots", "1", "--runs", "4", "--iterations", "1000", "--seed", "5")
CLOCK = ("--clock", "2026-01-01T00:00:00")
# A machine without the archive, or a lab that cannot reach it.
ARCHIVE = ("apt-get", "apt-cache", "cannot fetch", "Debian's keys")


PROGRAM = (sys.executable, "-B", ROOT / "klat")
# With the user's own cache: kernels are fetched once.
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("SUDO_", "KLAT_PROGRAMS"))}


def klat(*words: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return made_tools.run(*PROGRAM, *words, cwd=cwd, env=ENVIRONMENT | environment, seconds=900)


def lab_run(*words: str | Path, cwd: Path, status: int = 0, **environment: str) -> list[str]:
    """The lines of `klat lab run` on stdout."""
    if not shutil.which("qemu-system-x86_64"):
        harness.lacking("there is no qemu-system-x86_64")
    done = klat("lab", "run", *words, cwd=cwd, **environment)
    if done.returncode == 2 and any(word in done.stderr for word in ARCHIVE):
        harness.lacking(f"no kernel from Debian: {done.stderr.splitlines()[-1]}")
    assert done.returncode == status, done.stderr
    return done.stdout.splitlines()


def session_of(output: Path, label: str) -> Path:
    (session,) = [p for p in (output / label).iterdir() if not p.name.startswith(".")]
    return session


def samples(session: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (session / "samples").iterdir()}


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The outputs of two experiments that differ in nothing."""
    where = tmp_path_factory.mktemp("lab")
    outputs = [where / "first", where / "second"]
    for output in outputs:
        shown = lab_run(*KERNELS, *SHORT, *CLOCK, "--output", output, *PROGRAMS, cwd=where)
        assert shown == [str(output / label) for label in LABELS]
    return outputs


@pytest.mark.parametrize("label", LABELS)
def test_the_same_boot_twice_gives_the_same_bytes(twice, label):
    first, second = (session_of(output, label) for output in twice)
    held = samples(first)
    assert set(held) == {f"{name}.u64" for name in PROGRAMS}
    assert held == samples(second)
    assert (first / "runs.csv").read_bytes() == (second / "runs.csv").read_bytes()


def test_the_speed_of_the_host_changes_no_sample(tmp_path):
    library = tmp_path / "slow_host.so"
    source = ROOT / "tests/planted/slow_host.c"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library, source], check=True)
    words = ("--kernel", "debian:stock", *SLEEPS, *CLOCK, "timer")
    lab_run(*words, "--output", tmp_path / "fast", cwd=tmp_path)
    slow, slowed = tmp_path / "slow", tmp_path / "slowed"
    lab_run(
        *(*words, "--output", slow), cwd=tmp_path, LD_PRELOAD=str(library), SLOW_HOST=str(slowed)
    )
    assert slowed.exists()
    fast, slow = (samples(session_of(tmp_path / name, "lab-stock")) for name in ("fast", "slow"))
    assert fast == slow


@pytest.mark.parametrize("label", LABELS)
def test_a_boot_is_a_session_like_any_other(twice, label):
    session = session_of(twice[0], label)
    record = read_session(session)
    assert (record.mode, record.unit, record.label) == ("counted", "instructions", label)
    assert record.info["preemption"] == ("rt" if label == "lab-rt" else "voluntary")
    assert record.problems == []
    assert {(row.benchmark, row.status) for row in record.rows} == {(p, "ok") for p in PROGRAMS}
    with (session / "plan.csv").open() as file:
        planned = {int(row["order"]) for row in csv.DictReader(file)}
    assert record.completed_orders() == planned == {1, 2, 3, 4, 5}
    assert (session / f"environment/boot/config-{record.info['kernel_release']}").exists()


def test_a_counter_of_time_is_not_taken_for_one_of_instructions(tmp_path, monkeypatch):
    """The command line says `counted`, and QEMU runs without -icount."""
    monkeypatch.setattr(qemu, "check_append", lambda words: None)
    monkeypatch.chdir(tmp_path)
    told = ("--mode", "emulated", "--append", "klat.mode=counted", "--boots", "1", "--runs", "1")
    assert cli.main(["lab", "run", "--kernel", "debian:stock", *told, "pipes"]) == 4
    (row,) = read_session(session_of(tmp_path / "results", "lab-stock")).rows
    assert row.status == "skipped" and "-icount shift=0" in row.reason


@pytest.mark.parametrize("label", LABELS)
def test_the_record_holds_what_it_takes_to_boot_it_again(twice, label):
    session = session_of(twice[0], label)
    machine = json.loads((session / "lab/machine.json").read_text())
    assert "-icount" in machine["command"] and machine["seed"] > 0 and machine["qemu"]
    assert machine["stopped_clock"]
    assert machine["kernel"]["package"].startswith("linux-image-")
    assert "Linux version" in (session / "lab/console.log").read_text()
    facts = json.loads((session / "run.json").read_text())
    assert facts["lab"]["experiment"]["seed"] == 5
    assert facts["boot_id"] == read_session(session).boot_id


def test_two_kernels_can_be_compared(twice, tmp_path):
    paths = [twice[0] / label for label in LABELS]
    done = klat("compare", *paths, cwd=tmp_path)
    assert done.returncode in (0, 1, 3), done.stderr
    assert "instructions" in done.stdout


def test_resuming_boots_what_is_missing_and_nothing_else(twice, tmp_path):
    output = tmp_path / "results"
    shutil.copytree(twice[0], output)
    kept, lost = session_of(output, "lab-rt"), session_of(output, "lab-stock")
    before = samples(lost)
    shutil.rmtree(lost)
    done = klat("lab", "run", "--resume", kept, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert session_of(output, "lab-rt") == kept
    again = session_of(output, "lab-stock")
    assert samples(again) == before, "the boot that was missing is the one that was planned"


def test_boots_that_would_not_be_like_those_that_are_there_are_refused(twice, tmp_path):
    output = tmp_path / "results"
    shutil.copytree(twice[0], output)
    shutil.rmtree(session_of(output, "lab-stock"))
    kept = session_of(output, "lab-rt")
    machine = kept / "lab/machine.json"
    facts = json.loads(machine.read_text())
    facts["kernel"]["initramfs_sha256"] = "as by another QEMU"
    machine.write_text(json.dumps(facts))
    done = klat("lab", "run", "--resume", kept, cwd=tmp_path)
    assert done.returncode == 2
    assert "start a new experiment" in done.stderr.splitlines()[-1]
    assert list((output / "lab-rt").iterdir()) == [kept]


@pytest.mark.parametrize("name", ["runs.csv", "session.json"])
def test_a_session_that_was_damaged_since_does_not_pass_for_whole(twice, tmp_path, name):
    output = tmp_path / "results"
    shutil.copytree(twice[0], output)
    kept = session_of(output, "lab-rt")
    (kept / name).unlink()
    done = klat("lab", "run", "--resume", kept, cwd=tmp_path)
    assert done.returncode == 2
    assert f"{kept} was damaged since: " in done.stderr.splitlines()[-1]


def bisect(twice: list[Path], kernel: Path, *more: str, cwd: Path) -> tuple[int, str]:
    good, bad = (twice[0] / label for label in LABELS)
    ends = ("--good", good, "--bad", bad)
    done = klat("lab", "bisect-check", *ends, "--kernel", kernel, *more, cwd=cwd)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(("label", "status"), [("stock", 0), ("rt", 1)])
def test_a_kernel_is_told_to_be_like_the_good_or_the_bad_one(twice, tmp_path, label, status):
    tree, release = package(label)
    image = tree / f"boot/vmlinuz-{release}"
    found, told = bisect(twice, image, "--metric", "pipes.round_trip", cwd=tmp_path)
    assert found == status, told
    assert f"like {'bad' if status else 'good'}" in told
    assert not list(tmp_path.iterdir()), "a check leaves nothing behind"


def test_a_kernel_that_does_not_boot_is_passed_over(twice, tmp_path):
    panics = planted.kernel(tmp_path / "k", "Kernel panic - not syncing: x\n", planted.RESET)
    found, told = bisect(twice, panics, "--metric", "pipes.round_trip", cwd=tmp_path)
    assert found == 125, told
    assert "cannot be tested" in told


@pytest.mark.parametrize(
    ("label", "cpus"),
    # A word of a mask has 64 CPUs.
    [("stock", 4), ("stock", 66), pytest.param("rt", 80, marks=pytest.mark.long)],
)
def test_a_shootdown_interrupts_every_cpu_of_an_emulated_machine(twice, tmp_path, label, cpus):
    words = ("--kernel", f"debian:{label}", "--cpus", str(cpus), "--iterations", "20")
    begun = time.monotonic()
    done = klat("lab", "shootdown", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    others = cpus - 1
    reached = f"{cpus} CPUs on 2 nodes\n  {others} of {others} responders got each of 27 shootdowns"
    assert reached in done.stdout, done.stdout
    (row,) = read_session(session_of(tmp_path / "results", f"lab-{label}-{cpus}cpus")).rows[:1]
    assert row.n == 0, "an emulator tells no time"
    assert time.monotonic() - begun < 600


def package(label: str) -> tuple[Path, str]:
    """Of a kernel in the cache: where it is unpacked, and its release."""
    from klat.lab import kernels
    from klat.lab.apt import Archive
    from klat.lab.architectures import AMD64

    spec = kernels.parse(f"debian:{label}")
    kernel = kernels.obtain(spec, Archive(lambda line: None), AMD64)
    return kernel.image.path.parents[1], kernel.image.release


def needed_modules(tree: Path, release: str, into: Path) -> Path:
    """The modules that a guest with `network` loads, unpacked, in a directory of their own."""
    modules = next(
        path for path in (tree / "usr/lib/modules", tree / "lib/modules") if path.is_dir()
    )
    into.mkdir()
    for module in Tree(modules, release).closure(["tun", "virtio_pci", "virtio_blk"]):
        (into / f"{module.name}.ko").write_bytes(module.data)
    return into


def without_code(data: bytes, release: str) -> bytes:
    return planted.module(release, name="tun")


def damaged(data: bytes, release: str) -> bytes:
    """In its code, which the host does not look at. The kernel holds it against the signature."""
    changed = bytearray(data)
    changed[0x100] ^= 1
    return bytes(changed)


@pytest.fixture(scope="module")
def user_kernel_results(twice: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of one experiment with a user's own kernel: with modules, with a word of its own and
    without modules, and with a module that it refuses."""
    where = tmp_path_factory.mktemp("own")
    tree, release = package("stock")
    image = where / "my kernel, patched"
    shutil.copy(tree / f"boot/vmlinuz-{release}", image)
    refused = needed_modules(tree, release, where / "modules")
    (refused / "virtio_blk.ko").write_bytes(planted.module(release, name="virtio_blk"))
    specs = (
        f"mine={image},modules={tree}",
        f"bare={image},append=mitigations=off x=1,2",
        f"refusing={image},modules={refused}",
    )
    words = [word for spec in specs for word in ("--kernel", spec)]
    lab_run(*words, *SHORT, "pipes", cwd=where)
    return where / "results"


@pytest.mark.parametrize("label", ["mine", "bare", "refusing"])
def test_a_users_own_kernel_boots_with_modules_and_without(user_kernel_results, label):
    record = read_session(session_of(user_kernel_results, label))
    assert [row.status for row in record.rows] == ["ok"]


def test_a_kernel_that_refuses_virtio_gives_its_results_by_a_serial_line(user_kernel_results):
    console = session_of(user_kernel_results, "refusing") / "lab/console.log"
    assert "module virtio_blk: " in console.read_text()


def test_only_one_kernel_has_the_words_that_it_alone_was_given(user_kernel_results):
    for label, given in (("mine", ""), ("bare", "mitigations=off x=1,2")):
        session = session_of(user_kernel_results, label)
        line = (session / "environment/proc/cmdline").read_text()
        assert ("x=1,2" in line) == bool(given)
        declared = json.loads((session / "run.json").read_text())["under_test"]
        assert declared["append"] == given


@pytest.mark.parametrize("change", [without_code, damaged])
def test_a_module_that_the_guests_kernel_refuses_is_a_failure_of_its_own(twice, tmp_path, change):
    tree, release = package("stock")
    modules = needed_modules(tree, release, tmp_path / "modules")
    tun = modules / "tun.ko"
    tun.write_bytes(change(tun.read_bytes(), release))
    spec = f"mine={tree}/boot/vmlinuz-{release},modules={modules}"
    done = klat("lab", "run", "--kernel", spec, *SHORT, "network", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "the kernel refused the module tun: " in done.stderr.splitlines()[-1]
    (facts,) = (tmp_path / "results").glob("mine/.failed/*/run.json")
    assert json.loads(facts.read_text())["lab"]["failure"] == "module"
    assert [path.name for path in (tmp_path / "results/mine").iterdir()] == [".failed"]
