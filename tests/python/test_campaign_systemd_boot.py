"""The entries of systemd-boot, and what klat adds to them."""

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import made_kernels
import made_tools
import pytest
from made_kernels import bzimage
from made_tools import write

from klat.base.errors import KlatError
from klat.campaign import systemd_boot
from klat.campaign.boot_loader import OwnEntry
from klat.campaign.systemd_boot import SystemdBoot

VARIABLES = "sys/firmware/efi/efivars"
STOCK, RT = "5eed-6.1.0-56-amd64.conf", "5eed-6.1.0-56-rt-amd64.conf"
# Replaces bootctl. Its JSON is that of version 252, in Debian 12: one object on each line.
BOOTCTL = """\
#!/usr/bin/python3
import fnmatch, json, os, pathlib, re, sys

root = pathlib.Path("{root}")
oneshot = root / "{variables}/LoaderEntryOneShot-{vendor}"
listed = []
# In names, a minus comes before a point, then come letters, then digits.
order = lambda file: re.sub(r"(\\d)", r"~\\1", file.name.lower())
files = sorted(root.glob("*/loader/entries/*.conf"), reverse=True, key=order)
for file in sorted(files, key=lambda file: "sort-key" not in file.read_text()):
    identity = re.sub(r"\\+\\d+(-\\d+)?$", "", file.stem) + ".conf"
    lines = [line.split(None, 1) for line in file.read_text().split("\\n") if line[:1] not in "#"]
    keys = dict(lines)
    keys["options"] = " ".join(value for key, value in lines if key == "options")
    shown = keys["title"] + " (" + keys.get("version", "") + ")"
    path = dict(id=identity, path=str(file), root=str(file.parents[2]), showTitle=shown)
    listed.append(keys | path)
if "list" in sys.argv and os.environ.get("SYSTEMD_COLORS") != "0":
    print("\\x1b[0;4m")
if sys.argv[1:] == ["list", "--json=short"]:
    for entry in [*listed, {{"id": "auto-reboot-to-firmware-setup", "path": "/sys"}}]:
        print(json.dumps(entry))
elif sys.argv[1:] == ["--print-esp-path"]:
    print(root / "efi")
elif sys.argv[1] == "list":
    pattern = (root / "efi/loader/loader.conf").read_text().split()[1]
    default = next(e["id"] for e in listed if fnmatch.fnmatch(e["id"], pattern))
    for entry in listed:
        mark = " (default) (selected)" if entry["id"] == default else ""
        print(f"        title: {{entry['showTitle']}}{{mark}}\\n           id: {{entry['id']}}\\n")
elif sys.argv[1] == "set-oneshot" and sys.argv[2]:
    oneshot.write_bytes(bytes(4) + (sys.argv[2] + "\\0").encode("utf-16-le"))
else:
    oneshot.unlink()
"""


def variable(root: Path, name: str, value: bytes) -> None:
    path = root / VARIABLES / f"{name}-{systemd_boot._VENDOR}"
    path.write_bytes(bytes(4) + value)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    entries = tmp_path / "efi/loader/entries"
    entries.mkdir(parents=True)
    (entries.parent / "loader.conf").write_text("default *56-amd64.conf\n")
    for release in ("6.1.0-56-amd64", "6.1.0-56-rt-amd64"):
        (entries / f"5eed-{release}.conf").write_text(
            f"title      Debian\nversion    {release}\nsort-key   debian\n"
            f"options    root=/dev/sda2 ro\noptions    quiet\nlinux      /5eed/{release}/linux\n"
        )
    (tmp_path / VARIABLES).mkdir(parents=True)
    variable(tmp_path, "LoaderInfo", "systemd-boot 252\0".encode("utf-16-le"))
    variable(tmp_path, "LoaderFeatures", (0x1FFF).to_bytes(8, "little"))
    facts = {"root": tmp_path, "variables": VARIABLES, "vendor": systemd_boot._VENDOR}
    tool = made_tools.script(tmp_path / "tools/bootctl", BOOTCTL.format(**facts))
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    monkeypatch.setenv("SYSTEMD_COLORS", "1")
    return tmp_path


def copy_of(loader: SystemdBoot, name: str, *append: str) -> OwnEntry:
    return OwnEntry(name, loader.default(), append or ("klat.campaign=1",))


def own_files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "efi/loader/entries").glob("a-klat-*"))


