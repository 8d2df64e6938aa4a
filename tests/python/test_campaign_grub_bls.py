"""The entries of Fedora's GRUB, which are in files of the Boot Loader Specification."""

from pathlib import Path

import made_grub
import pytest
from made_tools import write

from klat.base.errors import KlatError
from klat.campaign.boot_loader import OwnEntry
from klat.campaign.grub import Grub
from klat.campaign.grub_bls import _file_version, bls_entries

OLD, NEW, RESCUE = "5eed-6.9.5-200.fc39.x86_64", "5eed-6.10.3-100.fc39.x86_64", "5eed-0-rescue"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made_grub.make_fedora(tmp_path, monkeypatch)
    return tmp_path


def environment(root: Path) -> Path:
    return root / "boot/grub2/grubenv"


def test_entries_are_in_the_order_of_the_menu(root):
    entries = Grub(root).entries()
    assert [entry.identity for entry in entries] == [NEW, OLD, RESCUE]
    assert entries[0].title == "Fedora Linux (6.10.3-100.fc39.x86_64) 39 (Server Edition)"
    assert entries[0].release == "6.10.3-100.fc39.x86_64"
    assert entries[0].words == ("root=UUID=5eed", "ro", "rhgb", "quiet")
    assert entries[0].kernel == root / "boot/vmlinuz-6.10.3-100.fc39.x86_64"


@pytest.mark.parametrize(
    "newer, older",
    [
        ("a-6.10-1", "a-6.9-9"),
        ("a-6.1.1-1", "a-6.1-5"),
        ("a-6.1-1", "a-6.1~rc1-1"),
        ("a-6.1-1.2", "a-6.1-1.fc39"),
        ("a-6.1-1+rt", "a-6.1-1"),
        ("b", "a-6.1-1"),
    ],
)
def test_files_are_sorted_as_versions_of_rpm(tmp_path, newer, older):
    for name in (older, newer):
        (tmp_path / f"{name}.conf").write_text("linux /vmlinuz\n")
    assert [entry.identity for entry in bls_entries(tmp_path)] == [newer, older]


def test_variables_come_from_grubenv_or_else_from_grub_cfg(root):
    words = Grub(root).entries()[1].words
    assert words == ("root=UUID=5eed", "ro", "fallback", "rhgb", "$tuned_params")
    with environment(root).open("a") as file:
        file.write("kernelopts=root=/dev/sda2 ro\ntuned_params=skew_tick=1\n")
    words = Grub(root).entries()[1].words
    assert words == ("root=/dev/sda2", "ro", "rhgb", "skew_tick=1")


@pytest.mark.parametrize(
    "saved, default",
    [
        (f"saved_entry={OLD}\n", OLD),
        ("saved_entry=1\n", OLD),
        ("saved_entry=Fedora Linux (0-rescue) 39 (Server Edition)\n", RESCUE),
        ("", NEW),
        ("saved_entry=5eed-gone\n", NEW),
    ],
)
def test_the_default_is_the_saved_entry_or_the_newest(root, saved, default):
    environment(root).write_text(saved)
    assert Grub(root).default().identity == default


def test_own_entries_have_the_commands_of_blscfg(root):
    loader = Grub(root)
    loader.check()
    loader.install([OwnEntry("old", loader.default(), ("nohz_full=1", "klat.campaign=1"))])
    lines = (root / "boot/grub2/custom.cfg").read_text().splitlines()
    kernel = "linux /vmlinuz-6.9.5-200.fc39.x86_64 $kernelopts rhgb $tuned_params"
    assert lines[1] == "menuentry 'klat: old' --unrestricted --id klat-old {"
    assert lines[4:] == [
        "load_video",
        "set gfxpayload=keep",
        "insmod gzio",
        f"{kernel} nohz_full=1 klat.campaign=1",
        "initrd /initramfs-6.9.5-200.fc39.x86_64.img",
        "}",
    ]


def test_a_directory_without_the_tools_of_its_grub_is_not_used(root):
    (root / "boot/grub").mkdir()
    (root / "boot/grub/grub.cfg").write_text("menuentry Old { linux /vmlinuz-5.10; }\n")
    assert Grub(root).default().identity == OLD


