"""klat as a user starts it, with fake programs in place of the benchmarks."""

import csv
import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import made_tools
import pytest

from klat.cli import main

ROOT = Path(__file__).resolve().parents[2]
KLAT = ROOT / "klat"
CORE = ("pipes", "cv", "tlbflush", "timer", "network")
SLOW = ("--option", "all.ms=30")  # keeps a session at work while a test looks at it
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
        self,
        *words: str,
        more: Mapping[str, str] | None = None,
        status: int | None = None,
        patience: float = PATIENCE,
    ) -> subprocess.CompletedProcess[str]:
        """Runs klat to its end, which must have the status if one is given."""
        done = self.run(sys.executable, KLAT, *words, env=self.environment(more), seconds=patience)
        assert status in (None, done.returncode), done.stderr
        return done

    def run(self, *words: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
        """Runs a program as the test would run klat."""
        usual: dict[str, Any] = {
            "cwd": self.directory,
            "env": self.environment(),
            "seconds": PATIENCE,
        }
        return made_tools.run(*words, **usual | more)

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

    def refused(self, *words: str) -> str:
        """The line with which klat refuses these words before it starts anything. Runs in this process, which is faster."""
        count, out, err = len(self.starts()), io.StringIO(), io.StringIO()
        with patch.dict(os.environ, self.environment(), clear=True), chdir(self.directory):
            with redirect_stdout(out), redirect_stderr(err):
                status = main(list(words))
        said = err.getvalue()
        assert (status, out.getvalue(), said.count("\n")) == (2, "", 1), said
        assert len(self.starts()) == count
        return said

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


@pytest.fixture
def klat(tmp_path: Path) -> Klat:
    """For the tests that import it, in place of the one in conftest.py."""
    return Klat(tmp_path)


def wait_for(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"timed out waiting for {what}"
        time.sleep(0.005)


def is_running(pid: int) -> bool:
    """A zombie does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def read_number(path: Path) -> int:
    """The number in a file, or 0 until it is there."""
    try:
        return int(path.read_text() or "0")
    except FileNotFoundError:
        return 0


def recorded_orders(session: Path) -> Counter[int]:
    """How often each run is in runs.csv whole, told without klat's own reader."""
    try:
        text = (session / "runs.csv").read_text()
    except FileNotFoundError:
        return Counter()
    rows: Counter[tuple[int, str, int]] = Counter()
    lines = text.splitlines(keepends=True)
    names = next(csv.reader(lines[:1]), [])
    for line in lines[1:]:
        body, _, check = line.rpartition(",")
        if hashlib.sha256(body.encode()).hexdigest()[:16] + "\n" != check:
            continue
        row = dict(zip(names, next(csv.reader([line]))))
        rows[int(row["order"]), row["start_ns"], int(row["rows"])] += 1
    return Counter(order for (order, _, expected), n in rows.items() if n == expected)


def each_once(count: int) -> Counter[int]:
    return Counter(range(1, count + 1))


def processes_of(klat: Klat) -> list[int]:
    """Running processes that were started with a path below the test's directory."""
    mark = os.fsencode(klat.programs)
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "cmdline").read_bytes() and is_running(int(entry.name)):
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def kill_children(runner: subprocess.Popen[str], too: bool) -> None:
    """SIGKILL the runner, and what it runs `too`."""
    victims = children(runner.pid) if too else []
    runner.kill()
    for pid in victims:
        with suppress(ProcessLookupError):  # it can have ended by itself
            os.kill(pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def stop_within(klat: Klat, number: int, *words: str) -> tuple[subprocess.Popen[str], str, str]:
    """Start a session and signal klat when the third program has been started."""
    started = klat.start("run", *words)
    wait_for(lambda: len(klat.starts()) >= 3, "the third run")
    started.send_signal(number)
    out, err = started.communicate(timeout=PATIENCE)
    return started, out, err
