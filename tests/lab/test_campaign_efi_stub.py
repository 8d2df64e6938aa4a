"""Kernels that the firmware itself starts, with its variables in a directory of the test."""

import struct
import uuid
from pathlib import Path
from types import SimpleNamespace

import made_grub
import made_tools
import planted
import pytest
from made_kernels import unified
from made_tools import write

from klat.base.errors import KlatError
from klat.campaign import efi
from klat.campaign.boot_loader import OwnEntry
from klat.campaign.efi import BootOption, EfiStub, EfiVariables, GLOBAL
from klat.campaign.grub import Grub
from klat.lab.architectures import AMD64

STOCK, RT = "6.1.0-56-amd64", "6.1.0-56-rt-amd64"
LINE = "root=/dev/sda1 ro initrd=\\initrd-{}"
PARTITION = uuid.UUID("0ad95b2c-07c3-4f9b-8f42-32cbd05c0b6c")
FINDMNT = f'[ "$4" = PARTUUID={PARTITION} ] && echo /efi'
# The path of a file on the partition, as the firmware writes it.
NODE = struct.pack("<IQQ16sBB", 2, 2048, 524288, PARTITION.bytes_le, 2, 2)


def path_of(file: str) -> bytes:
    name = f"\\{file}\0".encode("utf-16-le")
    nodes = ((4, 1, NODE), (4, 4, name), (0x7F, 0xFF, b""))
    return b"".join(struct.pack("<BBH", k, s, 4 + len(data)) + data for k, s, data in nodes)


def option(title: str, file: str, line: str) -> bytes:
    return BootOption(title, path_of(file), line).data()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("sys/firmware/efi/efivars", "efi", "proc"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "proc/cmdline").write_text(f"{LINE.format('stock')}\n")
    made_tools.script(tmp_path / "tools/findmnt", FINDMNT)
    for name, release in (("stock", STOCK), ("rt", RT)):
        planted.kernel(tmp_path / f"efi/vmlinuz-{name}", release=release)
    (tmp_path / "efi/shim").write_bytes(b"MZ")
    variables = EfiVariables(GLOBAL, tmp_path)
    variables.write("Boot0000", option("Shell", "shim", ""))
    variables.write("Boot0001", option("stock", "vmlinuz-stock", LINE.format("stock")))
    variables.write("Boot0003", option("rt", "vmlinuz-rt", LINE.format("rt")))
    variables.write("Boot0005", option("shim", "shim", "root=/dev/sda1"))
    variables.write("Boot0006", b"\1")
    variables.write("BootOrder", struct.pack("<4H", 1, 3, 0, 5))
    variables.write("BootCurrent", struct.pack("<H", 1))
    monkeypatch.setenv("PATH", f"{tmp_path}/tools:/usr/bin:/bin")
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(release=STOCK))
    monkeypatch.setattr(efi, "HOST", AMD64)
    return tmp_path


def firmware(root: Path) -> EfiVariables:
    return EfiVariables(GLOBAL, root)


def owned(loader: EfiStub, *labels: str) -> list[OwnEntry]:
    """klat's entries with these labels, each of the kernel of this title."""
    entries = {entry.title: entry for entry in loader.entries()}
    return [OwnEntry(label, entries[label], (f"klat.campaign={label}",)) for label in labels]


def test_the_entries_are_the_kernels_with_a_command_line(root):
    loader = EfiStub(root=root)
    assert [(entry.identity, entry.release) for entry in loader.entries()] == [
        ("Boot0001", STOCK),
        ("Boot0003", RT),
    ]
    assert loader.entries()[1].words == ("root=/dev/sda1", "ro", "initrd=\\initrd-rt")
    assert loader.entries()[1].kernel == root / "efi/vmlinuz-rt"
    assert loader.default().identity == "Boot0001"
    assert loader.has_booted()
    loader.check()


def test_a_boot_by_another_program_is_not_taken_for_one_by_the_firmware(root):
    firmware(root).write("BootCurrent", struct.pack("<H", 5))
    assert not EfiStub(root=root).has_booted()
    (root / "sys/firmware/efi/efivars").rename(root / "hidden")
    assert not EfiStub(root=root).has_booted()


