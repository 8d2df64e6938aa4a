# SPDX-License-Identifier: MIT
"""Packs what `make stage-wheel` laid out into a wheel. `make wheel` calls this; see docs/install.md.

The prefix of the virtual environment gets the same tree of files as the prefix of `make install`.
"""

import os
import platform
import re
import subprocess
from collections import defaultdict
from pathlib import Path

from setuptools import Distribution, setup

PREFIX = Path("build/wheel/prefix")
LAUNCHER = PREFIX / "bin/klat"
MACHINE = os.environ.get("KLAT_WHEEL_FOR")
if not MACHINE:  # pip install DIRECTORY
    subprocess.run(["make", "stage-wheel"], check=True)
    MACHINE = platform.machine()


class Wheel(Distribution().get_command_class("bdist_wheel")):  # type: ignore[misc]
    def get_tag(self) -> tuple[str, str, str]:
        """Static programs run with every C library. These are the oldest that pip has a name for."""
        return "py3", "none", f"manylinux_2_17_{MACHINE}.musllinux_1_1_{MACHINE}"


def data_files() -> list[tuple[str, list[str]]]:
    """The files of each directory below the prefix."""
    files = defaultdict(list)
    for path in sorted(PREFIX.rglob("*")):
        if path.is_file() and path != LAUNCHER:
            files[str(path.parent.relative_to(PREFIX))].append(str(path))
    return list(files.items())


def description() -> str:
    """README without its figure and its links to files: the page of a package has no such files."""
    text = Path("README.md").read_text(encoding="utf-8")
    return re.sub(r"\[([^]]*)\]\((?!https?:)[^)]*\)", r"\1", re.sub(r"!\[.*\n\n", "", text))


setup(
    long_description=description(),
    long_description_content_type="text/markdown",
    scripts=[str(LAUNCHER)],  # gets the interpreter of the environment
    data_files=data_files(),
    cmdclass={"bdist_wheel": Wheel},
    # build/lib has klat's own objects.
    options={
        "build": {"build_base": "build/wheel/setuptools"},
        "bdist_wheel": {"bdist_dir": "build/wheel/setuptools/bdist"},
        "egg_info": {"egg_base": "build/wheel/setuptools"},
    },
)
