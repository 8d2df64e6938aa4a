"""Boots by kexec and by a command of the user."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import made_kernels
import made_tools
import pytest
from made_tools import write
from test_campaign_engine import planned

from klat.base.errors import KlatError
from klat.campaign.boot_loader import OwnEntry
from klat.campaign.campaign_file import read_campaign, write_campaign
from klat.campaign.efi import EfiStub
from klat.campaign.without_menu import Kexec, UserCommand, WithoutMenu
from klat.commands import _campaign_state

STOCK, RT, REMOVED = "6.1.0-56-amd64", "6.1.0-56-rt-amd64", "5.10.0-1-amd64"
WORDS = ("root=/dev/sda1", "ro")
KEXEC = """\
echo "$@" >> {root}/called
case " $* " in
*broken*) echo "cannot load" >&2; exit 1 ;;
*--unload*) echo 0 > {root}/sys/kernel/kexec_loaded ;;
*) echo 1 > {root}/sys/kernel/kexec_loaded ;;
esac
"""
COMMAND = """\
rm -f {root}/chosen
[ $# = 0 ] || printf "%s\\n" "$@" > {root}/chosen
"""


def tool(root: Path, name: str, text: str) -> None:
    made_tools.script(root / "tools" / name, text.replace("{root}", str(root)))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(tmp_path / "proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro\n")
    for release in (STOCK, RT):
        write(tmp_path / f"lib/modules/{release}/modules.dep")
        write(tmp_path / f"boot/initrd.img-{release}")
        write(tmp_path / f"boot/vmlinuz-{release}")
    (tmp_path / "lib/modules" / REMOVED).mkdir()
    write(tmp_path / "sys/kernel/kexec_loaded", "0\n")
    write(tmp_path / "proc/sys/kernel/bootloader_type", "114\n")
    tool(tmp_path, "kexec", KEXEC)
    tool(tmp_path, "systemctl", "echo inactive; exit 3")
    tool(tmp_path, "boot_once", COMMAND)
    monkeypatch.setenv("PATH", f"{tmp_path}/tools:/usr/bin:/bin")
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(release=STOCK))
    return tmp_path


def command(root: Path, text: str = "boot_once") -> UserCommand:
    return UserCommand(text, STOCK, WORDS, root)


def kexec(root: Path) -> Kexec:
    return Kexec(STOCK, WORDS, root)


def copy_of(loader: WithoutMenu, label: str = "rt", release: str = RT) -> OwnEntry:
    entry = next(entry for entry in loader.entries() if entry.release == release)
    return OwnEntry(label, entry, ("nohz_full=1", f"klat.campaign={label}"))


@pytest.mark.parametrize("made", [command, kexec])
def test_the_entries_are_the_installed_kernels_with_the_default_command_line(root, made):
    loader = made(root)
    assert [entry.identity for entry in loader.entries()] == [STOCK, RT]
    assert {entry.words for entry in loader.entries()} == {WORDS}
    assert loader.default().release == STOCK
    assert loader.entries()[1].kernel == root / f"boot/vmlinuz-{RT}"


def test_a_plan_takes_the_default_from_the_running_kernel(root):
    loader = Kexec(root=root)
    assert loader.default_words == WORDS and loader.default().release == STOCK
    loader.check()


@pytest.mark.parametrize(
    "made, boot_command", [(Kexec, None), (EfiStub, None), (UserCommand, "boot_once 'board 3'")]
)
def test_the_next_boot_has_the_same_loader(tmp_path, made, boot_command):
    path = tmp_path / "campaign.json"
    campaign = replace(
        planned(path),
        default=STOCK,
        default_words=WORDS,
        loader=made.name,
        boot_command=boot_command,
    )
    write_campaign(path, campaign)
    read = read_campaign(path)
    assert read == campaign
    loader = _campaign_state.loader_of(read)
    assert type(loader) is made
    assert (loader.default_words, loader._release) == (WORDS, STOCK)
    assert getattr(loader, "command", None) == boot_command


def test_kexec_needs_the_file_of_a_kernel_but_a_command_does_not(root):
    (root / f"boot/vmlinuz-{RT}").unlink()
    assert [entry.release for entry in kexec(root).entries()] == [STOCK]
    assert [entry.release for entry in command(root).entries()] == [STOCK, RT]


@pytest.mark.parametrize("made", [command, kexec])
def test_only_the_running_kernel_shows_what_was_started(root, made):
    assert made(root).started() == ""
    write(root / "proc/cmdline", "root=/dev/sda1 ro nohz_full=1 klat.campaign=rt\n")
    assert made(root).started() == "rt"
    with pytest.raises(KlatError, match="a campaign started this boot"):
        made(root).check()


def test_another_kernel_than_the_default_of_the_plan_is_refused(root):
    command(root).check()
    write(root / "proc/cmdline", "root=/dev/sda1 ro single\n")
    with pytest.raises(
        KlatError,
        match=r"not the default of the plan \(.*(release|line) (is|has|lacks) .*\); plan again",
    ):
        command(root).check()


def test_a_default_that_is_not_installed_is_refused(root):
    with pytest.raises(KlatError, match="6.6, is not installed"):
        UserCommand("true", "6.6", WORDS, root).default()


def test_a_command_gets_release_and_command_line_and_takes_its_choice_back(root):
    loader = command(root)
    loader.install([copy_of(loader)])
    loader.choose(copy_of(loader))
    line = "root=/dev/sda1 ro nohz_full=1 klat.campaign=rt"
    assert (root / "chosen").read_text() == f"{RT}\n{line}\n"
    loader.remove()
    assert not (root / "chosen").exists()


def test_a_command_may_have_arguments(root):
    tool(root, "boot_once", 'echo "$#: $1" > {root}/chosen')
    command(root, "boot_once 'board 3'").choose(copy_of(command(root)))
    assert (root / "chosen").read_text() == "3: board 3\n"


def test_a_command_that_fails_is_refused_before_a_reboot(root):
    tool(root, "boot_once", "echo no answer from the board >&2; exit 1")
    with pytest.raises(KlatError, match="boot command, run without arguments.*no answer"):
        command(root).check()
    with pytest.raises(KlatError, match="run to choose a kernel.*no answer"):
        command(root).choose(copy_of(command(root)))


def test_kexec_loads_the_kernel_with_its_initramfs_and_command_line(root):
    loader = kexec(root)
    loader.choose(copy_of(loader))
    line = "--command-line=root=/dev/sda1 ro nohz_full=1 klat.campaign=rt"
    assert (root / "called").read_text() == (
        f"--kexec-syscall-auto --load {root}/boot/vmlinuz-{RT} --initrd={root}/boot/initrd.img-{RT}"
        f" {line}\n"
    )
    assert loader.reboot_verb == "kexec"


def test_kexec_leaves_nothing_loaded(root):
    loader = kexec(root)
    loader.install([copy_of(loader), copy_of(loader, "stock", STOCK)])
    loaded = root / "sys/kernel/kexec_loaded"
    assert loaded.read_text() == "0\n" and (root / "called").read_text().count("--load") == 2
    loader.choose(copy_of(loader))
    assert loaded.read_text() == "1\n"
    loader.remove()
    assert loaded.read_text() == "0\n"


def test_a_kernel_that_kexec_cannot_load_is_refused_before_a_reboot(root):
    loader = kexec(root)
    broken = OwnEntry("rt", copy_of(loader).entry, ("broken",))
    with pytest.raises(KlatError, match="cannot load"):
        loader.install([copy_of(loader, "stock", STOCK), broken])


@pytest.mark.parametrize(
    "name, text, why",
    [
        ("sys/kernel/kexec_loaded", "1\n", "already loaded for kexec"),
        ("proc/sys/kernel/kexec_load_disabled", "1\n", "does not support kexec"),
        ("proc/sys/kernel/bootloader_type", "208\n", "kexec started this boot; reboot"),
        ("proc/sys/kernel/bootloader_type", "", "only on x86"),
    ],
)
def test_a_machine_that_cannot_use_kexec_is_refused(root, name, text, why):
    kexec(root).check()
    write(root / name, text)
    with pytest.raises(KlatError, match=why):
        kexec(root).check()


def test_scripts_that_call_kexec_themselves_are_refused(root):
    tool(root, "systemctl", "echo active")
    with pytest.raises(KlatError, match="systemctl mask --now kexec.service kexec-load.service"):
        kexec(root).check()


def test_without_kexec_tools_kexec_is_refused(root):
    (root / "tools/kexec").unlink()
    with pytest.raises(KlatError, match="install kexec-tools"):
        kexec(root).check()


@pytest.mark.parametrize(
    "kernel, initramfs",
    [
        (f"boot/vmlinuz-{RT}", f"boot/initrd-{RT}"),
        (f"boot/vmlinuz-{RT}", f"boot/initramfs-{RT}.img"),
        (f"boot/kernel-{RT}", f"boot/initramfs-{RT}.img"),
        (f"boot/Image-{RT}", f"boot/initrd-{RT}"),
        ("boot/vmlinuz-lts", "boot/initramfs-lts"),
        ("boot/vmlinuz-linux", "boot/booster-linux.img"),
        (f"lib/modules/{RT}/vmlinuz", f"lib/modules/{RT}/initramfs.img"),
        (f"boot/5eed/{RT}/linux", f"boot/5eed/{RT}/initrd"),
        (f"efi/5eed/{RT}/linux", f"efi/5eed/{RT}/initrd.img-{RT}"),
    ],
)
def test_kexec_loads_the_initramfs_that_belongs_to_the_kernel(root, kernel, initramfs):
    for name in ("vmlinuz", "initrd.img"):
        (root / f"boot/{name}-{RT}").unlink()
    write(root / kernel, made_kernels.bzimage(RT))
    assert RT not in [entry.release for entry in kexec(root).entries()]
    assert "finds no initramfs" in kexec(root).left_out()[RT]
    write(root / initramfs)
    kexec(root).choose(copy_of(kexec(root)))
    assert f"--load {root}/{kernel} --initrd={root}/{initramfs} " in (root / "called").read_text()


def test_kexec_does_not_guess_between_two_initramfs(root):
    write(root / f"boot/initramfs-{RT}.img")
    assert f"initrd.img-{RT} or " in kexec(root).left_out()[RT]


@pytest.mark.parametrize("data", [b"xx", made_kernels.bzimage(RT)])
def test_kexec_takes_the_kernel_that_shows_its_release_and_no_vmlinux(root, data):
    """People have vmlinux for tracers beside the kernel that boots."""
    write(root / f"boot/vmlinux-{RT}", data)
    write(root / f"boot/vmlinuz-{RT}", made_kernels.bzimage(RT))
    assert kexec(root).entries()[1].kernel == root / f"boot/vmlinuz-{RT}"


def test_kexec_takes_no_kernel_whose_file_has_another_release(root):
    write(root / f"boot/vmlinuz-{RT}", made_kernels.bzimage("6.1.0-other"))
    loader = Kexec(RT, WORDS, root)
    assert "no kernel with this release" in loader.left_out()[RT]
    with pytest.raises(KlatError, match="no kernel with this release"):
        loader.default()


@pytest.mark.parametrize(
    "words, other, boots",
    [
        ("root=/dev/sda1", "boot/grub/grub.cfg", True),
        ("root=UUID=5eed", "boot/grub/grub.cfg", False),
        ("root=/dev/sda1", "efi/EFI/Linux/arch-linux.efi", False),
        ("root=/dev/sda1", "efi/5eed/6.2.0/initrd", False),
        ("root=/dev/sda1", "boot/efi/suse/6.2.0/initrd-1a", False),
    ],
)
def test_a_machine_without_a_known_initramfs(root, words, other, boots):
    """A kernel of a machine that has one somewhere may need one."""
    for release in (STOCK, RT):
        (root / f"boot/initrd.img-{release}").unlink()
    write(root / other)
    loader = Kexec(STOCK, (words,), root)
    assert bool(loader.entries()) == boots


@pytest.mark.parametrize("top, place", [("boot/efi", ""), ("efi", ""), ("boot", "boot/")])
def test_kexec_takes_the_initramfs_that_the_entry_of_the_menu_names(root, top, place):
    """As sdbootutil of openSUSE names them. Entries of a snapshot have another initramfs."""
    for file in ("vmlinuz", "initrd.img"):
        (root / f"boot/{file}-{RT}").unlink()
    tree = f"suse/{RT}"
    write(root / f"{top}/{tree}/linux-1a", made_kernels.bzimage(RT))
    write(root / f"lib/modules/{RT}/vmlinuz", made_kernels.bzimage(RT))
    for number, options in (("5", "root=/dev/sda1 ro"), ("4", "root=/dev/sda1 rootflags=x ro")):
        write(root / f"{top}/{tree}/initrd-{number}c")
        lines = f"linux /{place}{tree}/linux-1a\ninitrd\t\\{place}{tree}\\initrd-{number}c $more\n"
        write(root / f"{top}/loader/entries/{number}.conf", f"options {options}\n\n{lines}")
    kernel, initramfs, why = kexec(root)._files(RT)
    assert (kernel, initramfs, why) == (
        root / f"{top}/{tree}/linux-1a",
        root / f"{top}/{tree}/initrd-5c",
        "",
    )
    write(root / f"{top}/loader/entries/5.conf")
    assert kexec(root)._files(RT)[1] == root / f"{top}/{tree}/initrd-4c"
    write(root / f"{top}/loader/entries/3.conf", f"linux /{tree}/linux-1a\ninitrd /a\n")
    assert "which of these is the initramfs" in kexec(root)._files(RT)[2]
