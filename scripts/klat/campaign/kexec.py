"""kexec: the running kernel starts the next one, without firmware and boot loader.

A kernel is loaded only between choose() and the end of its boot. If a kernel fails, the firmware starts the
default one.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from klat.base.errors import KlatError
from klat.campaign.boot_loader import OwnEntry, run_tool
from klat.campaign.without_menu import WithoutMenu

_INITRAMFS = ("initrd.img-{}", "initramfs-{}.img")
# Debian's scripts call kexec before the file systems are unmounted, and load a kernel at each reboot.
_SCRIPTS = ("kexec.service", "kexec-load.service")
_BY_KEXEC = "208"  # 0xd0: the number of kexec among the boot loaders of x86


class Kexec(WithoutMenu):
    name = "kexec"
    reboot_verb = "kexec"

    def check(self) -> None:
        super().check()
        if not shutil.which("kexec"):
            raise KlatError("kexec is missing; install kexec-tools")
        kernel = self._root / "sys/kernel/kexec_loaded"
        if not kernel.exists() or self._read("proc/sys/kernel/kexec_load_disabled") == "1":
            raise KlatError("the running kernel does not support kexec, or it is switched off")
        if kernel.read_text().strip() == "1":
            raise KlatError("a kernel is already loaded for kexec; run kexec --unload")
        started_by = self._read("proc/sys/kernel/bootloader_type")
        if not started_by:
            raise KlatError("a session can record a boot by kexec only on x86")
        if started_by == _BY_KEXEC:
            raise KlatError("kexec started this boot; reboot, so that the default kernel runs")
        for unit in _SCRIPTS:
            if _is_active(unit):
                raise KlatError(
                    f"{unit} also starts kernels when the machine goes down; switch both off:"
                    f" systemctl mask --now {' '.join(_SCRIPTS)}"
                )

    def install(self, own: Sequence[OwnEntry]) -> None:
        """Load each, so that a kernel that cannot be loaded is known now."""
        for each in own:
            self._load(each)
        self.remove()

    def choose(self, own: OwnEntry) -> None:
        self._load(own)

    def remove(self) -> None:
        if self._read("sys/kernel/kexec_loaded") == "1":
            run_tool("kexec", "--unload")

    def _load(self, own: OwnEntry) -> None:
        release, kernel = own.entry.release, own.entry.kernel
        names = (self._root / "boot" / name.format(release) for name in _INITRAMFS)
        initramfs = [f"--initrd={path}" for path in names if path.is_file()][:1]
        line = f"--command-line={' '.join(own.booted.words)}"
        run_tool("kexec", "--kexec-syscall-auto", "--load", str(kernel), *initramfs, line)

    def _is_installed(self, release: str) -> bool:
        return super()._is_installed(release) and self._kernel(release) is not None

    def _read(self, name: str) -> str:
        path = self._root / name
        return path.read_text().strip() if path.exists() else ""


def _is_active(unit: str) -> bool:
    try:
        return run_tool("systemctl", "is-active", unit).strip() == "active"
    except KlatError:
        return False
