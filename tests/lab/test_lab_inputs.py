"""Bad kernels, modules and packages: the lab says in one line what is wrong with each."""

import bz2
import gzip
import json
import lzma
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import harness
import made_tools
import planted
import pytest

from klat import cli
from klat.base.errors import KlatError
from klat.lab import apt, image, kernel_formats, kernels, qemu
from klat.lab.apt import Archive, Package
from klat.lab.architectures import AMD64, ARM64
from klat.lab.guest import ModuleMissing
from klat.lab.guest_contents import modules_of, unpacked_for
from klat.lab.kernel_formats import BzImage
from klat.lab.modules import Tree

RELEASE = "6.6.6-planted"


def test_a_kernel_tells_its_release(tmp_path):
    found = image.inspect(planted.kernel(tmp_path / "k"), AMD64.format)
    assert found.release == RELEASE


def test_a_built_tree_stands_for_its_image_and_configuration(tmp_path):
    built = tmp_path / "linux/arch/x86/boot/bzImage"
    built.parent.mkdir(parents=True)
    spec = kernels.parse(f"mine={tmp_path / 'linux'}")
    archive: Any = None  # not asked
    with pytest.raises(KlatError, match=f"no kernel for amd64: there is no {built}"):
        kernels.obtain(spec, archive, AMD64)
    planted.kernel(built)
    (tmp_path / "linux/.config").write_text("CONFIG_HZ=250\n")
    kernel = kernels.obtain(spec, archive, AMD64)
    assert (kernel.image.path, kernel.config) == (built, b"CONFIG_HZ=250\n")


def zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-qc"], input=data, capture_output=True, check=True).stdout


def arm64(path: Path) -> None:
    path.write_bytes(bytes(0x38) + b"ARM\x64" + bytes(1000))


def cut_off(path: Path, size: int = -500) -> None:
    planted.kernel(path)
    path.write_bytes(path.read_bytes()[:size])


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda path: path.write_bytes(b""), "is no bootable kernel for x86-64"),
        (lambda path: path.write_text("hello" * 1000), "is no bootable kernel for x86-64"),
        (arm64, "but a kernel for arm64"),
        (lambda path: path.write_bytes(b"\x7fELF" + bytes(4000)), "give arch/x86/boot/bzImage"),
        (lambda path: planted.kernel(path, flags=0), "is a 32-bit kernel"),
        (lambda path: planted.kernel(path, protocol=0x204), "boot protocol 2.04"),
        (cut_off, "cut off"),
        (lambda path: cut_off(path, 0x20C), "cut off"),
        (lambda path: os.mkfifo(path), "is no regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "is no regular file"),
        (lambda path: path.mkdir(), "cannot read the kernel"),
        (lambda path: None, "No such file"),
        (
            lambda path: os.truncate(path.open("w").name, 1 << 40),
            "is larger than 536,870,912 bytes",
        ),
    ],
)
def test_what_is_no_kernel_for_here_is_refused_by_what_it_is(tmp_path, make, what):
    path = tmp_path / "k"
    make(path)
    with pytest.raises(KlatError, match=str(path)) as refused:
        image.inspect(path, AMD64.format)
    assert what in str(refused.value)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstd])
def test_packed_data_is_unpacked_up_to_a_limit(pack):
    data = bytes(3 << 20)
    assert kernel_formats.decompress(pack(data), len(data)) == data
    with pytest.raises(ValueError, match="unpacks to more than 3,145,727 bytes"):
        kernel_formats.decompress(pack(data), len(data) - 1)
    with pytest.raises(ValueError, match="cannot be unpacked"):
        kernel_formats.decompress(pack(data)[:-9], len(data))


def tree(directory: Path, **modules: str) -> Tree:
    """Of modules with their `depends`."""
    folder = directory / "lib/modules" / RELEASE / "kernel/drivers"
    folder.mkdir(parents=True, exist_ok=True)
    for name, depends in modules.items():
        (folder / f"{name}.ko").write_bytes(planted.module(RELEASE, depends))
    return Tree(directory, RELEASE)


def names(found: Tree, *wanted: str) -> list[str]:
    return [module.name for module in found.closure(wanted)]


def test_each_module_comes_after_what_it_needs_and_once(tmp_path):
    found = tree(tmp_path, top="left,right", left="base", right="base,left", base="", other="")
    assert names(found, "top", "base") == ["base", "left", "right", "top"]