def test_entries_that_boot_linux_by_a_file(root):
    loader = SystemdBoot(root)
    assert loader.has_booted()
    assert [(e.identity, e.release) for e in loader.entries()] == [
        (RT, "6.1.0-56-rt-amd64"),
        (STOCK, "6.1.0-56-amd64"),
    ]
    assert loader.default().identity == STOCK
    assert loader.default().words == ("root=/dev/sda2", "ro", "quiet")
    assert loader.default().kernel == root / "efi/5eed/6.1.0-56-amd64/linux"


def test_the_version_of_a_file_of_the_user_is_not_a_release(root):
    (root / "efi/loader/entries/mine.conf").write_text(
        "title mine\nversion the best\nlinux /vmlinuz-linux\n"
    )
    mine = next(e for e in SystemdBoot(root).entries() if e.identity == "mine.conf")
    assert (mine.release, mine.words) == ("", ())


def test_own_entries_are_copies_with_words(root):
    loader = SystemdBoot(root)
    loader.install([copy_of(loader, "it-s", "nohz_full=1", "panic=10")])
    text = (root / "efi/loader/entries/a-klat-1-it-s+1.conf").read_text()
    assert "options    quiet\n" in text and text.endswith("\noptions nohz_full=1 panic=10\n")
    assert "title klat: it-s\n" in text and "linux      /5eed/6.1.0-56-amd64/linux\n" in text
    assert len(loader.entries()) == 2


def test_the_counter_of_tries_shows_which_entry_was_started(root):
    loader = SystemdBoot(root)
    loader.install([copy_of(loader, "rt"), copy_of(loader, "stock")])
    entries = root / "efi/loader/entries"
    for after in (
        "a-klat-1-rt+0-1.conf",
        "a-klat-1-rt.conf",
    ):  # the second: systemd has marked the boot as good
        loader.choose(copy_of(loader, "rt"))
        assert loader.started() == ""
        (entries / "a-klat-1-rt+1.conf").rename(entries / after)
        assert loader.started() == "rt"
    chosen = root / VARIABLES / f"LoaderEntryOneShot-{systemd_boot._VENDOR}"
    assert chosen.read_bytes()[4:].decode("utf-16-le") == "a-klat-1-*\0"
    loader.choose(copy_of(loader, "stock"))
    assert own_files(root) == ["a-klat-1-rt+1.conf", "a-klat-2-stock+1.conf"]


def test_nothing_is_left(root):
    loader = SystemdBoot(root)
    mine = root / "efi/loader/entries/a-klat-mine.conf"
    mine.write_text("title the user's\nlinux /vmlinuz\n")
    before = loader.files()
    loader.install([copy_of(loader, "rt")])
    loader.choose(copy_of(loader, "rt"))
    loader.install([copy_of(loader, "other")])
    assert loader.files() != before
    loader.remove()
    loader.remove()
    assert loader.files() == before and own_files(root) == ["a-klat-mine.conf"]


def test_an_entry_that_is_gone_is_named(root):
    loader = SystemdBoot(root)
    loader.install([copy_of(loader, "rt")])
    with pytest.raises(KlatError, match="'stock' is gone"):
        loader.choose(copy_of(loader, "stock"))


@pytest.mark.parametrize("sort_key", ["sort-key   debian\n", ""])
@pytest.mark.parametrize("name", [RT, "arch.conf", "a.conf", "A-Z.conf"])
def test_the_entries_of_klat_come_after_the_default(root, sort_key, name):
    (root / "efi/loader/loader.conf").write_text("default *\n")
    for old, new in ((STOCK, STOCK), (RT, name)):
        file = root / "efi/loader/entries" / old
        text = file.read_text().replace("sort-key   debian\n", sort_key)
        file.unlink()
        (file.parent / new).write_text(text)
    (root / "efi/loader/entries" / STOCK).unlink()
    loader = SystemdBoot(root)
    loader.install([copy_of(loader, "rt")])
    assert "klat: rt" in (root / "efi/loader/entries/a-klat-1-rt+1.conf").read_text()
    assert loader.default().identity == name


def test_a_default_that_would_change_is_refused(root):
    (root / "efi/loader/loader.conf").write_text("default *\n")
    for file in (root / "efi/loader/entries").iterdir():
        file.unlink()
    write(root / "efi/loader/entries/a-a.conf", b"title A\nlinux /vmlinuz\n")
    loader = SystemdBoot(root)
    before = loader.files()
    with pytest.raises(KlatError, match="default would be 'a-klat-1-rt.conf', not 'a-a.conf"):
        loader.install([copy_of(loader, "rt")])
    assert loader.files() == before


