"""Entries and settings that klat refuses before the first reboot."""

import struct
from contextlib import nullcontext
from pathlib import Path

import pytest
from made_kernels import bzimage, unified
from made_tools import write

from klat.base.errors import KlatError
from klat.campaign import entry_checks, kernel_image
from klat.campaign.boot_loader import BootEntry, OwnEntry
from klat.campaign.campaign_file import BootSetting
from klat.campaign.engine import copy_of
from klat.campaign.efi import GLOBAL, EfiVariables
from klat.campaign.entry_checks import check_entries, check_kernels, check_systems, obstacle
from klat.campaign.this_machine import ThisMachine
from klat.commands import _campaign_plan
from klat.lab.architectures import AMD64, ARM64
from klat.machine.kernel_files import Mount

STOPS = """\
single 1 s S -s -b emergency rescue recovery rd.emergency rd.rescue break break=premount rd.break rd.break=cleanup
rdbreak systemd.unit=rescue.target systemd.unit=emergency.target rd.systemd.unit=rescue.target init=/bin/bash "init=/bin/sh"
init="/bin/sh" rdinit=/bin/sh systemd.mask=klat-campaign.service systemd.mask=klat-campaign systemd.run=/bin/true
systemd.confirm_spawn systemd.break rd.systemd.break=pre-mount coreos.inst.install_dev=/dev/sda""".split()
FORGETS = """\
overlayroot=tmpfs overlayroot=crypt:dev=/dev/sdb systemd.volatile systemd.volatile=yes systemd.volatile=overlay
boot=live boot=casper toram rd.live.image root=live:CDLABEL=x rd.overlay=1 systemd.factory_reset=1
systemd.factory-reset ignition.firstboot flatcar.first_boot=detected""".split()
MEASURES = """\
ro rw quiet 2 3 5 emergency_mode=1 singleton rd.emergency=reboot systemd.unit=multi-user.target systemd.unit=graphical.target
init=/sbin/init init=/lib/systemd/systemd init=/nix/store/x/init rdinit=/init systemd.mask=lvm2.service overlayroot=
overlayroot=disabled systemd.volatile=no boot=zfs boot=UUID=5eed rd.shell=0 x="a single b" sysctl.kernel.panic=10
systemd.confirm_spawn=false rd.overlay=0 rd.overlay=LABEL=x overlayroot=device:dev=/dev/sdb systemd.unit=graphical
sysctl.kernel.panic=x fsck.mode=skip systemd.factory_reset=0 ignition.firstboot=0"""


@pytest.mark.parametrize("word", [*STOPS, *FORGETS, "sysctl.kernel.panic=0"])
def test_words_with_which_a_boot_does_not_measure(word):
    assert obstacle(("root=UUID=5eed", "ro", word)).startswith(word.replace('"', ""))


def test_words_with_which_a_boot_measures():
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
    tmp_path, monkeypatch, words, append, why
):
    monkeypatch.setattr("os.uname", lambda: type("Machine", (), {"machine": "x86_64"}))
    entry = BootEntry("a", "A", "6.1", tuple(words.split()))
    default = BootEntry("d", "D", "6.1", ("root=/dev/sda1",))
    copy = copy_of(entry, BootSetting("stock", "a", append), ())
    with pytest.raises(KlatError, match=why) if why else nullcontext():
        check_entries([copy], default, default.words, tmp_path)


def test_a_default_that_does_not_reach_klat_is_refused(tmp_path):
    default = BootEntry("d", "D", "6.1", ("root=/dev/sda1", "single"))
    with pytest.raises(KlatError, match="^D: single"):
        check_entries([], default, ("root=/dev/sda1",), tmp_path)


def test_a_kernel_of_another_machine_is_refused(tmp_path, monkeypatch):
    write(tmp_path / "k", bzimage("6.1"))
    entry = BootEntry("d", "D", "6.1", ("root=/dev/sda1",), tmp_path / "k")
    monkeypatch.setattr(entry_checks, "HOST", AMD64)
    check_entries([], entry, entry.words, tmp_path)
    monkeypatch.setattr(entry_checks, "HOST", ARM64)
    with pytest.raises(KlatError, match="k is a kernel for x86_64, but this machine is aarch64"):
        check_entries([], entry, entry.words, tmp_path)


def test_a_release_takes_the_first_entry_without_an_obstacle():
    words = ("ro", "single"), ("ro", "quiet"), ("ro",)
    entries = [BootEntry(str(n), f"A {n}", "6.1", line) for n, line in enumerate(words)]
    assert _campaign_plan._entry("6.1", entries) is entries[1]
    assert _campaign_plan._entry("A 0", entries) is entries[0]


