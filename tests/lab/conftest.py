"""What the tests of the lab share."""

import os
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("scripts", "tests/cli", "tests/python")]

import harness  # noqa: E402
from labs import Lab  # noqa: E402


@pytest.fixture(scope="session")
def qemu() -> str:
    found = shutil.which("qemu-system-x86_64")
    if not found:
        harness.lacking("there is no qemu-system-x86_64")
    assert found
    return found


@pytest.fixture(scope="session")
def busybox() -> Path:
    from klat.lab.architectures import AMD64
    from klat.lab.elf import is_static

    path = Path("/bin/busybox")
    if not path.exists() or not is_static(path, AMD64.elf_machine):
        harness.lacking("there is no static busybox")
    return path


@pytest.fixture
def root() -> None:
    if os.geteuid() != 0:
        harness.lacking("this test needs root")


@pytest.fixture
def lab(tmp_path: Path, busybox: Path) -> Lab:
    return Lab(tmp_path)
