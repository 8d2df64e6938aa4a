"""Boots without a menu: klat itself gives the kernel and its whole command line.

The default is the kernel that runs when the campaign is planned. Every other kernel gets its command line. Only
the running kernel shows which entry was started, so an entry whose kernel panics at its start leaves no record.
"""

from __future__ import annotations

import filecmp
import glob
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from klat.base.errors import KlatError
from klat.campaign import kernel_image
from klat.campaign.boot_loader import BootEntry, BootLoader, OWN_WORD, OwnEntry, is_of_campaign, run
from klat.campaign.boot_loader import run_tool, without_loader_words
from klat.campaign.kernel_image import words_of_loader
from klat.machine import kernel_files


class WithoutMenu(BootLoader):
    """`words` is the command line of the default kernel; None if this is the running kernel."""

    def __init__(
        self, release: str = "", words: Sequence[str] | None = None, root: Path = Path("/")
    ) -> None:
        self._root = root
        self._release = release or os.uname().release
        given = self._running() if words is None else words
        self.default_words = without_loader_words(given)

    def entries(self) -> list[BootEntry]:
        """The kernels with modules. Those without modules are not known."""
        releases = sorted(path.name for path in (self._root / "lib/modules").glob("*"))
        return [self._entry(release) for release in releases if self._is_installed(release)]

    def default(self) -> BootEntry:
        lost = f"the default kernel, {self._release}, is not installed in /lib/modules"
        return self.entry(self._release, lost)

    def check(self) -> None:
        running = self._running()
        if is_of_campaign(running):
            raise KlatError("a campaign started this boot; reboot into the default kernel")
        default, release = self.default(), os.uname().release
        if why := default.difference(release, running):
            raise KlatError(
                f"the running kernel is not the default of the plan ({why}); plan again"
            )

    def started(self) -> str:
        labels = (word for word in self._running() if word.startswith(OWN_WORD))
        return next(labels, "").removeprefix(OWN_WORD)

    def _running(self) -> tuple[str, ...]:
        return words_of_loader(self._root)

    def _entry(self, release: str) -> BootEntry:
        kernel = self._kernel(release)
        title = str(kernel or self._root / "lib/modules" / release)
        return BootEntry(release, title, release, self.default_words, kernel)

    def _is_installed(self, release: str) -> bool:
        return (self._root / "lib/modules" / release / "modules.dep").is_file()

    def _kernel(self, release: str) -> Path | None:
        names = (f"boot/vmlinuz-{release}", f"lib/modules/{release}/vmlinuz")
        return next((self._root / n for n in names if (self._root / n).is_file()), None)


class UserCommand(WithoutMenu):
    name = "the boot command"
    tools = ("/bin/sh",)

    def __init__(
        self,
        command: str,
        release: str = "",
        words: Sequence[str] | None = None,
        root: Path = Path("/"),
    ) -> None:
        super().__init__(release, words, root)
        self.command = command

    def check(self) -> None:
        super().check()
        self.remove()

    def choose(self, copy: OwnEntry) -> None:
        self._run(copy.entry.release, " ".join(copy.booted.words))
        os.sync()

    def remove(self) -> None:
        self._run()
        os.sync()

    def _run(self, *words: str) -> None:
        try:
            run_tool("/bin/sh", "-c", f'{self.command} "$@"', "sh", *words)
        except KlatError as error:
            what = "to choose a kernel" if words else "without arguments, to take back its choice"
            raise KlatError(f"the boot command, run {what}: {error}") from None


