"""The contents of guests: kernels in the form that QEMU takes, busybox, programs and modules."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from klat.base import programs
from klat.base.errors import KlatError
from klat.lab import cache, elf, image, initramfs
from klat.lab.apt import Archive
from klat.lab.architectures import Architecture
from klat.lab.boots import Ready
from klat.lab.kernels import Kernel
from klat.lab.modules import Module
from klat.lab.qemu import Machine

_VIRTIO = ("virtio_pci", "virtio_blk")
_NETWORK = "tun"
Sets = Sequence[tuple[str, tuple[str, ...]]]  # programs with their options
_KEPT_BYTES = 1 << 30  # file systems of guests, of 4 to 20 MB each


def unpacked_for(mode: str, packed: image.Image) -> image.Unpacked | None:
    """What QEMU starts in this mode instead of the kernel's file, if it is another file."""
    if mode == "kvm" and packed.format.boots_packed:
        # With KVM, unpacking takes no time, and a random address is part of a boot.
        return None
    return image.unpacked(packed, cache.folder("images"))


class Contents:
    """`say` prints notes on a kernel for the user. `archive` has the architecture of the guests."""

    def __init__(
        self, archive: Archive, architecture: Architecture, say: Callable[[str], None]
    ) -> None:
        self._archive, self._architecture, self._say = archive, architecture, say

    def busybox(self) -> bytes:
        installed = Path("/bin/busybox")
        machine = self._architecture.elf_machine
        if not (installed.is_file() and elf.is_static(installed, machine)):
            package = self._archive.packages().get("busybox-static")
            if package is None:
                raise KlatError(
                    "Debian's archive has no busybox-static: apt install busybox-static"
                )
            tree = self._archive.unpacked(package)
            places = (tree / "usr/bin/busybox", tree / "bin/busybox")
            installed = next((place for place in places if place.is_file()), places[0])
        return installed.read_bytes()

    def ready(
        self,
        sets: Sets,
        kernels: Sequence[Kernel],
        busybox: bytes,
        static: dict[str, Path],
        machine: Machine,
    ) -> list[Ready]:
        ready = []
        for kernel in kernels:
            unpacked, form = unpacked_for(machine.mode, kernel.image), kernel.image.format
            base = self._base(sets, kernel, busybox, static, machine)
            facts: dict[str, object] = {
                **kernel.facts(),
                "started_as": form.unpacked if unpacked else form.packed,
                "vmlinux_sha256": unpacked.sha256 if unpacked else None,
                "initramfs_sha256": hashlib.sha256(base).hexdigest(),
            }
            # A boot can be repeated after a new build of klat.
            cache.keep("initramfs", str(facts["initramfs_sha256"]), base, _KEPT_BYTES)
            folder = cache.folder("images")
            booted = unpacked.path if unpacked else image.cached_copy(kernel.image, folder)
            ready.append(Ready(kernel.label, booted, base, facts))
        return ready

    def _base(
        self, sets: Sets, kernel: Kernel, busybox: bytes, static: dict[str, Path], machine: Machine
    ) -> bytes:
        first, last = modules_of(kernel, sets)
        if kernel.tree:
            for name in (name for name in _VIRTIO if name not in _virtio(kernel)):
                self._say(
                    f"{kernel.label}: there is no {name} in {kernel.tree.directory}; where it is not"
                    " built in either, results come by a serial line"
                )
        config = (kernel.image.release, kernel.config) if kernel.config else None
        return initramfs.base(
            _init(machine.architecture.results_line),
            busybox,
            static,
            first,
            last,
            config,
            machine.describe(host()),
            machine.architecture.results_line,
        )


def modules_of(kernel: Kernel, sets: Sets) -> tuple[list[Module], list[Module]]:
    """The modules that a guest loads before the runs and after them. ModuleMissing if the tree lacks one."""
    if not kernel.tree:
        return [], []
    of_network = any(name == "network" for name, _ in sets) and kernel.tree.has(_NETWORK)
    first = kernel.tree.closure([_NETWORK] if of_network else [])
    return first, kernel.tree.closure(_virtio(kernel))


def _virtio(kernel: Kernel) -> list[str]:
    """The modules for the disk with the results. A user's kernel may have none: it was built without
    virtio, or its modules came without a list of built-in ones."""
    assert kernel.tree
    return [name for name in _VIRTIO if kernel.package or kernel.tree.knows(name)]


def host() -> str:
    """The name of this machine, on whose CPUs guests run."""
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return "an unnamed machine"


def _init(results_line: str) -> bytes:
    """The guest's first process. lab/init has the second serial line of amd64."""
    text = (programs.data() / "lab" / "init").read_bytes()
    return text.replace(b"/dev/ttyS1", f"/dev/{results_line}".encode())
