"""Entries that start another system than the running one."""

from __future__ import annotations

from pathlib import Path

import pytest

from klat.base.errors import KlatError
from klat.campaign.boot_loader import BootEntry
from klat.campaign.root_file_system import check_roots


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
def test_an_entry_of_another_system_is_refused(
    root: Path, running: str, line: str, key: str
) -> None:
    entry = BootEntry("a", "Debian (on /dev/sdb1)", "6.1", tuple(line.split()))
    if not key:
        check_roots([entry], running.split(), root)
        return
    with pytest.raises(KlatError, match=rf"on /dev/sdb1\): its {key} is .* boots another system"):
        check_roots([entry], running.split(), root)


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
def test_the_mount_table_says_which_subvolume_runs(
    root: Path, running: str, line: str, accepted: bool
) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(MOUNTS)
    entry = BootEntry("a", "A", "6.1", ("root=UUID=5eed", line))
    if accepted:
        check_roots([entry], ("root=UUID=5eed", running), root)
        return
    with pytest.raises(KlatError, match="its subvol(id)? is .* boots another system"):
        check_roots([entry], ("root=UUID=5eed", running), root)
