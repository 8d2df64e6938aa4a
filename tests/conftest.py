"""Makes pytest items of the unit tests in C, so that one run, one report and one count hold all tests."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIMIT_SECONDS = 120

# Each of pytest's processes reads all tests. Compiling takes two thirds of that time, so the compiled tests are kept.
sys.dont_write_bytecode, sys.pycache_prefix = False, str(ROOT / "build/pycache")


def pytest_configure() -> None:
    """Signals that the caller ignores (nohup, a shell's background) would be ignored by all that
    the tests start, who send them."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def pytest_unconfigure() -> None:
    """Root gives what it compiled to the owner of the tree, who could not delete it otherwise."""
    if os.geteuid() == 0:
        words = ["chown", "-Rh", f"--reference={ROOT / 'Makefile'}", str(sys.pycache_prefix)]
        subprocess.run(words, stderr=subprocess.DEVNULL, check=False)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node() -> None:
    """Before pytest-xdist starts the tests of a worker. If the first task of the worker has not quite ended, execnet
    starts the tests in a thread that is not the main one, where Python sets no signals."""
    time.sleep(0.5)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes do not name a test: gzip data has the time in it, and all workers must find the same names."""
    return argname if isinstance(val, bytes) else None


class UnitFailed(Exception):
    pass


class UnitFile(pytest.File):
    """A tests/unit/test_*.c, whose program runs once for all of its tests."""

    def collect(self) -> Iterator[pytest.Collector]:
        yield UnitProgram.from_parent(self, name="plain")
        sanitized = UnitProgram.from_parent(self, name="asan")
        sanitized.add_marker(pytest.mark.slow)
        yield sanitized


class UnitProgram(pytest.Collector):
    """The program as the tree builds it, or under AddressSanitizer."""

    _output: str | None = None

    def collect(self) -> Iterator[pytest.Item]:
        for name in re.findall(r"^TEST\((\w+)\)$", self.path.read_text(), re.MULTILINE):
            yield UnitTest.from_parent(self, name=name)

    def output(self) -> str:
        if self._output is None:
            variant = "asan/unit" if self.name == "asan" else "unit"
            program = ROOT / "build" / variant / self.path.stem
            if not program.exists():
                raise UnitFailed(f"{program} is not built: run them by 'make test'")
            try:
                done = subprocess.run(
                    [program],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=LIMIT_SECONDS,
                    env=os.environ | {"CMOCKA_MESSAGE_OUTPUT": "STDOUT"},
                    errors="replace",
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise UnitFailed(f"{program} took more than {LIMIT_SECONDS} s") from None
            self._output = f"{done.stdout}\nexit status {done.returncode}"
            # Whatever the sanitizers found, all tests of the file are suspect.
            if done.returncode and "FAILED TEST" not in done.stdout:
                raise UnitFailed(self._output)
        return self._output

    def clear_output(self) -> None:
        """A rerun of a test also reruns its program."""
        self._output = None


class UnitTest(pytest.Item):
    parent: UnitProgram

    def runtest(self) -> None:
        if getattr(self, "execution_count", 1) > 1:  # of pytest-rerunfailures
            self.parent.clear_output()
        output = self.parent.output()
        result = re.search(rf"^\[ +(OK|FAILED|SKIPPED) +\] {self.name}$", output, re.MULTILINE)
        if result is None:
            raise UnitFailed(f"{self.name} crashed, or did not run\n{output}")
        if result[1] == "SKIPPED":
            pytest.skip("this machine lacks what it needs")
        if result[1] == "FAILED":
            raise UnitFailed(output)

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None
    ) -> str:
        if isinstance(excinfo.value, UnitFailed):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> UnitFile | None:
    if file_path.suffix == ".c" and file_path.name.startswith("test_"):
        return UnitFile.from_parent(parent, path=file_path)
    return None
