"""klat for the machines of a fleet, from a source tree and from an installed klat."""

import os
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import made_tools
import pytest

from klat.base import programs
from klat.base.errors import KlatError
from klat.commands import _fleet_playbook

TREE = {
    "Makefile": 0o600,
    "klat": 0o700,
    "scripts/klat/cli.py": 0o600,
    "scripts/klat/__pycache__/cli.pyc": 0o600,
    "build/static/commit": 0o600,
    "build/static/pipes/pipes": 0o700,
    "build/static/pipes/pipes.o": 0o600,
    "build/static/load/load": 0o700,
    "build/static/network/client": 0o700,
}
INSTALLED = {
    "bin/klat": 0o755,
    "share/klat/klat/cli.py": 0o644,
    "share/klat/commit": 0o644,
    "libexec/klat/pipes": 0o755,  # needs libraries
    "libexec/klat/static/pipes/pipes": 0o755,
    "libexec/klat/static/load/load": 0o755,
}
PACKED = {
    "bin/klat": 0o755,
    "share/klat/klat": 0o755,
    "share/klat/klat/cli.py": 0o644,
    "share/klat/commit": 0o644,
    "libexec/klat/load-load": 0o755,
    "libexec/klat/pipes": 0o755,
}


class Root:
    """A source tree, or the prefix of an installed klat, and a program of the test in the place of make."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.path = path
        self._patch = patch
        patch.setattr(programs, "root", lambda: path)
        self.make("exit 1")
        patch.setenv("PATH", f"{path}/tools:{os.environ['PATH']}")

    def write(self, contents: dict[str, int], in_tree: bool) -> None:
        self._patch.setattr(programs, "in_tree", lambda: in_tree)
        for name, mode in contents.items():
            made_tools.write(self.path / name, name).chmod(mode)

    def make(self, script: str) -> None:
        made_tools.script(self.path / "tools/make", script)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    return Root(tmp_path, monkeypatch)


def packed(archive: Path) -> dict[str, int]:
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
    assert all((m.uid, m.gid, m.uname, m.gname) == (0, 0, "", "") for m in members)
    return {member.name: member.mode for member in members}


def test_a_source_tree_builds_and_packs_its_static_programs(root):
    root.write(TREE, in_tree=True)
    root.make('echo "$@" >"$(dirname "$0")/called"')
    _fleet_playbook.build_archive(root.path / "klat.tar.gz")
    assert packed(root.path / "klat.tar.gz") == PACKED
    called = (root.path / "tools/called").read_text()
    assert called == f"-s -C {root.path} OUT=build/static STATIC=1 all\n"


def test_an_installed_klat_packs_its_static_programs(root):
    root.write(INSTALLED, in_tree=False)
    _fleet_playbook.build_archive(root.path / "klat.tar.gz")
    assert packed(root.path / "klat.tar.gz") == PACKED
    with tarfile.open(root.path / "klat.tar.gz") as tar:
        program = tar.extractfile("libexec/klat/pipes")
        assert program and program.read() == b"libexec/klat/static/pipes/pipes"


def test_the_machines_have_an_interpreter_of_their_own(root):
    root.write(INSTALLED, in_tree=False)
    (root.path / "bin/klat").write_text("#!/home/me/venv/bin/python3\nimport sys\n")
    _fleet_playbook.build_archive(root.path / "klat.tar.gz")
    with tarfile.open(root.path / "klat.tar.gz") as tar:
        launcher = tar.extractfile("bin/klat")
        assert launcher and launcher.read() == b"#!/usr/bin/python3\nimport sys\n"


def test_programs_that_are_missing_or_cannot_be_built_are_one_line(root, monkeypatch):
    archive = root.path / "klat.tar.gz"
    root.write({"bin/klat": 0o755}, in_tree=False)
    with pytest.raises(
        KlatError, match="there is no .*/libexec/klat/static; in klat.s source tree, run make"
    ):
        _fleet_playbook.build_archive(archive)
    root.write(TREE, in_tree=True)
    root.make("echo one >&2; echo x.c:1: error: no space left >&2; exit 2")
    with pytest.raises(
        KlatError, match="^the static programs cannot be built: x.c.*: no space left$"
    ):
        _fleet_playbook.build_archive(archive)
    monkeypatch.setattr(
        os, "access", lambda path, mode: mode != os.W_OK
    )  # root can write everywhere
    with pytest.raises(KlatError, match="because you cannot write in .*; copy this tree to .*, or"):
        _fleet_playbook.build_archive(archive)
    assert not archive.exists()


def test_builds_at_the_same_time_wait_for_each_other(root):
    root.write(TREE, in_tree=True)
    root.make(f"mkdir {root.path}/busy && sleep 0.1 && rmdir {root.path}/busy")
    with ThreadPoolExecutor() as pool:
        paths = [root.path / str(number) for number in range(3)]
        list(pool.map(_fleet_playbook.build_archive, paths))