def test_a_release_is_that_of_the_running_system_and_not_of_a_snapshot(monkeypatch):
    """As openSUSE's menu has them: newer snapshots come first, and each has its own copy of the kernel."""
    running = "root=ZFS=tank/a ostree=/a"
    monkeypatch.setattr(ThisMachine, "words", lambda _: tuple(running.split()))
    snapshot, system = (
        BootEntry(
            f"{number}",
            f"openSUSE ({number})",
            "6.17.7-1-default",
            ("root=ZFS=tank/a", word),
            Path(word),
        )
        for number, word in ((250, "ostree=/b"), (1, "ostree=/a"))
    )
    assert _campaign_plan._entry("6.17.7-1-default", [snapshot, system]) is system
    assert _campaign_plan._entry("250", [snapshot, system]) is snapshot
    assert _campaign_plan._entry("6.17.7-1-default", [snapshot]) is snapshot


@pytest.mark.parametrize(
    "identity, image, kernel",
    [
        ("5eed-0-rescue", "", None),
        ("Rescue", "/vmlinuz-0-rescue-5eed", None),
        ("rescue.conf", "", Path("/efi/5eed/0-rescue/linux")),
    ],
)
def test_a_rescue_entry_does_not_make_its_release_ambiguous(identity, image, kernel):
    rescue = BootEntry(identity, "R", "6.9.5-200.fc39", (), kernel, image)
    usual = BootEntry("a", "A", rescue.release, (), image="/vmlinuz-6.9.5-200.fc39")
    assert _campaign_plan._entry(rescue.release, [rescue, usual]) is usual
    assert _campaign_plan._entry(identity, [rescue, usual]) is rescue
    assert _campaign_plan._entry(rescue.release, [rescue]) is rescue


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
def test_klat_adds_panic_unless_the_kernel_reboots_after_a_panic(words, reboots):
    """As kstrtoint() in lib/kstrtox.c of Linux reads it."""
    entry = BootEntry("a", "A", "6.1", tuple(words.split()))
    copy: OwnEntry = copy_of(entry, BootSetting("stock", "a"), ())
    assert ("panic=10" in copy.append) != reboots


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, device in (("by-uuid/5eed", "sda2"), ("by-label/home", "sdb1")):
        (tmp_path / "dev" / device).parent.mkdir(exist_ok=True)
        (tmp_path / "dev" / device).touch()
        link = tmp_path / "dev/disk" / name
        link.parent.mkdir(parents=True)
        link.symlink_to(f"../../{device}")
    return tmp_path


@pytest.mark.parametrize(
    "running, line, key",
    [
        ("root=UUID=5eed ro", "root=/dev/sda2 quiet", ""),
        ("root=UUID=5eed ro", "root=UUID=5eed rw", ""),
        ("root=UUID=gone", "root=UUID=GONE", ""),
        ("root=UUID=5eed rootflags=subvol=@", "root=UUID=5eed rootflags=subvolid=300", "subvol"),
        ("root=UUID=5eed roothash=a", "root=UUID=5eed roothash=b", "roothash"),
        ("usrhash=a", "usrhash=b", "usrhash"),
        ("root=UUID=5eed", 'root=UUID=5eed "roothash=b"', "roothash"),
        ("systemd.verity_root_data=UUID=5eed", "systemd.verity_root_data=/dev/sda2", ""),
        (
            "systemd.verity_root_data=UUID=5eed",
            "systemd.verity-root-data=/dev/sdb1",
            "systemd.verity_root_data",
        ),
        ("ro", "systemd.verity_usr_hash=/dev/sdb1", "systemd.verity_usr_hash"),
        ("root=UUID=5eed", '"root=/dev/sdb1"', "root"),
        ("root=/dev/nfs nfsroot=h:/a", "root=/dev/nfs nfsroot=h:/b", "nfsroot"),
        ("root=/dev/nfs nfsroot=h:/a", "root=/dev/nfs nfsroot=h:/a quiet", ""),
        ("root=UUID=5eed", "root=UUID=5eed loop=/ubuntu/root.disk", "loop"),
        ("root=UUID=5eed ro", "root=UUID=5eed -- root=/dev/sdb1", ""),
        ("ro", "root=/dev/sdb1", ""),
        ("root=UUID=5eed", "init=/nix/store/x", ""),
        ("root=UUID=5eed", "root=$device", ""),
        ("root=UUID=5eed rootflags=subvol=/@,x", "root=UUID=5eed rootflags=subvol=@", ""),
        ("root=UUID=5eed ro", "root=/dev/sdb1", "root"),
        ("root=UUID=5eed ro", "root=LABEL=home", "root"),
        ("root=UUID=5eed ro", "root=UUID=gone", "root"),
        ("root=ZFS=r/a", "root=ZFS=r/b", "root"),
        ("root=UUID=5eed", "root=UUID=5eed rootflags=subvol=@/.snapshots/1/snapshot", "subvol"),
        ("root=UUID=5eed ostree=/ostree/1/0", "root=UUID=5eed ostree=/ostree/1/1", "ostree"),
    ],
)
def test_an_entry_of_another_system_is_refused(root, running, line, key):
    entry = BootEntry("a", "Debian (on /dev/sdb1)", "6.1", tuple(line.split()))
    why = rf"on /dev/sdb1\): its {key} is .* boots another system"
    with pytest.raises(KlatError, match=why) if key else nullcontext():
        check_systems([entry], running.split(), root)


