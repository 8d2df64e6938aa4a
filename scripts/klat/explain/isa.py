"""What an explanation needs to know of an instruction set: one entry for each, found by the ELF header of a
program or kernel."""

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
    # The instruction that waits for an interrupt, in hexadecimal digits.
    halt: str
    # The scheduler's change of stacks. The group `load` is the instruction that reads the stack
    # pointer of the next task.
    task_switch: re.Pattern[bytes]
    # The names of functions by which an interrupt enters the kernel begin with one of these.
    interrupts: tuple[str, ...]


_BY_MACHINE = {
    # x86-64: rdtsc, rdtscp; hlt; __switch_to_asm and the entries in arch/x86/entry/entry_64.S, where
    # registers are pushed, and the stack pointer goes into the old task and comes from the new one.
    62: Isa(
        counter_read=re.compile(rb"\x0f\x31|\x0f\x01\xf9"),
        halt="f4",
        task_switch=re.compile(
            rb"\x55\x53\x41\x54\x41\x55\x41\x56\x41\x57\x48\x89\xa7....(?P<load>\x48\x8b\xa6....)",
            re.DOTALL,
        ),
        interrupts=("asm_sysvec_", "asm_common_interrupt", "asm_exc_nmi"),
    ),
}

INTERRUPTS = tuple(name for isa in _BY_MACHINE.values() for name in isa.interrupts)


def of_file(path: Path) -> Isa:
    """KlatError if the file is no ELF file, or one of another instruction set."""
    with path.open("rb") as file:
        head = file.read(_MACHINE.size)
    if len(head) < _MACHINE.size or not head.startswith(_ELF):
        raise KlatError(f"{path}: is no ELF file")
    (machine,) = _MACHINE.unpack(head)
    if machine not in _BY_MACHINE:
        raise KlatError(f"{path}: no instruction set that klat explains (ELF machine {machine})")
    return _BY_MACHINE[machine]
