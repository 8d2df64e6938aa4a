"""What an explanation must know about an instruction set. The ELF header of a program or kernel selects
the entry of the table."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from klat.base.errors import KlatError

_ELF = b"\x7fELF"
_MACHINE = struct.Struct("<18xH")  # e_machine of the ELF header


@dataclass(frozen=True)
class Isa:
    # The instructions of klat_stamp_begin() and klat_stamp_end() in lib/arch that read the counter.
    counter_read: re.Pattern[bytes]
    # Addresses of instructions are multiples of this number.
    alignment: int
    # The bytes of the instruction that waits for an interrupt, in hexadecimal digits.
    halt: str
    # Whether the kernel halts with interrupts masked. An interrupt then ends the idle time, and the kernel
    # takes it a few functions later.
    halts_masked: bool
    # The code in which the scheduler changes stacks. Its last instruction reads one saved register of the
    # next task from memory.
    task_switch: re.Pattern[bytes]
    # The functions through which an interrupt enters the kernel.
    interrupts: str
    # The functions through which an interrupt or an exception enters the kernel.
    entries: str
    # The functions through which a page fault enters the kernel, perhaps with other exceptions, and one
    # function in the path of every page fault and of nothing else.
    fault_entries: str
    page_fault: str
    # Functions whose last instruction ends an interrupt or an exception.
    returns: str
    # Tables of code with an entry for each kind of exception: the table's name in the kernel, and the
    # functions to which its entries belong.
    vectors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # The addresses of the firmware that runs beside the kernel.
    firmware: range = range(0)


VECTOR_BYTES = 0x80  # an entry of a table of `vectors`


def _words(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


_X86_64 = Isa(
    # rdtsc, rdtscp
    counter_read=re.compile(rb"\x0f\x31|\x0f\x01\xf9"),
    alignment=1,
    halt="f4",  # hlt
    halts_masked=False,
    # __switch_to_asm in arch/x86/entry/entry_64.S pushes six registers, stores the old task's stack pointer
    # and loads the new task's.
    task_switch=re.compile(
        rb"\x55\x53\x41\x54\x41\x55\x41\x56\x41\x57\x48\x89\xa7....\x48\x8b\xa6....", re.DOTALL
    ),
    interrupts=r"asm_sysvec_.*|asm_common_interrupt.*|asm_exc_nmi.*",
    entries=r"asm_sysvec_.*|asm_common_interrupt.*|asm_exc_.*",
    fault_entries=r"asm_exc_page_fault",
    page_fault="asm_exc_page_fault",
    returns=r"native_irq_return_iret",
)

_ARM64 = Isa(
    # mrs Xt, cntvct_el0; mrs Xt, cntvctss_el0
    counter_read=re.compile(rb"[\x40-\x5f\xc0-\xdf]\xe0\x3b\xd5"),
    alignment=4,
    halt="7f2003d5",  # wfi
    halts_masked=True,
    # cpu_switch_to in arch/arm64/kernel/entry.S stores and loads twelve registers in pairs, and then the
    # link register.
    task_switch=re.compile(
        re.escape(
            _words(
                *(0xA8815113, 0xA8815915, 0xA8816117, 0xA8816919, 0xA881711B, 0xA881251D),
                *(0xF900011E, 0x8B0A0028),
                *(0xA8C15113, 0xA8C15915, 0xA8C16117, 0xA8C16919, 0xA8C1711B, 0xA8C1251D),
                0xF940011E,
            )
        )
    ),
    interrupts=r"el[01][th]_64_(?:irq|fiq|error)",
    entries=r"el[01][th]_64_(?:sync|irq|fiq|error)",
    # A system call has the same entry.
    fault_entries=r"el[01][th]_64_sync",
    page_fault="do_mem_abort",
    returns=r"ret_to_user|ret_to_kernel",
    # In the order of the Arm Architecture Reference Manual (DDI 0487), "Exception vectors".
    vectors={
        "vectors": [
            f"{level}_{kind}"
            for level in ("el1t_64", "el1h_64", "el0t_64", "el0t_32")
            for kind in ("sync", "irq", "fiq", "error")
        ]
    },
)

_RISCV64 = Isa(
    # csrrs rd, cycle, x0. In counted mode, the stamps do not read `time`.
    counter_read=re.compile(rb"[\x73\xf3][\x20-\x2f]\x00\xc0"),
    alignment=2,
    halt="73005010",  # wfi
    halts_masked=True,
    # The end of __switch_to in arch/riscv/kernel/entry.S: it loads ra, sp and s0 to s11 from a4. s0 and s1
    # have a compressed instruction, if the kernel has any.
    task_switch=re.compile(
        re.escape(_words(0x00073083, 0x00873103))
        + rb"(?:\x00\x6b|\x03\x34\x07\x01)(?:\x04\x6f|\x83\x34\x87\x01)"
        + re.escape(
            _words(
                *(0x02073903, 0x02873983, 0x03073A03, 0x03873A83, 0x04073B03),
                *(0x04873B83, 0x05073C03, 0x05873C83, 0x06073D03, 0x06873D83),
            )
        )
    ),
    # Interrupts, system calls and exceptions have the same entry, which then calls this function.
    interrupts=r"do_irq",
    entries=r"handle_exception",
    fault_entries=r"handle_exception",
    page_fault="handle_page_fault",
    returns=r"ret_from_exception",
    # OpenSBI reserves it on QEMU's board "virt". The kernel follows.
    firmware=range(0x80000000, 0x80200000),
)

# By e_machine of the ELF header.
_BY_MACHINE = {62: _X86_64, 183: _ARM64, 243: _RISCV64}

PAGE_FAULTS = frozenset(isa.page_fault for isa in _BY_MACHINE.values())


def _matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    pattern = re.compile("|".join(patterns))
    return cache(lambda name: pattern.fullmatch(name) is not None)


# For a function of any kernel: a name has the same meaning on all instruction sets.
is_interrupt = _matcher(isa.interrupts for isa in _BY_MACHINE.values())
is_entry = _matcher(isa.entries for isa in _BY_MACHINE.values())
is_fault_entry = _matcher(isa.fault_entries for isa in _BY_MACHINE.values())
is_return = _matcher(isa.returns for isa in _BY_MACHINE.values())


def is_known(machine: int) -> bool:
    """Whether the table has this e_machine."""
    return machine in _BY_MACHINE


def of_file(path: Path) -> Isa:
    """KlatError if the file is not an ELF file, or has an instruction set without an entry."""
    with path.open("rb") as file:
        head = file.read(_MACHINE.size)
    if len(head) < _MACHINE.size or not head.startswith(_ELF):
        raise KlatError(f"{path}: is not an ELF file")
    (machine,) = _MACHINE.unpack(head)
    if machine not in _BY_MACHINE:
        raise KlatError(f"{path}: klat cannot explain this instruction set (ELF machine {machine})")
    return of_machine(machine)


def of_machine(machine: int) -> Isa:
    """Of an e_machine for which is_known()."""
    return _BY_MACHINE[machine]
