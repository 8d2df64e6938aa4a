"""The guest's file system: busybox, the programs, the modules, and the plan of one boot.

The same inputs give the same bytes. The parts that differ from boot to boot are a second archive, so that
the first is made once.

Both are cpio archives in the "newc" format. Times are 0, owners root, inode numbers count from 1. The kernel unpacks
archives that follow one another as if they were one (Documentation/driver-api/early-userspace/buffer-format.rst in
its source).
"""

from __future__ import annotations

import hashlib
import shlex
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from klat.lab.modules import Module
from klat.machine.privacy import recorded_id

_MAGIC = b"070701"
_ALIGNED = 512


@dataclass(frozen=True)
class Entry:
    """`data` is the target if `mode` is that of a link. `device` is (major, minor)."""

    name: str  # without a leading slash
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def file(name: str, data: bytes, mode: int = 0o644) -> Entry:
    return Entry(name, stat.S_IFREG | mode, data)


def directory(name: str) -> Entry:
    return Entry(name, stat.S_IFDIR | 0o755)


def link(name: str, target: str) -> Entry:
    return Entry(name, stat.S_IFLNK | 0o777, target.encode())


def character_device(name: str, major: int, minor: int) -> Entry:
    return Entry(name, stat.S_IFCHR | 0o600, device=(major, minor))


def archive(entries: Iterable[Entry]) -> bytes:
    """The entries and all their parent directories, each name once, directories first."""
    by_name: dict[str, Entry] = {}
    for entry in entries:
        parts = entry.name.split("/")
        for depth in range(1, len(parts)):
            by_name.setdefault("/".join(parts[:depth]), directory("/".join(parts[:depth])))
        by_name[entry.name] = entry
    written = bytearray()
    for inode, name in enumerate(sorted(by_name), start=1):
        _write(written, by_name[name], inode)
    _write(written, Entry("TRAILER!!!", 0), 0)
    written += b"\0" * (-len(written) % _ALIGNED)
    return bytes(written)


def _write(written: bytearray, entry: Entry, inode: int) -> None:
    name = entry.name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    major, minor = entry.device
    # inode, mode, uid, gid, links, time, size, device of the file, device number, size of the name,
    # check
    fields = (inode, entry.mode, 0, 0, links, 0, len(entry.data), 0, 0, major, minor, len(name), 0)
    written += _MAGIC + b"".join(b"%08x" % field for field in fields) + name
    written += b"\0" * (-len(written) % 4)
    written += entry.data
    written += b"\0" * (-len(written) % 4)


def read_archive(data: bytes) -> dict[str, bytes]:
    """The files of one archive that archive() made, by name."""
    contents = {}
    at = 0
    while data[at : at + len(_MAGIC)] == _MAGIC:
        fields = [int(data[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        start = at + 110 + name_size
        start += -start % 4
        name = data[at + 110 : at + 109 + name_size].decode()
        if stat.S_ISREG(mode):
            contents[name] = data[start : start + size]
        at = start + size
        at += -at % 4
    return contents


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
        character_device("dev/console", 5, 1),
        # Hidden by a devtmpfs, where the kernel has one.
        character_device("dev/null", 1, 3),
        character_device("dev/zero", 1, 5),
        character_device(f"dev/{results_line}", 4, 64 + int(results_line[-1])),
        *(directory(name) for name in ("proc", "sys", "dev", "tmp")),
        file("init", init, 0o755),
        file("bin/busybox", busybox, 0o755),
        *(link(f"bin/{name}", "busybox") for name in _APPLETS),
        *(file(f"bin/{name}", path.read_bytes(), 0o755) for name, path in programs.items()),
        *(file(f"modules/{module.name}.ko", module.data) for module in (*first, *last)),
        file("klat/modules", _names(first)),
        file("klat/modules.last", _names(m for m in last if m not in first)),
        file("etc/machine-id", f"{_identity(machine)}\n".encode()),
    ]
    if config:
        entries.append(file(f"boot/config-{config[0]}", config[1]))
    return archive(entries)


def _identity(machine: str) -> str:
    return hashlib.sha256(machine.encode()).hexdigest()[:32]


def recorded_machine_id(machine: str) -> str:
    """The machine_id in session.json of a guest with this description (klat_machine_id() of
    lib/record/identity.c)."""
    return recorded_id(_identity(machine))


def _names(modules: Iterable[Module]) -> bytes:
    return "".join(f"{module.name}\n" for module in modules).encode()


def of_boot(plan: str, settings: Mapping[str, str | int]) -> bytes:
    """The archive of one boot: its plan and its settings, which a shell reads."""
    lines = "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in settings.items())
    return archive([file("klat/plan.csv", plan.encode()), file("klat/settings", lines.encode())])
