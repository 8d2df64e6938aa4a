"""Finds the benchmark programs, and the source tree or prefix of this klat.

In a source tree a program is `<root>/<name>/<name>`, or `<root>/bench/<name>/<name>` if it is not a core program. When
installed it is `<prefix>/libexec/klat/<name>`, and in an installation from a wheel, which has only static programs,
`<prefix>/libexec/klat/static/<name>/<name>`. KLAT_PROGRAMS names another directory that has them in any of these forms.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

from klat.base.errors import KlatError, did_you_mean
from klat.base.process import answer

# The core programs, in the order of every report. A session runs these by default.
CORE = ("pipes", "cv", "tlbflush", "timer", "network")

# Where the folders of programs lie in a tree.
_TOPS = ("bench", "")
# KLAT_PROGRAMS can name a source tree, which contains the launcher. `klat --help` runs each program with --help, so the
# launcher must not count as a program: it would start itself without end.
_LAUNCHER = "klat"
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")
_PROBE_SECONDS = 5
_CHECK_SECONDS = 20
# elf(5): e_machine, by the name that uname -m has for it.
_ELF_MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}
# Messages of the dynamic loaders of glibc and musl if they cannot start a program.
_LOADER = re.compile(
    r"error while loading shared libraries: |: version `\S+' not found |^Error loading shared library "
)


class _LibraryMissing(KlatError):
    """This machine lacks a library of a program, or has an older one."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path} does not start: {reason}; build klat on this machine (make clean && make), or install a wheel,"
            " which needs no library (docs/install.md)"
        )


def root() -> Path:
    """The source tree, or the prefix klat was installed under."""
    package = Path(__file__).resolve().parents[1]
    return package.parents[1] if package.parent.name == "scripts" else package.parents[2]


def in_tree() -> bool:
    return Path(__file__).resolve().parents[2].name == "scripts"


def data() -> Path:
    """The directory below which the files of klat lie that are neither Python nor programs."""
    return root() if in_tree() else root() / "share" / "klat"


def commit() -> str:
    """The commit that the programs were built from."""
    # The tarball of `make dist` has COMMIT, before anything is built.
    for recorded in ("build/commit", "COMMIT") if in_tree() else ("commit",):
        try:
            return (data() / recorded).read_text().strip()
        except OSError:
            continue
    return "unknown"


def directory() -> Path:
    """The directory of the programs."""
    chosen = os.environ.get("KLAT_PROGRAMS")
    if chosen:
        return Path(chosen).absolute()
    if in_tree():
        return root()
    installed = root() / "libexec" / "klat"
    return installed if (installed / CORE[0]).exists() else static_directory()


def static_directory() -> Path:
    """The directory of the installed static programs."""
    return root() / "libexec" / "klat" / "static"


