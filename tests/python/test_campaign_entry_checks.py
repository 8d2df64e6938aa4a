"""Entries and settings that klat refuses before the first reboot."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_kernels import bzimage, write

from klat.base.errors import KlatError
from klat.campaign import entry_checks
from klat.campaign.boot_loader import BootEntry, OwnEntry
from klat.campaign.boot_order import BootSetting
from klat.campaign.engine import copy_of
from klat.campaign.entry_checks import check_entries, obstacle
from klat.commands import _campaign_plan
from klat.lab.architectures import AMD64, ARM64

STOPS = """\
single 1 s S -s -b emergency rescue recovery rd.emergency rd.rescue break break=premount rd.break rd.break=cleanup
rdbreak systemd.unit=rescue.target systemd.unit=emergency.target rd.systemd.unit=rescue.target init=/bin/bash "init=/bin/sh"
init="/bin/sh" rdinit=/bin/sh systemd.mask=klat-campaign.service systemd.mask=klat-campaign systemd.run=/bin/true
systemd.confirm_spawn""".split()
FORGETS = """\
overlayroot=tmpfs overlayroot=crypt:dev=/dev/sdb systemd.volatile systemd.volatile=yes systemd.volatile=overlay
boot=live boot=casper toram rd.live.image root=live:CDLABEL=x rd.overlay=1""".split()
MEASURES = """\
ro rw quiet 2 3 5 emergency_mode=1 singleton rd.emergency=reboot systemd.unit=multi-user.target systemd.unit=graphical.target
init=/sbin/init init=/lib/systemd/systemd init=/nix/store/x/init rdinit=/init systemd.mask=lvm2.service overlayroot=
overlayroot=disabled systemd.volatile=no boot=zfs boot=UUID=5eed rd.shell=0 x="a single b" sysctl.kernel.panic=10
systemd.confirm_spawn=false rd.overlay=0 rd.overlay=LABEL=x overlayroot=device:dev=/dev/sdb systemd.unit=graphical
sysctl.kernel.panic=x fsck.mode=skip"""


@pytest.mark.parametrize("word", [*STOPS, *FORGETS, "sysctl.kernel.panic=0"])
def test_words_with_which_a_boot_does_not_measure(word: str) -> None:
    assert obstacle(("root=UUID=5eed", "ro", word)).startswith(word.replace('"', ""))


def test_words_with_which_a_boot_measures() -> None:
    assert obstacle(MEASURES.split()) == ""
    running = ["init=/sbin/preinit", "systemd.unit=kiosk.target"]
    assert obstacle(running) != "" and obstacle(running, running) == ""


@pytest.mark.parametrize(
    "words, append, why",
    [
        ("root=/dev/sda1", "", ""),
        ("root=/dev/sda1 single", "", "^A: single on the command line stops the boot"),
        ("root=/dev/sda1", "toram", "^A with toram: toram .* forget the results"),
        ("root=/dev/sda1", "root=/dev/sdz", "^A with root=/dev/sdz: its root is /dev/sdz"),
        ("root=/dev/sda1 klat.campaign=b", "", "remove klat.campaign="),
        ("root=/dev/sda1 -- x", "", "remove --"),
        (f"root=/dev/sda1 {'x' * 2040}", "", "has 2,0.. characters, .* takes only 2,047"),
    ],
)
def test_an_entry_or_a_setting_that_would_not_measure_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, append: str, why: str
) -> None:
    monkeypatch.setattr("os.uname", lambda: type("Machine", (), {"machine": "x86_64"}))
    entry = BootEntry("a", "A", "6.1", tuple(words.split()))
    default = BootEntry("d", "D", "6.1", ("root=/dev/sda1",))
    own = copy_of(entry, BootSetting("stock", "a", append), ())
    if not why:
        check_entries([own], default, default.words, tmp_path)
        return
    with pytest.raises(KlatError, match=why):
        check_entries([own], default, default.words, tmp_path)


def test_a_default_that_does_not_reach_klat_is_refused(tmp_path: Path) -> None:
    default = BootEntry("d", "D", "6.1", ("root=/dev/sda1", "single"))
    with pytest.raises(KlatError, match="^D: single"):
        check_entries([], default, ("root=/dev/sda1",), tmp_path)


def test_a_kernel_of_another_machine_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "k", bzimage("6.1"))
    entry = BootEntry("d", "D", "6.1", ("root=/dev/sda1",), tmp_path / "k")
    monkeypatch.setattr(entry_checks, "HOST", AMD64)
    check_entries([], entry, entry.words, tmp_path)
    monkeypatch.setattr(entry_checks, "HOST", ARM64)
    with pytest.raises(KlatError, match="k is a kernel for x86_64, but this machine is aarch64"):
        check_entries([], entry, entry.words, tmp_path)


def test_a_release_takes_the_first_entry_without_an_obstacle() -> None:
    words = ("ro", "single"), ("ro", "quiet"), ("ro",)
    entries = [BootEntry(str(n), f"A {n}", "6.1", each) for n, each in enumerate(words)]
    assert _campaign_plan._entry("6.1", entries) is entries[1]
    assert _campaign_plan._entry("A 0", entries) is entries[0]


@pytest.mark.parametrize(
    "words, reboots",
    [
        ("panic=5", True),
        ("panic=-1", True),
        ("panic=0x0a", True),
        ("panic=abc panic=5", True),
        ("panic=0x0", False),
        ("panic=00", False),
        ("panic=-0", False),
        ("panic=", False),
        ("panic=abc", False),
        ("panic=10s", False),
        ("panic=1_0", False),
        ("panic=08", False),
        ("panic=4294967296", False),
        ('panic="0"', False),
        ('"panic=0"', False),
        ("panic=5 panic=0", False),
    ],
)
def test_klat_adds_panic_unless_the_kernel_reboots_after_a_panic(words: str, reboots: bool) -> None:
    """As kstrtoint() in lib/kstrtox.c of Linux reads it."""
    entry = BootEntry("a", "A", "6.1", tuple(words.split()))
    own: OwnEntry = copy_of(entry, BootSetting("stock", "a"), ())
    assert ("panic=10" in own.append) != reboots
