"""What can go wrong with a boot is told apart, from kernels that were planted to do it. Real QEMU, no real kernel."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import time
from pathlib import Path

import harness
import planted
import pytest
from labs import Lab

pytestmark = pytest.mark.usefixtures("qemu")
READY = "klat-lab: ready\n"
LIMIT = ("--time-limit", "5")


def failed(lab: Lab) -> dict[str, str]:
    """What run.json says of the one boot that failed; no session may be there."""
    (facts,) = lab.results.glob("planted/.failed/*/run.json")
    assert [p.name for p in (lab.results / "planted").iterdir()] == [".failed"]
    found: dict[str, str] = json.loads(facts.read_text())["lab"]
    assert (facts.parent / "lab/console.log").exists()
    assert (facts.parent / "lab/machine.json").exists()
    return found


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    line = done.stderr.splitlines()[-1]
    assert line.startswith("klat lab: "), done.stderr
    assert "Traceback" not in done.stderr
    return line


def test_a_kernel_that_panics_did_not_boot(lab: Lab, tmp_path: Path) -> None:
    panic = "Kernel panic - not syncing: planted\n"
    done = lab.boot(planted.kernel(tmp_path / "k", "early words\n" + panic, planted.RESET))
    assert done.returncode == 1
    assert "did not boot: Kernel panic - not syncing: planted" in one_line(done)
    assert "  | early words" in done.stderr, "the last lines of the console are shown"
    assert failed(lab)["failure"] == "boot"
    assert not lab.working()


def test_a_kernel_that_hangs_did_not_boot(lab: Lab, tmp_path: Path) -> None:
    done = lab.boot(planted.kernel(tmp_path / "k", "here\n"), *LIMIT)
    assert done.returncode == 1
    assert "did not boot within 5 s" in one_line(done)
    assert failed(lab)["failure"] == "boot"


def test_a_kernel_that_ends_silently_did_not_boot(lab: Lab, tmp_path: Path) -> None:
    done = lab.boot(planted.kernel(tmp_path / "k", then=planted.RESET))
    assert "ended before its first program" in one_line(done)
    assert failed(lab)["failure"] == "boot"


def test_a_guest_that_hangs_at_work_passes_the_time_limit(lab: Lab, tmp_path: Path) -> None:
    done = lab.boot(planted.kernel(tmp_path / "k", READY), *LIMIT)
    assert done.returncode == 1
    assert "0 of 1 runs were over after 5 s" in one_line(done)
    assert failed(lab)["failure"] == "time-limit"


def test_a_guest_that_ends_without_results_is_not_believed(lab: Lab, tmp_path: Path) -> None:
    says = READY + "klat-lab: run 1 0\n"
    done = lab.boot(planted.kernel(tmp_path / "k", says, planted.RESET))
    assert done.returncode == 1
    assert "ended after 1 of 1 runs" in one_line(done)
    assert failed(lab)["failure"] == "results"


def test_a_kernel_that_dies_at_work_says_so(lab: Lab, tmp_path: Path) -> None:
    says = READY + "[    9.1] BUG: planted\n"
    done = lab.boot(planted.kernel(tmp_path / "k", says, planted.RESET))
    assert "died after 0 of 1 runs: BUG: planted" in one_line(done)


def test_a_guest_without_room_says_so(lab: Lab, tmp_path: Path) -> None:
    says = READY + "klat-lab: no space for the results on the disk\n"
    done = lab.boot(planted.kernel(tmp_path / "k", says, planted.RESET))
    assert "no space for the results on the disk" in one_line(done)
    assert failed(lab)["failure"] == "results"


def test_an_emulator_that_fails_is_told_from_a_kernel(lab: Lab, tmp_path: Path) -> None:
    done = lab.boot(planted.kernel(tmp_path / "k"), "--memory", "1048576")
    assert done.returncode == 1
    assert "QEMU failed: " in one_line(done)
    assert failed(lab)["failure"] == "emulator"


def fake_qemu(directory: Path, text: str) -> str:
    path = directory / "bin"
    path.mkdir()
    (path / "qemu-system-x86_64").write_text(f"#!/bin/sh\n{text}\n")
    (path / "qemu-system-x86_64").chmod(0o755)
    return f"{path}:{os.environ['PATH']}"


def test_without_qemu_the_package_is_named(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = lab.boot(planted.kernel(tmp_path / "k"), PATH=str(tmp_path / "empty"))
    assert done.returncode == 1
    assert "apt install qemu-system-x86" in one_line(done)


def test_more_cpus_than_this_qemu_emulates_names_the_version_that_would_do(
    lab: Lab, tmp_path: Path
) -> None:
    path = fake_qemu(tmp_path, "echo QEMU emulator version 7.2.22 '(Debian)'")
    words = ("--mode", "emulated", "--cpus", "300", "--boots", "1", "pipes")
    kernel = planted.kernel(tmp_path / "k")
    done = lab("run", "--kernel", f"planted={kernel}", *words, PATH=path)
    assert done.returncode == 2
    assert "QEMU 7.2.22 (Debian) emulates at most 255 CPUs; from 9.0 on" in one_line(done)


def test_instructions_are_counted_on_one_cpu_only(lab: Lab, tmp_path: Path) -> None:
    done = lab.boot(planted.kernel(tmp_path / "k"), "--cpus", "2")
    assert done.returncode == 2
    assert "counted on one CPU" in one_line(done)


def test_without_room_for_a_guests_files_nothing_is_recorded(
    lab: Lab, tmp_path: Path, root: None
) -> None:
    lab.cache.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4M", "none", lab.cache]).returncode:
        harness.lacking("no file system can be mounted here")
    try:
        done = lab.boot(planted.kernel(tmp_path / "k"))
    finally:
        subprocess.run(["umount", lab.cache], check=True)
    assert done.returncode == 2
    assert "no room for a guest's files" in one_line(done)
    assert "No space left on device" in one_line(done)
    assert not list(lab.results.glob("*/*"))


# Endings ------------------------------------------------------------------------------------------


def guests(directory: Path) -> list[int]:
    """Processes of QEMU that were started with files below the directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if b"qemu-system" in words.split(b"\0")[0] and str(directory).encode() in words:
            found.append(int(path.parent.name))
    return found


