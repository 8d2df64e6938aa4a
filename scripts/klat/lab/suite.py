"""The default benchmarks of a lab, and the programs in the form that a guest can run."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from klat.base import programs
from klat.base.errors import KlatError
from klat.base.process import answer
from klat.lab import cache, elf
from klat.lab.architectures import Architecture
from klat.record.plan_csv import ProgramOption

# On one CPU.
_DEFAULT = ("pipes", "cv", "timer", "network", "tlbflush", "syscall", "switch")
# By program, options for one CPU.
_ONE_CPU: dict[str, dict[str, str]] = {
    # PREEMPT_RT does not deliver the signal of the default to a spinner.
    "timer": {"method": "nanosleep"}
}
# The name of a guest's mode in the programs.
_GUEST_MODES = {"kvm": "virtual", "counted": "counted", "emulated": "emulated"}
_SKIPPED = 4
LOAD_PROGRAM = "load"
BUILD = "build/static"
_BUILD_SECONDS = 600


def default_benchmarks(cpus: int) -> list[str]:
    """On one CPU, the benchmarks that can measure there."""
    return list(programs.CORE if cpus > 1 else _DEFAULT)


def one_cpu_settings(
    benchmarks: Iterable[str], given: Sequence[ProgramOption]
) -> list[ProgramOption]:
    """The options for one CPU, without those that the user gave."""
    taken = {(setting.benchmark, setting.option) for setting in given}
    return [
        ProgramOption(name, option, (value,))
        for name in benchmarks
        for option, value in _ONE_CPU.get(name, {}).items()
        if not {(name, option), ("all", option)} & taken
    ]


def use_static_programs(names: Sequence[str], architecture: Architecture) -> None:
    """Let klat.base.programs find the static programs from now on. In a source tree, build these first, or all
    if `names` is empty; also those of the guest's architecture. KLAT_PROGRAMS overrides this."""
    if os.environ.get("KLAT_PROGRAMS"):
        return
    static = programs.static_directory()
    if programs.in_tree():
        static = programs.root() / BUILD
        known = [path.stem for path in programs.nested(programs.root(), ".c")]
        for name in names:
            if name not in known:
                raise programs.unknown(name, [p for p in known if p != LOAD_PROGRAM])
        _build(names)
        if not architecture.native:
            _build_for(architecture, names)
    elif not static.is_dir():
        raise KlatError(
            f"{static} does not exist; run 'make install-static' in klat's source tree, with the same"
            " prefix as 'make install'"
        )
    os.environ["KLAT_PROGRAMS"] = str(static)


def trace_plugin() -> Path:
    """QEMU's plugin lab/plugin/; in a source tree it is built first."""
    if not programs.in_tree():
        return programs.root() / "libexec/klat/lab-trace.so"
    target = "build/lab/trace.so"
    make([target], "klat's plugin for QEMU")
    return programs.root() / target


def static_programs(names: Sequence[str], architecture: Architecture) -> dict[str, Path]:
    """The path of each program for a guest. KlatError if one is missing, needs shared libraries or is for
    another architecture."""
    paths = {}
    for name in names:
        place = directory(architecture)
        path = next((p for p in programs.places(place, name) if p.is_file()), None)
        if path is None:
            raise KlatError(
                f"{place} has no {name} for {architecture.name}; {_installing(architecture)}"
            )
        if not elf.is_static(path, architecture.elf_machine):
            raise KlatError(
                f"{path} is not a static program for {architecture.name}, and a guest has no"
                f" libraries; {_installing(architecture)}"
            )
        paths[name] = path
    return paths


def directory(architecture: Architecture) -> Path:
    """The programs of a guest. Those for another architecture lie beside this machine's, which check the
    options."""
    native = programs.directory()
    return native if architecture.native else native.with_name(f"{native.name}-{architecture.name}")


def check_options(sets: Sequence[tuple[str, tuple[str, ...]]], mode: str, cpus: int) -> list[str]:
    """Run this machine's programs with --check-for, to check the options of the guest's. Returns a line for
    each set of options whose runs will be skipped. KlatError if a program refuses its options, or if every run
    would be skipped."""
    skipped = []
    for name, words in sets:
        status, said = programs.check_options(
            programs.require(name), words, _GUEST_MODES[mode], cpus
        )
        if not status:
            continue
        line = f"{' '.join([name, *words])}: {said.removeprefix(f'{name}: ')}"
        if status != _SKIPPED:
            raise KlatError(line)
        skipped.append(line)
    if len(skipped) == len(sets):
        raise KlatError(skipped[0], status=_SKIPPED)
    return skipped


def hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _build(names: Sequence[str]) -> None:
    make([f"OUT={BUILD}", "STATIC=1", *(names or ["all"])])


def _build_for(architecture: Architecture, names: Sequence[str]) -> None:
    """Build the programs for another architecture than this machine's."""
    compiler = f"{architecture.compiler}gcc"
    if not shutil.which(compiler):
        raise KlatError(
            f"building the programs of a guest of {architecture.name} needs {compiler}: apt install"
            f" {architecture.compiler_packages}"
        )
    out = f"{BUILD}-{architecture.name}"
    make([f"OUT={out}", "STATIC=1", f"ARCH={architecture.name}", *(names or ["all"])])


def _installing(architecture: Architecture) -> str:
    machine = "" if architecture.native else f" ARCH={architecture.name}"
    return f"make install-static{machine} in klat's source tree builds it, and installs it below prefix"


def make(arguments: Sequence[str], product: str = "the static programs") -> None:
    """Build `product` in klat's source tree, where no other klat builds meanwhile. KlatError says why it failed."""
    words = ["make", "-s", "-C", str(programs.root())]
    try:
        with cache.exclusive("build", _BUILD_SECONDS):  # two builds of one directory damage it
            done = answer([*words, *arguments], _BUILD_SECONDS)
    except FileNotFoundError:
        cure = "install make, or install a wheel, which needs no build"
        raise KlatError(f"{product} cannot be built: there is no make; {cure}") from None
    except subprocess.TimeoutExpired:
        raise KlatError(f"{' '.join(words)} did not end within {_BUILD_SECONDS} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["make failed"]
        last = [line for line in lines if "error:" in line] or lines
        if not os.access(programs.root(), os.W_OK):
            raise KlatError(
                f"{product} cannot be built, because you cannot write in {programs.root()}; copy this tree to a directory of"
                " yours, or install a wheel, which needs no build (docs/install.md)"
            )
        # 2: a library is not installed. 1: klat does not compile.
        status = 2 if "klat: missing: " in last[0] else 1
        raise KlatError(f"{product} cannot be built: {last[0]}", status)
