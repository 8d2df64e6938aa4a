"""A sysroot: the C library and the other libraries of klat's programs for another architecture, from Debian's archive.

The packages are unpacked beside each other into one directory, for the cross compiler's --sysroot. For `make deb` the
directory also has DEBIAN/symbols, where dpkg-shlibdeps -S looks, and dpkg's list of packages. The linker of
binutils before 2.41 crashes on newer static libraries for riscv64, which have relocations that it does not know. Then
linker/ld in the sysroot runs a newer linker with its own C library.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from klat.base import files
from klat.base.errors import KlatError
from klat.base.process import answer
from klat.lab.apt import LINKER, SYSROOT, Archive
from klat.lab.architectures import ARCHITECTURES, RISCV64

_STATUS = "var/lib/dpkg/status"  # the last file that _describe() writes
_LINKER = """\
#!/bin/sh
usr=$(dirname "$0")/usr
exec "$usr/lib64/ld-linux-x86-64.so.2" --library-path "$usr/lib/x86_64-linux-gnu" \\
	"$usr/bin/riscv64-linux-gnu-ld.bfd" "$@"
"""


def make(machine: str, place: Path, say: Callable[[str], None]) -> None:
    """Make the directory `place` for a machine as in `uname -m`. Does nothing if it is complete. KlatError if a package
    cannot be had."""
    if (place / _STATUS).is_file():
        return
    known = {architecture.machine: architecture.name for architecture in ARCHITECTURES.values()}
    if machine not in known:
        raise KlatError(f"no sysroot for {machine}; it must be one of: {', '.join(known)}")
    files.make_directories(place.parent)
    draft = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        tree = _unpack(Archive(say, known[machine]), SYSROOT, draft, say)
        _describe(sorted(draft.glob("*.deb")), tree)
        # Since Debian 13 all files of packages are below usr/. A program's interpreter is in /lib.
        (tree / "lib").symlink_to("usr/lib")
        if machine == RISCV64.machine and _linker_is_old():
            (draft / "linker").mkdir()
            linker = _unpack(Archive(say), LINKER, draft / "linker", say).rename(tree / "linker")
            (linker / "ld").write_text(_LINKER)
            (linker / "ld").chmod(0o755)
        with files.explained("make", place):
            if place.is_dir():
                shutil.rmtree(place)
            tree.rename(place)
        say(
            "programs built with these libraries need Debian 13 or newer; with STATIC=1 they need none"
        )
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _unpack(
    archive: Archive, names: Sequence[str], draft: Path, say: Callable[[str], None]
) -> Path:
    available = archive.packages()
    # The lists may be those of a klat that did not look for these packages.
    if not available.keys() >= {*names}:
        available = archive.packages(update=True)
    if absent := [name for name in names if name not in available]:
        raise KlatError(f"Debian's archive has no {', '.join(absent)}")
    packages = [available[name] for name in names]
    size = sum(package.size for package in packages) / 1e6
    first = f"{packages[0].name} {packages[0].version}"
    say(f"fetching {first} and {len(packages) - 1} other packages ({size:.1f} MB)")
    archive.fetch(packages, draft)
    return draft / "tree"


def _describe(packages: Sequence[Path], tree: Path) -> None:
    fields = [answer(["dpkg-deb", "--field", package]).stdout for package in packages]
    # Not every package has this file.
    symbols = [answer(["dpkg-deb", "--info", package, "symbols"]).stdout for package in packages]
    installed = [f"{text}Status: install ok installed\n" for text in fields]
    for name, texts in (("DEBIAN/symbols", symbols), (_STATUS, installed)):
        (tree / name).parent.mkdir(parents=True)
        (tree / name).write_text("\n".join(texts))


def _linker_is_old() -> bool:
    """Whether it may be: the compiler need not be installed yet. Only x86-64 is known to run the newer one."""
    if os.uname().machine != "x86_64":
        return False
    try:
        done = answer(["riscv64-linux-gnu-ld", "--version"])
    except FileNotFoundError:
        return True
    version = re.search(r" (\d+)\.(\d+)", done.stdout)
    return bool(version and (int(version[1]), int(version[2])) < (2, 41))