# The names of a kernel and of its initramfs share their end: a release, or the name of a package.
_KERNEL = re.compile(r"(?:vmlinu[xz]|kernel|[bz]?Image|linux)-(.+)")
_INITRAMFS = (
    *("initrd.img-{}", "initrd-{}", "initrd-{}.img", "initramfs-{}", "initramfs-{}.img"),
    "booster-{}.img",
)
# Unified kernel images contain one.
_ANY_INITRAMFS = (
    *("boot/initr*", "boot/booster*", "boot/*/initr*", "boot/*/*/initr*"),
    *("efi/*/*/initr*", "boot/efi/*/*/initr*"),
    *(f"{top}/EFI/Linux/*.[eE][fF][iI]" for top in ("boot", "efi", "boot/efi")),
)
_TOPS = ("boot", "efi", "boot/efi")  # where a boot partition can be mounted
# A kernel without an initramfs finds only these root file systems.
_PLAIN_ROOT = re.compile(r"root=(?:/dev/(?!mapper/|disk/)\S+|PART(?:UUID|LABEL)=\S+|\d+:\d+)")
# Debian's scripts call kexec before the file systems are unmounted, and load a kernel at each reboot.
_SCRIPTS = ("kexec.service", "kexec-load.service")
_BY_KEXEC = "208"  # 0xd0: the number of kexec among the boot loaders of x86


