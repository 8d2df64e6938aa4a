"""klat fleet on machines that reboot for real: guests with GRUB and ssh, of which one dies half way."""

from __future__ import annotations

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
import pytest
from campaign_image import opened
from fleet_guests import Machine
from labs import ROOT
from test_lab_boots import klat

pytestmark = pytest.mark.long

START_SECONDS = 300
FLEET_SECONDS = 3600
ROUNDS = 1
PATIENCE_MINUTES = 10  # a guest reboots in less


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
    words = ("ssh", "-i", key, "-p", str(machine.port), *shlex.split(fleet_guests.SSH_OPTIONS))
    return subprocess.run(
        [*words, "root@127.0.0.1", command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


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


def test_a_dead_machine_is_named_and_the_other_ends_complete(
    image: tuple[Path, Path], tmp_path: Path
) -> None:
    disk, key = image
    plan = (
        *kernels(disk),
        *("--boots", str(ROUNDS), "--seed", "3", "--runs", "3", "--iterations", "100", "pipes"),
    )
    machines = {name: Machine(disk, tmp_path / name) for name in ("lives", "dies")}
    try:
        for machine in machines.values():
            wait_for(machine, key)
        inventory = tmp_path / "hosts.ini"
        write_inventory(inventory, machines, key)

        # The controller is interrupted, and a machine dies. Then the same command watches again.
        first = fleet(inventory, tmp_path / "first", *plan)
        for name in machines:
            wait_for_text(tmp_path / "first", f"{name}: campaign running: ", first)
        os.killpg(first.pid, signal.SIGINT)  # as a terminal does
        assert first.wait(60) == 130, (tmp_path / "first").read_text()
        machines["dies"].cut()
        second = fleet(inventory, tmp_path / "second", *plan)
        status = second.wait(FLEET_SECONDS)
        text = (tmp_path / "second").read_text()
        assert status == 1, text
        lines = text.splitlines()[-2:]
        why = f"no answer for {PATIENCE_MINUTES} minutes"
        assert lines == ["lives: complete", f"dies: left out: {why}"], text

        left = ssh(
            machines["lives"], key, "ls -d /opt/klat-fleet /var/lib/klat /boot/grub/custom.cfg"
        )
        assert not left.stdout, left
    finally:
        for machine in machines.values():
            machine.cut()

    results = tmp_path / "results"
    for label in ("stock", "rt"):
        names = [path.name for path in (results / label).glob("*")]
        assert len(names) == ROUNDS and all(name.endswith("-lives") for name in names), names
    assert klat("summary", "--verify", results, cwd=tmp_path).returncode == 0
    done = klat("compare", results / "stock", results / "rt", cwd=tmp_path)
    assert done.returncode in (0, 1, 3), done.stderr  # any verdict
    assert "round_trip" in done.stdout
