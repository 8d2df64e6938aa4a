"""A sysroot: the C library and the other libraries of klat's programs for another architecture, from Debian 13.

The packages are unpacked beside each other into one directory, for the cross compiler's --sysroot.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from klat.base import files
from klat.base.errors import KlatError
from klat.lab.apt import SYSROOT, Archive

# Debian's name for the first part of what `cc -dumpmachine` prints.
ARCHITECTURES = {"aarch64": "arm64", "riscv64": "riscv64", "x86_64": "amd64"}


def make(machine: str, place: Path, say: Callable[[str], None]) -> None:
    """Make the directory `place`. Does nothing if there is one. KlatError if a package cannot be had."""
    if place.is_dir():
        return
    if machine not in ARCHITECTURES:
        raise KlatError(f"no sysroot for {machine}; it must be one of: {', '.join(ARCHITECTURES)}")
    archive = Archive(say, ARCHITECTURES[machine])
    available = archive.packages()
    if absent := [name for name in SYSROOT if name not in available]:
        raise KlatError(f"Debian's archive has no {', '.join(absent)} for {machine}")
    files.make_directories(place.parent)
    draft = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        for name in SYSROOT:
            shutil.copytree(
                archive.unpacked(available[name]), draft, symlinks=True, dirs_exist_ok=True
            )
        # Debian 13's packages have everything below usr/. A program's interpreter is in /lib.
        (draft / "lib").symlink_to("usr/lib")
        draft.chmod(0o755)
        draft.rename(place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
