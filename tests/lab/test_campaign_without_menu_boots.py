"""Campaigns with real reboots in QEMU, by kexec and by a command of the user."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import harness
import pytest
from campaign_image import GRUB, KLAT_PACKAGES, build, opened
from test_campaign_boots import PLAN, files_are_as_before, follow, prepare

# Makes a kernel boot next, once, by a menu entry of its own.
BOOT_ONCE = """\
rm -f /boot/grub/custom.cfg
grub-editenv /boot/grub/grubenv unset next_entry
[ $# = 0 ] && exit
cat > /boot/grub/custom.cfg <<EOF
menuentry once --id once {
	linux /boot/vmlinuz-$1 $2
	initrd /boot/initrd.img-$1
}
EOF
grub-editenv /boot/grub/grubenv set next_entry=once
"""
BOOTLOADER = "environment/proc/sys/kernel/bootloader_type"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        harness.lacking("this test needs root and mmdebstrap")
    disk = build(tmp_path_factory.mktemp("campaign"), GRUB, (*KLAT_PACKAGES, "kexec-tools"))
    with opened(disk) as root:
        (root / "srv/boot_once").write_text(BOOT_ONCE)
        for unit in ("kexec.service", "kexec-load.service"):
            (root / "etc/systemd/system" / unit).symlink_to("/dev/null")
    yield disk
    disk.unlink()  # pytest keeps its directories


@pytest.mark.long
@pytest.mark.parametrize(
    "option, loader",
    [("--kexec", "208"), ("--boot-command 'sh /srv/boot_once'", "114")],
    ids=["kexec", "command"],
)
def test_a_check_without_a_menu_boots_each_kernel_and_comes_back_from_a_panic(
    image: Path, tmp_path: Path, option: str, loader: str
) -> None:
    plan = PLAN.replace("campaign plan", f"campaign plan {option}")
    prepare(image, f"{plan} && klat campaign check")
    campaign = follow(image, 6, tmp_path / "out")
    assert (campaign["phase"], campaign["why"]) == ("ended", ""), campaign
    assert [attempt["outcome"] for attempt in campaign["attempts"]] == ["done"] * 3
    assert files_are_as_before(tmp_path / "out")
    sessions = list((tmp_path / "out/results/.check").glob("*/*"))
    assert {session.parent.name for session in sessions} == {"stock", "rt"}
    assert {(session / BOOTLOADER).read_text().strip() for session in sessions} == {loader}