@pytest.mark.parametrize("name, booted", [(STOCK, STOCK), ("B+2-1.conf", "b.conf"), ("c.conf", "")])
def test_the_variable_names_the_entry_of_this_boot(root, name, booted):
    write(root / "efi/loader/entries/b+2-1.conf", b"title B\nlinux /vmlinuz\n")
    variable(root, "LoaderEntrySelected", f"{name}\0".encode("utf-16-le"))
    assert SystemdBoot(root).booted() == booted


def test_a_title_may_contain_the_mark_of_the_default(root):
    file = root / "efi/loader/entries" / RT  # before the default in the menu
    file.write_text(file.read_text().replace("Debian", "Debian (default)"))
    assert SystemdBoot(root).default().identity == STOCK


def test_a_version_that_cannot_boot_an_entry_once_is_refused(root):
    loader = SystemdBoot(root)
    loader.check()
    variable(root, "LoaderFeatures", (0x7).to_bytes(8, "little"))
    with pytest.raises(KlatError, match="run bootctl update"):
        loader.check()
    variable(root, "LoaderFeatures", (0x1FFF).to_bytes(8, "little"))
    loader.install([copy_of(loader, "rt")])
    loader.choose(copy_of(loader, "rt"))
    with pytest.raises(KlatError, match="already chosen for the next boot"):
        loader.check()


@pytest.mark.parametrize(
    "line, why, name, value",
    [
        ("timeout\tmenu-force", "waits for a key", "LoaderConfigTimeout", "3"),
        ('timeout "menu-force"', "waits for a key", "LoaderConfigTimeout", "3"),
        ("default @saved", "again and again", "LoaderEntryDefault", STOCK),
        ("preferred @saved", "again and again", "LoaderEntryPreferred", STOCK),
    ],
)
def test_a_menu_that_would_not_return_to_the_default_is_refused(root, line, why, name, value):
    with (root / "efi/loader/loader.conf").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(KlatError, match=why):
        SystemdBoot(root).check()
    variable(root, name, f"{value}\0".encode("utf-16-le"))  # overrides loader.conf
    SystemdBoot(root).check()


@pytest.mark.parametrize(
    "value, refused", [("gone-*.conf", True), ("@Saved", True), ("*56-AMD64.conf", False)]
)
def test_a_default_that_no_entry_matches_leaves_that_of_loader_conf(root, value, refused):
    (root / "efi/loader/loader.conf").write_text("default @saved\n")
    variable(root, "LoaderEntryDefault", f"{value}\0".encode("utf-16-le"))
    with pytest.raises(KlatError, match="again and again") if refused else nullcontext():
        SystemdBoot(root).check()


@pytest.mark.parametrize("line", ["default @saved", "timeout menu-force"])
def test_entries_on_another_partition_have_the_loader_conf_of_the_esp(root, line):
    (root / "boot/loader").mkdir(parents=True)
    (root / "efi/loader/entries").rename(root / "boot/loader/entries")
    loader = SystemdBoot(root)
    (root / "boot/loader/loader.conf").write_text(f"{line}\n")
    loader.check()
    before = loader.files()
    (root / "efi/loader/loader.conf").write_text(f"{line}\n")
    assert loader.files() != before
    with pytest.raises(KlatError, match="systemd-boot"):
        loader.check()


def test_a_file_larger_than_2_mib_is_refused(root):
    with (root / "efi/loader/loader.conf").open("ab") as file:
        file.truncate(1 << 22)
    with pytest.raises(KlatError, match="loader.conf: is larger than 2,097,152 bytes"):
        SystemdBoot(root).check()


def test_a_kernel_without_variables_is_refused(tmp_path):
    """A real-time kernel has none by default. A machine with a BIOS has none either."""
    assert not SystemdBoot(tmp_path).has_booted()
    with pytest.raises(KlatError, match="efi=runtime"):
        SystemdBoot(tmp_path).check()


def test_newer_versions_print_an_array():
    objects = [{"id": "a"}, {"id": "b"}]
    assert list(systemd_boot._objects(json.dumps(objects))) == objects
    assert list(systemd_boot._objects('{"id": "a"}\n{"id": "b"}\n')) == objects


UNIFIED = {
    ".osrel": b"NAME=Arch\n",
    ".cmdline": b"root=/dev/sda2 quiet",
    ".linux": bzimage("6.9.1-arch1"),
}


Listed = Callable[..., SystemdBoot]


