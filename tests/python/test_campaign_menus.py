"""Menus as distributions make them: the kernels, the default, and what klat refuses."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import made_grub
import pytest
from made_kernels import bzimage
from made_tools import write

from klat.base.errors import KlatError
from klat.campaign.boot_loader import OwnEntry
from klat.campaign.campaign_file import BootSetting
from klat.campaign.engine import entry_copy
from klat.campaign.entry_checks import check_entries
from klat.campaign.grub import Grub
from klat.campaign.grub_script import parse

HEAD, _, CUSTOM = made_grub.CONFIG.partition("### BEGIN /etc/grub.d/10_linux ###\n")
CUSTOM = CUSTOM[CUSTOM.index("### BEGIN /etc/grub.d/41_custom") :]
SAVED = HEAD.replace('default="0"', 'default="${saved_entry}"')
UBUNTU = """\
function savedefault {
  if [ -z "${boot_once}" ]; then saved_entry="${chosen}"; save_env saved_entry; fi
}
function recordfail {
  set recordfail=1
  if [ -n "${have_grubenv}" ]; then if [ -z "${boot_once}" ]; then save_env recordfail; fi; fi
}
function gfxmode {
	set gfxpayload="${1}"
	if [ "${1}" = "keep" ]; then
		set vt_handoff=vt.handoff=7
	else
		set vt_handoff=
	fi
}
if [ "${recordfail}" != 1 ]; then
  if [ -e ${prefix}/gfxblacklist.txt ]; then
    if [ ${grub_platform} != pc ]; then set linux_gfx_mode=keep
    elif hwmatch ${prefix}/gfxblacklist.txt 3; then set linux_gfx_mode=keep
    else set linux_gfx_mode=text; fi
  else
    set linux_gfx_mode=keep
  fi