def test_another_directory_of_entries_is_refused(root):
    config = root / "boot/grub2/grub.cfg"
    text = config.read_text()
    config.write_text(f"set blsdir=/@/boot/loader/entries\n{text}")
    assert Grub(root).default().identity == OLD
    config.write_text(f"set blsdir=/mine\n{text}")
    with pytest.raises(
        KlatError, match="grub.cfg, line 20: klat cannot read the entries of blscfg in /mine"
    ):
        Grub(root).default()


OTHER = {  # GRUB's directory is on the partition of the entries, and Fedora's GRUB reads the files as GRUB 2.14 does
    "etc/os-release": "ID=arch\n",
    "proc/self/mountinfo": "23 1 8:1 / /boot rw - ext4 /dev/sda1 rw\n",
    "boot/loader/entries/arch.conf": "title Arch\nlinux /vmlinuz-a\noptions ro quiet \n",
    "boot/loader/entries/arch-lts.conf": "# a\n title  LTS\nlinux  /vmlinuz-b\nlinux /c\ninitrd /b\n",
}
ENTRY = "boot/loader/entries/arch.conf"


def make_other(root: Path, files: dict[str, str]) -> None:
    for entry in (root / "boot/loader/entries").glob("*"):
        entry.unlink()
    for name, text in {**OTHER, **files}.items():
        write(root / name, text.encode())


def test_blscfg_of_another_grub(root):
    make_other(root, {"boot/grub2/grubenv": "saved_entry=arch-lts\n"})
    loader = Grub(root)
    entries = [(entry.identity, entry.title, entry.words) for entry in loader.entries()]
    assert entries == [("arch-lts", "LTS", ()), ("arch", "Arch", ("ro", "quiet"))]
    assert loader.default().identity == "arch-lts"
    loader.install([OwnEntry("a", loader.default(), ("b",))])
    lines = (root / "boot/grub2/custom.cfg").read_text().splitlines()
    assert lines[4:6] == ["linux /vmlinuz-b b", "initrd /b"]
    (root / "etc/os-release").unlink()  # Fedora's, because of the name grub2
    assert Grub(root).entries()


@pytest.mark.parametrize(
    "files, why",
    [
        ({ENTRY: "title Arch\nlinux\t/vmlinuz a\n"}, "arch.conf, line 2"),
        ({ENTRY: "title\tArch\nlinux /vmlinuz\n"}, "arch.conf, line 1"),
        ({ENTRY: "options  \nlinux /vmlinuz\n"}, "arch.conf, line 1"),
        ({ENTRY: "linux /vmlinuz\r\n"}, "arch.conf, line 1"),
        ({ENTRY: "linux /vmlinuz\noptions $words\n"}, "arch.conf, line 2"),
        ({ENTRY: "title Arch \nlinux /vmlinuz\n"}, "arch.conf, line 1"),
        ({"boot/grub2/grubenv": "early_initrd=ucode.img\n"}, "the variable early_initrd"),
        ({"boot/loader/entries/.old.conf": ""}, "entries/.old.conf"),
        # To RPM a number is newer than a word, also after -.
        ({"boot/loader/entries/arch1.conf": "linux /vmlinuz\n"}, "the order of the files"),
        ({f"boot/loader/entries/a{n}.conf": "linux /v\n" for n in ("1", "01")}, "the order"),
        ({"etc/os-release": "ID=opensuse-microos\nID_LIKE='suse'\n"}, "SUSE's GRUB counts"),
        ({"proc/self/mountinfo": "23 1 8:1 / / rw - ext4 /dev/sda1 rw\n"}, "GRUB may not see"),
    ],
)
def test_entries_that_the_grubs_read_differently_are_refused(root, files, why):
    make_other(root, files)
    with pytest.raises(
        KlatError, match=rf"grub.cfg, line 19: klat cannot read the .* blscfg: .*{why}"
    ):
        Grub(root).default()


@pytest.mark.parametrize(
    "users, superusers, restricted",
    [("$grub_users", "root", False), ("root", "root", True), ("root", "", True)],
)
def test_the_users_of_an_entry(root, users, superusers, restricted):
    """GRUB ignores grub_arg --unrestricted."""
    for file in (root / "boot/loader/entries").glob("*"):
        file.write_text(file.read_text().replace("$grub_users", users))
    config = root / "boot/grub2/grub.cfg"
    config.write_text(f"set superusers={superusers}\n{config.read_text()}")
    if restricted:
        with pytest.raises(KlatError, match=f"{OLD}.conf: GRUB asks for a password"):
            Grub(root).check()
    else:
        Grub(root).check()


