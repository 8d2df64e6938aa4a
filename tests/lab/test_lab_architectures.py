"""Guests of other architectures than this machine's: their kernels, their programs and their machine."""

import gzip
import os
import shutil
import struct
from pathlib import Path

import made_tools
import planted
import pytest

from klat.base.errors import KlatError
from klat.lab import image, kernels, qemu, shootdown, suite
from klat.lab.architectures import AMD64, ARCHITECTURES, ARM64, RISCV64, Architecture
from klat.lab.apt import Archive, Package
from klat.lab.execution import choose_mode
from klat.base.process import Signals

RELEASE = "6.6.6-planted"
FOREIGN = [each for each in ARCHITECTURES.values() if each != AMD64]
MAGIC = {"arm64": (0x38, b"ARM\x64"), "riscv64": (0x30, b"RISCV\0\0\0RSC\x05")}


def flat(architecture: Architecture, banner: str = f"Linux version {RELEASE} (klat@test)") -> bytes:
    """An Image whose code does nothing."""
    at, magic = MAGIC[architecture.name]
    return (bytes(at) + magic).ljust(64, b"\0") + b"code" + f"{banner} #1 SMP\n".encode() + b"\0"


def efi_packed(kernel: bytes) -> bytes:
    packed = gzip.compress(kernel)
    head = b"MZ\0\0zimg" + struct.pack("<II", 64, len(packed)) + bytes(8) + b"gzip"
    return head.ljust(64, b"\0") + packed + b"more"


@pytest.mark.parametrize("architecture", FOREIGN, ids=lambda each: each.name)
@pytest.mark.parametrize("pack", [bytes, gzip.compress, efi_packed])
def test_an_image_tells_its_release_and_is_started_unpacked(tmp_path, architecture, pack):
    path = tmp_path / "Image"
    path.write_bytes(pack(flat(architecture)))
    found = image.inspect(path, architecture.format)
    assert (found.release, found.version) == (RELEASE, f"{RELEASE} (klat@test) #1 SMP")
    started = image.unpacked(found, tmp_path)
    assert started and started.path.read_bytes() == flat(architecture)


@pytest.mark.parametrize("architecture", FOREIGN, ids=lambda each: each.name)
def test_a_kernel_of_another_architecture_is_refused_with_the_option_that_boots_it(
    tmp_path, architecture
):
    bz_image = planted.kernel(tmp_path / "bzImage")
    with pytest.raises(KlatError, match=r"\(Image\) but a kernel for x86 \(--arch amd64\)$"):
        image.inspect(bz_image, architecture.format)
    path = tmp_path / "Image"
    path.write_bytes(flat(architecture).ljust(1024, b"\0"))
    own = rf"\(bzImage\) but a kernel for {architecture.name} \(--arch {architecture.name}\)$"
    with pytest.raises(KlatError, match=own):
        image.inspect(path, AMD64.format)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is no bootable kernel for arm64 (Image)"),
        (gzip.compress(b"text"), "is no bootable kernel for arm64 (Image)"),
        (gzip.compress(flat(ARM64))[:-9], "but packed with gzip; give arch/arm64/boot/Image"),
        (flat(ARM64, "no version"), "has no version line, so it is cut off or damaged"),
    ],
)
def test_a_damaged_image_is_refused(tmp_path, data, why):
    path = tmp_path / "Image"
    path.write_bytes(data)
    with pytest.raises(KlatError) as refused:
        image.inspect(path, ARM64.format)
    assert str(refused.value).startswith(f"{path}: ") and why in str(refused.value)


def test_each_architecture_has_its_own_kernels_of_debian():
    names = ("linux-image-6.1.0-9-arm64", "linux-image-6.1.0-9-rt-arm64")
    held = kernels.offered({name: Package(name, "1", 1) for name in names})
    assert [kernels.choose(name, held, ARM64).release for name in ("stock", "rt")] == [
        "6.1.0-9-arm64",
        "6.1.0-9-rt-arm64",
    ]


