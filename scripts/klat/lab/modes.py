"""Finds the mode in which a guest can run here.

/dev/kvm alone proves nothing: where KVM is itself emulated, a kernel can hang in its first second. So klat
boots one of the kernels to its first program, under a time limit.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from klat.base import files
from klat.base.process import Signals
from klat.lab import cache, initramfs, qemu
from klat.lab.qemu import BootFiles, Emulator, Guest, GuestSize, Machine
from klat.record import session_directory

_DEVICE = Path("/dev/kvm")
_LIMIT_SECONDS = 10
_FILE_BYTES = 16 << 20
_READY = b"klat-lab: ready"
_INIT = b"#!/bin/sh\nmount -t devtmpfs none /dev 2>/dev/null\necho klat-lab: ready\npoweroff -f\n"


def choose(emulator: Emulator, kernel: Path, busybox: bytes, signals: Signals) -> tuple[str, str]:
    """`kvm` or `counted`, and the reason in one line."""
    if not emulator.architecture.native:
        return "counted", f"KVM cannot run a guest of {emulator.architecture.name} on this machine"
    if not _DEVICE.exists():
        return "counted", f"there is no {_DEVICE}"
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        return "counted", f"{_DEVICE} is there and not for this user (group kvm)"
    key = f"{session_directory.boot_id()} {emulator.text} {kernel.stat().st_size} {kernel}"
    kept = cache.folder() / "kvm.json"
    try:
        known = json.loads(kept.read_text())
    except (OSError, ValueError):
        known = None
    if not isinstance(known, list) or len(known) != 2 or known[0] != key:
        known = [key, _problem(emulator, kernel, busybox, signals)]
        files.write_whole(kept, json.dumps(known).encode())
    if known[1]:
        return "counted", f"{_DEVICE} is there, but {known[1]}"
    return "kvm", "a guest booted by KVM"


def _problem(emulator: Emulator, kernel: Path, busybox: bytes, signals: Signals) -> str:
    """Why a guest cannot run with KVM; empty if one did."""
    with cache.work() as work:
        boot = BootFiles.below(work, kernel, 1, "2000-01-01T00:00:00")
        boot.disk.write_bytes(b"\0" * 4096)
        contents = [
            initramfs.character_device("dev/console", 5, 1),
            initramfs.file("init", _INIT, 0o755),
            initramfs.file("bin/busybox", busybox, 0o755),
            *(initramfs.link(f"bin/{name}", "busybox") for name in ("sh", "mount", "poweroff")),
        ]
        boot.initrd.write_bytes(initramfs.archive(contents))
        machine = Machine(emulator, "kvm", GuestSize())
        guest = Guest(qemu.command(machine, boot), work / "stderr", _FILE_BYTES)
        try:
            while guest.status() is None and guest.seconds < _LIMIT_SECONDS:
                signals.wait(_LIMIT_SECONDS - guest.seconds)
        finally:
            ended = guest.status()
            guest.end()
        if boot.console.exists() and _READY in boot.console.read_bytes():
            return ""
        if ended is None:
            return f"a guest did not boot within {_LIMIT_SECONDS} s"
        return f"a guest ended at once: {guest.complaint() or f'status {ended}'}"
