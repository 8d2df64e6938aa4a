"""What a kernel lacks is said by the option's name, before it is booted."""

import bz2
import gzip
import lzma
import re
import struct
from pathlib import Path

import planted
import pytest

from klat.base.errors import KlatError
from klat.lab.architectures import AMD64, RISCV64
from klat.lab import image, suite

ROOT = Path(__file__).resolve().parents[2]
MORE = ("TUN", "HIGH_RES_TIMERS", "SERIAL_8250", "VIRTIO_PCI", "VIRTIO_BLK")
ALL = [*image.GUEST, AMD64.console_option, *MORE]


def config(*without: str) -> bytes:
    lines = [f"CONFIG_{o}=y" for o in ALL if o not in without]
    return "\n".join([*lines, *(f"# CONFIG_{o} is not set" for o in without), ""]).encode()


def test_a_kernel_that_has_all_lacks_nothing():
    assert image.lacking(config(), ["timer", "network"], AMD64) == []
    assert image.lacking(config().replace(b"BLK=y", b"BLK=m"), [], AMD64) == []
    assert image.lacking(b"", [], AMD64) == [], "nothing is known of it"


@pytest.mark.parametrize("option", [*image.GUEST, AMD64.console_option])
def test_what_a_guest_needs_is_named(option):
    (line,) = image.lacking(config(option), [], AMD64)
    assert f"CONFIG_{option}:" in line


def test_what_one_program_needs_is_named_where_it_runs():
    assert image.lacking(config("TUN"), ["pipes"], AMD64) == []
    (line,) = image.lacking(config("TUN"), ["pipes", "network"], AMD64)
    assert "CONFIG_TUN" in line


def test_what_one_architecture_needs_is_named_there():
    own = f"CONFIG_{RISCV64.console_option}=y\n".encode()
    assert image.lacking(config(), [], AMD64) == []
    (line,) = image.lacking(config() + own, [], RISCV64)
    assert "CONFIG_RISCV_PMU_SBI" in line


def test_a_kernel_without_a_disk_is_said_to_use_the_serial_line():
    (line,) = image.lacking(config("VIRTIO_BLK"), [], AMD64)
    assert "CONFIG_VIRTIO_BLK: results come by" in line


# The kernel's build appends the unpacked size, except to gzip data.
@pytest.mark.parametrize(
    ("pack", "size"), [(gzip.compress, b""), (bz2.compress, bytes(4)), (lzma.compress, bytes(4))]
)
def test_a_kernel_may_hold_its_configuration(tmp_path, pack, size):
    path = planted.kernel(tmp_path / "k")
    assert image.configuration(image.inspect(path, AMD64.format)) is None
    held = b"IKCFG_ST" + gzip.compress(config("FUTEX")) + b"IKCFG_ED"
    payload = pack(b"code" + held + b"more") + size
    data = bytearray(path.read_bytes())
    data[(data[0x1F1] + 1) * 512 :] = payload
    struct.pack_into("<II", data, 0x248, 0, len(payload))
    path.write_bytes(data)
    assert image.configuration(image.inspect(path, AMD64.format)) == config("FUTEX")


def test_it_is_said_before_the_boot(lab, tmp_path, qemu):
    path = planted.kernel(tmp_path / "k", then=planted.RESET)
    (tmp_path / f"config-{image.inspect(path, AMD64.format).release}").write_bytes(
        config("BINFMT_SCRIPT")
    )
    done = lab.boot(path)
    lines = done.stderr.splitlines()
    assert lines[0].startswith("planted: was built without CONFIG_BINFMT_SCRIPT: "), done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--option", "pipes.cpus=0,1"), "pipes --cpus=0,1: --cpus: CPU 1 does not exist"),
        (("--option", "pipes.no-such=1"), "pipes --no-such=1: unknown"),
        (("--sweep", "pipes.bytes=1,0"), "pipes --bytes=0: --bytes takes a whole number"),
    ],
)
def test_options_that_a_program_refuses_are_refused_before_the_kernel_is_looked_for(
    lab, qemu, words, why
):
    done = lab.inside("run", "--kernel", "a=there-is-none", "--mode", "counted", *words, "pipes")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"klat lab: {why}"), line


def test_the_answer_is_that_of_the_guest_and_not_of_this_machine(monkeypatch):
    monkeypatch.setenv("KLAT_PROGRAMS", str(ROOT / "build/static"))
    many = [("pipes", ("--cpus=0,4000",))]
    assert suite.check_options(many, "emulated", 4001) == []
    with pytest.raises(KlatError, match="CPU 4000 does not exist"):
        suite.check_options(many, "emulated", 4000)
    with pytest.raises(KlatError, match="skipped: needs 2 CPUs and may use 1") as skipped:
        suite.check_options([("tlbflush", ("--responders=1",))], "counted", 1)
    assert skipped.value.status == 4
    both = [("pipes", ()), ("tlbflush", ("--responders=1",))]
    (line,) = suite.check_options(both, "counted", 1)
    assert line.startswith("tlbflush --responders=1: skipped: needs 2 CPUs")


def test_the_documentation_has_the_same_list():
    text = (ROOT / "docs/kernels.md").read_text().partition("**Your own kernel**")[2]
    told = set(re.findall(r"`([A-Z0-9_]+)`", text.partition("\n## ")[0]))
    assert set(image.GUEST) <= told
    assert {o for needed in image.PROGRAMS.values() for o in needed} <= told


def test_a_profile_leaves_out_what_one_cpu_cannot_measure(lab, qemu):
    profile = ("--profile", "rt", "--load", "none", "--mode", "counted")
    done = lab.inside("run", "--kernel", "a=there-is-none", *profile, "pipes")
    first, *_, last = done.stderr.splitlines()
    assert first == "profile rt: left out, because there is one CPU: pipes on two CPUs"
    assert "there-is-none" in last
