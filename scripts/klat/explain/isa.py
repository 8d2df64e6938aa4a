"""What an explanation must know about an instruction set. The ELF header of a program or kernel selects
the entry of the table."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

from klat.base.errors import KlatError

_ELF = b"\x7fELF"
_MACHINE = struct.Struct("<18xH")  # e_machine of the ELF header


@dataclass(frozen=True)
class Isa:
    # The instructions of klat_stamp_begin() and klat_stamp_end() in lib/arch that read the counter.
    counter_read: re.Pattern[bytes]
    # The bytes of the instruction that waits for an interrupt, in hexadecimal digits.
    halt: str
    # The code in which the scheduler changes stacks. The group `load` is the instruction that reads the
    # stack pointer of the next task.
    task_switch: re.Pattern[bytes]
    # Prefixes of the functions through which an interrupt enters the kernel.
    interrupts: tuple[str, ...]
    # Prefixes of the functions through which an interrupt or an exception enters the kernel.
    entries: tuple[str, ...]
    # The functions through which a page fault enters the kernel.
    page_faults: tuple[str, ...]
    # Functions whose only instruction ends an interrupt or an exception.
    interrupt_returns: tuple[str, ...]


_BY_MACHINE = {
    # x86-64. counter_read: rdtsc, rdtscp. halt: hlt. task_switch: __switch_to_asm in
    # arch/x86/entry/entry_64.S, which pushes six registers, stores the old task's stack pointer and loads
    # the new task's.
    62: Isa(
        counter_read=re.compile(rb"\x0f\x31|\x0f\x01\xf9"),
        halt="f4",
        task_switch=re.compile(
            rb"\x55\x53\x41\x54\x41\x55\x41\x56\x41\x57\x48\x89\xa7....(?P<load>\x48\x8b\xa6....)",
            re.DOTALL,
        ),
        interrupts=("asm_sysvec_", "asm_common_interrupt", "asm_exc_nmi"),
        entries=("asm_sysvec_", "asm_common_interrupt", "asm_exc_"),
        page_faults=("asm_exc_page_fault",),
        interrupt_returns=("native_irq_return_iret",),
    ),
}

INTERRUPTS = tuple(name for isa in _BY_MACHINE.values() for name in isa.interrupts)
ENTRIES = tuple(name for isa in _BY_MACHINE.values() for name in isa.entries)
PAGE_FAULTS = tuple(name for isa in _BY_MACHINE.values() for name in isa.page_faults)
INTERRUPT_RETURNS = tuple(name for isa in _BY_MACHINE.values() for name in isa.interrupt_returns)


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
    return _BY_MACHINE[machine]