def test_stock_of_riscv64_is_of_debian_13_or_the_newest_kernel():
    names = [f"linux-image-{release}-riscv64" for release in ("6.12.9+deb13", "7.2.12+deb14")]
    held = kernels.offered({name: Package(name, "1", 2) for name in names})
    assert kernels.choose("stock", held, RISCV64).release == "6.12.9+deb13-riscv64"
    assert kernels.choose("stock", held[1:], RISCV64).release == "7.2.12+deb14-riscv64"
    with pytest.raises(
        KlatError, match="no kernel debian:rt for riscv64.*here are 6.12, 7.2, stock, newest"
    ):
        kernels.choose("rt", held, RISCV64)


@pytest.mark.parametrize("image", ["vmlinuz", "vmlinux"])
@pytest.mark.parametrize("place", ["boot", "usr/lib/modules"])
def test_a_package_has_its_kernel_in_boot_or_beside_the_modules(
    tmp_path, monkeypatch, place, image
):
    modules = tmp_path / "usr/lib/modules" / RELEASE
    modules.mkdir(parents=True)
    (modules / "tun.ko").touch()
    (tmp_path / "boot").mkdir()
    for name, data in ((image, flat(RISCV64)), ("config", b"CONFIG_TUN=m\n")):
        path = modules / name if place != "boot" else tmp_path / "boot" / f"{name}-{RELEASE}"
        path.write_bytes(data)
    held = kernels.Offered("6.6", RELEASE, (6, 6), Package("linux-image", "1", 1))
    archive = Archive(lambda line: None, "riscv64")
    monkeypatch.setattr(kernels, "choose", lambda *_: held)
    monkeypatch.setattr(archive, "kept", dict)
    monkeypatch.setattr(archive, "packages", dict)
    monkeypatch.setattr(archive, "unpacked", lambda package, parts: tmp_path)
    kernel = kernels.obtain(kernels.parse("debian:stock"), archive, RISCV64)
    assert (kernel.image.release, kernel.config) == (RELEASE, b"CONFIG_TUN=m\n")
    assert kernel.tree and kernel.tree.has("tun")


def test_the_labels_of_debians_kernels_name_a_foreign_architecture():
    specs = [kernels.parse(text) for text in ("debian:rt", "mine=debian:rt")]
    labels = {
        each.name: [s.label for s in kernels.labelled(specs, each)]
        for each in ARCHITECTURES.values()
    }
    assert labels == {
        "amd64": ["lab-rt", "mine"],
        "arm64": ["lab-arm64-rt", "mine"],
        "riscv64": ["lab-riscv64-rt", "mine"],
    }


@pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=lambda each: each.name)
def test_qemu_emulates_the_machine_of_the_architecture(architecture):
    emulator = qemu.Emulator("qemu", (7, 2), "7.2", architecture)
    machine = qemu.Machine(emulator, "counted", qemu.GuestSize())
    there = Path("there")
    boot = qemu.BootFiles(there, there, there, there, there, 1, "2000-01-01T00:00:00")
    words = qemu.command(machine, boot)
    assert words[words.index("-machine") + 1] == architecture.boards[0]
    assert words[words.index("-cpu") + 1] == architecture.cpus[0]
    assert words[words.index("-icount") + 1] == f"shift=0,sleep=off,rr=record,rrfile={os.devnull}"
    line = words[words.index("-append") + 1]
    assert line.startswith(f"console={architecture.console} ")
    assert line.endswith(" ".join((*architecture.emulated_words, "klat.mode=counted")))
    assert f"cpu {architecture.cpus[0]}; " in machine.describe("")


def foreign_emulator(monkeypatch: pytest.MonkeyPatch) -> qemu.Emulator:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    return qemu.Emulator("qemu", (7, 2), "7.2", ARM64)


@pytest.mark.parametrize(
    ("version", "architecture", "nodes"),
    [((7, 2), RISCV64, 1), ((10, 0), RISCV64, 2), ((7, 2), ARM64, 2), ((7, 2), AMD64, 2)],
)
def test_a_shootdown_has_two_nodes_if_the_guests_disk_works_with_them(
    version, architecture, nodes, monkeypatch
):
    emulator = qemu.Emulator("qemu", version, "{}.{}".format(*version), architecture)
    monkeypatch.setattr(qemu, "find", lambda _: emulator)
    assert shootdown.usual_nodes(architecture) == nodes
    qemu.check(qemu.Machine(emulator, "emulated", qemu.GuestSize(4, nodes)))
    if nodes == 1:
        with pytest.raises(KlatError, match=r"--numa 2: .*more than 1 node; with 10\.0 it works"):
            qemu.check(qemu.Machine(emulator, "emulated", qemu.GuestSize(4, 2)))


