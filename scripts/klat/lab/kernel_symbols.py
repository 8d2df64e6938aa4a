"""Keeps the symbols of guests' kernels in the lab's cache. A later boot then does not deliver them again.

The addresses in a guest are not random. klat boots an unpacked kernel, so its functions have the addresses of
the build. The guest loads some modules before the runs. Their addresses depend on the modules in the guest's
file system, the command line and the load. The guest loads the disk's modules after the last run. Their
addresses can differ between boots of one key, but no sample executes these modules.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from klat.lab import cache, compression, qemu
from klat.lab.experiment import KernelUnderLoad

_KEPT_BYTES = 64 << 20  # a file has 1 to 2 MB


def key(
    machine: qemu.Machine, facts: Mapping[str, Any], append: str, condition: KernelUnderLoad
) -> str:
    """The name of the file: a hash of everything that decides the symbols. `facts` describe the kernel."""
    decides = [
        facts["vmlinux_sha256"],
        facts["initramfs_sha256"],
        qemu.command_line(machine, append),
        machine.emulator.text,
        str(machine.shape),
        condition.load,
    ]
    return hashlib.sha256(json.dumps(decides).encode()).hexdigest()


def find(name: str) -> str | None:
    """The symbols under this name. None if the cache lacks them or the file is damaged."""
    try:
        data = compression.decompress((cache.root() / "symbols" / name).read_bytes())
    except (OSError, ValueError):
        return None
    held, _, text = data.decode(errors="replace").partition("\n")
    return text if held == name else None


def keep(name: str, kallsyms: str) -> None:
    data = gzip.compress(f"{name}\n{kallsyms}".encode(), compresslevel=1, mtime=0)
    cache.keep("symbols", name, data, _KEPT_BYTES)
