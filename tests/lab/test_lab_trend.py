"""`klat lab trend` and `klat lab diff` on kernels of Debian."""

import contextlib
import csv
import io
import json
import shutil
import signal
import subprocess
import sys

import harness
import made_tools
import planted
import pytest
from test_lab_boots import ENVIRONMENT, PROGRAM, klat
from test_lab_failures import within

from klat.lab import cache

pytestmark = pytest.mark.slow

KERNELS = ("debian:6.1", "again=debian:6.1", "pti=debian:6.1,append=pti=on")
WORDS = [word for kernel in KERNELS for word in ("--kernel", kernel)]
SMALL = ("--boots", "4", "--iterations", "100", "syscall")


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    return tmp_path_factory.mktemp("trend")


# Runs the program, then writes the most memory that it had. Its QEMUs are other processes.
WITH_MEMORY = """\
import atexit, runpy, shutil, sys
atexit.register(shutil.copy, "/proc/self/status", "memory")
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def measured(where):
    words = (str(PROGRAM[-1]), "lab", "trend", *WORDS, *SMALL, "--format", "csv")
    python = (sys.executable, "-c", WITH_MEMORY)
    done = made_tools.run(*python, *words, cwd=where, env=ENVIRONMENT, seconds=900)
    assert done.returncode == 1, done.stderr
    return done


@pytest.fixture(scope="module")
def bare_kernels(where) -> list[str]:
    """Two kernels of Debian as files, without their modules: 6.1 with pti=on, and without."""
    places = "packages/linux-image-6.1.0-*-amd64_*/boot/vmlinuz-*"
    image = sorted(cache.root().glob(places))[-1]
    return [f"slow={image},append=pti=on", f"quick={image}"]


def rows(text: str) -> dict[str, dict[str, str]]:
    return {row["kernel"]: row for row in csv.DictReader(io.StringIO(text))}


def test_the_same_kernel_again_is_no_jump_and_a_planted_cost_is_one(measured):
    by_kernel = rows(measured.stdout)
    assert by_kernel["again"]["verdict"] == "same"
    pti = by_kernel["pti"]
    assert pti["verdict"] == "slower"
    functions = dict(item.rsplit("=", 1) for item in pti["functions"].split(";"))
    difference = int(pti["explained"]) - int(pti["explained_before"])
    assert sum(map(int, functions.values())) == difference > 0
    # They change the page table.
    assert functions.keys() == {"entry_SYSCALL_64", "syscall_return_via_sysret"}


def test_a_report_needs_less_than_400_mb(measured, where):
    facts = dict(line.split(":", 1) for line in (where / "memory").read_text().splitlines())
    assert 10_000 < int(facts["VmHWM"].split()[0]) < 400_000


def test_a_second_report_is_the_same_and_boots_nothing(measured, where):
    before = sorted(where.glob("results/trend/*/*"))
    again = klat("lab", "trend", *WORDS, *SMALL, "--format", "csv", cwd=where)
    assert (again.returncode, again.stdout) == (1, measured.stdout)
    assert sorted(where.glob("results/trend/*/*")) == before
    assert "repeating the boot" in measured.stderr and "repeating" not in again.stderr


def test_a_kernel_that_does_not_boot_has_its_reason_and_the_others_are_reported(measured, where):
    broken = planted.kernel(where / "k", "Kernel panic - not syncing: x\n", planted.RESET)
    words = ("--kernel", f"broken={broken}", *WORDS[:4], *SMALL, "--format", "json")
    done = klat("lab", "trend", *words, cwd=where)
    assert done.returncode == 3, done.stderr
    facts = json.loads(done.stdout)
    assert [kernel["label"] for kernel in facts["kernels"]] == ["lab-6.1", "again"]
    assert "broken" in facts["failures"]


def test_a_disk_that_fills_leaves_the_kernels_that_are_recorded(measured, where, root):
    place = where / "full"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64M", "none", place]).returncode:
        harness.lacking("no file system can be mounted here")
    try:
        for name in ("lab-6.1", "again"):
            shutil.copytree(where / "results/trend" / name, place / name)
        with contextlib.suppress(OSError), (place / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(65536)):
                pass
        words = ("--output", place, "--format", "json")
        done = klat("lab", "trend", *WORDS, *SMALL, *words, cwd=where)
    finally:
        subprocess.run(["umount", place], check=True)
    assert done.returncode == 3, done.stderr
    facts = json.loads(done.stdout)
    assert [kernel["label"] for kernel in facts["kernels"]] == ["lab-6.1", "again"]
    assert "No space left on device" in facts["failures"]["pti"]


def test_a_report_that_was_stopped_goes_on_with_the_boots_that_it_has(measured, where):
    words = ("lab", "trend", *WORDS[:4], *SMALL, "--output", "later", "--format", "csv")
    line = map(str, (*PROGRAM, *words))
    with subprocess.Popen(
        [*line], cwd=where, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            within(300, lambda: any(where.glob("later/*/*/runs.csv")), process)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130 and "the same command continues" in said
    kept = len([*where.glob("later/*/*/runs.csv")])
    again = klat(*words, cwd=where)
    assert f"{8 - kept} boots" in again.stderr and f"{kept} are kept" in again.stderr
    assert again.stdout.splitlines() == measured.stdout.splitlines()[:3]


def test_two_kernels_differ_by_the_functions_of_one_page(measured, where):
    words = ("--format", "markdown", "--html", "page.html", "debian:6.1", KERNELS[2], SMALL[-1])
    done = klat("lab", "diff", *SMALL[:-1], *words, cwd=where)
    assert done.returncode == 1, done.stderr
    assert "1 jump" in done.stdout and len(done.stdout.splitlines()) <= 60
    page = (where / "page.html").read_text()
    assert "://" not in page.replace("http://www.w3.org", "") and "syscall call" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("trend", "--kernel=debian:6.1"), "at least two kernels"),
        (("diff", "debian:6.1", "missing"), "'missing' is neither debian:NAME nor NAME=path"),
        (("diff", "debian:6.1", "debian:6.1"), "two kernels have the label"),
        (("trend", "--kernel=debian:6.1", "--kernel=debian:9.9"), "no kernel debian:9.9"),
    ],
)
def test_bad_input_is_one_line_before_a_boot(where, words, said):
    done = klat("lab", *words, SMALL[-1], *SMALL[:-1], cwd=where)
    assert done.returncode == 2 and said in done.stderr
    assert "mode counted" not in done.stderr and "Traceback" not in done.stderr


def test_a_report_has_its_verdicts_where_a_jump_cannot_be_explained(measured, where, bare_kernels):
    words = ("--format", "json", *bare_kernels, *SMALL[2:])
    done = klat("lab", "diff", "--boots", "4", *words, cwd=where)
    assert done.returncode == 0, done.stderr
    (row,) = [row for row in json.loads(done.stdout)["rows"] if row["verdict"]]
    assert row["verdict"] == "faster"
    assert "needs CONFIG_KALLSYMS_ALL and virtio_blk" in row["explanation"]


def test_a_damaged_boot_is_booted_again(measured, where):
    (damaged,) = sorted(where.glob("results/trend/again/*/samples/*.u64"))[:1]
    damaged.write_bytes(damaged.read_bytes()[:-8])
    before = len([*where.glob("results/trend/again/*")])
    again = klat("lab", "trend", *WORDS, *SMALL, "--format", "csv", cwd=where)
    assert (again.returncode, again.stdout) == (1, measured.stdout), again.stderr
    assert len([*where.glob("results/trend/again/*")]) == before + 4


def test_a_kernel_with_a_rebuilt_module_is_booted_again(where):
    """Its image is the same file."""
    (image,) = sorted(cache.root().glob("packages/linux-image-6.1.0-*-amd64_*/boot/vmlinuz-*"))[-1:]
    tree = image.parents[1] / "lib/modules" / image.name.removeprefix("vmlinuz-")
    place = where / "modules"
    shutil.copytree(tree / "kernel/drivers/virtio", place / "virtio")
    shutil.copytree(tree / "kernel/drivers/block", place / "block")
    words = ("lab", "trend", *WORDS[:2], "--kernel", f"own={image},modules={place}", *SMALL)
    counts = []
    for _ in range(2):
        done = klat(*words, "--no-explain", cwd=where)
        assert done.returncode == 0, done.stderr
        counts.append(len([*where.glob("results/trend/own/*")]))
    rebuilt = place / "block/virtio_blk.ko"
    rebuilt.write_bytes(rebuilt.read_bytes() + b"rebuilt")
    assert klat(*words, "--no-explain", cwd=where).returncode == 0
    counts.append(len([*where.glob("results/trend/own/*")]))
    assert counts == [4, 4, 8]