class Kexec(WithoutMenu):
    """The running kernel starts the next one, without firmware and boot loader. A kernel is loaded only between choose()
    and the end of its boot. If a kernel fails, the firmware starts the default one."""

    name = "kexec"
    reboot_verb = "kexec"
    tools = ("kexec",)

    def left_out(self) -> Mapping[str, str]:
        releases = [path.parent.name for path in self._root.glob("lib/modules/*/modules.dep")]
        reasons = {release: self._files(release)[2] for release in sorted(releases)}
        return {release: why for release, why in reasons.items() if why}

    def check(self) -> None:
        super().check()
        if not shutil.which("kexec"):
            raise KlatError("kexec is missing; install kexec-tools")
        loaded = self._read("sys/kernel/kexec_loaded")
        if not loaded or self._read("proc/sys/kernel/kexec_load_disabled") == "1":
            raise KlatError("the running kernel does not support kexec, or it is switched off")
        if loaded == "1":
            raise KlatError("a kernel is already loaded for kexec; run kexec --unload")
        started_by = self._read("proc/sys/kernel/bootloader_type")
        if not started_by:
            raise KlatError("a session can record a boot by kexec only on x86")
        if started_by == _BY_KEXEC:
            raise KlatError("kexec started this boot; reboot, so that the default kernel runs")
        for unit in _SCRIPTS:
            if run("systemctl", "is-active", unit).stdout.strip() == "active":
                raise KlatError(
                    f"{unit} also starts kernels when the machine goes down; switch both off:"
                    f" systemctl mask --now {' '.join(_SCRIPTS)}"
                )

    def install(self, copies: Sequence[OwnEntry]) -> None:
        """Load each, so that a kernel that cannot be loaded is known now."""
        for copy in copies:
            self._load(copy)
        self.remove()

    def choose(self, copy: OwnEntry) -> None:
        self._load(copy)

    def remove(self) -> None:
        if self._read("sys/kernel/kexec_loaded") == "1":
            run_tool("kexec", "--unload")

    def _load(self, copy: OwnEntry) -> None:
        kernel, initramfs, why = self._files(copy.entry.release)
        if why:
            raise KlatError(f"{copy.entry.release}: {why}")
        files = [f"--initrd={initramfs}"] if initramfs else []
        line = f"--command-line={' '.join(copy.booted.words)}"
        run_tool("kexec", "--kexec-syscall-auto", "--load", str(kernel), *files, line)

    def _is_installed(self, release: str) -> bool:
        return super()._is_installed(release) and not self._files(release)[2]

    def _kernel(self, release: str) -> Path | None:
        return self._files(release)[0]

    def _files(self, release: str) -> tuple[Path | None, Path | None, str]:
        """The kernel and its initramfs, or why klat does not know them."""
        why = "no kernel with this release is in /boot or /lib/modules"

        def doubts(candidate: tuple[Path, list[Path]]) -> tuple[bool, bool]:
            kernel = candidate[0]
            return kernel_image.release(kernel) != release, kernel.name.startswith("vmlinux-")

        for kernel, initramfs in sorted(self._candidates(release), key=doubts):
            if kernel_image.release(kernel) not in ("", release):
                continue
            if len(initramfs) == 1:
                return kernel, initramfs[0], ""
            names = " or ".join(map(str, initramfs))
            why = f"klat does not know which of these is the initramfs of {kernel}: {names}"
            if not initramfs and self._needs_none():
                return kernel, None, ""
            if not initramfs:
                why = (
                    f"klat finds no initramfs of {kernel}, and the kernel needs one for its root file"
                    " system; use --boot-command"
                )
        return None, None, why

    def _candidates(self, release: str) -> Iterator[tuple[Path, list[Path]]]:
        """Kernels with this release, and the files that can be their initramfs."""
        boot, modules = self._root / "boot", self._root / "lib/modules" / release
        installed, package = modules / "vmlinuz", self._read(f"lib/modules/{release}/pkgbase")
        endings = [release]
        for kernel in sorted(boot.glob("*")):
            match = _KERNEL.fullmatch(kernel.name)
            if not match or not kernel.is_file():
                continue
            is_copy = match[1] == package or kernel_image.release(kernel) == release
            if is_copy or installed.is_file() and filecmp.cmp(kernel, installed, shallow=False):
                endings.append(match[1])
        for ending in dict.fromkeys(endings):
            initramfs = [boot / name.format(ending) for name in _INITRAMFS]
            for kernel in sorted(boot.glob(f"*-{glob.escape(ending)}")):
                match = _KERNEL.fullmatch(kernel.name)
                if match and match[1] == ending:
                    yield kernel, [path for path in initramfs if path.is_file()]
        # By kernel-install, and by ostree.
        tops = (self._root / name for name in _TOPS)
        trees = [p for top in tops for p in sorted(top.glob(f"*/{glob.escape(release)}/linux"))]
        for kernel in (*trees, *([installed] if installed.is_file() else [])):
            yield kernel, sorted(kernel.parent.glob("initr*"))
        yield from self._in_menu(release)

    def _in_menu(self, release: str) -> Iterator[tuple[Path, list[Path]]]:
        """The kernels with this release in loader/entries, with the initramfs that the entries name. Entries with the
        command line of the default kernel come first: each snapshot of openSUSE has entries."""
        named: list[tuple[bool, Path, list[Path]]] = []
        for file in (f for top in _TOPS for f in (self._root / top).glob("loader/entries/*.conf")):
            lines = [line.split() for line in kernel_files.text(file).splitlines() if line.strip()]
            words = [word for key, *line in lines if key == "options" for word in line]
            for kernel in self._named_files(file, lines, "linux"):
                if kernel_image.release(kernel) == release:
                    is_other = without_loader_words(words) != self.default_words
                    named.append((is_other, kernel, self._named_files(file, lines, "initrd")))
        for is_other, kernel in sorted({(is_other, kernel) for is_other, kernel, _ in named}):
            lists = [files for *entry, files in named if entry == [is_other, kernel]]
            yield kernel, sorted({path for files in lists for path in files})

    def _named_files(self, entry: Path, lines: Sequence[Sequence[str]], key: str) -> list[Path]:
        """The files that the lines with this key name, on the partition of the entry or below the root directory."""
        names = [name for first, *line in lines if first == key for name in line]
        paths = [name.replace("\\", "/").lstrip("/") for name in names if "$" not in name]
        tops = (entry.parents[2], self._root)
        return [next(filter(Path.is_file, (top / p for top in tops)), tops[0] / p) for p in paths]

    def _needs_none(self) -> bool:
        """Whether this machine boots without an initramfs."""
        initramfs = [path for name in _ANY_INITRAMFS for path in self._root.glob(name)]
        return not initramfs and any(map(_PLAIN_ROOT.fullmatch, self.default_words))

    def _read(self, name: str) -> str:
        return kernel_files.text(self._root / name)
