"""klat fleet on machines that reboot for real: guests with GRUB and ssh. Some of them fail."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import fleet_guests
import harness
import made_tools
import pytest
from campaign_image import DISK, opened
from fleet_guests import Machine
from labs import ROOT
from test_lab_boots import klat

pytestmark = pytest.mark.long

START_SECONDS = 300
FLEET_SECONDS = 3600
ROUNDS = 1
PATIENCE_MINUTES = 10  # a guest reboots in less
PLAN = (*("--boots", str(ROUNDS), "--seed", "3", "--runs", "3", "--iterations", "100"), "pipes")
PANIC = """\
if grep -q klat.campaign=rt /proc/cmdline; then
	[ ! -e /srv/checked ] || echo c > /proc/sysrq-trigger
	touch /srv/checked; sync
fi
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        harness.lacking("this test needs root and mmdebstrap")
    disk, key = fleet_guests.build(tmp_path_factory.mktemp("fleet"))
    yield disk, key
    disk.unlink()  # pytest keeps its directories


def kernels(disk: Path) -> tuple[str, ...]:
    with opened(disk) as root:
        releases = [path.name.partition("-")[2] for path in (root / "boot").glob("vmlinuz-*")]
    stock, rt = sorted(releases, key=lambda release: "-rt-" in release)
    return ("--kernel", f"stock={stock}", "--kernel", f"rt={rt}")


def ssh(machine: Machine, key: Path, command: str) -> subprocess.CompletedProcess[str]:
    options = ("-i", str(key), "-p", str(machine.port), *shlex.split(fleet_guests.SSH_OPTIONS))
    return made_tools.run("ssh", *options, "root@127.0.0.1", command)


def wait_for(machine: Machine, key: Path) -> None:
    begun = time.monotonic()
    while ssh(machine, key, "systemctl is-system-running --wait").returncode == 255:
        assert time.monotonic() - begun < START_SECONDS, machine.text()[-4000:]
        time.sleep(2)


def write_inventory(path: Path, machines: dict[str, Machine], key: Path) -> None:
    lines = [
        f"{name} ansible_host=127.0.0.1 ansible_port={machine.port} ansible_user=root"
        f" ansible_ssh_private_key_file={key} ansible_ssh_common_args={fleet_guests.SSH_OPTIONS!r}"
        for name, machine in machines.items()
    ]
    path.write_text("\n".join(lines) + "\n")


def fleet(inventory: Path, log: Path, *words: str) -> subprocess.Popen[bytes]:
    typed = ("--inventory", str(inventory), "--patience", str(PATIENCE_MINUTES), "--poll", "5")
    with log.open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-B", ROOT / "klat", "fleet", "run", *typed, *words],
            cwd=inventory.parent,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def wait_for_text(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    begun = time.monotonic()
    while text not in log.read_text():
        assert process.poll() is None, log.read_text()[-8000:]
        assert time.monotonic() - begun < FLEET_SECONDS, log.read_text()[-8000:]
        time.sleep(1)


@pytest.fixture
def machines(image, tmp_path, request) -> Iterator[dict[str, Machine]]:
    disk, key = image
    started = {name: Machine(disk, tmp_path / name) for name in request.param}
    try:
        for machine in started.values():
            wait_for(machine, key)
        yield started
    finally:
        for machine in started.values():
            machine.cut()
            (machine.log.parent / DISK).unlink()


def sessions(results: Path, label: str) -> list[str]:
    """The machines of the sessions, sorted."""
    return sorted(path.name.rpartition("-")[2] for path in (results / label).glob("*"))


def remains(machine: Machine, key: Path) -> list[str]:
    """What klat left on the machine."""
    left = "/opt/klat-fleet /var/lib/klat /boot/grub/custom.cfg /etc/systemd/system/klat-*"
    return ssh(machine, key, f"ls -d {left}").stdout.split()


@pytest.mark.parametrize("machines", [("lives", "dies", "hangs")], indirect=True)
def test_a_dead_machine_is_named_and_a_hanging_one_is_power_cycled(image, machines, tmp_path):
    disk, key = image
    plan = (*kernels(disk), *PLAN)
    inventory = tmp_path / "hosts.ini"
    cycled = tmp_path / "cycled"
    write_inventory(inventory, machines, key)
    with inventory.open("a") as lines:
        lines.write(f"[remote]\nhangs klat_power_cycle='touch {cycled}'\n")

    # The controller is interrupted, and two machines die. Then the same command watches again.
    first = fleet(inventory, tmp_path / "first", *plan)
    for name in machines:
        wait_for_text(tmp_path / "first", f"{name}: campaign running: ", first)
    os.killpg(first.pid, signal.SIGINT)  # as a terminal does
    assert first.wait(60) == 130, (tmp_path / "first").read_text()
    machines["dies"].cut()
    machines["hangs"].cut()
    second = fleet(inventory, tmp_path / "second", *plan)
    silence = f"no answer for {PATIENCE_MINUTES} minutes"
    wait_for_text(tmp_path / "second", f"hangs: {silence}; running klat_power_cycle", second)
    machines["hangs"].switch_on()
    status = second.wait(FLEET_SECONDS)
    text = (tmp_path / "second").read_text()
    assert status == 1 and cycled.exists(), text
    assert text.splitlines()[-3:] == [
        "lives: complete",
        f"dies: left out: {silence}",
        "hangs: complete",
    ], text
    assert not remains(machines["lives"], key) and not remains(machines["hangs"], key)

    results = tmp_path / "results"
    for label in ("stock", "rt"):
        assert sessions(results, label) == ["hangs", "lives"]
    assert klat("summary", "--verify", results, cwd=tmp_path).returncode == 0
    done = klat("compare", results / "stock", results / "rt", cwd=tmp_path)
    assert done.returncode in (0, 1, 3), done.stderr  # any verdict
    assert "round_trip" in done.stdout


@pytest.mark.parametrize("machines", [("good", "bad")], indirect=True)
def test_machines_are_checked_first_and_klat_can_stay(image, machines, tmp_path):
    """One machine's real-time kernel panics after the check."""
    disk, key = image
    assert ssh(machines["bad"], key, f"cat > /srv/drive <<'EOF'\n{PANIC}EOF").returncode == 0
    inventory = tmp_path / "hosts.ini"
    write_inventory(inventory, machines, key)
    run = fleet(inventory, tmp_path / "log", "--check", "--keep", *kernels(disk), *PLAN)
    status = run.wait(FLEET_SECONDS)
    text = (tmp_path / "log").read_text()
    assert status == 1, text
    good, bad = text.splitlines()[-2:]
    assert good == "good: complete", text
    assert bad.startswith("bad: ended early: rt failed 2 times in succession: "), text
    assert "check running: " in text

    for machine in machines.values():
        assert remains(machine, key) == ["/opt/klat-fleet", "/var/lib/klat"]
    results = tmp_path / "results"
    assert sessions(results, "rt") == ["good"]
    assert "good" in sessions(results, "stock")
