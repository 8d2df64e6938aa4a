"""For all actions of `klat campaign`: the file of the campaign, the boot loader, the check for root."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from klat.base.errors import KlatError
from klat.commands._types import add_flag

if TYPE_CHECKING:
    from klat.campaign.boot_loader import BootLoader
    from klat.campaign.campaign_file import Campaign

STATE = Path("/var/lib/klat/campaign.json")
# The menus of U-Boot, SYSLINUX, Raspberry Pi, LILO, Limine and rEFInd.
_UNKNOWN_MENUS = (
    *("/boot/extlinux/extlinux.conf", "/boot/extlinux.conf", "/boot/syslinux/syslinux.cfg"),
    *("/boot/firmware/config.txt", "/boot/config.txt", "/etc/lilo.conf"),
    *("/boot/limine.conf", "/boot/limine/limine.conf", "/boot/refind_linux.conf"),
)
_OF_PROXMOX = Path("/etc/kernel/proxmox-boot-uuids")


def add_boot_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    help_text = "each kernel starts the next one by kexec, without firmware and boot loader"
    add_flag(group.add_argument, "--kexec", help_text)
    group.add_argument(
        "--boot-command",
        metavar="COMMAND",
        help="a shell command that makes a kernel boot next, once; it gets the release and the command"
        " line; without arguments it takes back its choice",
    )


def this_loader(arguments: argparse.Namespace) -> BootLoader:
    """What the options choose, or else the boot loader of this machine."""
    from klat.campaign.efi import EfiStub
    from klat.campaign.grub import Grub
    from klat.campaign.systemd_boot import SystemdBoot
    from klat.campaign.without_menu import Kexec, UserCommand

    if arguments.kexec:
        return Kexec()
    if arguments.boot_command is not None:
        return UserCommand(arguments.boot_command)
    if _OF_PROXMOX.exists():
        raise KlatError(
            f"the boot loader of this machine reads its menu from partitions that proxmox-boot-tool keeps ({_OF_PROXMOX})"
            " and that are not mounted, so klat cannot change the menu; give --kexec or --boot-command"
        )
    if SystemdBoot().has_booted():
        return SystemdBoot()
    if EfiStub().has_booted():
        return EfiStub()
    try:
        return Grub()
    except KlatError as error:
        unknown = ", ".join(filter(os.path.exists, _UNKNOWN_MENUS))
        why = f"klat cannot choose an entry of {unknown}" if unknown else error
        raise KlatError(
            f"no boot loader that klat can use: {why}; klat sees systemd-boot and UEFI firmware only in"
            " a boot with EFI variables, and a real-time kernel has them only with efi=runtime; to boot"
            " without a menu, give --kexec or --boot-command"
        ) from error


def loader_of(campaign: Campaign) -> BootLoader:
    from klat.campaign.efi import EfiStub
    from klat.campaign.grub import Grub
    from klat.campaign.systemd_boot import SystemdBoot
    from klat.campaign.without_menu import Kexec, UserCommand

    default = campaign.default, campaign.default_words
    if campaign.boot_command is not None:
        return UserCommand(campaign.boot_command, *default)
    if campaign.loader == Kexec.name:
        return Kexec(*default)
    if campaign.loader == EfiStub.name:
        return EfiStub(*default)
    if campaign.loader == SystemdBoot.name:
        return SystemdBoot()
    return Grub()


def need_root(action: str) -> None:
    if os.geteuid() != 0:
        raise KlatError(f"{action} needs root; use sudo")


def refuse_other_programs() -> None:
    """KlatError if KLAT_PROGRAMS names the programs: after a reboot klat would use others."""
    if os.environ.get("KLAT_PROGRAMS"):
        raise KlatError("klat does not have KLAT_PROGRAMS after a reboot; unset it")
