"""The options that a kernel needs for a guest to be measured, and those that its configuration lacks.

klat names a missing option and boots the kernel: other kernels may have another name for it.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from klat.lab.architectures import Architecture

# docs/lab.md has the same.
GUEST = {
    "BLK_DEV_INITRD": "the guest's files are an initramfs",
    "BINFMT_ELF": "the programs are ELF files",
    "BINFMT_SCRIPT": "the guest's first program is a script",
    "PROC_FS": "the programs take their evidence from /proc",
    "SYSCTL": "a session records the boot id from /proc/sys; before Linux 7, PROC_SYSCTL selects it",
    "SYSFS": "the programs find their CPUs in /sys",
    "FILE_LOCKING": "the programs lock the session",
    "FUTEX": "the programs have threads",
    "POSIX_TIMERS": "the programs need CLOCK_MONOTONIC_RAW",
    "PRINTK": "without it, a kernel that dies gives no reason",
}
PROGRAMS = {
    "timer": {"HIGH_RES_TIMERS": "timers would wait for the next tick"},
    "network": {"TUN": "its packets come from a tun device"},
}
_CONSOLE = "klat follows a boot on the serial console"
# The disk with the results, or else the second serial line.
_DISK = ("VIRTIO_PCI", "VIRTIO_BLK")


def lacking(config: bytes, programs: Collection[str], architecture: Architecture) -> list[str]:
    """A line for each option that a guest with these programs needs and the configuration lacks."""
    built = set(re.findall(r"^CONFIG_(\w+)=[ym]$", config.decode("utf-8", "replace"), re.MULTILINE))
    if not built:
        return []
    needed = GUEST | {architecture.console_option: _CONSOLE, **architecture.more_options}
    for name in programs:
        needed.update(PROGRAMS.get(name, {}))
    found = [
        f"was built without CONFIG_{option}: {why}"
        for option, why in needed.items()
        if option not in built
    ]
    missing = [f"CONFIG_{option}" for option in _DISK if option not in built]
    if missing and architecture.results_option in built:
        found.append(f"was built without {', '.join(missing)}: results come by a serial line")
    return found
