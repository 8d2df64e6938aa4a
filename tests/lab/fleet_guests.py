"""Machines for klat fleet: guests with a real clock, which the test's key opens by ssh on the loopback."""

import shutil
import socket
import subprocess
import uuid
from pathlib import Path

import campaign_image
from campaign_image import GRUB, Guest

PACKAGES = ("openssh-server",)
# The mode is not true, because the clock is real. But it makes klat record what an emulated machine has.
COMMAND_LINE = "console=ttyS0 klat.mode=counted net.ifnames=0 panic=-1"
SSH_OPTIONS = (
    "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    " -o ConnectTimeout=10 -o BatchMode=yes"
)
_NETWORK = """\
[Match]
Name=eth0
[Network]
Address=10.0.2.15/24
"""


def build(directory: Path) -> tuple[Path, Path]:
    """The disk of every machine, without klat, and the private key for its root. Needs root."""
    key = directory / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)

    def install(root: Path) -> None:
        (root / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
        shutil.copy(f"{key}.pub", root / "root/.ssh/authorized_keys")
        (root / "etc/systemd/network/guest.network").write_text(_NETWORK)
        wants = root / "etc/systemd/system/multi-user.target.wants"
        (wants / "systemd-networkd.service").symlink_to(
            "/lib/systemd/system/systemd-networkd.service"
        )
        # It takes half a minute of each boot.
        (root / "etc/systemd/system/e2scrub_reap.service").symlink_to("/dev/null")

    disk = campaign_image.build(directory, GRUB, PACKAGES, install, COMMAND_LINE)
    with campaign_image.opened(disk) as root:
        (root / "srv/drive").write_text("exit 0\n")  # the guest stays on
    return disk, key


class Machine(Guest):
    """A guest on a copy of the disk, with a port of the loopback for ssh."""

    clock = ()

    def __init__(self, disk: Path, directory: Path) -> None:
        directory.mkdir()
        own = directory / campaign_image.DISK
        subprocess.run(["cp", "--sparse=always", disk, own], check=True)
        with campaign_image.opened(own) as root:
            (root / "etc/machine-id").write_text(f"{uuid.uuid4().hex}\n")
        self.port = _free_port()
        super().__init__(
            own,
            *("-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:22"),
            *("-device", "virtio-net-pci,netdev=net"),
        )


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