HASH = 16 * "5eed"
CHOOSES_SYSTEM = [
    *(f"composefs={HASH}", f"composefs=?{HASH}", f"composefs.digest={HASH}", f"a.b=sha256:{HASH}"),
    *("verity.usr=PARTUUID=5eed", f"verity.usrhash={HASH}", "usr=LABEL=USR-A", "bootfs=tank/a"),
    *("androidboot.slot_suffix=_a", "rauc.slot=A", "bootslot=1", "rd.steamos.efi=PARTUUID=5eed"),
    *("snapd_recovery_mode=run", "snapd_recovery_system=20260101", "snap_core=core_1.snap"),
    *('dm-mod.create="vroot,,,ro,0 1 verity"', "rd.systemd.pull=raw:root:http://h/a.raw"),
    *("overlayroot=device:dev=a1", "rd.overlay=LABEL=x"),
    *("systemd.mount-extra=/dev/sdb:/usr", "systemd.image_filter=root=a"),
]


@pytest.mark.parametrize("word", CHOOSES_SYSTEM)
def test_a_word_that_chooses_the_system_must_be_that_of_the_running_system(root, word):
    """Also beside a word with a variable."""
    other = word[:-2] + "0" * (2 - word.count('"')) + '"' * word.count('"')
    running = ("root=UUID=5eed", word)
    check_systems([BootEntry("a", "A", "6.1", ("quiet", *running))], running, root)
    for words in (("root=UUID=5eed", other), ("root=UUID=5eed",), ("root=$device", other)):
        with pytest.raises(KlatError, match="A: its .* boots another system"):
            check_systems([BootEntry("a", "A", "6.1", words)], running, root)


def test_a_word_that_only_unlocks_or_resumes_may_differ(root):
    root_only = ("root=UUID=5eed",)
    words = (
        "resume=UUID=5eed boot=UUID=5eed rd.luks.uuid=5eed rd.lvm.lv=a/b cryptdevice=UUID=5eed:r"
    )
    more = (*words.split(), f"systemd.machine_id={HASH[:32]}", "console=tty0", "overlayroot=0")
    check_systems([BootEntry("a", "A", "6.1", root_only)], root_only + more, root)


MOUNTS = """\
22 1 0:20 / / rw - rootfs rootfs rw
23 1 0:21 /@ / rw,relatime shared:1 - btrfs /dev/sda2 rw,ssd,subvolid=256,subvol=/@
24 23 0:21 /@home /home rw - btrfs /dev/sda2 rw,subvolid=257,subvol=/@home
"""


@pytest.mark.parametrize(
    "running, line, accepted",
    [
        ("rootflags=subvol=@", "rootflags=subvolid=256", True),
        ("rootflags=subvolid=256", "rootflags=subvol=/@", True),
        ("rootflags=subvol=@", "rootflags=subvolid=257", False),
        ("", "rootflags=subvol=@", True),
        ("", "", True),
        ("rootflags=subvol=@", "", False),  # the default subvolume can be another
        ("", "rootflags=subvol=@home", False),
    ],
)
def test_the_mount_table_says_which_subvolume_runs(root, running, line, accepted):
    write(root / "proc/self/mountinfo", MOUNTS.encode())
    entry = BootEntry("a", "A", "6.1", ("root=UUID=5eed", line))
    refused = pytest.raises(KlatError, match="its subvol(id)? is .* boots another system")
    with nullcontext() if accepted else refused:
        check_systems([entry], ("root=UUID=5eed", running), root)


@pytest.mark.parametrize(
    "line, other",
    [
        ("root=UUID=5eed", ""),
        ("root=/dev/sda2 rootflags=subvol=@", ""),
        ("root=gpt-auto", ""),
        ("root=LABEL=home", "root is .*/dev/sdb1"),
        ("root=UUID=gone", "root is UUID=gone"),
        ("root=/dev/nfs nfsroot=h:/a", "nfsroot"),
        ("root=UUID=5eed rootflags=subvol=@home", "subvol is @home"),
    ],
)
def test_the_mount_table_names_the_root_that_the_command_line_does_not(root, line, other):
    write(root / "proc/self/mountinfo", MOUNTS.encode())
    entry = BootEntry("a", "A", "6.1", tuple(line.split()))
    with pytest.raises(KlatError, match=f"its {other}") if other else nullcontext():
        check_systems([entry], ("ro",), root)