def test_what_grub_counts_at_each_boot_is_not_a_change(root):
    """After a boot by Fedora's GRUB, boot_success is 0 until somebody has logged in."""
    text = environment(root).read_text()
    environment(root).write_text(f"{text}boot_success=1\n{'#' * 40}")
    loader = Grub(root)
    before = loader.files()
    copy = OwnEntry("old", loader.default(), ("klat.campaign=old",))
    loader.install([copy])
    loader.choose(copy)
    assert loader.files() != before
    loader.remove()
    environment(root).write_text(f"{text}boot_success=0\nboot_indeterminate=0\n{'#' * 19}")
    assert loader.files() == before
    environment(root).write_text(f"saved_entry={NEW}\n{'#' * 19}")
    assert loader.files() != before


@pytest.mark.parametrize(
    "name", ["grub2/grub.cfg", "grub2/custom.cfg", "grub2/slots", "loader/entries/a.conf"]
)
def test_a_file_larger_than_2_mib_is_refused(root, name):
    config = root / "boot/grub2/grub.cfg"
    config.write_text(config.read_text() + "load_env -f $prefix/slots slot\n")
    (root / "boot/grub2/slots").touch()
    with (root / "boot" / name).open("ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(KlatError, match=f"boot/{name}: is larger than 2,097,152 bytes"):
        Grub(root).check()


def test_an_entry_that_changed_is_seen(root):
    before = Grub(root).files()
    (root / f"boot/loader/entries/{NEW}.conf").write_text("linux /other\n")
    assert Grub(root).files() != before


@pytest.mark.parametrize(
    "text, title, body",
    [
        (
            "title\tA b\nlinux\t/k\ninitrd\t/i\noptions\ta  b\nversion\t6.1\n",
            "/k",  # "title\tA" is the key
            ["linux /k late", "initrd /i"],
        ),
        (
            "title\tA\nlinux \t/k\noptions \ta  b\ninitrd\t\t/i\n",
            "A",
            ["linux /k a  b", "initrd /i"],
        ),
        ("  title A\r\nlinux /k\r\n# c\r\noptions a \r\n", "A", ["linux /k a"]),
        (
            "linux /k\ninitrd /i\ninitrd /j\noptions a\noptions b",
            "/k",
            ["linux /k a", "initrd /i /j"],
        ),
        ("title A\nlinux /k\ndevicetree /d.dtb\n", "A", ["linux /k late", "devicetree /d.dtb"]),
        ("title A\nlinux /k\n\noptions a\n", "A", ["linux /k late"]),
        ("title A\nLinux /k\n", "A", []),
        ("title A\n\nlinux /k\n", "A", []),
    ],
)
def test_lines_of_a_file(tmp_path, text, title, body):
    """As GRUB reads them: it takes the first line of a key, and stops at a line without a value."""
    (tmp_path / "a.conf").write_bytes(text.encode())
    (entry,) = bls_entries(tmp_path, {"default_kernelopts": "late"})
    assert (entry.title, list(entry.body[3:])) == (title, body)
    assert bool(entry.why) != bool(body)


def test_grub_adds_an_early_initramfs(tmp_path):
    (tmp_path / "a.conf").write_text("linux /boot/k\ninitrd /boot/i\n")
    (entry,) = bls_entries(tmp_path, {"early_initrd": "ucode.img more.img"})
    assert entry.body[-1] == "initrd /boot/ucode.img /boot/more.img /boot/i"


def test_a_file_that_grub_reads_only_in_part_is_named(root):
    (root / "boot/loader/entries/new.conf").write_text("title New\n\nlinux /vmlinuz\n")
    assert "no further than line 2" in Grub(root).left_out()["New"]


@pytest.mark.parametrize("saved, default", [(f"{OLD}\n", OLD), ("0x1\n", OLD), ("5eed\n", NEW)])
def test_grub_of_fedora_takes_an_identifier_before_a_number(root, saved, default):
    environment(root).write_text(f"saved_entry={saved}")
    assert Grub(root).default().identity == default


@pytest.mark.parametrize(
    "newer, older",
    [("a-6.10", "a-6.9"), ("a", "a~1"), ("a-1", "a~1"), ("a-1", "ab")]
    + [("a-b1", "a.b1"), ("ab", "a")],
)
def test_files_are_sorted_as_versions_of_gnulib(newer, older):
    """As sort -V of coreutils does."""
    assert _file_version(f"{newer}.conf") > _file_version(f"{older}.conf")