def started(lab: Lab, kernel: Path) -> subprocess.Popen[str]:
    words = ("--mode", "counted", "--boots", "4", "--runs", "1", "--jobs", "2", "pipes")
    process = subprocess.Popen(
        lab.words("run", "--kernel", f"planted={kernel}", *words),
        cwd=lab.directory,
        env=lab.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 60
    while len(guests(lab.cache)) < 2:
        assert time.monotonic() < end and process.poll() is None, "no two guests were started"
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_ends_every_guest(lab: Lab, tmp_path: Path, number: int) -> None:
    process = started(lab, planted.kernel(tmp_path / "k"))
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert stderr.splitlines()[-1] == f"stopped: {signal.Signals(number).name}"
    assert not guests(lab.cache)
    assert not lab.working()
    assert not list(lab.results.glob("*/*"))


def test_a_killed_lab_leaves_no_guest_and_the_next_one_tidies_up(lab: Lab, tmp_path: Path) -> None:
    kernel = planted.kernel(tmp_path / "k")
    process = started(lab, kernel)
    process.kill()
    process.communicate(timeout=60)
    end = time.monotonic() + 10
    while guests(lab.cache):
        assert time.monotonic() < end, "a guest outlived klat"
        time.sleep(0.05)
    assert lab.working(), "what a killed lab leaves is in the cache"
    lab.boot(kernel, *LIMIT)
    assert not lab.working()
    assert stat.S_ISDIR(lab.cache.stat().st_mode)
    assert lab("clear").returncode == 0
    assert not (lab.cache / "klat/lab").exists()
