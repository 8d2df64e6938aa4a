"""klat as a user starts it, with fake programs in place of the benchmarks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KLAT = ROOT / "klat"
CORE = ("pipes", "cv", "tlbflush", "timer", "network")
PATIENCE = 60  # seconds until a test gives up; nothing is judged by it


def install(directory: Path, names: Sequence[str] = CORE) -> Path:
    for name in names:
        (directory / name).mkdir(parents=True)
        shutil.copy(Path(__file__).with_name("fake_program.py"), directory / name / name)
    return directory


def environment(programs: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SUDO_", "KLAT_", "FAKE_"))}
    return kept | {"KLAT_PROGRAMS": str(programs)} | more


class Klat:
    """Runs klat in a directory of the test's own."""

    def __init__(self, directory: Path, names: Sequence[str] = CORE) -> None:
        self.directory = directory / "work"
        self.directory.mkdir()
        self.programs = install(directory / "programs", names)
        self.log = directory / "log"

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return environment(self.programs, FAKE_LOG=str(self.log), **(more or {}))

    def __call__(
        self, *words: str, more: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(KLAT), *words],
            cwd=self.directory,
            env=self.environment(more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def start(self, *words: str, more: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(KLAT), *words],
            cwd=self.directory,
            env=self.environment(more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def starts(self) -> list[list[str]]:
        """Name, order, pid and arguments of every program started so far."""
        try:
            return [line.split() for line in self.log.read_text().splitlines()]
        except FileNotFoundError:
            return []

    def session(self) -> Path:
        """The one session there is."""
        (session,) = (self.directory / "results").glob("*/*")
        return session


def wait_for(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.005)


def is_running(pid: int) -> bool:
    """A zombie does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
