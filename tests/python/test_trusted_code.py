"""A campaign runs code as root after each boot: who can write this code, or replace it."""

import os
import struct
import sys
import sysconfig
from pathlib import Path

import pytest
import made_tools

from klat.base import owners, programs
from klat.base.errors import KlatError
from klat.campaign import this_machine

STRANGER = 4242
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A klat with one program, which only this user can write. The launcher is a symbolic link."""
    found = tmp_path / "tree"
    for name in ("klat", "scripts/klat/cli.py", "scripts/deps", "pipes/pipes.c", "pipes/pipes"):
        made_tools.script(found / name, "")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/klat").symlink_to(found / "klat")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "bin/klat")])
    monkeypatch.setattr(this_machine, "_PACKAGES", found / "scripts")
    monkeypatch.setattr(programs, "directory", lambda: found)
    return found


@pytest.mark.parametrize(
    "name", (".", "klat", "scripts", "scripts/klat", "scripts/klat/cli.py", "pipes", "pipes/pipes")
)
def test_code_that_every_user_can_write_is_refused(tree, name):
    this_machine.check_code(["pipes"], [])
    (tree / name).chmod(0o777)
    with pytest.raises(KlatError) as refused:
        this_machine.check_code(["pipes"], [])
    assert str(refused.value).startswith(f"{tree / name} can be written by every user, but root")


def test_a_program_that_the_campaign_does_not_run_may_be_anything(tree):
    (tree / "pipes/pipes").chmod(0o777)
    this_machine.check_code(["timer"], [])


@as_root
def test_code_of_another_user_is_refused_unless_that_user_called_sudo(tree, monkeypatch):
    for path in (tree, *tree.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    with pytest.raises(KlatError, match=f"{tree} belongs to user {STRANGER}"):
        this_machine.check_code(["pipes"], [])
    monkeypatch.setattr(owners, "caller", lambda: (STRANGER, STRANGER))
    this_machine.check_code(["pipes"], [])


def test_the_directory_of_a_symbolic_link_in_the_path_is_checked(tree, tmp_path):
    """A user who can write the directory can replace the link."""
    way = tmp_path / "way"
    way.mkdir()
    (way / "tree").symlink_to("../tree")
    (tmp_path / "other").symlink_to(way / "tree")
    file = tmp_path / "other/pipes/pipes"
    assert owners.doubt_of_path(file) == ""
    way.chmod(0o777)
    assert owners.doubt_of_path(file) == f"{way} can be written by every user"


def test_a_directory_like_tmp_may_hold_trusted_files(tree):
    tree.chmod(0o1777)
    assert owners.doubt_of_path(tree / "klat") == ""
    assert owners.doubt_of_path(tree) == f"{tree} can be written by every user"


def posix_list(*entries: tuple[int, int, int]) -> bytes:
    """An access list of the owner, the group, these entries, the mask rwx and others, as the kernel stores it."""
    whole = (
        (1, 7, 2**32 - 1),
        *entries,
        (4, 5, 2**32 - 1),
        (16, 7, 2**32 - 1),
        (32, 5, 2**32 - 1),
    )
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in sorted(whole))


@as_root
@pytest.mark.parametrize(
    "entry, doubt",
    [
        ((2, 6, STRANGER), f"can be written by user {STRANGER}, as its access list says"),
        ((8, 6, STRANGER), f"can be written by group {STRANGER}, as its access list says"),
        ((2, 5, STRANGER), ""),
        ((8, 5, STRANGER), ""),
        ((2, 7, 0), ""),
    ],
)
def test_a_posix_access_list_that_names_a_stranger_is_refused(tree, entry, doubt):
    """The mode then shows only that a group of root can write."""
    for file in (tree / "klat", tree / "scripts"):
        os.setxattr(file, "system.posix_acl_access", posix_list(entry))
        assert file.stat().st_mode & 0o777 == 0o775
        assert owners.doubt(file) == doubt
        descriptor = os.open(file, os.O_PATH)
        assert owners.doubt(descriptor) == doubt
        os.close(descriptor)
        assert owners.doubt_of_path(file) == (doubt and f"{file} {doubt}")
    (tree / "klat").chmod(0o755)  # a mask without w
    assert owners.doubt(tree / "klat") == ""


@pytest.mark.parametrize(
    "kind, flags, permissions, who, doubt",
    [
        (0, 0, 0x2, "alice@example.org", "'alice@example.org'"),
        (0, 0, 0x40000, "1001", "'1001'"),
        (0, 0, 0x40000, "EVERYONE@", "'EVERYONE@'"),
        (0, 0, 0x1, "alice@example.org", ""),
        (0, 0x8, 0x2, "alice@example.org", ""),
        (1, 0, 0x2, "alice@example.org", ""),
        (0, 0, 0xD0046, "OWNER@", ""),
    ],
)
def test_an_access_list_of_nfs_that_names_a_stranger_is_refused(
    tree, monkeypatch, kind, flags, permissions, who, doubt
):
    entries = ((0, 0, 0xD0046, "OWNER@"), (kind, flags, permissions, who), (0, 0, 1, "EVERYONE@"))
    packed = [
        struct.pack(">4I", *numbers, len(name)) + name.encode().ljust(-(-len(name) // 4) * 4, b"\0")
        for *numbers, name in entries
    ]
    xattr = struct.pack(">I", len(entries)) + b"".join(packed)
    read = {"system.nfs4_acl": xattr, "system.posix_acl_access": b""}
    monkeypatch.setattr(os, "getxattr", lambda _, name: read[name])
    why = f"can be written by {doubt}, as its access list says" if doubt else ""
    assert owners.doubt(tree / "klat") == why


@as_root
def test_a_link_of_another_user_in_a_directory_like_tmp_is_refused(tree):
    tree.chmod(0o1777)
    link = tree / "link"
    link.symlink_to("klat")
    assert owners.doubt_of_path(link) == ""
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    assert owners.doubt_of_path(link) == f"{link} belongs to user {STRANGER}"


def test_a_circle_of_links_is_an_error(tree):
    (tree / "scripts/a").symlink_to("b")
    (tree / "scripts/b").symlink_to("a")
    with pytest.raises(KlatError, match="cannot check the owner of .*: Too many levels"):
        this_machine.check_code([], [])


@pytest.mark.parametrize(
    "first, changed",
    [
        ("", "grub-reboot"),
        ("#!{bin}/dash -e\n", "dash"),
        ("#! /usr/bin/env dash\n", "dash"),
        ("#!{bin}/dash", "dash"),
    ],
)
def test_a_tool_of_the_machine_and_its_interpreter_are_checked(tree, monkeypatch, first, changed):
    tools = tree / "bin"
    for name, text in (("grub-reboot", first.format(bin=tools)), ("dash", "")):
        made_tools.write(tools / name, text).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    this_machine.check_code([], ["grub-reboot", "missing"])
    (tools / changed).chmod(0o757)
    with pytest.raises(KlatError, match=f"{tools}/{changed} can be written by every user"):
        this_machine.check_code([], ["grub-reboot"])


def test_the_packages_of_a_virtual_environment_are_checked(tree, monkeypatch):
    packages = tree / "lib/python3.11/site-packages"
    packages.mkdir(parents=True)
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(packages))
    packages.chmod(0o757)
    this_machine.check_code([], [])
    monkeypatch.setattr(sys, "prefix", str(tree))
    with pytest.raises(KlatError, match=f"{packages} can be written by every user"):
        this_machine.check_code([], [])


def test_the_interpreter_of_klat_is_checked(tree, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tree / "python3"))
    (tree / "python3").touch(mode=0o755)
    this_machine.check_code([], [])
    (tree / "python3").chmod(0o757)
    with pytest.raises(KlatError, match="python3 can be written by every user"):
        this_machine.check_code([], [])