def _is_program(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and os.access(path, os.X_OK)


def locate(name: str) -> Path | None:
    """An executable of that name among the programs. It need not be a benchmark: see find()."""
    if name == _LAUNCHER or not name or not set(name) <= _NAME_CHARACTERS:
        return None
    for candidate in _places(name):
        if _is_program(candidate):
            return candidate
    return None


def places(base: Path, name: str) -> tuple[Path, ...]:
    """Where a program can lie below a directory like that of KLAT_PROGRAMS."""
    return (*(base / top / name / name for top in _TOPS), base / name)


def nested(base: Path, suffix: str = "") -> list[Path]:
    """The files of a tree, or of a build of it, whose name is that of their folder, sorted by name."""
    paths = [path for top in reversed(_TOPS) for path in (base / top).glob(f"*/*{suffix}")]
    by_name = {path.parent.name: path for path in paths if path.name == path.parent.name + suffix}
    return [by_name[name] for name in sorted(by_name)]


def _places(name: str) -> tuple[Path, ...]:
    *in_folders, flat = places(directory(), name)
    if os.environ.get("KLAT_PROGRAMS") or not in_tree():
        return *in_folders, flat
    # The flat path of `klat` would be the launcher. Old binaries can remain in a folder whose source has moved.
    return tuple(path for path in in_folders if path.with_suffix(".c").exists())


def _is_benchmark(path: Path) -> bool:
    """Whether the executable is a benchmark: its help names --record. Other executables can be in the same
    directories, for example a background load."""
    try:
        done = answer([path, "--help"], _PROBE_SECONDS)
    except OSError as error:
        check_start(path, error)
        return False
    except subprocess.TimeoutExpired:
        return False
    _check_loaded(path, done.stderr)
    return done.returncode == 0 and "--record" in done.stdout


def _check_loaded(path: Path, error_output: str) -> None:
    """_LibraryMissing if the dynamic loader did not start the program."""
    for line in error_output.splitlines():
        if _LOADER.search(line):
            raise _LibraryMissing(path, line.removeprefix(f"{path}: "))


def check_start(path: Path, error: OSError) -> None:
    """KlatError if a program did not start because of a limit of this process, or because it is for another machine or
    another C library."""
    if error.errno == errno.EMFILE:
        raise KlatError(f"cannot open {path}: {error.strerror}; raise the limit (ulimit -n)")
    if error.errno == errno.EAGAIN:
        raise KlatError(f"cannot start {path}: {error.strerror}; raise the limit (ulimit -u)")
    if error.errno == errno.ENOEXEC and (machine := _machine_of(path)):
        here = os.uname().machine
        cure = "run make" if in_tree() else f"install klat for {here}"
        raise KlatError(f"{path} is a program for {machine}, and this machine is {here}; {cure}")
    if error.errno == errno.ENOENT and _is_program(path):
        raise _LibraryMissing(path, "its dynamic loader, a part of the C library, is not here")


def _machine_of(path: Path) -> str:
    """Empty if the file is no program of any machine."""
    with path.open("rb") as file:
        header = file.read(20)
    number = int.from_bytes(header[18:], "little")
    return _ELF_MACHINES.get(number, "another machine") if header.startswith(b"\x7fELF") else ""


def refusal() -> str:
    """Why the first core program does not start. An empty text if it does, or if it is not built."""
    try:
        for name in core()[:1]:
            check_options(require(name), [], "virtual")
    except KlatError as error:
        return str(error)
    return ""


def core() -> list[str]:
    """The core programs that are built."""
    return [name for name in CORE if locate(name)]


def available() -> list[str]:
    """Every program that is built: the core five first, then the others by name."""
    names = set[str]()
    for top in _TOPS:
        try:
            names.update(entry.name for entry in (directory() / top).iterdir())
        except OSError as error:
            check_start(directory(), error)
    others = []
    for name in sorted(names):
        path = None if name in CORE else locate(name)
        try:
            if path and _is_benchmark(path):
                others.append(name)
        except _LibraryMissing:
            continue  # other programs can need fewer libraries
    return core() + others


def find(name: str) -> Path | None:
    """The program of that name, or None."""
    path = locate(name)
    if path is None or (name not in CORE and not _is_benchmark(path)):
        return None
    return path


def require(name: str) -> Path:
    """The program of that name. KlatError says whether it is unknown or not built."""
    path = find(name)
    if path:
        return path
    if _is_noexec():
        raise KlatError(
            f"no program in {directory()} can be executed: its file system is mounted noexec; mount it with exec,"
            " or build klat on another file system"
        )
    if is_known(name) and not locate(name):
        raise KlatError(f"{name} is not built: there is no {_places(name)[0]}; {build_cure()}")
    raise unknown(name, available())


def is_known(name: str) -> bool:
    """Whether a program of that name exists, perhaps not built."""
    sources = (
        [path.with_suffix(".c") for path in _places(name)] if set(name) <= _NAME_CHARACTERS else []
    )
    return name in CORE or any(source.exists() for source in sources)


def build_cure() -> str:
    """What to do if a program is not built."""
    if not in_tree():
        return "install klat again"
    return "run 'make', or install a wheel, which needs no compiler (docs/install.md)"


def _is_noexec() -> bool:
    try:
        return bool(os.statvfs(directory()).f_flag & os.ST_NOEXEC)
    except OSError:
        return False


def unknown(name: str, known: Sequence[str]) -> KlatError:
    """The error for a benchmark that does not exist."""
    there = ", ".join(known) or "none is built"
    return KlatError(
        f"there is no benchmark {name!r}{did_you_mean(name, known) or f' (there are: {there})'}"
    )


def check_options(
    path: Path, words: Sequence[str], mode: str, cpus: int | None = None
) -> tuple[int, str]:
    """Let a program check its options for a machine of this mode and number of CPUs. Without `cpus`, the program
    checks them for the CPUs of this machine. It measures nothing.
    Returns its exit status, and its message if that is not 0. KlatError if the program does not end.
    """
    try:
        machine = f"--check-for={mode}" + (f":{cpus}" if cpus else "")
        done = answer([path, *words, machine], _CHECK_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        if isinstance(error, OSError):
            check_start(path, error)
        raise KlatError(f"{path} cannot check its options: {error}") from None
    _check_loaded(path, done.stderr)
    said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
    return done.returncode, said[-1]


def execute(path: Path, arguments: list[str]) -> int:
    """Replace this process by the program. KlatError if that fails."""
    try:
        os.execv(path, [str(path), *arguments])
    except OSError as error:
        check_start(path, error)
        raise KlatError(f"{path}: {error.strerror}", status=1) from error
