"""Packs this klat for the machines of a fleet. The files lie as `make install` puts them. The programs are static,
because the machines can lack the libraries."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

from klat.base import files, programs
from klat.base.errors import KlatError

_BUILD = "build/static"


def build(archive: Path) -> None:
    """Write the archive. In a source tree, build the programs first."""
    tree = programs.root()
    static = tree / (_BUILD if programs.in_tree() else "libexec/klat/static")
    if programs.in_tree():
        with (tree / "Makefile").open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)  # a build at the same time would write the same files
            _make("-s", "-C", str(tree), f"OUT={_BUILD}", "STATIC=1", "all")
    elif not static.is_dir():
        raise KlatError(
            f"the machines need static programs, and there is no {static}; in klat's source tree, run make"
            " install-static with the prefix that you gave to make install"
        )
    with (
        files.output(archive, streams=False) as out,
        tarfile.open(fileobj=out, mode="w:gz") as tar,
    ):
        for path, name in _contents(static):
            tar.add(path, name, filter=_anonymous)


def _make(*words: str) -> None:
    done = subprocess.run(
        ["make", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise KlatError(f"make ended with status {done.returncode}: {said[-1]}")


def _contents(static: Path) -> Iterator[tuple[Path, str]]:
    """Paths, and their names below the prefix."""
    in_tree = programs.in_tree()
    yield programs.root() / ("klat" if in_tree else "bin/klat"), "bin/klat"
    yield programs.data() / ("scripts/klat" if in_tree else "klat"), "share/klat/klat"
    yield (static if in_tree else programs.data()) / "commit", "share/klat/commit"
    for path in programs.nested(static):
        if os.access(path, os.X_OK):
            name = "load-load" if path.name == "load" else path.name
            yield path, f"libexec/klat/{name}"


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without this machine's users and umask."""
    if member.name.endswith("__pycache__"):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member