def test_hyphens_and_underscores_are_one(tmp_path):
    found = tree(tmp_path, **{"virtio-pci": "virtio-ring", "virtio_ring": ""})
    assert names(found, "virtio_pci") == ["virtio_ring", "virtio_pci"]


def test_a_module_that_another_needs_and_is_not_there_is_named(tmp_path):
    with pytest.raises(ModuleMissing, match="there is no module base, which left needs"):
        names(tree(tmp_path, top="left", left="base"), "top")


def test_what_is_built_in_is_not_missing(tmp_path):
    tree(tmp_path, top="base")
    built_in = tmp_path / "lib/modules" / RELEASE / "modules.builtin"
    built_in.write_text("kernel/lib/base.ko\n")
    assert names(Tree(tmp_path, RELEASE), "top") == ["top"]


def test_modules_of_another_kernel_are_refused(tmp_path):
    (tmp_path / "tun.ko").write_bytes(planted.module("6.1.0-other"))
    with pytest.raises(KlatError, match="is of kernel 6.1.0-other, and the kernel to boot is"):
        names(Tree(tmp_path, RELEASE), "tun")


def test_modules_that_need_each_other_are_refused(tmp_path):
    with pytest.raises(KlatError, match="needs itself"):
        names(tree(tmp_path, a="b", b="a"), "a")


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("", bytes), (".xz", lzma.compress), (".zst", zstd), (".gz", gzip.compress)],
)
def test_packed_modules_are_read(tmp_path, suffix, pack):
    data = planted.module(RELEASE, "")
    (tmp_path / f"tun.ko{suffix}").write_bytes(pack(data))
    (module,) = Tree(tmp_path, RELEASE).closure(["tun"])
    assert module.data == data


@pytest.mark.parametrize("suffix", ["", ".xz", ".zst", ".gz"])
def test_a_damaged_module_is_named(tmp_path, suffix):
    path = tmp_path / f"tun.ko{suffix}"
    path.write_bytes(b"\x7fELF\x02\x01 no more")
    with pytest.raises(KlatError, match=str(path)):
        names(Tree(tmp_path, RELEASE), "tun")


def test_a_module_whose_packing_is_damaged_is_named(tmp_path):
    path = tmp_path / "tun.ko.gz"
    data = bytearray(gzip.compress(planted.module(RELEASE), mtime=0))
    data[12:20] = b"\xff" * 8
    path.write_bytes(bytes(data))
    with pytest.raises(KlatError, match=str(path)):
        names(Tree(tmp_path, RELEASE), "tun")


def test_a_directory_without_modules_is_refused(tmp_path):
    with pytest.raises(KlatError, match="holds no kernel module"):
        Tree(tmp_path, RELEASE)


@pytest.mark.parametrize(
    "text",
    [
        *("", "debian:", "debian:../x", "vmlinuz", "=path", "a/b=path", "a=", "a=x,modules="),
        *("debian:rt,append=x", "a=debian:", "a=debian:rt,modules=/m", "a=debian:rt,apend=x"),
        *("a=x,append=", "a=x,append= ", "a=,append=x", "a=x,append=y\nz", ".a=b"),
    ],
)
def test_what_names_no_kernel_is_refused(text):
    with pytest.raises(ValueError) as refused:
        kernels.parse(text)
    assert str(refused.value).isprintable()


def test_a_refused_name_is_a_usage_error(lab):
    done = lab.inside("run", "--kernel", "vmlinuz")
    assert done.returncode == 2
    assert done.stderr.startswith("klat lab run: argument --kernel: "), done.stderr
    assert len(done.stderr.splitlines()) == 1


def write_index(cache: Path, *releases: str) -> list[str]:
    """The lab's list of Debian's packages, with these kernels. Returns the names of their packages."""
    names = [f"linux-image-{release}" for release in releases]
    listed = json.dumps([[name, "6.1.9-1", 1] for name in names])
    made_tools.write(cache / "klat/lab/apt/index.json", listed)
    return names


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("--kernel", "debian:stok", "pipes"), "debian:stock'? There are 6.1, 6.1-rt, stock"),
        (("--kernel", "debian:stock", "pipe"), "pipes'?"),
    ],
)
def test_a_slip_of_the_pen_is_answered_with_what_was_meant(lab, qemu, words, meant):
    write_index(lab.cache, "6.1.0-9-amd64", "6.1.0-9-rt-amd64")
    done = lab.inside("run", "--mode", "counted", *words)
    assert done.returncode == 2
    assert f", did you mean '{meant}" in done.stderr and len(done.stderr.splitlines()) == 1


