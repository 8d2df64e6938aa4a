"""A session has one sched_ext scheduler, one preemption model, one clock source and one list of online CPUs. A
directory stands in for /sys/kernel, and a file for each of the last two."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from harness import FAILED, MEASURED, UNTRUSTED, Session, command, json_of, path_of

ONLINE = "/sys/devices/system/cpu/online"
CLOCK = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
PLANT = (
    f'mount --bind "$1/online" {ONLINE} && mount --bind "$1/clock" {CLOCK}'
    ' && mount --bind "$1" /sys/kernel && shift && exec "$@"'
)
MOST_CPUS = 4096
SHORT = ("--quiet", "--policy", "other", "--iterations", "20")


@pytest.fixture
def kernel(tmp_path: Path, root: None) -> Path:
    path = tmp_path / "kernel"
    (path / "sched_ext/root").mkdir(parents=True)
    load(path, "rusty_1.0")
    set_online(path, MOST_CPUS)
    set_clock(path, "tsc")
    return path


def set_online(kernel: Path, cpus: int) -> None:
    (kernel / "online").write_text(f"0-{cpus - 1}\n")


def set_clock(kernel: Path, source: str) -> None:
    (kernel / "clock").write_text(f"{source}\n")


def load(kernel: Path, operations: str) -> None:
    (kernel / "sched_ext/state").write_text("enabled\n" if operations else "disabled\n")
    (kernel / "sched_ext/root/ops").write_text(f"{operations}\n" if operations else "")


def words(kernel: Path, program: str, *arguments: str | Path) -> list[str | Path]:
    return ["unshare", "--mount", "sh", "-c", PLANT, "sh", kernel, path_of(program), *arguments]


def test_a_session_is_of_one_scheduler(kernel, tmp_path):
    session = tmp_path / "session"
    record = words(kernel, "syscall", *SHORT, "--record", session)
    assert command(record).status == MEASURED
    copy = session / "environment/sys/kernel/sched_ext/root/ops"
    assert copy.read_text() == "rusty_1.0\n"
    assert command(record).status == MEASURED
    for other in ("lavd_2.0", ""):
        load(kernel, other)
        done = command(record)
        assert done.status == FAILED and "began with the sched_ext scheduler rusty_1.0" in done.err
        assert f"and now it is {other or 'none'}" in done.err


def choose(kernel: Path, model: str) -> None:
    (kernel / "debug/sched").mkdir(parents=True, exist_ok=True)
    others = ("none", "voluntary", "full")
    (kernel / "debug/sched/preempt").write_text(" ".join(others).replace(model, f"({model})"))


def test_a_session_is_of_one_preemption_model(kernel, tmp_path):
    choose(kernel, "voluntary")
    record = words(kernel, "syscall", *SHORT, "--record", tmp_path / "session")
    assert command(record).status == MEASURED
    assert command(record).status == MEASURED
    choose(kernel, "full")
    done = command(record)
    said = "began with the preemption model voluntary, and now it is full"
    assert done.status == FAILED and said in done.err


def test_a_session_is_of_one_clock_source(kernel, tmp_path):
    set_clock(kernel, "tsc-early")  # until the kernel has calibrated it, soon after the boot
    record = words(kernel, "syscall", *SHORT, "--record", tmp_path / "session")
    assert command(record).status == MEASURED
    set_clock(kernel, "tsc")
    assert command(record).status == MEASURED
    set_clock(kernel, "hpet")
    done = command(record)
    assert done.status == FAILED
    assert "began with the clock source tsc, and now it is hpet" in done.err


def test_a_long_list_of_online_cpus_is_compared_to_its_end(kernel, tmp_path):
    cpus = [str(cpu) for cpu in range(0, 400, 2)]
    (kernel / "online").write_text(",".join(cpus) + "\n")
    record = words(kernel, "syscall", *SHORT, "--record", tmp_path / "session")
    assert command(record).status == MEASURED
    assert command(record).status == MEASURED
    (kernel / "online").write_text(",".join(cpus[:-1]) + "\n")
    done = command(record)
    assert done.status == FAILED and "list of online CPUs" in done.err


def test_a_session_is_of_one_list_of_online_cpus(kernel, tmp_path):
    record = words(kernel, "syscall", *SHORT, "--record", tmp_path / "session")
    assert command(record).status == MEASURED
    set_online(kernel, MOST_CPUS - 1)
    done = command(record)
    said = f"began with the list of online CPUs 0-{MOST_CPUS - 1}, and now it is 0-{MOST_CPUS - 2}"
    assert done.status == FAILED and said in done.err


@pytest.mark.alone  # the change comes a second after the start
@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        (
            lambda kernel: load(kernel, ""),
            UNTRUSTED,
            "the sched_ext scheduler changed from rusty_1.0 to none",
        ),
        (
            lambda kernel: choose(kernel, "full"),
            UNTRUSTED,
            "the preemption model changed from voluntary to full",
        ),
        (
            lambda kernel: set_clock(kernel, "acpi_pm"),
            UNTRUSTED,
            "the clock source changed from tsc to acpi_pm",
        ),
        (
            lambda kernel: set_online(kernel, MOST_CPUS - 1),
            MEASURED,
            f"the list of online CPUs changed from 0-{MOST_CPUS - 1} to 0-{MOST_CPUS - 2}",
        ),
    ],
)
def test_a_setting_that_changes_in_a_run_is_noticed(kernel, change, status, said):
    choose(kernel, "voluntary")
    timer = words(kernel, "timer", "--policy", "other", "--iterations", "10000")
    with subprocess.Popen(timer, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        with pytest.raises(subprocess.TimeoutExpired):
            run.wait(1)
        change(kernel)
        out, err = run.communicate(timeout=30)
    assert run.returncode == status
    assert said in " ".join((out + err).split())


@pytest.mark.alone
@pytest.mark.slow
def test_a_setting_that_changes_in_a_soak_makes_the_rest_of_it_invalid(kernel, tmp_path):
    session = tmp_path / "session"
    wait = ("--method", "nanosleep", "--mode", "periodic", "--policy", "other", "--quiet")
    soak = ("--soak", "4", "--segment", "1", "--record", session)
    with subprocess.Popen(words(kernel, "timer", *wait, *soak)) as soaking:
        deadline = time.monotonic() + 10
        while not (session / "runs.csv").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        set_clock(kernel, "hpet")
        assert soaking.wait(20) == UNTRUSTED
    rows = Session(session).rows
    reason = "the clock source changed from tsc to hpet"
    assert [reason in row["reason"] for row in rows] == [False, True, True, True]
    assert {row["status"] for row in rows[1:]} == {"invalid"}


@pytest.mark.parametrize(
    ("operations", "server", "runtime_ns", "is_as_long"),
    [("", "fair", 100, True), ("", "fair", 0, False), ("lavd", "ext", 100, True)],
)
def test_a_sample_as_long_as_a_turn_of_the_server_is_disturbed(
    kernel, operations, server, runtime_ns, is_as_long
):
    load(kernel, operations)
    for cpu in os.sched_getaffinity(0):
        files = kernel / f"debug/sched/{server}_server/cpu{cpu}"
        files.mkdir(parents=True)
        (files / "runtime").write_text(f"{runtime_ns}\n")
        (files / "period").write_text("1000000000\n")
    done = command(words(kernel, "timer", "--policy", "fifo", "--json"))
    reason = json_of(done)["reason"]
    assert ("a turn of the kernel's server for ordinary tasks" in reason) == is_as_long, reason
