"""make static-tarball."""

import os
import platform
import tarfile
from pathlib import Path

import harness
import pytest
from harness import PROGRAMS, ROOT, command
from source_copies import copy_tree, make

from klat.base import programs
from klat.lab import elf

pytestmark = pytest.mark.slow
PT_INTERP = 3  # elf(5)
KLAT = ROOT / "klat"
EPOCH = 1_700_000_000
# With debug information, which has paths.
ENVIRONMENT = {"SOURCE_DATE_EPOCH": str(EPOCH), "CFLAGS": "-O0 -g -gz"}
# Makes the directory a root directory with the kernel's file systems and the archive, and nothing else.
EMPTY = """\
cd "$1" && mkdir proc dev sys && mount -t proc none proc && mount --rbind /dev dev && mount --rbind /sys sys || exit 77
folder=$2
shift 2
for label in a b; do
	for name; do
		chroot . "/$folder/$name" --record "/results/$label/1" --label "$label" --quiet
		case $? in 0 | 3) ;; *) exit 1 ;; esac
	done
done
"""


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two copies, in directories of different names."""
    short, long = (copy_tree(tmp_path_factory.mktemp(name)) for name in ("x", "much-longer-name"))
    for tree, mask in ((short, 0o22), (long, 0o77)):
        before = os.umask(mask)
        try:
            done = make(tree, "-s", "static-tarball", environment=ENVIRONMENT, limit=600)
        finally:
            os.umask(before)
        assert done.status == 0 and "jobserver" not in done.err, str(done)
    return short, long


def is_static(program: Path) -> bool:
    """Whether it names no interpreter, which would load libraries."""
    return PT_INTERP not in {kind for kind, _ in elf.segments(program.read_bytes())}


def static_tarball(tree: Path) -> Path:
    (made,) = (tree / "build").glob("*.tar.gz")
    return made


def test_two_builds_make_the_same_bytes(trees):
    first, second = map(static_tarball, trees)
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_the_static_tarball_holds_the_programs_and_how_to_use_them(trees, tmp_path):
    archive = static_tarball(trees[0])
    version = command([KLAT, "--version"]).out.split()[1].rstrip(",")
    folder = f"klat-programs-{version}-{platform.machine()}"
    assert archive.name == f"{folder}.tar.gz"
    executables = {*PROGRAMS, "load", "network-client", "measure", "measure-for-lava"}
    with tarfile.open(archive) as tar:
        members = {member.name: member for member in tar.getmembers()}
    assert command(["tar", "-xzf", archive, "-C", tmp_path]).status == 0
    assert list(members) == sorted(members)
    files = {name.removeprefix(f"{folder}/"): m for name, m in members.items() if m.isfile()}
    assert set(files) == executables | {"LICENSE", "README"}
    for name, member in files.items():
        assert member.mode == (0o755 if name in executables else 0o644), name
    for member in members.values():
        assert (member.uid, member.gid, member.uname, member.mtime) == (0, 0, "", EPOCH)
    scripts = {"measure", "measure-for-lava"}
    assert all(is_static(tmp_path / folder / name) for name in executables - scripts)


def test_the_five_programs_record_where_nothing_else_is(trees, tmp_path, root):
    """And klat on another machine reads and compares what they recorded."""
    archive = static_tarball(trees[0])
    assert command(["tar", "-xzf", archive, "-C", tmp_path]).status == 0
    folder = archive.name.removesuffix(".tar.gz")
    words = ["unshare", "--mount", "sh", "-c", EMPTY, "sh", tmp_path, folder, *programs.CORE]
    done = command(words, limit=60)
    if done.status == 77:
        harness.lacking(f"this test needs mounts: {done.err}")
    assert done.status == 0, str(done)
    a, b = tmp_path / "results/a", tmp_path / "results/b"
    assert {row["benchmark"] for row in harness.Session(a / "1").rows} == set(programs.CORE)
    done = command([KLAT, "summary", "--verify", a])
    assert done.status == 0 and "each agrees with its samples" in done.err, str(done)
    done = command([KLAT, "compare", a, b])
    assert done.out.startswith("BASE  a: ") and " median of " in done.out, str(done)