# What works, and what is typed in its place. 6.18 has no complete build, and there is no 7.4.
SPELLINGS = {
    "6.1": "debian:6.1-amd64, debian:v6.1, debian:V6.1, debian:linux-6.1, debian: 6.1, Debian:6.1, 6.1, v6.1,"
    " linux-6.1, debian-6.1",
    "6.1-rt": "debian:6.1-rt-amd64, debian:6.1-RT, debian:rt-6.1, debian:6.1_rt, 6.1-rt-amd64,"
    " debian:linux-image-6.1.0-9-rt-amd64",
    "6.12": "debian:6.12.118",
    "6.12-rt": "debian:6.12.x-rt, debian:6.12-RT",
    "6.1.0-9-amd64": "debian:6.1.0-9, debian:6.1.0-9-amd65",
    "6.1.0-9-rt-amd64": "debian:6.1.0-9-rt",
    "rt": "debian:stock-rt, debian:realtime, RT",
    "stock": "debian:Stock, stock",
    "newest": "debian:latest, debian:newst",
    "newest-rt": "debian:latest-rt",
    "mine=6.1": "mine=6.1",
    "mine=rt": "mine=Debian:rt",
    "": "debian:7.4, debian:7.4-rt-amd64, debian:bookworm, debian:6.18, debian:v6.18",
}


@pytest.mark.parametrize(
    "typed, works",
    [(typed, works) for works, all in SPELLINGS.items() for typed in all.split(", ")],
)
def test_a_likely_spelling_is_answered_with_the_name_that_works(typed, works):
    complete = (
        "6.1.0-9-amd64",
        "6.1.0-9-rt-amd64",
        "6.12.117+deb12-amd64",
        "6.12.117+deb12-rt-amd64",
        "6.12-rt-amd64",  # before the release of 6.12
    )
    held = kernels.offered(packages(*complete) | split_kernel("6.18.4+deb15-amd64", "1", "modules"))
    with pytest.raises((ValueError, KlatError)) as refused:
        kernels.choose(kernels.parse(typed).debian, held, AMD64)
    label, equals, name = works.rpartition("=")
    meant = re.findall("did you mean '(.*?)'", str(refused.value))
    assert meant == [f"{label}{equals}debian:{name}"] * bool(name)
    assert ("lacks linux-modules-6.18.4" in str(refused.value)) is ("6.18" in typed)
    if name:
        kernels.choose(kernels.parse(meant[0]).debian, held, AMD64)


def test_a_path_may_hold_what_names_may_not(tmp_path):
    spec = kernels.parse("mine=/a,b/c=d/bzImage,modules=/e,f")
    assert (spec.label, str(spec.path), str(spec.modules)) == ("mine", "/a,b/c=d/bzImage", "/e,f")


def test_a_kernel_may_have_words_of_its_own_with_commas_and_quotes():
    spec = kernels.parse('q=debian:stock,append=isolcpus=1,2 mitigations=off x="a b"')
    assert (spec.label, spec.debian) == ("q", "stock")
    assert spec.append == 'isolcpus=1,2 mitigations=off x="a b"'
    spec = kernels.parse("mine=k,modules=/m,append=quiet")
    assert (str(spec.path), str(spec.modules), spec.append) == ("k", "/m", "quiet")


@pytest.mark.parametrize("load", ["", "a/b", "no-such", "line\nbreak"])
def test_what_is_no_load_is_a_usage_error(lab, tmp_path, load):
    done = lab.inside("run", "--kernel", f"a={tmp_path}/k", "--load", load, "pipes")
    assert done.returncode == 2
    assert done.stderr.startswith("klat lab: --load "), done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_where_nothing_can_be_recorded_nothing_is_booted(lab, tmp_path, qemu):
    lab.results.write_text("a file")
    done = lab.inside("run", "--kernel", f"a={planted.kernel(tmp_path / 'k')}", "pipes")
    assert done.returncode == 2
    assert (
        done.stderr
        == "klat lab: results: is not a directory, so nothing can be recorded in results\n"
    )


