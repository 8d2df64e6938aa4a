"""`make CROSS_COMPILE=...`: what is built for another ISA compiles without a warning and runs in an emulator of one
process. There the counter measures no time, and the kernel is this machine's.
"""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import harness
import pytest
from harness import FOLDERS, MEASURED, ROOT, UNTRUSTED, command, json_of
from made_tools import write

# The first test of each machine fetches its libraries and compiles.
pytestmark = pytest.mark.slow

PROGRAMS = ("pipes", "cv", "syscall")
# With the libraries of every program, and with those of eventloop besides.
SHARED = ("pipes", "eventloop")
# The other unit tests need what the emulator lacks or distorts: real-time policies, seccomp, names of processes, time.
UNITS = (
    "test_cpu",
    "test_firmware",
    "test_histogram",
    "test_modes",
    "test_options",
    "test_samples",
    "test_summary",
    "test_wakeups",
)

# What the emulator itself adds to a thread of the program: memory for translated code, waits for its own locks.
EMULATOR_WORK = (
    r"\d+ page faults in the timed part of the \w+|the \w+ slept \d+ times in \d+ iterations"
)


def make(machine: str, *words: str) -> None:
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    line = ("make", "-s", "-j2", f"CROSS_COMPILE={machine}-linux-gnu-", *words)
    done = command(line, cwd=ROOT, env=environment, limit=600)
    if done.status and "sysroot" in words:
        harness.lacking(done.err.strip().splitlines()[0])
    assert done.status == 0, str(done)


@pytest.fixture(scope="session", params=["aarch64", "riscv64"])
def machine(request: pytest.FixtureRequest) -> str:
    """All programs are built for it, static, and some not static, and the unit tests."""
    name = str(request.param)
    for needed in (f"{name}-linux-gnu-gcc", f"qemu-{name}-static"):
        if not shutil.which(needed):
            harness.lacking(f"this machine has no {needed}")
    make(name, "sysroot")
    make(name, f"OUT=build/{name}-static", "STATIC=1", "WERROR=1", "all")
    shared = [f"build/{name}/{FOLDERS[program] / program}" for program in SHARED]
    # Newer versions of cmocka deprecate what the tests call.
    make(name, f"OUT=build/{name}", "WERROR=", *shared, *(f"build/{name}/unit/{u}" for u in UNITS))
    return name


@pytest.mark.alone
@pytest.mark.parametrize("program", [p for p in PROGRAMS if harness.traits(p).ordinary])
def test_a_static_program_says_that_an_emulator_measures_no_time(program, machine):
    path = ROOT / "build" / f"{machine}-static" / FOLDERS[program] / program
    words = [f"qemu-{machine}-static", path, "--policy", "other", "--iterations", "50"]

    def attempt() -> str:
        done = command([*words, "--json"])
        assert done.status in (MEASURED, UNTRUSTED), str(done)
        record = json_of(done)
        assert record["mode"] == "emulated"
        return re.sub(EMULATOR_WORK, "", record["reason"] or "").strip("; ")

    harness.until(attempt)
    assert "emulated mode: the counter measures no time" in command(words).out


def test_short_calls_are_batched_where_the_counter_is_coarse(machine):
    """In the emulator this CPU's counter has 62.5 MHz. riscv64's is this machine's."""
    cpu, batch = {"aarch64": ("cortex-a57", 100), "riscv64": ("rv64", 1)}[machine]
    path = ROOT / "build" / f"{machine}-static" / "bench/syscall/syscall"
    words = (f"qemu-{machine}-static", "-cpu", cpu, path, "--policy", "other", "--iterations", "50")
    assert f";batch={batch};" in json_of(command([*words, "--json"]))["parameters"]


def session_on(machine: str, files: Path) -> dict[str, Any]:
    """The session.json of a run to which the files in `files` are the machine's."""
    program = ROOT / "build" / f"{machine}-static" / "bench/syscall/syscall"
    emulator = [f"qemu-{machine}-static", "-L", files]
    words = [program, "--policy", "other", "--quiet", "--iterations", "50"]
    done = command([*emulator, *words, "--record", files / "record"])
    # Page faults of the emulator make the run invalid. What it records of the machine is right.
    assert done.status in (MEASURED, UNTRUSTED), str(done)
    (session,) = files.rglob("session.json")  # the emulator may redirect the path
    return dict(json.loads(session.read_text()))


def test_a_board_is_named_with_each_of_its_kinds_of_cores(machine, tmp_path):
    """Their /proc/cpuinfo has no model name."""
    big = "CPU implementer\t: 0x41\nCPU part\t: 0xd0b\n\n"
    cores = {
        "aarch64": ("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd05\n\n" + 2 * big),
        "riscv64": ("processor\t: 0\nhart\t: 0\nuarch\t: qemu\nmvendorid\t: 0x489\n\n"),
    }
    named = {
        "aarch64": "CPU implementer 0x41, CPU part 0xd05, CPU part 0xd0b",
        "riscv64": "uarch qemu, mvendorid 0x489",
    }
    faked = tmp_path / "faked/proc"
    (faked / "device-tree").mkdir(parents=True)
    (faked / "cpuinfo").write_text(cores[machine])
    (faked / "device-tree/model").write_bytes(b"A board\0")
    session = session_on(machine, faked.parent)
    assert session["cpu_model"] == f"A board, {named[machine]}"


@pytest.mark.parametrize("machine", ["aarch64"], indirect=True)
def test_a_board_without_a_machine_id_is_identified_by_its_serial_number(machine, tmp_path):
    def identity(machine_id: str, serial_number: str) -> str | None:
        faked = tmp_path / f"{machine_id}-{serial_number}"
        write(faked / "etc/machine-id", f"{machine_id}\n")
        write(faked / "proc/device-tree/serial-number", f"{serial_number}\0")
        recorded: str | None = session_on(machine, faked)["machine_id"]
        return recorded

    board, other = identity("", "10000000a"), identity("", "10000000b")
    assert board and other and board != other
    assert identity("uninitialized", "10000000a") == board
    assert board not in (identity("10000000a", ""), "10000000a")
    assert identity("a", "10000000a") == identity("a", "10000000b")
    assert identity("", "0000000000000000") is None


def test_a_program_runs_with_the_shared_libraries_of_its_sysroot(machine):
    emulator = [f"qemu-{machine}-static", "-L", ROOT / "build/sysroot" / machine]
    for program in SHARED:
        path = ROOT / "build" / machine / FOLDERS[program] / program
        done = command([*emulator, path, "--version"])
        assert done.status == 0 and done.out.startswith(f"{program} "), str(done)


@pytest.mark.parametrize("unit", UNITS)
def test_the_library_passes_its_unit_tests(unit, machine):
    emulator = [f"qemu-{machine}-static", "-L", ROOT / "build/sysroot" / machine]
    done = command([*emulator, ROOT / "build" / machine / "unit" / unit], cwd=ROOT)
    assert done.status == 0, str(done)