def test_kvm_is_not_for_another_architecture(tmp_path, monkeypatch):
    emulator = foreign_emulator(monkeypatch)
    with pytest.raises(KlatError, match="KVM cannot run a guest of arm64 on this machine"):
        qemu.check(qemu.Machine(emulator, "kvm", qemu.GuestSize()))
    with Signals() as signals:
        mode, why = choose_mode(emulator, tmp_path, b"", signals)
    assert (mode, why) == ("counted", "KVM cannot run a guest of arm64 on this machine")


def test_a_missing_emulator_is_named_with_its_package(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        KlatError, match="qemu-system-aarch64, .* apt install qemu-system-arm "
    ) as no:
        qemu.find(ARM64)
    assert no.value.status == 2


def planted_emulator(directory: Path) -> None:
    says = f"[ $1 = -L ] && echo {directory} || echo QEMU emulator version 7.2.1"
    made_tools.script(directory / RISCV64.emulator, says)


def test_the_firmware_is_a_part_of_the_emulated_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    planted_emulator(tmp_path)
    with pytest.raises(KlatError, match="needs opensbi-riscv64.* apt install opensbi "):
        qemu.find(RISCV64)
    assert RISCV64.firmware
    described = set()
    for content in (b"1.1", b"1.6"):
        (tmp_path / RISCV64.firmware).write_bytes(content)
        machine = qemu.Machine(qemu.find(RISCV64), "counted", qemu.GuestSize())
        described.add(machine.describe(""))
    assert len(described) == 2


def test_a_missing_cross_compiler_is_named_with_its_packages(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KlatError, match="needs aarch64-linux-gnu-gcc: apt install gcc-aarch64"):
        suite._build_for(ARM64, ["pipes"])


@pytest.mark.parametrize(
    "printed, status",
    [
        ("klat: missing: libraries for riscv64; make sysroot ARCH=riscv64", 2),
        ("a.c:1: error: x", 1),
    ],
)
def test_missing_libraries_are_no_failure_of_the_build(tmp_path, monkeypatch, printed, status):
    (tmp_path / "Makefile").write_text(f"%:\n\t@echo '{printed}' >&2; exit 1\n")
    monkeypatch.setattr("klat.base.programs.root", lambda: tmp_path)
    with pytest.raises(KlatError, match=printed) as raised:
        suite.make(["all"])
    assert raised.value.status == status


def test_the_programs_of_a_guest_lie_beside_this_machines(tmp_path, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setenv("KLAT_PROGRAMS", str(tmp_path / "programs"))
    assert suite.directory(AMD64) == tmp_path / "programs"
    assert suite.directory(ARM64) == tmp_path / "programs-arm64"
    with pytest.raises(
        KlatError, match="/programs-arm64 has no pipes for arm64; make install-static ARCH=arm64 in"
    ):
        suite.static_programs(["pipes"], ARM64)


def test_a_program_of_another_architecture_is_refused(lab, qemu):
    foreign = lab.directory / "programs-arm64"
    shutil.copytree(lab.directory / "programs", foreign)
    if not shutil.which(ARM64.emulator):
        pytest.skip(f"there is no {ARM64.emulator}")
    done = lab.inside("run", "--arch", "arm64", "--kernel", "a=there-is-none", "pipes")
    assert done.returncode == 2
    said = f"klat lab: {foreign}/pipes is not a static program for arm64, and a guest has no"
    assert done.stderr.splitlines()[-1].startswith(said), done.stderr


@pytest.mark.parametrize(
    ("name", "meant"), [("aarch64", ", did you mean 'arm64'?"), ("sparc", ""), ("", "")]
)
def test_an_unknown_architecture_is_refused(lab, name, meant):
    for words in (("run", "--kernel", "debian:stock", "pipes"), ("kernels",)):
        done = lab.inside(*words, "--arch", name)
        assert done.returncode == 2
        said = f"klat lab: --arch {name}: there are {', '.join(ARCHITECTURES)}{meant}"
        assert done.stderr.splitlines() == [said]
