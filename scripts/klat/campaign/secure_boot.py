"""With Secure Boot, a machine boots only signed kernels. With another one, it stops in a menu or in its firmware."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from klat.base.errors import KlatError
from klat.campaign import kernel_image
from klat.campaign.boot_loader import BootEntry
from klat.campaign.efi_variables import GLOBAL, EfiVariables

_PE32_PLUS = 0x20B
# Offsets in the PE format, in bytes. The field at _PE_FIELD has the offset of the PE header. The optional header
# begins _OPTIONAL bytes after that. In it, the entry of the certificate table is at _CERTIFICATES.
_PE_FIELD, _OPTIONAL, _CERTIFICATES = 0x3C, 24, 112 + 4 * 8
_HEADERS = 4096  # the first bytes of the file, which have all headers


def check_kernels(entries: Iterable[BootEntry], root: Path = Path("/")) -> None:
    """KlatError if a kernel is missing, or if Secure Boot is on and a kernel has no signature."""
    strict = is_on(root)
    for entry in entries:
        if entry.kernel is None:
            continue
        try:
            signed = is_signed(entry.kernel)
        except OSError as error:
            raise KlatError(
                f"{entry.title}: cannot read {entry.kernel}: {error.strerror}"
            ) from error
        if strict and (kernel_image.unified_texts(entry.kernel) or {}).get(".cmdline"):
            raise KlatError(
                f"{entry.kernel} is a unified kernel image with a command line. With Secure Boot, klat"
                " cannot add its parameters to this command line; switch off Secure Boot"
            )
        if strict and not signed:
            raise KlatError(
                f"{entry.kernel} is not signed, so Secure Boot would not start it; sign it, or"
                " switch off Secure Boot"
            )


def is_on(root: Path = Path("/")) -> bool:
    try:
        return EfiVariables(GLOBAL, root).read("SecureBoot") == b"\1"
    except KlatError:
        return False


def is_signed(kernel: Path) -> bool:
    """Whether the kernel has a signature. The firmware may still refuse the signature."""
    with kernel.open("rb") as file:
        head = file.read(_HEADERS)
    try:
        (pe,) = struct.unpack_from("<I", head, _PE_FIELD)
        optional = pe + _OPTIONAL
        (magic,) = struct.unpack_from("<H", head, optional)
        _, size = struct.unpack_from("<II", head, optional + _CERTIFICATES)
    except struct.error:
        return False
    return head[pe : pe + 4] == b"PE\0\0" and magic == _PE32_PLUS and size > 0
