"""The release of a kernel comes from its file. Words that a kernel adds to its command line, and checks of the running kernel
before the first reboot."""

import gzip
import struct
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_kernels import bzimage, image, unified
from made_tools import write

from klat.base.errors import KlatError
from klat.campaign import kernel_image
from klat.campaign.boot_loader import BootEntry
from klat.campaign.entry_checks import check_entries, check_running
from klat.campaign.kernel_image import words_of_loader
from klat.campaign.without_menu import UserCommand

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


X86 = 'CONFIG_CMDLINE_BOOL=y\nCONFIG_CMDLINE="{}"\n# CONFIG_CMDLINE_OVERRIDE is not set\n'
BOOTCONFIG = """\
kernel.console = "ttyS0", "tty0"
kernel.quiet = ""
kernel.dm.text = 'a "b"'
init.splash = ""
ftrace.event = "x"
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(release="6.1", machine="x86_64"))
    return tmp_path


@pytest.mark.parametrize(
    "config, line, words",
    [
        ("", "quiet ro", "quiet ro"),
        (X86.format("quiet a=1"), "quiet a=1 quiet ro", "quiet ro"),
        (X86.format(r"a=\"b c\""), 'a="b c" ro', "ro"),
        (X86.format("quiet"), "ro quiet", "ro quiet"),
        (X86.format(""), "ro", "ro"),
        ('CONFIG_CMDLINE="quiet"\n', "quiet ro", "quiet ro"),  # only replaces an empty line
        ('CONFIG_CMDLINE="quiet"\nCONFIG_CMDLINE_EXTEND=y\n', "quiet ro quiet", "quiet ro"),
    ],
)
@pytest.mark.parametrize("file", ["proc/config.gz", "boot/config-6.1", "lib/modules/6.1/config"])
def test_the_words_of_the_configuration_are_not_of_the_loader(root, config, line, words, file):
    write(root / "proc/cmdline", f"{line}\n")
    is_packed = file.endswith(".gz")
    write(root / file, gzip.compress(config.encode()) if is_packed else config)
    assert words_of_loader(root) == tuple(words.split())


@pytest.mark.parametrize("quote", ["", '"'])
def test_the_words_of_a_bootconfig_are_not_of_the_loader(root, quote):
    """Linux 6.10 and later quotes only values with blanks."""
    consoles = " ".join(f"console={quote}{name}{quote}" for name in ("ttyS0", "tty0"))
    line = f'{consoles} quiet dm.text="a "b"" a=1 root=x bootconfig -- splash\n'
    write(root / "proc/cmdline", line)
    write(root / "proc/bootconfig", BOOTCONFIG)
    write(root / "boot/config-6.1", X86.format("a=1"))
    assert words_of_loader(root) == ("root=x", "bootconfig")
    write(root / "proc/bootconfig", b'kernel.other = "1"\n')
    assert words_of_loader(root)[:2] == tuple(consoles.split())


def test_without_a_menu_the_kernel_gets_its_own_words_once(root):
    write(root / "proc/cmdline", b"a=1 BOOT_IMAGE=/vmlinuz root=x\n")
    write(root / "boot/config-6.1", X86.format("a=1"))
    assert UserCommand("boot-once", root=root).default_words == ("root=x",)


@pytest.mark.parametrize("option", ["CMDLINE_OVERRIDE", "CMDLINE_FORCE"])
def test_a_kernel_that_ignores_the_boot_loader_is_refused(root, option):
    entry = BootEntry("a", "A", "6.2", ("root=/dev/sda1",))
    for line, why in (("ro", f"A: its kernel ignores .*CONFIG_{option}"), ("", "")):
        write(root / "boot/config-6.2", f'CONFIG_CMDLINE="{line}"\nCONFIG_{option}=y\n')
        with pytest.raises(KlatError, match=why) if why else nullcontext():
            check_entries([], entry, entry.words, root)


def test_a_line_that_is_too_long_with_the_words_of_the_kernel_is_refused(root):
    entry = BootEntry("a", "A", "6.2", ("root=/dev/sda1", 2000 * "x"))
    check_entries([], entry, entry.words, root)
    write(root / "boot/config-6.2", X86.format(30 * "y"))
    with pytest.raises(KlatError, match="has 2,0.. characters, .* takes only 2,047"):
        check_entries([], entry, entry.words, root)


@pytest.mark.parametrize(
    "line, is_booted, why",
    [
        ("root=x ro", True, ""),
        ("BOOT_IMAGE=/l root=x ro initrd=/i", True, ""),
        ("BOOT_IMAGE=/l a=1 b root=x ro", False, "the command line has a=1 b,"),
        ("ro root=x ro", False, "the command line has ro,"),
        ("root=x ro a=1", False, ""),  # another entry, or added in the menu
        ("root=x ro a=1", True, "the command line has a=1,"),
        ("root=y ro", True, "the command line has root=y and lacks root=x,"),
        ("ro root=x", True, "the same words in another order"),
        ("root=y ro", False, ""),
    ],
)
def test_a_default_that_runs_with_other_words_is_refused(line, is_booted, why):
    default = BootEntry("a", "A", "6.1", ("root=x", "ro"), image="/l")
    with pytest.raises(KlatError, match=f"A: .*{why}") if why else nullcontext():
        check_running(default, "6.1", line.split(), is_booted)
    check_running(default, "6.2", line.split(), False)


@pytest.mark.parametrize(
    "release, line, difference",
    [
        ("6.2", "ro", "the release is 6.2, not 6.1"),
        ("6.1", "BOOT_IMAGE=/m ro", "it has BOOT_IMAGE=/m, but that of the entry is /l"),
        ("6.1", "a=1 b ro ro", "the command line has a=1 b ro and lacks quiet"),
        ("6.1", f"quiet ro {999 * 'x'}", f"the command line has {300 * 'x'}"),
        ("6.1", "quiet ro", "the command line has the same words in another order"),
    ],
)
def test_the_difference_to_the_running_kernel_is_named(release, line, difference):
    entry = BootEntry("a", "A", "6.1", ("ro", "quiet", "$more"), image="/l")
    assert entry.difference(release, line.split()) == difference
