"""The release of a kernel comes from its file."""

import gzip
import struct

import pytest
from made_kernels import bzimage, image, unified

from klat.campaign import kernel_image

RELEASE = "6.9.1-arch1-1"
PACKED = gzip.compress(image(RELEASE))
EFI_PACKED = b"MZ\0\0zimg" + struct.pack("<II", 16, len(PACKED)) + PACKED


@pytest.mark.parametrize(
    "data, release",
    [
        (bzimage(RELEASE), RELEASE),
        (image(RELEASE), RELEASE),
        (PACKED, RELEASE),
        (EFI_PACKED, RELEASE),
        (unified({".osrel": b"ID=arch", ".linux": bzimage(RELEASE)}), RELEASE),
        (unified({".linux": PACKED}), RELEASE),
        (unified({".text": bzimage(RELEASE)}), ""),
        (bzimage(RELEASE)[:0x210], ""),
        (b"MZ" + bytes(0x3A) + b"\xff\xff\xff\x7f", ""),
        (gzip.compress(b"Linux version 6.1 of something")[:-9], ""),
        (b"", ""),
        (bzimage("6.1\x1b[31mX"), ""),
        (bzimage("6." + 64 * "1"), ""),
    ],
)
def test_the_release_of_a_file(tmp_path, data, release):
    kernel = tmp_path / "vmlinuz-linux"
    kernel.write_bytes(data)
    assert kernel_image.release(kernel) == release


def test_a_kernel_that_was_replaced_has_its_new_release(tmp_path):
    kernel = tmp_path / "vmlinuz-linux"
    for release in ("6.9.1", "6.10.12"):
        kernel.write_bytes(bzimage(release) + bytes(len(release)))
        assert kernel_image.release(kernel) == release
    kernel.unlink()
    assert kernel_image.release(kernel) == ""


def test_a_sparse_file_is_not_read(tmp_path):
    with (tmp_path / "vmlinuz").open("wb") as file:
        file.truncate(1 << 40)
    assert kernel_image.release(tmp_path / "vmlinuz") == ""


def test_the_texts_of_a_unified_kernel_image(tmp_path):
    image_file = tmp_path / "arch.efi"
    image_file.write_bytes(
        unified(
            {".cmdline": b"root=a quiet\n\0", ".uname": b"6.9.1", ".linux": b"x", ".initrd": b"y"}
        )
    )
    assert kernel_image.unified_texts(image_file) == {".cmdline": "root=a quiet", ".uname": "6.9.1"}
    image_file.write_bytes(bzimage(RELEASE))
    assert kernel_image.unified_texts(image_file) is None


def test_the_first_profile_of_a_unified_kernel_image_replaces_what_is_before_it(tmp_path):
    sections = {".cmdline": b"base", ".linux": b"x", ".profile": b"ID=a", ".cmdline1": b"first"}
    more = {".profile1": b"ID=b", ".cmdline2": b"second"}  # a name has 8 characters in the file
    image_file = tmp_path / "arch.efi"
    image_file.write_bytes(unified(sections | more))
    assert kernel_image.unified_texts(image_file) == {".cmdline": "first", ".profile": "ID=a"}