@pytest.fixture
def listed(root: Path, monkeypatch: pytest.MonkeyPatch) -> Listed:
    """`listed(entry, ...)`: bootctl 252 prints these entries."""

    def print_entries(*entries: dict[str, Any]) -> SystemdBoot:
        shown = [{"root": str(root / "efi"), "showTitle": e["id"], **e} for e in entries]
        monkeypatch.setattr(SystemdBoot, "_default_identity", lambda _: shown[0]["id"])
        text = "\n".join(map(json.dumps, shown))
        monkeypatch.setattr(systemd_boot, "run_tool", lambda *_: text)
        return SystemdBoot(root)

    return print_entries


def unified(root: Path, **more: str) -> dict[str, str]:
    path = root / "efi/EFI/Linux/arch.efi"
    write(path, made_kernels.unified(UNIFIED))
    return {"id": "arch.efi", "path": str(path), "linux": "EFI/Linux/arch.efi", **more}


def test_a_unified_kernel_image_boots_with_its_command_line_and_words(root, listed):
    loader = listed(unified(root, options="root=/dev/sda2 quiet"))
    entry = loader.default()
    assert (entry.release, entry.words) == ("6.9.1-arch1", ("root=/dev/sda2", "quiet"))
    loader.install([copy_of(loader, "uki", "panic=10")])
    text = (root / "efi/loader/entries/a-klat-1-uki+1.conf").read_text()
    assert text.splitlines()[1:] == [
        "title klat: uki",
        "linux /EFI/Linux/arch.efi",
        "options root=/dev/sda2 quiet panic=10",
    ]


@pytest.mark.parametrize("gone", ["efi/loader/entries", "efi/loader", ""])
def test_klat_makes_and_removes_the_directory_of_its_entries(root, listed, monkeypatch, gone):
    """bootctl makes it, but a user with only unified kernel images can have removed it."""
    loader = listed(unified(root))
    for file in (root / "efi/loader/entries").iterdir():
        file.unlink()
    if gone:
        shutil.rmtree(root / gone)
    before = sorted(root.rglob("*"))
    copies = [copy_of(loader, "one", "panic=10"), copy_of(loader, "two")]
    loader.install(copies)
    assert own_files(root) == ["a-klat-1-one+1.conf", "a-klat-2-two+1.conf"]
    loader.remove()
    assert sorted(root.rglob("*")) == before

    def fail(*_: Any, **__: Any) -> None:
        raise KlatError("No space left on device")

    monkeypatch.setattr(systemd_boot.files, "write_whole", fail)
    with pytest.raises(KlatError, match="No space"):
        loader.install(copies)
    assert sorted(root.rglob("*")) == before


def test_a_file_that_starts_a_unified_kernel_image(root, listed):
    """Its own options replace those of the image."""
    unified(root)
    conf = root / "efi/loader/entries/arch.conf"
    conf.write_text("title\tArch\nefi\t/EFI/Linux/arch.efi\n")
    fields = {"id": "arch.conf", "path": str(conf), "efi": "/EFI/Linux/arch.efi"}
    loader = listed(fields)
    loader.install([copy_of(loader, "uki", "panic=10")])
    lines = (root / "efi/loader/entries/a-klat-1-uki+1.conf").read_text().splitlines()
    assert lines[1:3] == ["title klat: uki", "linux /EFI/Linux/arch.efi"]
    assert lines[3:] == ["options root=/dev/sda2 quiet panic=10"]


@pytest.mark.parametrize("line", ["quiet\nroot=/dev/sda2", 'a="x  y"\r\n\tb="z"', '"a=x y"'])
@pytest.mark.parametrize("from_bootctl", [True, False])
def test_the_command_line_of_an_image_is_one_line_of_its_copy(root, listed, line, from_bootctl):
    """systemd-stub makes blanks of line breaks, and systemd-boot removes quotes around a whole line."""
    fields = unified(root, **({"options": line} if from_bootctl else {}))
    write(Path(fields["path"]), made_kernels.unified(UNIFIED | {".cmdline": line.encode()}))
    loader = listed(fields)
    loader.install([copy_of(loader, "uki", "panic=10")])
    text = (root / "efi/loader/entries/a-klat-1-uki+1.conf").read_text()
    joined = line.replace("\r\n\t", " ").replace("\n", " ")
    assert text.endswith(f"linux /EFI/Linux/arch.efi\noptions {joined} panic=10\n")


def test_a_line_of_a_file_ends_where_systemd_boot_ends_it(root):
    file = root / "efi/loader/entries" / STOCK
    file.write_bytes(file.read_bytes().replace(b"quiet\n", b"a=x\x0cy\xe2\x80\xa8z quiet\r\n"))
    loader = SystemdBoot(root)
    loader.install([copy_of(loader, "stock")])
    text = (root / "efi/loader/entries/a-klat-1-stock+1.conf").read_bytes()
    assert b"options    a=x\x0cy\xe2\x80\xa8z quiet\n" in text