def test_klats_entries_are_copies_outside_the_boot_order(root):
    loader = EfiStub(root=root)
    before, order = loader.files(), firmware(root).read("BootOrder")
    loader.install(owned(loader, "stock", "rt"))
    assert len(loader.entries()) == 2 and firmware(root).read("BootOrder") == order
    copy = BootOption.read(firmware(root).read("Boot0004"))
    assert copy.title == "klat: rt" and copy.path == path_of("vmlinuz-rt")
    assert copy.line == f"{LINE.format('rt')} klat.campaign=rt"
    loader.choose(owned(loader, "rt")[0])
    assert firmware(root).read("BootNext") == struct.pack("<H", 4)
    loader.remove()
    assert loader.files() == before


def test_the_choice_of_another_is_kept(root):
    firmware(root).write("BootNext", struct.pack("<H", 3))
    with pytest.raises(KlatError, match="already chosen for the next boot"):
        EfiStub(root=root).check()
    EfiStub(root=root).remove()
    assert firmware(root).read("BootNext") == struct.pack("<H", 3)


def test_an_entry_that_the_firmware_dropped_is_said(root):
    loader = EfiStub(root=root)
    loader.install(owned(loader, "rt"))
    firmware(root).remove("Boot0002")
    with pytest.raises(KlatError, match="'rt' is gone from the firmware"):
        loader.choose(owned(loader, "rt")[0])


def test_a_default_that_is_no_kernel_is_refused(root):
    firmware(root).write("BootOrder", struct.pack("<2H", 5, 1))
    with pytest.raises(KlatError, match="'Boot0005', is not a kernel"):
        EfiStub(root=root).default()


def test_an_inactive_entry_is_not_the_default(root):
    data = firmware(root).read("Boot0001")
    firmware(root).write("Boot0001", b"\0" + data[1:])
    assert EfiStub(root=root).default().identity == "Boot0003"


@pytest.mark.parametrize("cut", range(0, 158, 7))
def test_an_option_that_is_cut_off_is_no_entry(root, cut):
    whole = firmware(root).read("Boot0003")
    firmware(root).write("Boot0003", whole[:cut])
    shown = [entry.identity for entry in EfiStub(root=root).entries()]
    # The path ends before byte 86. What follows is the command line.
    assert shown == (["Boot0001", "Boot0003"] if cut >= 86 else ["Boot0001"])


def test_a_unified_kernel_image_keeps_its_command_line(root):
    sections = {
        ".cmdline": b"root=/dev/sda1 quiet",
        ".linux": (root / "efi/vmlinuz-rt").read_bytes(),
    }
    (root / "efi/rt.efi").write_bytes(unified(sections))
    EfiVariables(GLOBAL, root).write("Boot0003", option("rt", "rt.efi", ""))
    loader = EfiStub(root=root)
    entry = next(entry for entry in loader.entries() if entry.identity == "Boot0003")
    assert (entry.release, entry.words) == (RT, ("root=/dev/sda1", "quiet"))
    loader.install([OwnEntry("uki", entry, ("panic=10",))])
    (copy,) = (entry for _, entry in loader._options().items() if entry.title == "klat: uki")
    assert copy.line == "root=/dev/sda1 quiet panic=10"


def test_a_grub_that_did_not_boot_or_reads_another_file_is_refused(tmp_path, monkeypatch):
    made_grub.make(tmp_path, monkeypatch)
    loader, variables = Grub(tmp_path), firmware(tmp_path)
    variables.path("").parent.mkdir(parents=True)
    variables.write("Boot0003", option("Linux", "EFI\\redhat\\shimx64.efi", ""))
    variables.write("BootCurrent", struct.pack("<H", 3))
    write(tmp_path / "proc/cmdline", b"ro BOOT_IMAGE=/vmlinuz\n")
    config = tmp_path / "boot/efi/EFI/redhat/grub.cfg"
    write(config, b"search --fs-uuid --set=dev 5eed\nconfigfile ($dev)/boot/grub/grub.cfg\n")
    loader.check()
    write(config, b"insmod blscfg\nblscfg\n")
    with pytest.raises(KlatError, match="starts a GRUB with the menu of .*EFI/redhat/grub.cfg"):
        loader.check()
    config.unlink()
    number = tmp_path / "proc/sys/kernel/bootloader_type"
    for started_by, line in (
        (2, b"BOOT_IMAGE=Linux ro\n"),
        (0x34, b"BOOT_IMAGE=../vmlinuz\n"),
        (0x72, b"ro\n"),
    ):
        write(tmp_path / "proc/cmdline", line)
        write(number, b"%d\n" % started_by)
        with pytest.raises(KlatError, match="GRUB did not start the running kernel"):
            loader.check()
    write(tmp_path / "proc/cmdline", b"BOOT_IMAGE=(hd0,gpt2)/vmlinuz ro\n")
    loader.check()
