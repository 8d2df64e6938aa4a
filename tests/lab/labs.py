"""klat lab as a user starts it, with a cache and programs of the test's own."""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import made_tools
from written_sessions import SyntheticSession

from klat import cli
from klat.lab.experiment import Experiment
from klat.lab.qemu import GuestSize

ROOT = Path(__file__).resolve().parents[2]


def experiment(**more: object) -> Experiment:
    facts: dict[str, object] = {
        "identity": "x",
        "kernels": ("debian:stock", "debian:rt"),
        "labels": ("lab-stock", "lab-rt"),
        "releases": ("a", "b"),
        "hashes": ("a", "b"),
        "programs": {"pipes": "0"},
        "mode": "counted",
        "why": "",
        "shape": GuestSize(),
        "sets": (("pipes", ("--cpus=0,0",)), ("cv", ())),
        "loads": ("none",),
        "append": "",
        "boots": 4,
        "runs": 3,
        "seed": 5,
        "clock": "2026-01-01T00:00:00",
        "time_limit_s": 60,
    }
    return Experiment(**facts | more)  # type: ignore[arg-type]


def write_session(output: Path, planned: Experiment, number: int, **info: Any) -> SyntheticSession:
    """A session as that boot of the experiment would leave it, without runs."""
    boot = planned.schedule()[number - 1]
    path = output / boot.label / str(number)
    own: dict[str, Any] = {
        "label": boot.label,
        "boot_id": f"{planned.identity}-{number}",
        "mode": planned.mode,
        "unit": "instructions" if planned.mode == "counted" else "ticks",
    }
    facts: dict[str, Any] = {"experiment": planned.facts(), "boot": number, "round": boot.round}
    return SyntheticSession(path, facts={"schema": 1, "lab": facts}, **(own | info))


def header(state: str, data: bytes) -> bytes:
    line = f"klat-lab 1 {state} {len(data)} {hashlib.sha256(data).hexdigest()}\n"
    return line.encode().ljust(512, b"\0")


def member(name: str, data: bytes = b"", **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def tar_of(*members: tuple[str, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in members:
            archive.addfile(member(name, data), io.BytesIO(data))
    return written.getvalue()


def tar_of_directory(path: Path) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for member in sorted(path.iterdir()):
            archive.add(member, member.name)
    return written.getvalue()


def hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def static_program(name: str) -> Path:
    """As a guest runs it."""
    path = ROOT / "build" / "static" / name / name
    assert path.exists(), f"{path} is not built: run the tests by 'make test'"
    return path


def pipes_with_write(source: Path, programs: Path, option: str) -> Path:
    """Makes a directory with a pipes whose write() is the __wrap_write() of this source. Returns the directory."""
    programs.mkdir()
    static = ROOT / "build/static"
    objects = (*static.glob("pipes/*.o"), source, static / "libklat.a")
    linked = ("-static", "-Wl,--wrap=write", "-o", programs / "pipes")
    libraries = ("-lnuma", "-ljansson", "-lmd", "-lm")
    subprocess.run(["gcc", option, *linked, *objects, *libraries], check=True)
    return programs


class Lab:
    """klat lab, with a cache and programs of the test's own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.results = directory / "results"
        self.cache = directory / "cache"
        programs = directory / "programs"
        programs.mkdir()
        shutil.copy(static_program("pipes"), programs / "pipes")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")} | {
            "XDG_CACHE_HOME": str(self.cache),
            "KLAT_PROGRAMS": str(programs),
        }

    def words(self, *words: str | Path) -> list[str]:
        return [sys.executable, "-B", str(ROOT / "klat"), "lab", *map(str, words)]

    def __call__(
        self, *words: str | Path, seconds: float = 120, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        merged = self.environment | environment
        return made_tools.run(*self.words(*words), cwd=self.directory, env=merged, seconds=seconds)

    def inside(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """The same in this process, for words that klat refuses before it starts another one."""
        out, err = io.StringIO(), io.StringIO()
        with patch.dict(os.environ, self.environment, clear=True), chdir(self.directory):
            with redirect_stdout(out), redirect_stderr(err):
                status = cli.main(["lab", *map(str, words)])
        return subprocess.CompletedProcess([], status, out.getvalue(), err.getvalue())

    def boot(
        self, kernel: Path, *more: str, **environment: Any
    ) -> subprocess.CompletedProcess[str]:
        """One boot of one kernel, counted, of one run."""
        own = ("--mode", "counted", "--boots", "1", "--runs", "1", "--seed", "1", "pipes")
        return self("run", "--kernel", f"planted={kernel}", *own, *more, **environment)

    def working(self) -> list[Path]:
        work = self.cache / "klat/lab/work"
        return list(work.iterdir()) if work.is_dir() else []
