"""The entries of GRUB's menu, and those that klat adds."""

from __future__ import annotations

from pathlib import Path

import made_grub
import pytest
from made_grub import CONFIG, STOCK

from klat.base.errors import KlatError
from klat.campaign.boot_loader import BootEntry, EntryCopy
from klat.campaign.grub import Grub


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made_grub.make(tmp_path, monkeypatch)
    return tmp_path


def answer(root: Path, tool: str, text: str) -> None:
    (root / "tools" / f"grub-{tool}").write_text(f'#!/bin/sh\necho "{text}"\n')


def entry(root: Path, identity: str) -> BootEntry:
    return next(each for each in Grub(root).entries() if each.identity == identity)


def test_entries_of_all_menus_that_boot_linux(root: Path) -> None:
    found = Grub(root).entries()
    assert [each.identity for each in found] == [
        "gnulinux-simple-5eed",
        "gnulinux-advanced-5eed>gnulinux-6.1.0-56-rt-amd64-advanced-5eed",
        STOCK,
        "other",
    ]
    assert [each.release for each in found] == ["6.1.0-56-rt-amd64"] * 2 + [
        "6.1.0-56-amd64",
        "5.10",
    ]
    assert found[2].words == ("root=UUID=5eed", "ro", "quiet")
    assert found[0].title == "Debian GNU/Linux"


def test_the_default_is_the_first_or_the_saved_entry(root: Path) -> None:
    assert Grub(root).default().identity == "gnulinux-simple-5eed"
    config = root / "boot" / "grub" / "grub.cfg"
    config.write_text(CONFIG.replace('set default="0"', 'set default="${saved_entry}"'))
    (root / "boot/grub/grubenv").write_text(f"saved_entry={STOCK}\n")
    assert Grub(root).default().identity == STOCK
    config.write_text(CONFIG.replace('set default="0"', 'set default="uefi-firmware"'))
    with pytest.raises(KlatError, match="'uefi-firmware', is not an entry that boots Linux"):
        Grub(root).default()


def test_own_entries_are_copies_with_words(root: Path) -> None:
    loader = Grub(root)
    loader.install([EntryCopy("it's", entry(root, STOCK), ("nohz_full=1", "panic=10"))])
    text = (root / "boot" / "grub" / "custom.cfg").read_text()
    (root / "boot" / "grub" / "grub.cfg").write_text(CONFIG + text)
    own = entry(root, "klat-it's")
    assert own.words == ("root=UUID=5eed", "ro", "quiet", "nohz_full=1", "panic=10")
    assert "initrd\t/boot/initrd.img-6.1.0-56-amd64" in text and "It''s {" in text


def test_a_choice_is_for_one_boot(root: Path) -> None:
    Grub(root).choose(EntryCopy("rt", entry(root, STOCK), ()))
    assert (root / "reboot").read_text() == f"--boot-directory={root}/boot klat-rt\n"


def test_the_entry_that_was_started_is_known_until_the_next_choice(root: Path) -> None:
    loader = Grub(root)
    loader.install([EntryCopy("rt", entry(root, STOCK), ())])
    text = (root / "boot/grub/custom.cfg").read_text()
    assert "set klat_entry=klat-rt\nsave_env klat_entry\n\t\techo" in text
    assert loader.started() == ""
    with (root / "boot/grub/grubenv").open("a") as file:
        file.write("klat_entry=klat-rt\n")  # as GRUB's save_env does
    assert loader.started() == "rt"
    loader.choose(EntryCopy("rt", entry(root, STOCK), ()))
    assert loader.started() == ""


@pytest.mark.parametrize(
    "words, runs",
    [
        ("BOOT_IMAGE=/boot/vmlinuz root=a ro quiet", True),
        ("initrd=\\initrd root=a ro quiet", True),
        ("root=a ro quiet splash", False),
        ("root=a ro", False),
    ],
)
def test_an_entry_runs_if_release_and_all_words_are_equal(words: str, runs: bool) -> None:
    exact = BootEntry("a", "A", "6.1", ("root=a", "ro", "quiet"))
    assert exact.is_running("6.1", words.split()) == runs
    assert not exact.is_running("6.2", words.split())


def test_a_variable_of_the_boot_loader_stands_for_any_words() -> None:
    """Ubuntu's entries end with $vt_handoff."""
    entry = BootEntry("a", "A", "6.1", ("root=a", "$vt_handoff", "klat.campaign=1"))
    assert entry.is_running("6.1", ("root=a", "vt.handoff=7", "klat.campaign=1"))
    assert entry.is_running("6.1", ("root=a", "klat.campaign=1"))
    assert not entry.is_running("6.1", ("root=a", "vt.handoff=7"))


def test_a_variable_does_not_stand_for_the_words_of_klat() -> None:
    """Else klat's copy of the default entry would count as the default."""
    default = BootEntry("a", "A", "6.1", ("root=a", "$vt_handoff"))
    assert default.is_running("6.1", ("root=a", "vt.handoff=7"))
    assert not default.is_running("6.1", ("root=a", "vt.handoff=7", "klat.campaign=1", "panic=10"))


@pytest.mark.parametrize("choice", ["", "next_entry=\n"])
def test_nothing_is_left(root: Path, choice: str) -> None:
    loader = Grub(root)
    with (root / "boot/grub/grubenv").open("a") as file:
        file.write(choice)
    before = loader.files()
    loader.install([EntryCopy("rt", entry(root, STOCK), ())])
    loader.choose(EntryCopy("rt", entry(root, STOCK), ()))
    loader.install([EntryCopy("other", entry(root, STOCK), ())])
    assert loader.files() != before
    loader.remove()
    loader.remove()
    assert loader.files() == before


def test_a_disk_that_grub_cannot_write_is_refused(root: Path) -> None:
    Grub(root).check()
    for found in ("lvm", "btrfs", "diskfilter mdraid"):
        answer(root, "probe", found)
        with pytest.raises(KlatError, match="GRUB cannot write"):
            Grub(root).check()


def test_a_custom_file_of_the_user_is_kept(root: Path) -> None:
    own = root / "boot" / "grub" / "custom.cfg"
    own.write_text("menuentry 'mine' {\n}\n")
    with pytest.raises(KlatError, match="is not klat's"):
        Grub(root).check()
    Grub(root).remove()
    assert own.exists()


def test_no_grub(tmp_path: Path) -> None:
    with pytest.raises(KlatError, match="there is no grub.cfg"):
        Grub(tmp_path)


def test_a_choice_of_the_user_for_the_next_boot_is_kept(root: Path) -> None:
    environment = root / "boot/grub/grubenv"
    environment.write_text("next_entry=klat-stock\n")
    Grub(root).check()
    environment.write_text("next_entry=windows\n")
    with pytest.raises(
        KlatError, match="GRUB's entry 'windows' is already chosen for the next boot"
    ):
        Grub(root).check()


def test_two_kernels_of_one_release_are_distinguished_by_their_path() -> None:
    entry = BootEntry("a", "A", "6.1", ("ro",), image="/vmlinuz-6.1.old")
    assert entry.is_running("6.1", ("BOOT_IMAGE=(hd0,gpt2)/vmlinuz-6.1.old", "ro"))
    assert not entry.is_running("6.1", ("BOOT_IMAGE=(hd0,gpt2)/vmlinuz-6.1", "ro"))


def test_a_release_that_only_the_name_shows_decides_nothing() -> None:
    entry = BootEntry("a", "A", "6.6-x86_64", ("ro",), is_release_read=False)
    assert entry.is_running("6.6.10-1-MANJARO", ("ro",))
