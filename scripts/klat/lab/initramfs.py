"""The guest's file system: busybox, the programs, the modules, and the plan of one boot.

The same inputs give the same bytes. The parts that differ from boot to boot are a second archive, so that
the first is made once.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from klat.lab import cpio
from klat.lab.modules import Module

# The commands of lab/init and of loads.
_APPLETS = (
    "cat dd echo insmod kill mkdir mknod mount poweroff reboot sh sha256sum sleep stty sync tar wc"
).split()


def base(
    init: bytes,
    busybox: bytes,
    programs: Mapping[str, Path],
    first: Sequence[Module],
    last: Sequence[Module],
    config: tuple[str, bytes] | None,
    machine: str,
    results_line: str,
) -> bytes:
    """What all boots of a kernel share. `machine` describes what the figures depend on besides the
    kernel; its hash becomes the guest's machine-id. `config` is the kernel's release and
    configuration. `first` are loaded before the runs, `last` after them. `results_line` is the
    second serial line."""
    entries = [
        cpio.character_device("dev/console", 5, 1),
        # Hidden by a devtmpfs, where the kernel has one.
        cpio.character_device("dev/null", 1, 3),
        cpio.character_device("dev/zero", 1, 5),
        cpio.character_device(f"dev/{results_line}", 4, 64 + int(results_line[-1])),
        *(cpio.directory(name) for name in ("proc", "sys", "dev", "tmp")),
        cpio.file("init", init, 0o755),
        cpio.file("bin/busybox", busybox, 0o755),
        *(cpio.link(f"bin/{name}", "busybox") for name in _APPLETS),
        *(cpio.file(f"bin/{name}", path.read_bytes(), 0o755) for name, path in programs.items()),
        *(cpio.file(f"modules/{module.name}.ko", module.data) for module in (*first, *last)),
        cpio.file("klat/modules", _names(first)),
        cpio.file("klat/modules.last", _names(m for m in last if m not in first)),
        cpio.file("etc/machine-id", f"{_identity(machine)}\n".encode()),
    ]
    if config:
        entries.append(cpio.file(f"boot/config-{config[0]}", config[1]))
    return cpio.archive(entries)


def _identity(machine: str) -> str:
    return hashlib.sha256(machine.encode()).hexdigest()[:32]


def recorded_machine_id(machine: str) -> str:
    """The machine_id in session.json of a guest with this description (machine_id() of
    lib/record/session.c)."""
    return hashlib.sha256(f"klat:{_identity(machine)}".encode()).hexdigest()[:32]


def _names(modules: Iterable[Module]) -> bytes:
    return "".join(f"{module.name}\n" for module in modules).encode()


def of_boot(plan: str, settings: Mapping[str, str | int]) -> bytes:
    """The archive of one boot: its plan and its settings, which a shell reads."""
    lines = "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in settings.items())
    return cpio.archive(
        [
            cpio.file("klat/plan.csv", plan.encode()),
            cpio.file("klat/settings", lines.encode()),
        ]
    )
