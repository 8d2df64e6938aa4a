"""The entries of GRUB's menu, and those that klat adds."""

from pathlib import Path

import made_grub
import pytest
from made_grub import CONFIG, STOCK

from klat.base.errors import KlatError
from klat.campaign.boot_loader import BootEntry, OwnEntry
from klat.campaign.grub import Grub


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made_grub.make(tmp_path, monkeypatch)
    return tmp_path


def answer(root: Path, tool: str, text: str) -> None:
    (root / "tools" / f"grub-{tool}").write_text(f'#!/bin/sh\necho "{text}"\n')


def entry(root: Path, identity: str) -> BootEntry:
    return next(candidate for candidate in Grub(root).entries() if candidate.identity == identity)


def test_own_entries_are_copies_with_words(root):
    loader = Grub(root)
    loader.install([OwnEntry("it's", entry(root, STOCK), ("nohz_full=1", "panic=10"))])
    text = (root / "boot" / "grub" / "custom.cfg").read_text()
    (root / "boot" / "grub" / "grub.cfg").write_text(CONFIG + text)
    copy = entry(root, "klat-it's")
    assert copy.words == ("root=UUID=5eed", "ro", "quiet", "nohz_full=1", "panic=10")
    assert "initrd\t/boot/initrd.img-6.1.0-56-amd64" in text and "It''s {" in text


def test_the_entry_that_was_started_is_known_until_the_next_choice(root):
    loader = Grub(root)
    loader.install([OwnEntry("rt", entry(root, STOCK), ())])
    text = (root / "boot/grub/custom.cfg").read_text()
    assert "set klat_entry=klat-rt\nsave_env klat_entry\n\t\techo" in text
    assert loader.started() == ""
    with (root / "boot/grub/grubenv").open("a") as file:
        file.write("klat_entry=klat-rt\n")  # as GRUB's save_env does
    assert loader.started() == "rt"
    loader.choose(OwnEntry("rt", entry(root, STOCK), ()))
    assert loader.started() == ""
    assert (root / "reboot").read_text() == f"--boot-directory={root}/boot klat-rt\n"


@pytest.mark.parametrize("choice", ["", "next_entry=\n"])
def test_nothing_is_left(root, choice):
    loader = Grub(root)
    with (root / "boot/grub/grubenv").open("a") as file:
        file.write(choice)
    before = loader.files()
    loader.install([OwnEntry("rt", entry(root, STOCK), ())])
    loader.choose(OwnEntry("rt", entry(root, STOCK), ()))
    loader.install([OwnEntry("other", entry(root, STOCK), ())])
    assert loader.files() != before
    loader.remove()
    loader.remove()
    assert loader.files() == before


def test_a_disk_that_grub_cannot_write_is_refused(root):
    Grub(root).check()
    for layers in ("lvm", "btrfs", "diskfilter mdraid"):
        answer(root, "probe", layers)
        with pytest.raises(KlatError, match="GRUB cannot write"):
            Grub(root).check()


def test_a_custom_file_of_the_user_is_kept(root):
    foreign = root / "boot" / "grub" / "custom.cfg"
    foreign.write_text("menuentry 'mine' {\n}\n")
    with pytest.raises(KlatError, match="is not klat's"):
        Grub(root).check()
    Grub(root).remove()
    assert foreign.exists()


def test_no_grub(tmp_path):
    with pytest.raises(KlatError, match="there is no grub.cfg"):
        Grub(tmp_path)


def test_a_choice_of_the_user_for_the_next_boot_is_kept(root):
    environment = root / "boot/grub/grubenv"
    environment.write_text("next_entry=klat-stock\n")
    Grub(root).check()
    environment.write_text("next_entry=windows\n")
    with pytest.raises(
        KlatError, match="GRUB's entry 'windows' is already chosen for the next boot"
    ):
        Grub(root).check()


PLAIN = BootEntry("a", "A", "6.1", ("root=a", "ro", "quiet"))
UBUNTU = BootEntry("a", "A", "6.1", ("root=a", "$vt_handoff"))
COPY = BootEntry("a", "A", "6.1", ("root=a", "$vt_handoff", "klat.campaign=1"))
OLD = BootEntry("a", "A", "6.1", ("ro",), image="/vmlinuz-6.1.old")
LOADERS = BootEntry("a", "A", "6.1", ("BOOT_IMAGE=/l", "root=a", "initrd=/i"))
GUESSED = BootEntry("a", "A", "6.6-x86_64", ("ro",), is_release_read=False)


@pytest.mark.parametrize(
    "entry, release, words, runs",
    [
        (PLAIN, "6.1", "BOOT_IMAGE=/boot/vmlinuz root=a ro quiet", True),
        (PLAIN, "6.1", "initrd=\\initrd root=a ro quiet", True),
        (PLAIN, "6.2", "initrd=\\initrd root=a ro quiet", False),
        (PLAIN, "6.1", "root=a ro quiet splash", False),
        (PLAIN, "6.1", "root=a ro", False),
        # A variable stands for any words, but not for klat's: its copy of the default is not the default.
        (COPY, "6.1", "root=a vt.handoff=7 klat.campaign=1", True),
        (COPY, "6.1", "root=a klat.campaign=1", True),
        (COPY, "6.1", "root=a vt.handoff=7", False),
        (UBUNTU, "6.1", "root=a vt.handoff=7", True),
        (UBUNTU, "6.1", "root=a vt.handoff=7 klat.campaign=1 panic=10", False),
        # The path distinguishes two kernels of one release.
        (OLD, "6.1", "BOOT_IMAGE=(hd0,gpt2)/vmlinuz-6.1.old ro", True),
        (OLD, "6.1", "BOOT_IMAGE=(hd0,gpt2)/vmlinuz-6.1 ro", False),
        (LOADERS, "6.1", "initrd=\\i BOOT_IMAGE=/l root=a initrd=/i", True),
        (LOADERS, "6.1", "root=b", False),
        (GUESSED, "6.6.10-1-MANJARO", "ro", True),  # the name decides nothing
    ],
)
def test_whether_an_entry_runs(entry, release, words, runs):
    assert entry.is_running(release, words.split()) == runs