@pytest.mark.parametrize(
    "running, line, accepted",
    [
        ("ro", "root=UUID=feed", True),
        ("ro", "root=/dev/sdd", True),
        ("root=/dev/sdc", "root=UUID=feed", True),
        ("root=/dev/sdd", "root=/dev/sdc", True),
        ("ro", "root=/dev/sda2", False),
        ("root=UUID=feed", "root=UUID=5eed", False),
    ],
)
def test_each_device_of_a_btrfs_names_it(root, running, line, accepted):
    for name in ("sdc", "sdd"):
        (root / "dev" / name).touch()
        write(root / f"sys/fs/btrfs/feed/devices/{name}/size", b"1\n")
    (root / "dev/disk/by-uuid/feed").symlink_to("../../sdd")
    write(
        root / "proc/self/mountinfo", b"23 1 0:21 / / rw - btrfs /dev/sdc rw,subvolid=5,subvol=/\n"
    )
    entry = BootEntry("a", "A", "6.1", (line,))
    with nullcontext() if accepted else pytest.raises(KlatError, match="its root is "):
        check_systems([entry], (running,), root)


def test_a_device_without_another_name_is_known(monkeypatch):
    mounted = [Mount("/", "/", "ext4", "/dev/null", "rw")]
    monkeypatch.setattr(entry_checks, "mounts", lambda root: mounted)
    check_systems([BootEntry("a", "A", "6.1", ("root=/dev/null",))], ("ro",))
    with pytest.raises(KlatError, match="its root is /dev/zero, but .* is /dev/null"):
        check_systems([BootEntry("a", "A", "6.1", ("root=/dev/zero",))], ("ro",))


def kernel(path: Path, certificates: int) -> BootEntry:
    """A file with the headers of a kernel that UEFI can start."""
    image = bytearray(1024)
    image[:2] = b"MZ"
    struct.pack_into("<I", image, 0x3C, 0x80)
    image[0x80:0x84] = b"PE\0\0"
    struct.pack_into("<H", image, 0x98, 0x20B)
    struct.pack_into("<II", image, 0x98 + 144, 512 if certificates else 0, certificates)
    path.write_bytes(image)
    return BootEntry(path.name, path.name, "", (), path)


def switch(root: Path, value: int) -> None:
    (root / "sys/firmware/efi/efivars").mkdir(parents=True, exist_ok=True)
    EfiVariables(GLOBAL, root).write("SecureBoot", bytes([value]))


def test_an_unsigned_kernel(tmp_path):
    signed, unsigned = kernel(tmp_path / "signed", 1480), kernel(tmp_path / "unsigned", 0)
    check_kernels([signed, unsigned], tmp_path)
    switch(tmp_path, 0)
    check_kernels([signed, unsigned], tmp_path)
    switch(tmp_path, 1)
    check_kernels([signed], tmp_path)
    with pytest.raises(KlatError, match="unsigned is not signed, so Secure Boot would not"):
        check_kernels([signed, unsigned], tmp_path)


@pytest.mark.parametrize("image", [b"", b"MZ" + bytes(100), bytes(1024), b"\x1f\x8b" * 500])
def test_another_file_has_no_signature(tmp_path, image):
    (tmp_path / "vmlinuz").write_bytes(image)
    assert not kernel_image.is_signed(tmp_path / "vmlinuz")


def test_a_missing_kernel(tmp_path):
    entry = BootEntry("gone", "Gone", "", (), tmp_path / "vmlinuz")
    with pytest.raises(KlatError, match="Gone: cannot read .*vmlinuz: No such file"):
        check_kernels([entry], tmp_path)
    check_kernels([BootEntry("far", "On another disk", "", ())], tmp_path)


@pytest.mark.parametrize(
    "sections, refused", [((".cmdline", ".linux"), True), ((".linux",), False)]
)
def test_a_unified_kernel_image_that_takes_no_parameters(tmp_path, monkeypatch, sections, refused):
    image = tmp_path / "arch.efi"
    image.write_bytes(unified(dict.fromkeys(sections, b"quiet")))
    monkeypatch.setattr(kernel_image, "is_signed", lambda _: True)
    switch(tmp_path, 1)
    entry = BootEntry("arch.efi", "Arch", "", (), image)
    with pytest.raises(KlatError, match="switch off Secure Boot") if refused else nullcontext():
        check_kernels([entry], tmp_path)