@pytest.mark.parametrize("link", ["theirs/out", "theirs/out/a"])
def test_another_users_link_is_refused_before_a_kernel_is_read(lab, tmp_path, root, link):
    theirs = (lab.directory / link).parent
    theirs.mkdir(parents=True)
    os.chown(theirs, harness.NOBODY, harness.NOBODY)
    (lab.directory / link).symlink_to(tmp_path)
    done = lab.inside("run", "--kernel", f"a={tmp_path}/none", "--output", "theirs/out", "pipes")
    assert done.returncode == 2
    assert f"{link} is a symbolic link to {tmp_path} that another user" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def packages(*releases: str) -> dict[str, Package]:
    names = [f"linux-image-{release}" for release in releases]
    return {name: Package(name, "1", 1) for name in [*names, "linux-image-amd64", "busybox-static"]}


def test_the_newest_build_of_a_name_is_taken():
    # 7.2 is built for stable; the later one by another compiler.
    releases = """\
        6.1.0-9-amd64 6.1.0-10-amd64 6.1.0-10-rt-amd64 6.1.0-11-cloud-amd64 6.1.0-12-amd64-dbg
        6.1.0-12-amd64-unsigned 6.1.0-0.deb11.52-amd64 6.12.90+deb12-amd64 6.12.90+deb12.1-amd64
        6.12.9+deb13-rt-amd64 6.12.100+deb13-rt-amd64 7.4-amd64 10.2.3+deb19-amd64
        10.2.3+deb19+1-amd64 7.2.12+deb13-amd64 7.2.13+deb14-amd64"""
    held = kernels.offered(packages(*releases.split()))
    newest = {
        "stock": "6.1.0-10-amd64",
        "rt": "6.1.0-10-rt-amd64",
        "6.12": "6.12.90+deb12.1-amd64",
        "6.12-rt": "6.12.100+deb13-rt-amd64",
        "7.2": "7.2.12+deb13-amd64",
        "7.4": "7.4-amd64",
        "10.2": "10.2.3+deb19+1-amd64",
        "newest": "10.2.3+deb19+1-amd64",
        "newest-rt": "6.12.100+deb13-rt-amd64",
    }
    exact = ("6.1.0-9-amd64", "6.1.0-0.deb11.52-amd64", "7.2.13+deb14-amd64")
    for name, release in [*newest.items(), *zip(exact, exact)]:
        assert kernels.choose(name, held, AMD64).release == release


def split_kernel(release: str, version: str, *absent: str, **versions: str) -> dict[str, Package]:
    """A kernel in packages, without those that are `absent`. A part may have another version."""
    parts = [f"linux-{part}-{release}" for part in ("base", "binary", "modules")]
    image = Package(f"linux-image-{release}", version, 1, tuple(parts))
    held = [Package(n, versions.get(n.split("-")[1], version), 2) for n in parts]
    return {p.name: p for p in (image, *held) if p.name.split("-")[1] not in absent}


def test_a_name_is_of_the_newest_build_that_is_complete():
    held = kernels.offered(
        {
            **split_kernel("8.1.3+deb15-amd64", "1"),
            **split_kernel("8.1.4+deb15-amd64", "1", "base"),
            **split_kernel("8.1.5+deb15-amd64", "1", "modules"),
            **split_kernel("8.1.6+deb15-amd64", "1", binary="2"),
            **split_kernel("8.2.1+deb15-amd64", "1", "binary", "modules"),
            # It depends on a kernel, and is none.
            "linux-image-9.1-amd64": Package(
                "linux-image-9.1-amd64", "1", 1, ("linux-image-9.1.9+deb16-amd64",)
            ),
        }
    )
    chosen = kernels.choose("8.1", held, AMD64)
    assert chosen == kernels.choose("newest", held, AMD64)
    assert chosen.release == "8.1.4+deb15-amd64" and chosen.size == 5
    absent = "linux-binary-8.2.1.deb15-amd64 and linux-modules-8.2.1.deb15-amd64"
    with pytest.raises(
        KlatError, match=f"debian:8.2 for amd64: its archive lacks {absent}; there are 8.1, newest "
    ):
        kernels.choose("8.2", held, AMD64)
    with pytest.raises(KlatError, match="debian:9.1 for amd64; there are 8.1, newest "):
        kernels.choose("9.1", held, AMD64)


