"""klat lab as a user starts it, with a cache and programs of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Lab:
    """klat lab, with a cache and programs of the test's own."""

    def __init__(self, directory: Path, busybox: Path) -> None:
        self.directory = directory
        self.results = directory / "results"
        self.cache = directory / "cache"
        programs = directory / "programs"
        programs.mkdir()
        # All that a guest would be asked for here is that it is an executable without libraries.
        shutil.copy(busybox, programs / "pipes")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")} | {
            "XDG_CACHE_HOME": str(self.cache),
            "KLAT_PROGRAMS": str(programs),
        }

    def words(self, *words: str | Path) -> list[str]:
        return [sys.executable, "-B", str(ROOT / "klat"), "lab", *map(str, words)]

    def __call__(
        self, *words: str | Path, seconds: float = 120, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*words),
            cwd=self.directory,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def boot(
        self, kernel: Path, *more: str, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """One boot of one kernel, counted, of one run."""
        own = ("--mode", "counted", "--boots", "1", "--runs", "1", "--seed", "1", "pipes")
        return self("run", "--kernel", f"planted={kernel}", *own, *more, **environment)

    def working(self) -> list[Path]:
        work = self.cache / "klat/lab/work"
        return list(work.iterdir()) if work.is_dir() else []