fi
export linux_gfx_mode
menuentry 'Ubuntu' --class ubuntu --class os $menuentry_id_option 'gnulinux-simple-5eed' {
	savedefault
	recordfail
	gfxmode $linux_gfx_mode
	if [ x$feature_platform_search_hint = xy ]; then
	  search --no-floppy --fs-uuid --set=root --hint-bios=hd0,gpt2  5eed
	else
	  search --no-floppy --fs-uuid --set=root 5eed
	fi
	linux	/boot/vmlinuz-6.8.0-45-generic root=UUID=5eed ro  quiet splash $vt_handoff
	initrd	/boot/initrd.img-6.8.0-45-generic
}
submenu 'Advanced options for Ubuntu' $menuentry_id_option 'gnulinux-advanced-5eed' {
	menuentry 'Ubuntu, with Linux 6.8.0-41-generic' $menuentry_id_option 'gnulinux-6.8.0-41' {
		linux	/boot/vmlinuz-6.8.0-41-generic root=UUID=5eed ro  quiet splash $vt_handoff
	}
}
"""
UBUNTU_CLOUD = """\
menuentry 'Ubuntu' --id simple {
	if [ "${initrdfail}" = 1 ]; then
	  linux	/boot/vmlinuz-6.8.0-aws root=PARTUUID=5eed ro
	  initrd	/boot/initrd.img-6.8.0-aws
	else
	  linux	/boot/vmlinuz-6.8.0-aws root=PARTUUID=5eed ro panic=-1
	fi
	initrdfail
}
"""
SUSE = """\
menuentry 'openSUSE Leap 15.6' --class opensuse $menuentry_id_option 'gnulinux-simple-5eed' {
	echo	'Loading Linux 6.4.0-default ...'
	linux	/boot/vmlinuz-6.4.0-150600.21-default root=UUID=5eed  ${extra_cmdline} splash=silent quiet
	initrd	/boot/initrd-6.4.0-150600.21-default
}
submenu "Start bootloader from a read-only snapshot" --hotkey=s --class snapshots {
  if [ -f "/.snapshots/grub-snapshot.cfg" ]; then source "/.snapshots/grub-snapshot.cfg"; fi
}
"""
ARCH = """\
menuentry 'Arch Linux, with Linux linux-lts' --id lts {
	linux	/vmlinuz-linux-lts root=UUID=5eed rw
	initrd	/amd-ucode.img /initramfs-linux-lts.img
}
menuentry 'Arch Linux, with Linux linux' --id linux { linux /vmlinuz-linux root=UUID=5eed rw; initrd /i; }
"""
GENTOO = """\
menuentry 'Gentoo GNU/Linux' --class gentoo $menuentry_id_option 'gentoo' {
	linux	/kernel-6.6.30-gentoo-x86_64 root=/dev/sda2 ro
}
menuentry 'Gentoo GNU/Linux (old)' { linux /kernel-6.6.30-gentoo-x86_64.old root=/dev/sda2 ro; }
"""
NIXOS = """\
menuentry "NixOS - Default" --class nixos --unrestricted {
  search --set=drive1 --fs-uuid 5eed
  linux ($drive1)//kernels/abc-linux-6.6.30-bzImage init=/nix/store/x/init loglevel=4
  initrd ($drive1)//kernels/abc-initrd-linux-6.6.30-initrd
}
submenu "NixOS - All configurations" --class submenu {
  menuentry "NixOS - Configuration 1" --class nixos {
    search --set=drive1 --fs-uuid 5eed
    linux ($drive1)//kernels/def-linux-6.1.90-bzImage init=/nix/store/y/init loglevel=4
  }
}
"""
PROXMOX = """\
menuentry 'Proxmox VE GNU/Linux' --id pve {
	insmod zfs
	linux	/ROOT/pve-1@/boot/vmlinuz-6.8.12-1-pve root=ZFS=/ROOT/pve-1 ro root=ZFS=rpool/ROOT/pve-1 boot=zfs
	initrd	/ROOT/pve-1@/boot/initrd.img-6.8.12-1-pve
}
"""
XEN = """\
menuentry 'Debian GNU/Linux' --id debian { linux /boot/vmlinuz-6.1.0 root=/dev/sda1 ro; }
menuentry 'Debian GNU/Linux, with Xen hypervisor' --id xen {
	multiboot2	/boot/xen-4.17-amd64.gz placeholder
	module2	/boot/vmlinuz-6.1.0 placeholder root=/dev/sda1 ro
}
menuentry 'Windows' --id windows { chainloader /EFI/Microsoft/Boot/bootmgfw.efi; }
"""
HAND_WRITTEN = """\
menuentry 'Linux' { linux /boot/vmlinuz-6.1.0 root=/dev/sda1; }
menuentry 'Linux' { linux /boot/vmlinuz-6.1.0-rt root=/dev/sda1 "dyndbg=file a.c +p" it=\\'s; }
menuentry "Linux" --id=Linux --class a { # the third
  linux /boot/vmlinuz-5.10 \\
        root=/dev/sda1 ; initrd /i }
"""
# GRUB 2.12 of Debian 13: firmware, memory test, Windows, and another menu.
TRIXIE = """\
menuentry 'Debian GNU/Linux' $menuentry_id_option 'debian' {
	linux	/boot/vmlinuz-6.12.57+deb13-amd64 root=UUID=5eed ro
}
if [ "$grub_platform" = "efi" ]; then
	fwsetup --is-supported
	if [ "$?" = 0 ]; then
		menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' { fwsetup; }
	fi
fi
menuentry 'Memory test' --id memtest { linux /boot/memtest86+x64.bin console=ttyS0; }
menuentry 'Memory test 5' --id memtest5 { linux16 /memtest86+-5.31b; }
menuentry 'Tool' --id tool { linux16 /tool.bin; }
menuentry 'Windows' --id windows { chainloader /EFI/Microsoft/Boot/bootmgfw.efi; }
menuentry 'Menu of the disk' --id menu { configfile ($root)/grub/grub.cfg; }
"""
# A submenu sees only variables that are exported.
SUBMENU = """\
set console=console=ttyS0
set more=more
export more
set late=late
submenu Advanced {
  set inner=inner
  export late
  if true; then submenu Old {
    set quiet=quiet
    if true; then menuentry Other --id other { linux /boot/vmlinuz-5.15.18 ro; }; fi
    menuentry Old --id old {
      if [ -n "$inner$quiet" ]; then set seen=seen; fi
      linux /boot/vmlinuz-5.15.19 root=/dev/sda1 $console $more $inner $seen x$late ro
    }
  }; fi
}
"""
AMAZON = """\
menuentry 'Amazon Linux (4.14.355-275.572.amzn2.x86_64) 2' --class amazon --unrestricted $menuentry_id_option 'al2' {
	set gfxpayload=keep
	linux16 /boot/vmlinuz-4.14.355-275.572.amzn2.x86_64 root=UUID=5eed ro net.ifnames=0 rd.shell=0
	initrd16 /boot/initramfs-4.14.355-275.572.amzn2.x86_64.img
}
"""
# openSUSE's GRUB has its variables in a block that btrfs reserves.
TUMBLEWEED = """\
set timeout=8
if [ -s $prefix/grubenv ]; then load_env; fi
if [ "${env_block}" ] ; then
  set env_block="(${root})${env_block}"
  export env_block
  load_env -f "${env_block}"
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   if [ "${env_block}" ] ; then
     save_env -f "${env_block}" next_entry
   else
     save_env next_entry
   fi
   set boot_once=true
else
   set default="${saved_entry}"
fi
menuentry 'openSUSE Tumbleweed' $menuentry_id_option 'tumbleweed' {
	linux	/boot/vmlinuz-6.17.7-1-default root=UUID=5eed ${extra_cmdline} security=selinux
}
"""
ONE = "menuentry A --id a { linux /boot/vmlinuz-6.1 ro; }\n"
# The kernels of the test: file and release.
KERNELS = {
    "vmlinuz-linux": "6.9.1-arch1-1",
    "vmlinuz-linux-lts": "6.6.41-1-lts",
    "kernel-6.6.30-gentoo-x86_64": "6.6.30-gentoo-x86_64",
    "kernel-6.6.30-gentoo-x86_64.old": "6.6.30-gentoo-x86_64",
    "kernels/abc-linux-6.6.30-bzImage": "6.6.30",
    "kernels/def-linux-6.1.90-bzImage": "6.1.90",
    "vmlinuz-6.8.12-1-pve": "6.8.12-1-pve",
    "tool.bin": "no release",
}


Menu = Callable[..., Grub]


@pytest.fixture
def grub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Menu:
    """`grub(config, environment)` is the GRUB with this grub.cfg and grubenv."""

    def write_menu(config: str, environment: str = "") -> Grub:
        made_grub.make(tmp_path, monkeypatch, config=config)
        write(tmp_path / "boot/grub/grubenv", environment)
        for name, release in KERNELS.items():
            write(tmp_path / "boot" / name, bzimage(release))
        return Grub(tmp_path)

    return write_menu


@pytest.mark.parametrize(
    "config, environment, kernels, default, words",
    [
        (
            made_grub.CONFIG.replace(CUSTOM, "").replace('"0"', '"${saved_entry}"'),
            f"saved_entry={made_grub.STOCK}\n",
            [
                "gnulinux-simple-5eed: 6.1.0-56-rt-amd64",
                f"{made_grub.STOCK.replace('-amd64-', '-rt-amd64-')}: 6.1.0-56-rt-amd64",
                f"{made_grub.STOCK}: 6.1.0-56-amd64",
                "other: 5.10",
            ],
            2,
            "root=UUID=5eed ro quiet",
        ),
        (
            HEAD + UBUNTU,
            "",
            [
                "gnulinux-simple-5eed: 6.8.0-45-generic",
                "gnulinux-advanced-5eed>gnulinux-6.8.0-41: 6.8.0-41-generic",
            ],
            0,
            "root=UUID=5eed ro quiet splash vt.handoff=7",
        ),
        (HEAD + UBUNTU_CLOUD, "", ["simple: 6.8.0-aws"], 0, "root=PARTUUID=5eed ro panic=-1"),
        (HEAD + UBUNTU_CLOUD, "initrdfail=1\n", ["simple: 6.8.0-aws"], 0, "root=PARTUUID=5eed ro"),
        (
            SAVED + SUSE,
            "saved_entry=openSUSE Leap 15.6\n",
            ["gnulinux-simple-5eed: 6.4.0-150600.21-default"],
            0,
            "root=UUID=5eed $extra_cmdline splash=silent quiet",
        ),
        (
            SAVED + ARCH,
            "saved_entry=linux\n",
            ["lts: 6.6.41-1-lts", "linux: 6.9.1-arch1-1"],
            1,
            "root=UUID=5eed rw",
        ),
        (
            HEAD + GENTOO,
            "",
            ["gentoo: 6.6.30-gentoo-x86_64", "Gentoo GNU/Linux (old): 6.6.30-gentoo-x86_64"],
            0,
            "root=/dev/sda2 ro",
        ),
        (
            HEAD.replace('default="0"', "default=1") + NIXOS,
            "",
            [
                "NixOS - Default: 6.6.30",
                "NixOS - All configurations>NixOS - Configuration 1: 6.1.90",
            ],
            1,
            "init=/nix/store/y/init loglevel=4",
        ),
        (
            HEAD + PROXMOX,
            "",
            ["pve: 6.8.12-1-pve"],
            0,
            "root=ZFS=/ROOT/pve-1 ro root=ZFS=rpool/ROOT/pve-1 boot=zfs",
        ),
        (HEAD + XEN, "", ["debian: 6.1.0"], 0, "root=/dev/sda1 ro"),
        (
            HEAD.replace('"0"', "1") + HAND_WRITTEN,
            "",
            ["Linux: 6.1.0", "1: 6.1.0-rt", "2: 5.10"],
            1,
            'root=/dev/sda1 "dyndbg=file a.c +p" it=\\\'s',
        ),
        (HEAD + TRIXIE, "", ["debian: 6.12.57+deb13-amd64"], 0, "root=UUID=5eed ro"),
        (
            SAVED + SUBMENU,
            "saved_entry=Advanced>Old>old\n",
            ["Advanced>Old>other: 5.15.18", "Advanced>Old>old: 5.15.19"],
            1,
            "root=/dev/sda1 $console more $inner seen x$late ro",
        ),
        (
            SAVED + AMAZON,
            "saved_entry=Amazon Linux (4.14.355-275.572.amzn2.x86_64) 2\n",
            ["al2: 4.14.355-275.572.amzn2.x86_64"],
            0,
            "root=UUID=5eed ro net.ifnames=0 rd.shell=0",
        ),
        (
            TUMBLEWEED,
            "env_block=256+1\nsaved_entry=tumbleweed\n",
            ["tumbleweed: 6.17.7-1-default"],
            0,
            "root=UUID=5eed $extra_cmdline security=selinux",
        ),
    ],
    ids="debian ubuntu cloud cloud-initrd suse arch gentoo nixos proxmox xen hand trixie submenu amazon tumbleweed".split(),
)
def test_a_menu(tmp_path, grub, config, environment, kernels, default, words):
    loader = grub(config + CUSTOM, environment)
    assert [f"{entry.identity}: {entry.release}" for entry in loader.entries()] == kernels
    entry = loader.default()
    assert (entry, " ".join(entry.words)) == (loader.entries()[default], words)
    loader.check()
    path = entry.image or "/kernels/any"
    assert entry.is_running(entry.release, [f"BOOT_IMAGE=(hd0,gpt2){path}", *words.split()])
    own_entries = [
        OwnEntry(f"{n}", entry, ("klat.campaign=x",)) for n, entry in enumerate(loader.entries())
    ]
    loader.install(own_entries)
    written = (tmp_path / "boot/grub/custom.cfg").read_text()
    (tmp_path / "boot/grub/grub.cfg").write_text(config + written)
    copies = {entry.identity: entry for entry in loader.entries()}
    for own_entry in own_entries:
        copy = copies[f"klat-{own_entry.name}"]
        assert (copy.image, copy.words) == (own_entry.entry.image, own_entry.booted.words)


def test_variables_in_a_block_of_btrfs(tmp_path, grub):
    loader = grub(TUMBLEWEED + CUSTOM, "env_block=256+1\n")
    (tmp_path / "tools/grub-probe").write_text("#!/bin/sh\necho btrfs\n")
    loader.check()
    loader.install([OwnEntry("a", loader.default(), ())])
    text = (tmp_path / "boot/grub/custom.cfg").read_text()
    assert '\nsave_env -f "${env_block}" klat_entry\n' in text
    (tmp_path / "boot/grub/grub.cfg").write_text(SAVED + ONE + CUSTOM)
    with pytest.raises(KlatError, match="GRUB cannot write"):
        loader.check()


def test_one_line_and_comments_in_a_copy(tmp_path, grub):
    loader = grub(HEAD + HAND_WRITTEN + CUSTOM)
    entries = loader.entries()
    loader.install([OwnEntry("a", entries[1], ("a=1",)), OwnEntry("b", entries[2], ("b=1",))])
    text = (tmp_path / "boot/grub/custom.cfg").read_text()
    assert (
        ' linux /boot/vmlinuz-6.1.0-rt root=/dev/sda1 "dyndbg=file a.c +p" it=\\\'s a=1;\n' in text
    )
    assert "root=/dev/sda1 b=1 ; initrd /i\n" in text


def test_the_commands_of_a_submenu_are_part_of_a_copy(tmp_path, grub):
    menu = "submenu S { set more='x y'; menuentry A { linux /boot/vmlinuz-6.1 $more; }; export more; }\n"
    loader = grub(HEAD + menu + CUSTOM)
    assert loader.default().words == ("x", "y")
    loader.install([OwnEntry("a", loader.default(), ("b",))])
    text = (tmp_path / "boot/grub/custom.cfg").read_text()
    assert text.index("set more='x y'") < text.index("linux /boot/vmlinuz-6.1 $more b;")
    assert parse(text)


def head_with(default: str) -> str:
    return HEAD.replace('"0"', default)


UNKNOWN, UNKNOWN_DEFAULT = ".* known only during the boot", "GRUB's default is known only during"
OTHER, B = "source (hd1,1)/other.cfg\n", "set default=b;"
IN_IF = ONE.replace("linux", "if search x; then linux").replace("; }", "; fi; }")


@pytest.mark.parametrize(
    "config, why",
    [
        (HEAD + CUSTOM, "no entry that boots Linux"),
        (HEAD + "if [ -f /x ]; then\n" + ONE + "fi\n" + CUSTOM, f"grub.cfg, line 20: {UNKNOWN}"),
        (HEAD + OTHER + ONE + CUSTOM, f"grub.cfg, line 19: {UNKNOWN}"),
        (head_with("gone") + ONE + OTHER, f"grub.cfg, line 20: {UNKNOWN}"),
        (HEAD + IN_IF, f"line 19: {UNKNOWN}.*linux"),
        *(
            (head_with(f'"{name}"') + ONE, UNKNOWN_DEFAULT)
            for name in ("$cmdpath", "${HOUR}", "$net_default_mac", "$lockdown")
        ),
        (head_with("xen") + XEN, "line 21: klat cannot measure what multiboot2 starts"),
        (head_with("windows") + XEN, "cannot measure what chainloader starts"),
        (HEAD + "menuentry 'A {\n" + CUSTOM, r"grub.cfg, line 19: GRUB cannot read"),
        (HEAD + "function f { f; }\nf\n" + ONE, "line 19: .* nested deeper than klat can follow"),
        (head_with("memtest") + TRIXIE, "line 28: klat finds no Linux kernel in .*memtest"),
        (head_with("memtest5") + TRIXIE, "line 29: klat finds no Linux kernel"),
        (head_with("tool") + TRIXIE, "line 30: klat finds no Linux kernel in .*tool.bin"),
        (head_with("2") + TRIXIE, "line 25: .* only during the boot"),
        (head_with("menu") + TRIXIE, "line 32: klat cannot measure what configfile"),
        (HEAD + ONE.replace("{", "x {").replace("ro", "$2"), "line 19: .* arguments of the entry"),
        (HEAD + "for i in /*.iso; do\n" + ONE + "done\n", "line 20: .* only during the boot"),
        (HEAD + ONE + "configfile ${prefix}/custom.cfg\n", "line 20: .*another menu"),
        (HEAD + ONE.replace("linux", "boot; linux"), "line 19: .* whether GRUB executes linux"),
        (HEAD + f"search.fs_uuid 5eed disk\nif [ $disk ]; then {B} fi\n" + ONE, UNKNOWN_DEFAULT),
    ],
    ids="none if source gone linux default hour network lockdown xen windows quote function memtest memtest5 tool number configfile"
    " argument pattern menu boot variable".split(),
)
def test_what_klat_cannot_read_is_refused_with_its_line(grub, config, why):
    with pytest.raises(KlatError, match=why):
        grub(config).default()


MENU, SET, SAVE = "menuentry", "   set next_entry=\n", "   save_env next_entry\n"
OPEN = ONE.replace("--id", "--unrestricted --id")
WAITS, PASSWORD = "GRUB waits for a key", "GRUB asks for a password"


@pytest.mark.parametrize(
    "old, new, why",
    [
        (SAVE, "", "would boot a kernel that failed once more"),
        (SET, "", "would boot a kernel that failed once more"),
        ("save_env", "save_env -f ${prefix}/other", "leaves .*next_entry=klat-once.* once more"),
        (SET + SAVE, SAVE + SET, "would boot a kernel that failed once more"),
        ("   save_env", "   if search x; then save_env next_entry; fi; false", UNKNOWN),
        ("  load_env\n", "  true\n", "line 12: .* this default does not use next_entry"),
        ("  load_env\n", "  load_env saved_entry\n", "does not use next_entry"),
        ("load_env", "load_env --file=/other", "line 4: klat cannot find the file"),
        ("menuentry", "set prefix=/other\nmenuentry", "cannot save klat_entry"),
        ("  source ${config", "  echo ${config", "does not read custom.cfg"),
        (CUSTOM, f"submenu S {{\n{CUSTOM}}}\n", "does not read custom.cfg"),
        (CUSTOM, f"if search x; then\n{CUSTOM}fi\n", "does not read custom.cfg"),
        ("${next_entry}", "${nothing}", "does not use next_entry"),
        (
            HEAD + ONE,
            SAVED + ONE.replace("{", "{ saved_entry=$chosen; save_env saved_entry;"),
            "leaves .*saved_entry=klat-once.* once more",
        ),
        ("menuentry", "set timeout=-1\nmenuentry", "timeout=-1, GRUB waits for a key"),
        ("set timeout=5", "", "waits for a key; set GRUB_TIMEOUT"),
        (MENU, f"set timeout=5\nif [ $recordfail = 1 ]; then timeout=; fi\n{MENU}", WAITS),
        (
            MENU,
            f"if search x; then set timeout=-1; fi\n{MENU}",
            f"line 19: with timeout=.timeout, {WAITS}",
        ),
        ("set timeout=5", "if search x; then timeout=5; fi", "GRUB waits for a key"),
        ("menuentry", "if cmostest 1:2; then unset timeout; fi\nmenuentry", "line 19: .* waits"),
        ("  load_env\n", "  load_env\n  load_env -f $prefix/timeouts\n", "line 5: .* waits"),
        ("set timeout=5", "set timeout=4294967295", "line 1: with timeout=4294967295, GRUB waits"),
        *(
            (MENU, f"set superusers={users}\n{MENU}", f"line 20: {PASSWORD}")
            for users in ("root", "")  # an empty list too: then nobody can log in
        ),
        (ONE, f"set superusers=root\nsubmenu S {{\n{ONE}}}\n", f"line 21: {PASSWORD}"),
        (ONE, f"set superusers=root\nsubmenu S {{\n{OPEN}}}\n", f"line 21: {PASSWORD}"),
    ],
)
def test_a_grub_that_would_not_return_to_the_default_is_refused(tmp_path, grub, old, new, why):
    config = HEAD + ONE + CUSTOM
    assert old in config
    loader = grub(config.replace(old, new))
    write(tmp_path / "boot/grub/timeouts", b"# GRUB Environment Block\ntimeout=\n")
    with pytest.raises(KlatError, match=why):
        loader.check()


def test_a_timeout_that_ends_whatever_the_boot_decides_is_accepted(grub):
    hidden = "if keystatus; then if keystatus --shift; then timeout=-1; else timeout=0; fi; fi\n"
    button = "if cmostest 1:2; then set timeout=30; else set timeout=9; fi\n"
    grub(HEAD.replace("set timeout=5\n", button + hidden) + ONE + CUSTOM).check()


COUNTING = """\
if [ -n "${boot_counter}" -a "${boot_success}" = "0" ]; then
  if [ "${boot_counter}" = "0" -o "${boot_counter}" = "-1" ]; then
    set default=1
    set boot_counter=-1
  else
    decrement boot_counter
  fi
  save_env boot_counter
fi
if [ "${boot_success}" = "1" ]; then set boot_indeterminate=0; else increment boot_indeterminate; fi
set boot_success=0
save_env boot_success boot_indeterminate
"""
COUNTED = HEAD + COUNTING + ONE
INITRDLESS = """\
set partuuid=5eed
function initrdfail {
    if [ -n "${have_grubenv}" ]; then if [ -n "${partuuid}" ]; then
      if [ -z "${initrdfail}" ]; then
        set initrdfail=1
        if [ -n "${boot_once}" ]; then set prev_entry="${default}"; save_env prev_entry; fi
      fi
      save_env initrdfail
    fi; fi
}
"""
PREVIOUS = """\
if [ "${initrdfail}" = 2 ]; then
   set initrdfail=
elif [ "${initrdfail}" = 1 ]; then
   set next_entry="${prev_entry}"
   set prev_entry=
   save_env prev_entry
   if [ "${next_entry}" ]; then set initrdfail=2; fi
fi
"""
CLOUD = HEAD.replace('if [ "${next', PREVIOUS + 'if [ "${next') + INITRDLESS + UBUNTU_CLOUD


@pytest.mark.parametrize(
    "config, environment, why",
    [
        (COUNTED, "boot_success=1\n", ""),
        (COUNTED, "boot_success=0\nboot_counter=0\n", "line 21: .* unset boot_counter"),
        (
            COUNTED,
            "boot_success=1\nboot_counter=2\n",
            "line 21: .* next_entry, after a boot that sets boot_counter, boot_indeterminate, boot_success",
        ),
        (SAVED + ONE + ONE.replace("a", "b"), "prev_saved_entry=b\nsaved_entry=a\n", ""),
        (
            SAVED
            + "saved_entry=$prev_saved_entry; save_env saved_entry\n"
            + ONE
            + ONE.replace("A --id a", "B --id b"),
            "prev_saved_entry=b\nsaved_entry=a\n",
            "leaves saved_entry=b.* the default would then be 'B', not 'A'",
        ),
        (CLOUD, "", "leaves .*initrdfail=1, prev_entry=klat-once.* once more"),
        (CLOUD.replace("set partuuid=5eed", ""), "", ""),
        (HEAD + "set superusers=root\n" + ONE.replace("--id", "--unrestricted --id"), "", ""),
    ],
)
def test_what_a_boot_leaves_in_grubenv_decides_the_next_boot(grub, config, environment, why):
    with pytest.raises(KlatError, match=why) if why else nullcontext():
        grub(config + CUSTOM, environment).check()


@pytest.mark.parametrize(
    "config, name",
    [
        (UBUNTU, "/boot/vmlinuz-6.8.0-45-generic"),
        (UBUNTU, "/boot/initrd.img-6.8.0-45-generic"),
        (ONE.replace("/boot", "(loop)/boot"), "(loop)/boot/vmlinuz-6.1"),
    ],
)
def test_an_entry_without_a_file_is_listed_and_refused(tmp_path, grub, config, name):
    loader = grub(HEAD + config + CUSTOM)
    (tmp_path / name.lstrip("/")).unlink(missing_ok=True)
    default = loader.default()
    why = rf"line \d+: klat does not find the file {re.escape(name)}"
    with pytest.raises(KlatError, match=why):
        check_entries([], default, [])
    with pytest.raises(KlatError, match=why):
        entry_copy(loader, BootSetting("a", default.identity))


def test_entries_of_klat_must_not_move_the_default(tmp_path, grub):
    loader = grub(HEAD + CUSTOM + ONE)
    with pytest.raises(KlatError, match="come before the default of GRUB"):
        loader.check()
    (tmp_path / "boot/grub/grub.cfg").write_text(head_with("a") + CUSTOM + ONE)
    loader.check()


def test_variables_of_another_file(tmp_path, grub):
    slots = "load_env -f $prefix/slots slot\n"
    config = head_with('"$slot"').replace("  load_env\n", f"  load_env\n{slots}")
    two = ONE + ONE.replace("A --id a", "B --id b") + CUSTOM
    loader = grub(config + two)
    (tmp_path / "boot/grub/slots").write_text("# GRUB Environment Block\nslot=b\nnext_entry=a\n")
    assert loader.default().title == "B"
    loader.check()
    (tmp_path / "boot/grub/grub.cfg").write_text(config + "save_env -f $prefix/slots slot\n" + two)
    with pytest.raises(KlatError, match="line 20: klat cannot follow the variables of .*slots"):
        loader.check()


# Photon OS keeps parts of its command line in files that may be missing.
PHOTON = """\
search -n -u 5eed -s
load_env -f /base.cfg
if [ -f /net.cfg ]; then load_env -f /net.cfg; else set net=net.ifnames=0; fi
menuentry Photon { linux /boot/vmlinuz-6.1 $base $net; }
"""
BLOCK = "# GRUB Environment Block\n"


@pytest.mark.parametrize(
    "files, config, words",
    [
        ({"base": f"{BLOCK}base=quiet\n"}, PHOTON, "quiet net.ifnames=0"),
        ({"base": f"{BLOCK}base=quiet\n", "net": f"{BLOCK}# net=x\nnet=y\n"}, PHOTON, "quiet y"),
        ({"base": "base=quiet\n"}, PHOTON, "$base net.ifnames=0"),  # not a block of GRUB
        ({}, PHOTON, "$base net.ifnames=0"),
        ({}, PHOTON.replace("-n -u 5eed -s", "--fs-uuid --set 5eed"), "$base net.ifnames=0"),
        ({}, PHOTON.replace("-s", "--set=root").replace(" /", " ($root)/"), "$base $net"),
        (
            {},
            PHOTON.replace(
                "load_env -f /base.cfg", "if load_env -f /b; then base=d; else base=c; fi"
            ),
            "c net.ifnames=0",
        ),
        ({}, PHOTON.replace("search", "echo"), ""),
        ({"boot/efi/base": f"{BLOCK}base=quiet\n"}, PHOTON, "$base net.ifnames=0"),
        ({}, PHOTON.replace("/base", "/boot/efi/base"), ""),  # below another partition
        ({}, PHOTON.replace("5eed", "5eed2"), ""),
        ({}, PHOTON.replace("-s", "--set=disk"), ""),
        ({}, PHOTON.replace("-u", "-l"), ""),
        ({}, PHOTON.replace("-s", "-s\nset root=hd1"), ""),
        ({}, PHOTON.replace("search", "if search x; then search").replace("-s", "-s; fi"), ""),
        ({}, PHOTON.replace("/base", "(hd1)/base"), ""),
    ],
)
def test_variables_of_a_file_that_may_be_missing(tmp_path, grub, files, config, words):
    """Empty `words`: the menu is refused, because klat does not know whether the file exists. A variable without a
    value stays in the words."""
    loader = grub(HEAD + config + CUSTOM)
    write(
        tmp_path / "proc/self/mountinfo",
        b"23 1 8:2 / / rw - ext4 /dev/sda2 rw\n24 1 8:1 / /boot/efi rw - vfat /dev/sda1 rw\n",
    )
    for number, name in enumerate(("5eed", "5eed2"), 2):
        write(tmp_path / f"dev/sda{number}", b"")
        (tmp_path / "dev/disk/by-uuid").mkdir(parents=True, exist_ok=True)
        (tmp_path / "dev/disk/by-uuid" / name).symlink_to(f"../../sda{number}")
    for name, text in files.items():
        write(tmp_path / f"{name}.cfg", text)
    refused = pytest.raises(
        KlatError, match=r"line 2\d: klat cannot find the file .*base.cfg, which"
    )
    with nullcontext() if words else refused:
        assert " ".join(loader.default().words) == words
        loader.check()


def test_a_disk_that_grub_cannot_write_is_the_first_reason(tmp_path, grub):
    loader = grub("set timeout=5\n" + PROXMOX)
    (tmp_path / "tools/grub-probe").write_text("#!/bin/sh\necho zfs\n")
    with pytest.raises(KlatError, match="is on zfs, where GRUB cannot write"):
        loader.check()


def test_a_menu_by_hand_is_refused_with_what_it_lacks(tmp_path, grub):
    by_hand = f"set timeout=5\nset default=1\n{HAND_WRITTEN}"
    with pytest.raises(KlatError, match="line 2: .* add the lines of /etc/grub.d/00_header that"):
        grub(by_hand).check()
    (tmp_path / "boot/grub/grubenv").unlink()
    assert len(Grub(tmp_path).entries()) == 3
    with pytest.raises(
        KlatError, match="grubenv is missing, .* run grub-editenv /.*/grubenv create"
    ):
        Grub(tmp_path).check()
    (tmp_path / "boot/grub/grubenv").touch()
    config = tmp_path / "boot/grub/grub.cfg"
    config.write_text(HEAD + NIXOS)
    with pytest.raises(KlatError, match=r"add this line .*: (source \S+custom.cfg)$") as refusal:
        Grub(tmp_path).check()
    config.write_text(f"{HEAD}{NIXOS}{str(refusal.value).rpartition(': ')[2]}\n")
    Grub(tmp_path).check()


@pytest.mark.parametrize("default", ["s", "s>a"])
def test_a_submenu_sets_its_own_default(tmp_path, grub, default):
    """As grub-emu 2.06 does."""
    menu = f"submenu S --id s {{\nset default=1\n{ONE}{ONE.replace('A --id a', 'B --id b')}}}\n"
    loader = grub(head_with(f"'{default}'") + menu + CUSTOM)
    assert loader.default().title == "B"
    loader.check()
    late = menu.replace("default=1", "default=$cmdpath")
    (tmp_path / "boot/grub/grub.cfg").write_text(HEAD + late + CUSTOM)
    with pytest.raises(KlatError, match="line 19: the default of this submenu is known only"):
        loader.default()


# GRUB searches only the top menu for a name. It takes 3rd for a number.
DEFAULTS = {
    "5 first": ["inner", "Inner", "gone", "gone>x", "-1"],
    "Inner": ["menu>inner", "1>Inner"],
    "Deep": ["menu", "menu>0>0", "menu>9"],
    "C > D": ["C >> D", "0x2"],
    "Same": ["3rd", "same"],
}


@pytest.mark.parametrize("default, title", [(d, t) for t, all in DEFAULTS.items() for d in all])
def test_grub_finds_its_default(grub, default, title):
    """As grub-emu 2.06 does."""
    linux = "linux /boot/vmlinuz-6.1 ro;"
    menu = f"""\
menuentry '5 first' {{ {linux} }}
submenu M --id menu {{
  submenu N {{ menuentry Deep {{ {linux} }}; }}
  menuentry Inner --id inner {{ {linux} }}
}}
menuentry 'C > D' {{ {linux} }}
menuentry Same --id same {{ {linux} }}
menuentry '3rd' --id same {{ {linux} }}
"""
    loader = grub(head_with(f"'{default}'") + menu)
    assert loader.default().title == title


def test_a_line_that_klat_cannot_read_is_not_the_default_without_a_name(grub):
    """As in openSUSE before somebody has saved a default."""
    snapshots = "if [ -f /.snapshots/x.cfg ]; then source /.snapshots/x.cfg; fi\n"
    assert grub(SAVED + ONE + snapshots + CUSTOM).default().title == "A"


HIDDEN = "hiddenentry 'Text mode' --hotkey 't' { set textmode=true; }\n"


def test_a_hidden_entry_behind_the_default_does_not_move_it(grub):
    """SUSE's GRUB has it, for a start without graphics."""
    assert grub(HEAD + ONE + HIDDEN + CUSTOM).default().title == "A"


def test_a_hidden_entry_before_the_default_can_move_its_number(grub):
    with pytest.raises(KlatError, match="klat does not know what the command hiddenentry adds"):
        grub(HEAD + HIDDEN + ONE + CUSTOM).default()


ZFS = "root=ZFS=rpool/ROOT/a"


@pytest.mark.parametrize(
    "running, path, words, above, mount",
    [
        ("/@/boot/vmlinuz-x", "/@/boot", "rootflags=subvol=@", "", ""),
        ("/@/boot/vmlinuz-x", "/@/boot", "rootflags=subvolid=256", "", ""),
        ("/boot/vmlinuz-x", "/@/boot", "ro", "", "/@ / rw - btrfs /dev/sda2 rw"),
        ("/@boot/vmlinuz-x", "/@boot", "rootflags=subvol=@", "", ""),
        ("/ROOT/a@/boot/vmlinuz-x", "/ROOT/a@/boot", ZFS, "", ""),
        ("/BOOT/a@/vmlinuz-x", "/BOOT/a@", ZFS, "", ""),
        ("/vmlinuz-x", "", "ro", "", ""),
        ("/@/boot/vmlinuz-x", "/@snap/boot", "rootflags=subvol=@", "@snap", ""),
        ("/boot/vmlinuz-x", "/@/.snapshots/1/snapshot/boot", "", "@/.snapshots/1/snapshot", ""),
        ("/ROOT/a@/boot/vmlinuz-x", "/ROOT/b@/boot", ZFS, "ROOT/b@", ""),
        # The file of the running kernel is gone.
        ("/boot/gone", "/@boot", "rootflags=subvol=@", "", "/@boot /boot rw - btrfs /dev/sda2 rw"),
        ("/@/boot/gone", "/@/boot", "ro", "", "/@/boot /boot rw - btrfs /dev/sda2 rw"),
        ("/@/boot/gone", "/@/boot", "ro", "", "/@ / rw shared:1 - btrfs /dev/sda2 rw"),
        ("/gone", "/BOOT/a@", ZFS, "", "/ /boot rw - zfs bpool/BOOT/a rw"),
        ("/ROOT/a@/boot/gone", "/ROOT/a@/boot", "ro", "", "/ / rw - zfs rpool/ROOT/a rw"),
        # A bind mount, as NixOS has it, in its spelling; and a name with a blank.
        ("/gone", "/tank/@/a/boot", ZFS, "", "/a/boot /boot rw - zfs rpool/tank rw"),
        ("/gone", "/tank/@/b/boot", ZFS, "tank/@/b", "/a/boot /boot rw - zfs rpool/tank rw"),
        ("/gone", "'/my sub/boot'", "ro", "", r"/my\040sub / rw - btrfs /dev/sda2 rw"),
        # An overlay says nothing about GRUB's path.
        ("/@/boot/vmlinuz-x", "/@/boot", "ro", "", "/ / rw - overlay overlay rw"),
        ("/@boot/gone", "/@snap", "ro", "@snap", "/@boot /boot rw - btrfs /dev/sda2 rw"),
        ("/@boot/gone", "/@boot", "ro", "@boot", "/ /boot rw - ext4 /dev/sda2 rw"),
        ("(hd0,gpt2)/@boot/gone", "/@boot", "ro", "", ""),
        ("/boot/gone", "/@boot", "ro", "@boot", ""),
    ],
)
def test_a_kernel_of_another_subvolume_is_not_read_from_this_system(
    tmp_path, grub, running, path, words, above, mount
):
    entry = f"menuentry A --id a {{ linux {path}/vmlinuz-x root=UUID=5eed {words}; }}\n"
    loader = grub(HEAD + CUSTOM)
    (tmp_path / "boot/grub/grub.cfg").write_text(HEAD + entry + CUSTOM)
    write(tmp_path / "boot/vmlinuz-x", bzimage("6.6.1"))
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/cmdline").write_text(f"BOOT_IMAGE={running} root=UUID=5eed\n")
    (tmp_path / "proc/self/mountinfo").write_text(f"23 1 0:21 {mount}\n" if mount else "")
    entry = loader.default()
    assert entry.release == ("" if above else "6.6.1")
    assert (f"if {above} is a subvolume or data set, " in entry.doubt) is bool(above)


@pytest.mark.parametrize(
    "path, mount",
    [
        ("($drive2)/@nix/store/k", "/@nix /nix rw - btrfs /dev/sda2 rw"),
        ("($drive2)/nix/@/store/k", "/ /nix rw - zfs tank/nix rw"),
    ],
)
def test_a_kernel_is_found_where_its_subvolume_is_mounted(tmp_path, grub, path, mount):
    """As in NixOS, whose kernels are in no /boot."""
    loader = grub(
        HEAD + f"menuentry A {{ search --set=drive2 x; linux {path} init=/x; }}\n" + CUSTOM
    )
    write(tmp_path / "nix/store/k", bzimage("6.6.60"))
    write(tmp_path / "proc/cmdline", b"BOOT_IMAGE=/gone\n")
    write(tmp_path / "proc/self/mountinfo", f"23 1 0:21 {mount}\n")
    assert (loader.default().release, loader.default().doubt) == ("6.6.60", "")
    (tmp_path / "nix/store/k").unlink()
    assert "does not find the file" in loader.default().doubt


def test_a_subvolume_of_another_disk_is_not_taken_for_one_of_this_system(tmp_path, grub):
    loader = grub(HEAD + CUSTOM)
    entry = "menuentry A { linux /@/boot/vmlinuz-6.0 root=UUID=5eed; }\n"
    (tmp_path / "boot/grub/grub.cfg").write_text(HEAD + entry + CUSTOM)
    write(tmp_path / "mnt/backup/boot/vmlinuz-6.0", bzimage("6.0.1"))
    write(tmp_path / "proc/cmdline", b"BOOT_IMAGE=/gone\n")
    table = b"23 1 0:21 /@ / rw - btrfs /dev/sda2 rw\n24 1 0:22 /@ /mnt/backup rw - btrfs /dev/sdb2 rw\n"
    write(tmp_path / "proc/self/mountinfo", table)
    assert "does not find the file" in loader.default().doubt