def test_a_build_that_is_kept_can_be_had_after_the_archive_has_a_newer_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    write_index(tmp_path, "6.1.0-9-amd64")
    tree = tmp_path / "klat/lab/packages/linux-image-6.1.0-8-amd64_6.1.8-1"
    (tree / "boot").mkdir(parents=True)
    planted.kernel(tree / "boot/vmlinuz-6.1.0-8-amd64", release="6.1.0-8-amd64")
    (tree / "boot/config-6.1.0-8-amd64").touch()
    modules = tree / "lib/modules/6.1.0-8-amd64"
    modules.mkdir(parents=True)
    (modules / "tun.ko").write_bytes(planted.module("6.1.0-8-amd64"))
    archive = Archive(lambda line: None)
    found = kernels.obtain(kernels.parse("debian:6.1.0-8-amd64"), archive, AMD64)
    assert found.image.release == "6.1.0-8-amd64"
    assert found.spec.package == ("linux-image-6.1.0-8-amd64", "6.1.8-1")
    again = kernels.obtain(replace(found.spec, debian="6.1"), archive, AMD64)
    assert again.image == found.image, "although the archive has a newer one"
    held = kernels.offered({**archive.kept(), **archive.packages()})
    assert kernels.choose("stock", held, AMD64).release == "6.1.0-9-amd64", "the newest of all"


def with_commands(directory: Path, **scripts: str) -> str:
    """A PATH on which these shell scripts come first."""
    for name, text in scripts.items():
        made_tools.script(directory / "bin" / name, text)
    return f"{directory / 'bin'}:{os.environ['PATH']}"


def test_a_package_that_cannot_be_unpacked_tells_why(lab, tmp_path, qemu):
    write_index(lab.cache, "6.1.0-9-amd64")
    full = "tar: ./boot/vmlinuz: Cannot write: No space left on device"
    last = "dpkg-deb: error: tar subprocess returned error exit status 2"
    unpack = f"echo '{full}' >&2; echo '{last}' >&2; exit 2"
    path = with_commands(
        tmp_path,
        **{"apt-get": "touch linux-image-6.1.0-9-amd64_6.1.9-1_amd64.deb", "dpkg-deb": unpack},
    )
    done = lab("run", "--kernel", "debian:stock", "pipes", PATH=path)
    assert done.returncode == 2
    said = f"klat lab: cannot unpack linux-image-6.1.0-9-amd64: {full}"
    assert done.stderr.splitlines()[-1] == said
    assert not list((lab.cache / "klat/lab/packages").iterdir())


def test_a_build_whose_package_is_gone_is_replaced_by_the_one_before(lab, tmp_path, qemu):
    builds = write_index(lab.cache, "6.1.0-8-amd64", "6.1.0-9-amd64")
    gone = "E: Failed to fetch http://mirror.example/x_6.1.9-1_amd64.deb  404  Not Found"
    path = with_commands(tmp_path, **{"apt-get": f"echo '{gone}' >&2; exit 100"})
    done = lab("run", "--kernel", "debian:stock", "pipes", PATH=path)
    assert done.returncode == 2
    fetched, left_out = done.stderr.splitlines()[:-1:2], done.stderr.splitlines()[1::2]
    assert [line.split()[1] for line in fetched] == builds[::-1]
    assert all(line.endswith("404  Not Found; looking for another build") for line in left_out)
    assert done.stderr.splitlines()[-1].startswith(f"klat lab: cannot fetch {builds[0]}")


def test_apt_that_waits_on_a_full_disk_is_ended_and_told_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", with_commands(tmp_path, **{"apt-get": "exec sleep 60"}))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(apt, "_UPDATE_SECONDS", 1)
    monkeypatch.setattr(apt, "_KEYS", tmp_path)
    for free, why in ((1 << 40, "within 1 s;"), (5 << 20, "within 1 s: there is no space left in")):
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
        with pytest.raises(KlatError, match=why):
            Archive(lambda line: None).packages()


def test_the_list_has_the_megabytes_that_fetching_announces(monkeypatch, capsys):
    name = "linux-image-6.12.9+deb13-amd64"
    held = {name: Package(name, "1", 108_464_020)}
    monkeypatch.setattr(Archive, "packages", lambda archive, update: held)
    assert cli.main(["lab", "kernels", "--arch", "amd64"]) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith(" 108.5")


