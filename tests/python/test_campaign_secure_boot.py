"""klat refuses a kernel that Secure Boot would not start, before the first reboot."""

from __future__ import annotations

import struct
from contextlib import nullcontext
from pathlib import Path

import made_kernels
import pytest

from klat.base.errors import KlatError
from klat.campaign import secure_boot
from klat.campaign.boot_loader import BootEntry
from klat.campaign.efi_variables import GLOBAL, EfiVariables


def kernel(path: Path, certificates: int) -> BootEntry:
    """A file with the headers of a kernel that UEFI can start."""
    image = bytearray(1024)
    image[:2] = b"MZ"
    struct.pack_into("<I", image, 0x3C, 0x80)
    image[0x80:0x84] = b"PE\0\0"
    struct.pack_into("<H", image, 0x98, 0x20B)
    struct.pack_into("<II", image, 0x98 + 144, 512 if certificates else 0, certificates)
    path.write_bytes(image)
    return BootEntry(path.name, path.name, "", (), path)


def switch(root: Path, value: int) -> None:
    (root / "sys/firmware/efi/efivars").mkdir(parents=True, exist_ok=True)
    EfiVariables(GLOBAL, root).write("SecureBoot", bytes([value]))


def test_an_unsigned_kernel(tmp_path: Path) -> None:
    signed, unsigned = kernel(tmp_path / "signed", 1480), kernel(tmp_path / "unsigned", 0)
    secure_boot.check_kernels([signed, unsigned], tmp_path)
    switch(tmp_path, 0)
    secure_boot.check_kernels([signed, unsigned], tmp_path)
    switch(tmp_path, 1)
    secure_boot.check_kernels([signed], tmp_path)
    with pytest.raises(KlatError, match="unsigned is not signed, so Secure Boot would not"):
        secure_boot.check_kernels([signed, unsigned], tmp_path)


@pytest.mark.parametrize("image", [b"", b"MZ" + bytes(100), bytes(1024), b"\x1f\x8b" * 500])
def test_another_file_has_no_signature(tmp_path: Path, image: bytes) -> None:
    (tmp_path / "vmlinuz").write_bytes(image)
    assert not secure_boot.is_signed(tmp_path / "vmlinuz")


def test_a_missing_kernel(tmp_path: Path) -> None:
    entry = BootEntry("gone", "Gone", "", (), tmp_path / "vmlinuz")
    with pytest.raises(KlatError, match="Gone: cannot read .*vmlinuz: No such file"):
        secure_boot.check_kernels([entry], tmp_path)
    secure_boot.check_kernels([BootEntry("far", "On another disk", "", ())], tmp_path)


@pytest.mark.parametrize(
    "sections, refused", [((".cmdline", ".linux"), True), ((".linux",), False)]
)
def test_a_unified_kernel_image_that_takes_no_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sections: tuple[str, ...], refused: bool
) -> None:
    image = tmp_path / "arch.efi"
    image.write_bytes(made_kernels.unified(dict.fromkeys(sections, b"quiet")))
    monkeypatch.setattr(secure_boot, "is_signed", lambda _: True)
    switch(tmp_path, 1)
    entry = BootEntry("arch.efi", "Arch", "", (), image)
    with pytest.raises(KlatError, match="switch off Secure Boot") if refused else nullcontext():
        secure_boot.check_kernels([entry], tmp_path)
