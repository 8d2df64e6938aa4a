"""The architectures that a guest can have, and everything in which they differ for the lab."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field

from klat.lab.kernel_formats import BzImage, FlatImage, KernelFormat

_NEWEST = {"newest": ("*[0-9]",), "newest-rt": ("*-rt",)}


@dataclass(frozen=True)
class Architecture:
    name: str  # of --arch, and in Debian
    machine: str  # as uname -m
    elf_machine: int  # e_machine of the ELF header
    # Kernels and programs.
    # NAME in debian:NAME, and the kernel's name in Debian or a pattern for it. The first that Debian has
    # counts.
    aliases: Mapping[str, tuple[str, ...]]
    kernels: tuple[str, ...]  # the names of `aliases` that Debian has
    label: str  # how the labels of Debian's kernels begin
    format: KernelFormat
    compiler: str  # the prefix of the tools on a machine of another architecture
    compiler_packages: str
    # The machine that QEMU emulates. Of a pair, the second value is for KVM.
    emulator: str
    emulator_package: str
    boards: tuple[str, str]
    cpus: tuple[str, str]
    second_line: tuple[str, str]  # the option of QEMU that makes the second serial line
    # What the guest's kernel sees of this machine.
    console: str
    results_line: str  # the second serial line
    console_option: str  # in the kernel's configuration
    results_option: str
    emulated_words: tuple[str, ...]  # of the command line, except with KVM
    # Options that the kernel needs besides, and why.
    more_options: Mapping[str, str] = field(default_factory=dict)
    # The firmware that QEMU starts first: a file in QEMU's data directories. Its instructions are counted too.
    firmware: str | None = None
    firmware_package: str = ""
    # The most CPUs that an older QEMU emulates, and the first version that emulates more.
    cpus_before: tuple[int, tuple[int, int]] | None = None
    # The most NUMA nodes with which the disk of an older QEMU's board works, and a version without this limit.
    nodes_before: tuple[int, tuple[int, int]] | None = None

    @property
    def native(self) -> bool:
        """Whether this machine has the architecture."""
        return platform.machine() == self.machine


AMD64 = Architecture(
    name="amd64",
    machine="x86_64",
    elf_machine=62,
    aliases={"stock": ("6.1",), "rt": ("6.1-rt",)} | _NEWEST,
    kernels=("stock", "rt"),
    label="lab-",
    format=BzImage(),
    compiler="x86_64-linux-gnu-",
    compiler_packages="gcc-x86-64-linux-gnu libc6-dev-amd64-cross",
    emulator="qemu-system-x86_64",
    emulator_package="qemu-system-x86",
    boards=("pc", "pc"),
    # A guest that can migrate to another host gets no invariant counter.
    cpus=("max", "host,migratable=off"),
    second_line=("-serial", "chardev:results"),
    console="ttyS0",
    results_line="ttyS1",
    console_option="SERIAL_8250_CONSOLE",
    results_option="SERIAL_8250",
    # The TSC is the host's, or counts instructions, so it is reliable. Any other clock of an emulator takes
    # the lock that all its devices share.
    emulated_words=("tsc=reliable", "no_timer_check"),
    # Without x2APIC, which the emulator has since 9.0, an APIC ID has eight bits. The ID with all bits set
    # means every CPU.
    cpus_before=(255, (9, 0)),
)

ARM64 = Architecture(
    name="arm64",
    machine="aarch64",
    elf_machine=183,
    aliases=AMD64.aliases,
    kernels=AMD64.kernels,
    label="lab-arm64-",
    format=FlatImage("arch/arm64/boot/Image", 0x38, b"ARM\x64"),
    compiler="aarch64-linux-gnu-",
    compiler_packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    emulator="qemu-system-aarch64",
    emulator_package="qemu-system-arm",
    boards=("virt,gic-version=3", "virt,gic-version=host"),
    # At 1 GHz the counter counts each instruction. QEMU's default before 9.0 counts every sixteenth.
    cpus=("max,cntfrq=1000000000", "host"),
    second_line=("-device", "pci-serial,chardev=results"),
    console="ttyAMA0",
    results_line="ttyS0",
    console_option="SERIAL_AMBA_PL011_CONSOLE",
    results_option="SERIAL_8250_PCI",
    emulated_words=("nokaslr",),
)

RISCV64 = Architecture(
    name="riscv64",
    machine="riscv64",
    elf_machine=243,
    # Debian 12 has no riscv64, and mirrors fetch Debian 13's later than the other architectures.
    aliases={"stock": ("6.12", "*[0-9]"), "rt": ("*-rt",)} | _NEWEST,
    kernels=("stock",),
    label="lab-riscv64-",
    format=FlatImage("arch/riscv/boot/Image", 0x30, b"RISCV\0\0\0RSC\x05"),
    compiler="riscv64-linux-gnu-",
    compiler_packages="gcc-riscv64-linux-gnu libc6-dev-riscv64-cross",
    emulator="qemu-system-riscv64",
    emulator_package="qemu-system-riscv or, before Debian 13, qemu-system-misc",
    firmware="opensbi-riscv64-generic-fw_dynamic.bin",
    firmware_package="opensbi",
    boards=("virt", "virt"),
    cpus=("rv64", "host"),
    second_line=("-device", "pci-serial,chardev=results"),
    console="ttyS0",
    results_line="ttyS1",
    console_option="SERIAL_OF_PLATFORM",
    results_option="SERIAL_8250_PCI",
    emulated_words=("nokaslr",),
    # With two nodes the board has two interrupt controllers. With QEMU 7.2, no interrupt of the disk then
    # reaches the kernel.
    nodes_before=(1, (10, 0)),
    # lib/arch/riscv64/isa.c
    more_options={"RISCV_PMU_SBI": "the programs count instructions by a perf event"},
)

ARCHITECTURES = {architecture.name: architecture for architecture in (AMD64, ARM64, RISCV64)}
# The default of --arch: this machine's.
HOST = next((architecture for architecture in ARCHITECTURES.values() if architecture.native), AMD64)
