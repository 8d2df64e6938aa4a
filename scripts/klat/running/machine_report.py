"""The file of `klat doctor --report`: what a bug report needs, without what names the machine or its users."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from klat import __version__
from klat.base import programs
from klat.base.errors import KlatError
from klat.base.process import answer
from klat.machine.kernel_files import text
from klat.machine.privacy import without_names
from klat.record import environment
from klat.record.session import SessionError

_MODULES = ("numpy", "scipy", "jinja2")
_TOOLS = ("gnuplot", "qemu-system-x86_64", "qemu-system-aarch64", "qemu-system-riscv64")
_SECONDS = 60
# Of session.json; the other keys identify the machine or the boot.
_LEFT_OUT = ("machine_id", "boot_id", "label", "seed")
_LONGEST = 20_000


def report(findings: str, root: Path = Path("/")) -> str:
    """`findings` is the text of klat doctor. Never raises KlatError: a section that cannot be read
    says why."""
    sections = {
        "klat doctor": findings,
        "versions": "\n".join(_versions()),
        "kernel command line": text(root / "proc/cmdline").partition(" -- ")[0],
        "CPU topology": "\n".join(_topology(root)),
        "environment, as klat run records it": "\n".join(_recorded()),
    }
    whole = "\n\n".join(f"== {title} ==\n\n{body}" for title, body in sections.items())
    return without_names(whole, root) + "\n"


def _versions() -> Iterator[str]:
    yield f"klat {__version__}, {programs.commit()}"
    system = os.uname()
    yield f"{system.sysname} {system.release} {system.version} {system.machine}"
    yield f"Python {sys.version.split()[0]}"
    for name in _MODULES:
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            yield f"{name}: missing"
    for name in _TOOLS:
        try:
            yield (answer([name, "--version"], _SECONDS).stdout.splitlines() or [f"{name}: mute"])[
                0
            ]
        except (OSError, subprocess.TimeoutExpired):
            yield f"{name}: missing"


def _topology(root: Path) -> Iterator[str]:
    """The CPUs of each node, package, core and cache."""
    groups: dict[str, set[str]] = {}
    for path in (root / "sys/devices/system/node").glob("node[0-9]*"):
        groups.setdefault("nodes", set()).add(text(path / "cpulist"))
    for path in (root / "sys/devices/system/cpu").glob("cpu[0-9]*"):
        for name in ("package", "core"):
            groups.setdefault(f"{name}s", set()).add(text(path / f"topology/{name}_cpus_list"))
        for cache in path.glob("cache/index[0-9]*"):
            level, kind, size = (text(cache / name) for name in ("level", "type", "size"))
            shared = text(cache / "shared_cpu_list")
            groups.setdefault(f"L{level} {kind} {size}", set()).add(shared)
    for title, cpus in sorted(groups.items()):
        yield f"{title}: CPU {' | '.join(sorted(cpus))}"


def _recorded() -> Iterator[str]:
    """session.json and the environment of a session of one short run."""
    name = next(iter(programs.core()), None)
    if name is None:
        yield "no program is built, so there is no record"
        return
    with tempfile.TemporaryDirectory() as directory:
        options = ("--quiet", "--iterations", "10", "--record", directory)
        command: list[str | Path] = [programs.require(name), *options]
        try:
            done = answer(command, _SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            yield f"{name} does not run: {error}"
            return
        yield f"{name} ended with status {done.returncode} {' '.join(done.stderr.split())}".rstrip()
        with suppress(OSError, ValueError):
            facts = json.loads(Path(directory, "session.json").read_text())
            kept = {key: value for key, value in facts.items() if key not in _LEFT_OUT}
            yield f"session.json: {json.dumps(kept, indent=1, ensure_ascii=False)}"
        with suppress(SessionError, KlatError):
            yield from _files(Path(directory) / "environment")


def _files(directory: Path) -> Iterator[str]:
    for name, values in environment.captured(directory).items():
        if name == "proc/cmdline":
            continue
        if name == environment.CONFIG:
            values = {k: v for k, v in values.items() if environment.TELLING.match(k)}
        for key, value in values.items():
            yield f"{name} {key}".rstrip() + f": {value[:_LONGEST]}"