def test_without_an_archive_one_line_says_what_to_do(lab, tmp_path, qemu):
    if not Path("/usr/share/keyrings/debian-archive-keyring.gpg").exists():
        harness.lacking("there is no keyring of Debian's")
    path = with_commands(tmp_path, **{"apt-get": "echo E: Could not connect >&2; exit 100"})
    done = lab("kernels", KLAT_DEBIAN_MIRROR="http://127.0.0.1:1", PATH=path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("klat lab: apt-get update failed: "), done.stderr
    assert "NAME=path/to/KERNEL" in done.stderr


def test_a_guest_by_kvm_is_told_that_its_counter_is_invariant():
    # By default QEMU's `host` keeps that from a guest, for it might be moved, and every run is invalid.
    machine = qemu.Machine(qemu.Emulator("qemu", (7, 2), "7.2", AMD64), "kvm", qemu.GuestSize())
    there = Path("there")
    boot = qemu.BootFiles(there, there, there, there, there, 1, "2000-01-01T00:00:00")
    words = qemu.command(machine, boot)
    assert words[words.index("-cpu") + 1] == "host,migratable=off"
    assert words[words.index("-accel") + 1] == "kvm"


def test_a_guest_has_the_machine_id_of_recorded_sessions():
    """Compare refuses sessions of different machines, and bisect does not resume on one."""
    machine = qemu.Machine(
        qemu.Emulator("qemu", (7, 2), "7.2", AMD64), "counted", qemu.GuestSize(2)
    )
    said = "qemu 7.2; counted; cpu max; Shape(cpus=2, nodes=1, memory_mib=512)"
    assert machine.describe("") == said


@pytest.mark.parametrize("planted_build", [b"", b"another build"])
def test_a_cached_kernel_that_is_not_the_unpacked_one_is_replaced(
    tmp_path, monkeypatch, planted_build
):
    monkeypatch.setattr(BzImage, "kernel", lambda *_: b"unpacked")
    monkeypatch.setattr(BzImage, "bootable", lambda *_: True)
    found = image.inspect(planted.kernel(tmp_path / "k"), AMD64.format)
    first = image.unpacked(found, tmp_path)
    assert first
    first.path.write_bytes(planted_build)
    assert image.unpacked(found, tmp_path) == first
    assert first.path.read_bytes() == b"unpacked"


def test_a_kernel_that_is_replaced_while_klat_is_at_work_is_refused(tmp_path, monkeypatch):
    """Its copy would have the hash of the other one in its name."""
    monkeypatch.setattr(BzImage, "kernel", lambda self, data: data)
    monkeypatch.setattr(BzImage, "bootable", lambda *_: True)
    path = planted.kernel(tmp_path / "k")
    archive: Any = None  # not asked
    first = kernels.obtain(kernels.parse(f"k={path}"), archive, AMD64)
    booted = image.cached_copy(first.image, tmp_path)
    other = path.read_bytes() + b"rebuilt"
    path.write_bytes(other)
    assert image.cached_copy(first.image, tmp_path) == booted and booted.read_bytes() != other
    booted.unlink()
    for action in (
        lambda: image.cached_copy(first.image, tmp_path),
        lambda: image.unpacked(first.image, tmp_path),
    ):
        with pytest.raises(KlatError, match="changed while klat ran"):
            action()
    assert kernels.obtain(first.spec, archive, AMD64).image == first.image


def test_modules_that_are_replaced_while_klat_is_at_work_are_not_loaded(tmp_path):
    """The lock file was checked with the modules as they were first read."""
    planted.kernel(tmp_path / "k")
    tree(tmp_path / "m", tun="")
    archive: Any = None  # not asked
    spec = kernels.parse(f"k={tmp_path / 'k'},modules={tmp_path / 'm'}")
    checked = kernels.obtain(spec, archive, AMD64)
    loaded = modules_of(checked, [("network", ())])
    tree(tmp_path / "m", tun="other", other="")
    assert modules_of(kernels.obtain(checked.spec, archive, AMD64), [("network", ())]) == loaded


def test_qemu_starts_a_packed_kernel_of_x86_with_kvm_but_of_no_other_architecture(
    tmp_path, monkeypatch
):
    """QEMU before 8.0 starts no EFI_ZBOOT kernel of arm64, also with KVM."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    flat = b"\0" * 0x38 + b"ARM\x64" + b"Linux version 6.1.0 \0"
    (tmp_path / "Image.gz").write_bytes(gzip.compress(flat))
    found = unpacked_for("kvm", image.inspect(tmp_path / "Image.gz", ARM64.format))
    assert found and found.path.read_bytes() == flat
    assert unpacked_for("kvm", image.inspect(planted.kernel(tmp_path / "k"), AMD64.format)) is None


@pytest.mark.parametrize("place", ["lib/modules/6.12", "usr/lib/modules/6.12", "6.12", ""])
def test_modules_are_found_where_packages_and_make_put_them(place, tmp_path):
    directory = tmp_path / "m" / place
    (directory / "kernel").mkdir(parents=True)
    (directory / "kernel/tun.ko").touch()
    assert Tree(tmp_path / "m", "6.12").directory == directory
