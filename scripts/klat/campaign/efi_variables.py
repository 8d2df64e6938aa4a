"""The variables of UEFI, which the kernel shows as files. A file begins with four bytes of attributes."""

from __future__ import annotations

import struct
from pathlib import Path

from klat.base.errors import KlatError

GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"  # the vendor of the specification's own variables
_ATTRIBUTES = 4
# The variable outlives a reboot, and the firmware and the kernel can read it.
_KEPT = struct.pack("<I", 1 | 2 | 4)


class EfiVariables:
    """The variables of one vendor."""

    def __init__(self, vendor: str, root: Path = Path("/")) -> None:
        self._vendor = vendor
        self._directory = root / "sys/firmware/efi/efivars"

    def are_there(self) -> bool:
        """Whether the running kernel shows UEFI variables."""
        return self._directory.is_dir()

    def path(self, name: str) -> Path:
        return self._directory / f"{name}-{self._vendor}"

    def names(self, pattern: str) -> list[str]:
        """The names that match the pattern, sorted."""
        found = self._directory.glob(f"{pattern}-{self._vendor}")
        return sorted(path.name.removesuffix(f"-{self._vendor}") for path in found)

    def read(self, name: str) -> bytes:
        """The value; empty if there is no such variable. KlatError if it cannot be read."""
        try:
            return self.path(name).read_bytes()[_ATTRIBUTES:]
        except FileNotFoundError:
            if self.are_there():
                return b""
        except OSError as error:
            raise KlatError(f"cannot read {self.path(name)}: {error.strerror}") from error
        raise KlatError(
            "this kernel has no UEFI variables, which klat needs to choose the next boot; boot another"
            " kernel, or this one with efi=runtime on its command line"
        )

    def write(self, name: str, value: bytes) -> None:
        try:
            self.path(name).write_bytes(_KEPT + value)
        except OSError as error:
            raise KlatError(f"cannot write {self.path(name)}: {error.strerror}") from error

    def remove(self, name: str) -> None:
        try:
            self.path(name).unlink(missing_ok=True)
        except OSError as error:
            raise KlatError(f"cannot remove {self.path(name)}: {error.strerror}") from error


def utf16(value: bytes) -> str:
    """A text in UTF-16, without the zero at its end."""
    return value.decode("utf-16-le", "replace").rstrip("\0")
