"""Files of kernels, with the headers that show their release."""

import struct
from collections.abc import Mapping


def bzimage(release: str) -> bytes:
    """The boot header of x86 (Documentation/arch/x86/boot.rst in the kernel's source)."""
    data = bytearray(0x400)
    data[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", data, 0x20E, 0x100)  # the version line, less 0x200
    data[0x300:] = f"{release} (builder@host) #1 SMP PREEMPT_DYNAMIC\0".encode()
    return bytes(data)


def image(release: str) -> bytes:
    """An Image of arm64 has its release only in its version line."""
    return bytes(0x38) + b"ARM\x64" + f"\0Linux version {release} (builder@host)\n\0".encode()


def unified(sections: Mapping[str, bytes]) -> bytes:
    """An EFI program with these sections."""
    table = data = b""
    begin = 0x80 + 24 + 40 * len(sections)
    for name, content in sections.items():
        place = (len(content), 0x1000, len(content), begin + len(data))
        table += struct.pack("<8s4I16x", name.encode(), *place)
        data += content
    head = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x80)
    return (
        head.ljust(0x80, b"\0") + struct.pack("<4s2xH16x", b"PE\0\0", len(sections)) + table + data
    )
