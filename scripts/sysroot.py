"""Fetches the libraries that klat's programs need on another machine.

    sysroot.py MACHINE DIRECTORY

MACHINE is the first part of what its compiler prints for -dumpmachine. Debian 13's packages are
unpacked into DIRECTORY.
"""

from __future__ import annotations

import sys
from pathlib import Path

from klat.base.errors import KlatError
from klat.lab import sysroot


def say(line: str) -> None:
    print(f"klat: {line}", file=sys.stderr)


if __name__ == "__main__":
    try:
        sysroot.make(sys.argv[1], Path(sys.argv[2]), say)
    except KlatError as error:
        say(str(error))
        sys.exit(1)