@pytest.mark.parametrize(
    "identity, addon, why",
    [
        ("arch.efi@1", "", "only the first profile"),
        (
            "arch.efi",
            "EFI/Linux/arch.efi.extra.d/debug.addon.efi",
            "debug.addon.efi adds parameters",
        ),
        ("arch.efi", "loader/addons/ALL.ADDON.EFI", "ALL.ADDON.EFI adds parameters"),
        ("arch.efi", "EFI/Linux/arch+2-1.efi", "counts its tries and renames it"),
    ],
)
def test_a_unified_kernel_image_that_klat_cannot_boot_is_named(root, listed, identity, addon, why):
    entry = unified(root, id=identity)
    if "+" in addon:
        (root / "efi/EFI/Linux/arch.efi").rename(root / "efi" / addon)
        entry |= {"path": str(root / "efi" / addon), "linux": addon}
    elif addon:
        write(root / "efi" / addon, b"")
    loader = listed(entry)
    assert not loader.entries()
    assert why in loader.left_out()[identity]
    with pytest.raises(KlatError, match=f"klat cannot boot {identity}: .*{why}"):
        loader.default()


@pytest.mark.parametrize("name", ["/vmlinuz-linux", "\\vmlinuz-linux"])
@pytest.mark.parametrize("key", ["linux", "efi"])
def test_a_kernel_is_named_by_each_key_and_with_each_kind_of_slash(root, listed, name, key):
    write(root / "efi/vmlinuz-linux", bzimage("6.9.1-arch1"))
    write(root / "efi/i/i.img", b"")
    conf = root / "efi/loader/entries/arch.conf"
    conf.write_text(f"title Arch\n{key} {name}\ninitrd \\i\\i.img\noptions quiet\n")
    fields = {"id": "arch.conf", "path": str(conf), key: f"/{name}", "initrd": ["/\\i\\i.img"]}
    loader = listed(fields | {"options": "quiet"})
    assert (loader.default().release, loader.default().words) == ("6.9.1-arch1", ("quiet",))
    loader.install([copy_of(loader, "a")])
    lines = (root / "efi/loader/entries/a-klat-1-a+1.conf").read_text().splitlines()
    assert lines[2:4] == [f"linux {name}", "initrd \\i\\i.img"]


def test_a_program_that_is_not_linux_is_left_out_with_the_reason(root, listed):
    write(root / "efi/memtest.efi", b"MZ")
    conf = root / "efi/loader/entries/m.conf"
    loader = listed({"id": "m.conf", "showTitle": "M", "path": str(conf), "efi": "/memtest.efi"})
    assert not loader.entries()
    assert "memtest.efi is not a kernel that klat knows" in loader.left_out()["M"]
    assert loader.why_left_out("m.conf") == loader.why_left_out("M") == loader.left_out()["M"]


@pytest.mark.parametrize("line", [" profile 1", "extra\t/a.addon.efi"])
def test_an_entry_whose_copy_would_start_something_else_is_named(root, listed, line):
    unified(root)
    file = root / "efi/loader/entries/a.conf"
    file.write_text(f"title A\nuki /EFI/Linux/arch.efi\n{line}\n")
    loader = listed({"id": "a.conf", "path": str(file), "uki": "/EFI/Linux/arch.efi"})
    assert f"klat cannot copy the line {line!r}" in loader.left_out()["a.conf"]


def test_an_entry_without_its_initramfs_is_named(root, listed):
    entry = {"id": "a.conf", "path": "/efi/loader/entries/a.conf", "linux": "/l", "initrd": ["/i"]}
    loader = listed(entry)
    assert loader.left_out() == {
        "a.conf": "/efi/loader/entries/a.conf: the initramfs /i is missing"
    }
    write(root / "efi/i", b"")
    assert loader.entries()


def test_two_files_with_one_identifier_are_two_entries(root, listed):
    both = [
        {"id": "a.conf", "path": f"/{top}/loader/entries/a.conf", "linux": f"/{top}"}
        for top in ("efi", "boot")
    ]
    entries = listed(*both).entries()
    assert [entry.identity for entry in entries] == ["a.conf", "/boot/loader/entries/a.conf"]
    assert [entry.kernel for entry in entries] == [root / "efi/efi", root / "efi/boot"]
