"""`klat lab` on a machine without QEMU."""

import os
import subprocess
import sys

import fakes


def test_a_diff_without_qemu_says_so_before_it_fetches_kernels(tmp_path):
    environment = os.environ | {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, fakes.KLAT, "lab", "diff", "debian:6.12", "debian:7.3", "syscall"],
        env=environment, cwd=tmp_path, text=True, capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "the lab needs qemu-system-" in done.stderr
    assert "fetching" not in done.stderr
    assert not list(tmp_path.glob("cache/klat/lab/packages/*"))
