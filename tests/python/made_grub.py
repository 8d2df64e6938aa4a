"""A root directory with a GRUB whose tools do little: they read and write a plain grubenv."""

import re
from pathlib import Path

import made_tools
import pytest

# The parts of a grub.cfg of Debian 12 that matter.
CONFIG = """\
set timeout=5
if [ -s $prefix/grubenv ]; then
  set have_grubenv=true
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="0"
fi
function load_video {
  if [ x$feature_all_video_module = xy ]; then
    insmod all_video
  fi
}
### BEGIN /etc/grub.d/10_linux ###
menuentry 'Debian GNU/Linux' --class debian --class os $menuentry_id_option 'gnulinux-simple-5eed' {
	load_video
	if [ x$grub_platform = xxen ]; then insmod xzio; insmod lzopio; fi
	search --no-floppy --fs-uuid --set=root 5eed
	echo	'Loading Linux 6.1.0-56-rt-amd64 ...'
	linux	/boot/vmlinuz-6.1.0-56-rt-amd64 root=UUID=5eed ro  quiet
	initrd	/boot/initrd.img-6.1.0-56-rt-amd64
}
submenu 'Advanced options for Debian GNU/Linux' $menuentry_id_option 'gnulinux-advanced-5eed' {
	menuentry 'Debian GNU/Linux, with Linux 6.1.0-56-rt-amd64' --class os $menuentry_id_option 'gnulinux-6.1.0-56-rt-amd64-advanced-5eed' {
		linux	/boot/vmlinuz-6.1.0-56-rt-amd64 root=UUID=5eed ro  quiet
		initrd	/boot/initrd.img-6.1.0-56-rt-amd64
	}
	menuentry 'Debian GNU/Linux, with Linux 6.1.0-56-amd64' --class os $menuentry_id_option 'gnulinux-6.1.0-56-amd64-advanced-5eed' {
		echo	'It''s {'
		linux	/boot/vmlinuz-6.1.0-56-amd64 root=UUID=5eed ro  quiet
		initrd	/boot/initrd.img-6.1.0-56-amd64
	}
}
### BEGIN /etc/grub.d/30_uefi-firmware ###
if [ "$grub_platform" = "efi" ]; then
	menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {
		fwsetup
	}
fi
menuentry 'Other Linux' --id other {
	linux	/other/vmlinuz-5.10 root=/dev/sdb1 ro
}
### BEGIN /etc/grub.d/41_custom ###
if [ -f  ${config_directory}/custom.cfg ]; then
  source ${config_directory}/custom.cfg
fi
"""
EDITENV = """\
case $2 in
set) sed -i "/^${3%%=*}=/d" $1; echo "$3" >> $1 ;;
unset) sed -i "/^$3=/d" $1 ;;
list) cat $1 ;;
esac"""
STOCK = "gnulinux-advanced-5eed>gnulinux-6.1.0-56-amd64-advanced-5eed"


# The parts of a grub.cfg of Fedora that matter.
FEDORA_CONFIG = """\
set timeout=5
if [ -f ${config_directory}/grubenv ]; then
  load_env -f ${config_directory}/grubenv
elif [ -s $prefix/grubenv ]; then
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="${saved_entry}"
fi
if [ -z "${kernelopts}" ]; then
  set kernelopts="root=UUID=5eed ro fallback "
fi
insmod blscfg
blscfg
menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {
	fwsetup
}
if [ -f  ${config_directory}/custom.cfg ]; then
  source ${config_directory}/custom.cfg
fi
"""
BLS = """\
title Fedora Linux ({release}) 39 (Server Edition)
version {release}
linux /vmlinuz-{release}
initrd /initramfs-{release}.img
options {options}
grub_users $grub_users
grub_arg --unrestricted
grub_class fedora
"""
FEDORA = {  # the menu has the opposite order
    "0-rescue": "root=UUID=5eed ro rhgb",
    "6.9.5-200.fc39.x86_64": "$kernelopts rhgb $tuned_params",
    "6.10.3-100.fc39.x86_64": "root=UUID=5eed ro rhgb quiet",
}


def make(root: Path, patch: pytest.MonkeyPatch, name: str = "grub", config: str = CONFIG) -> None:
    directory = root / "boot" / name
    directory.mkdir(parents=True)
    (directory / "grub.cfg").write_text(config)
    make_files(root, config)
    tools = root / "tools"
    tools.mkdir()
    (directory / "grubenv").write_text("saved_entry=other\n")
    reboot = f'echo "$*" > {root}/reboot\necho next_entry=$2 >> {directory}/grubenv'
    for tool_name, script in (("reboot", reboot), ("editenv", EDITENV), ("probe", "echo ext2")):
        made_tools.script(tools / f"{name}-{tool_name}", script)
    patch.setenv("PATH", f"{tools}:/usr/bin:/bin")


def make_files(root: Path, config: str) -> None:
    """The kernels and initramfs that the menu names. They are empty."""
    for words in re.findall(r"\b(?:linux|initrd)(?:16)?\s+(.*)", config):
        for name in re.findall(
            r"(?:^|\s)(?:\(\$\w+\)/)?(/[^\s;]+)", words.replace("root=/dev", "")
        ):
            path = root / "boot" / name.removeprefix("/boot/").strip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


def make_fedora(root: Path, patch: pytest.MonkeyPatch) -> None:
    """Its entries are in files of the Boot Loader Specification."""
    make(root, patch, "grub2", FEDORA_CONFIG)
    (root / "etc").mkdir()
    (root / "etc/os-release").write_text("ID=fedora\n")
    entries = root / "boot/loader/entries"
    entries.mkdir(parents=True)
    for release, options in FEDORA.items():
        (root / f"boot/vmlinuz-{release}").touch()
        (root / f"boot/initramfs-{release}.img").touch()
        text = BLS.format(release=release, options=options)
        (entries / f"5eed-{release}.conf").write_text(text)
    (root / "boot/grub2/grubenv").write_text("saved_entry=5eed-6.9.5-200.fc39.x86_64\n")
