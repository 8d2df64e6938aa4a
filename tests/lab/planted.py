"""Kernels that misbehave in known ways, and modules that were never compiled."""

import struct
from collections.abc import Mapping
from pathlib import Path

HANG = bytes.fromhex("ebfe")  # jmp to itself
RESET = bytes.fromhex("b0fee664f4ebfd")  # the keyboard controller's reset line, then hlt


_SETUP_SECTORS = 15
_TEXT, _GIVEN = 0x380, 0x400  # places in the image


def kernel(
    path: Path,
    says: str = "",
    then: bytes = HANG,
    release: str = "6.6.6-planted",
    flags: int = 1,
    protocol: int = 0x20F,
    gives: bytes = b"",
) -> Path:
    """A bzImage that prints on the first serial port and gives bytes on the second, in real mode, and
    then runs `then`."""
    text = says.encode() + b"\0"
    version = f"{release} (klat@test) #1 SMP".encode() + b"\0"
    assert _TEXT + len(text) <= _GIVEN and _GIVEN + len(gives) <= 512 * (1 + _SETUP_SECTORS)
    image = bytearray(512 * (_SETUP_SECTORS + 2))  # boot sector, set-up, one sector of the kernel
    image[0x1F1] = _SETUP_SECTORS
    image[0x1FE:0x202] = b"\x55\xaa\xeb\x7e"  # signature; jmp 0x280
    image[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", image, 0x206, protocol)
    struct.pack_into("<H", image, 0x20E, 0x300 - 0x200)
    image[0x211] = 1  # loaded high
    struct.pack_into("<I", image, 0x214, 0x100000)
    struct.pack_into("<I", image, 0x22C, 0x37FFFFFF)  # where an initramfs may lie
    struct.pack_into("<H", image, 0x236, flags)
    struct.pack_into("<I", image, 0x238, 2047)  # of the command line
    struct.pack_into("<II", image, 0x248, 0, 256)  # the payload
    struct.pack_into("<Q", image, 0x258, 0x1000000)
    struct.pack_into("<I", image, 0x260, 0x100000)
    # mov dx, 0x3f8; mov si, text; again: cs lodsb; test al, al; jz +3; out dx, al; jmp again
    code = bytes.fromhex("baf803be") + struct.pack("<H", _TEXT - 0x200)
    code += bytes.fromhex("2eac84c07403eeebf7")
    if gives:
        # mov dx, 0x2f8; mov si, given; mov cx, length; again: cs lodsb; out dx, al; loop again
        code += bytes.fromhex("baf802be") + struct.pack("<H", _GIVEN - 0x200)
        code += b"\xb9" + struct.pack("<H", len(gives)) + bytes.fromhex("2eaceee2fb")
    image[0x280 : 0x280 + len(code + then)] = code + then
    image[0x300 : 0x300 + len(version)] = version
    image[_TEXT : _TEXT + len(text)] = text
    image[_GIVEN : _GIVEN + len(gives)] = gives
    path.write_bytes(bytes(image))
    return path


def module(release: str, depends: str = "", **more: str) -> bytes:
    """An ELF file with a .modinfo section and no code."""
    values: Mapping[str, str] = {
        "depends": depends,
        "vermagic": f"{release} SMP mod_unload",
        **more,
    }
    text = b"".join(f"{name}={value}\0".encode() for name, value in values.items())
    names = b"\0.modinfo\0.shstrtab\0"
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    table = 64 + len(text) + len(names)
    header += struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)
    section = struct.Struct("<IIQQQQIIQQ")
    sections = section.pack(*[0] * 10)
    sections += section.pack(1, 1, 0, 0, 64, len(text), 0, 0, 1, 0)
    sections += section.pack(10, 3, 0, 0, 64 + len(text), len(names), 0, 0, 1, 0)
    return header + text + names + sections
