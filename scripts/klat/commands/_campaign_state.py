"""For all actions of `klat campaign`: the file of the campaign, the boot loader, the check for root."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from klat.base.errors import KlatError

if TYPE_CHECKING:
    from klat.campaign.boot_loader import BootLoader

STATE = Path("/var/lib/klat/campaign.json")


def this_loader() -> BootLoader:
    """The boot loader of this machine."""
    from klat.campaign.systemd_boot import SystemdBoot

    if SystemdBoot().has_booted():
        return SystemdBoot()
    try:
        return loader_named("grub")
    except KlatError as error:
        raise KlatError(
            f"{error}, and klat sees no systemd-boot; a real-time kernel needs efi=runtime on its"
            " command line for klat to see it"
        ) from error


def loader_named(name: str) -> BootLoader:
    from klat.campaign.grub import Grub
    from klat.campaign.systemd_boot import SystemdBoot

    if name == SystemdBoot.name:
        return SystemdBoot()
    return Grub()


def need_root(action: str) -> None:
    if os.geteuid() != 0:
        raise KlatError(f"klat campaign {action} needs root: use sudo")
