"""A guest that wants to harm the lab: whatever it delivers is one failed boot, and the next boot follows."""

import hashlib
import json
import os
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_tools
import planted
import pytest
from labs import Lab, experiment, member, tar_of, tar_of_directory
from written_sessions import SyntheticSession

from klat.lab import collect, guest
from klat.lab.guest import BootFailure, ResultsIncomplete
from klat.record import received
from klat.record.session import read_session

EVIDENCE = collect.Evidence({"console.log": b"said"}, {}, ["klat"])


def with_size(field: bytes) -> bytes:
    """A file whose header holds this size, with the right checksum."""
    block = bytearray(member("samples/pipes.u64").tobuf(tarfile.USTAR_FORMAT))
    block[124:136] = field
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + bytes(4096)


def with_record(**record: str) -> bytes:
    """A file of which an extended header says this."""
    info = member("x", pax_headers=record)
    return info.tobuf(tarfile.PAX_FORMAT) + bytes(4096)


def chain(count: int) -> bytes:
    """Extended headers that announce nothing but another one."""
    block = member("x", type=tarfile.XHDTYPE).tobuf(tarfile.USTAR_FORMAT)
    return block * count + bytes(1024)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "base-256": lambda: with_size(b"\x80" + b"\x7f" * 11),
    "base-256, most": lambda: with_size(b"\x80" + b"\xff" * 11),
    "base-256, negative": lambda: with_size(b"\xff" * 10 + b"\xfc\x00"),
    "larger than the tar": lambda: with_size(b"77777777777\0"),
    "no number": lambda: with_size(b"99999999999\0"),
    "extended size": lambda: with_record(size="9" * 40),
    "extended size, negative": lambda: with_record(size="-1024"),
    "extended size, 5,000 digits": lambda: with_record(size="9" * 5000),
    "NUL in a path": lambda: with_record(path="a\0b"),
    "control characters in a path": lambda: tar_of(("a\x1b[2Jb", b"")),
    "bytes that are no text in a path": lambda: tar_of(("a\udcffb", b"")),
    "a path of 5,000 parts": lambda: tar_of(("a/" * 5000 + "b", b"")),
    "a chain of headers": lambda: chain(100_000),
    "log, order of 5,000 digits": lambda: tar_of(("lab/programs.log", b"9" * 5000 + b" 1 x\n")),
    "log, one word": lambda: tar_of(("lab/programs.log", b"word\n")),
    "brackets": lambda: tar_of(("session.json", b"[" * 100_000)),
    "a list": lambda: tar_of(("session.json", b"[]")),
    "a directory": lambda: tar_of(("session.json/x", b"")),
    "digits": lambda: tar_of(("session.json", b'{"schema": ' + b"9" * 5000 + b"}")),
    "a file in place of the lab's directory": lambda: tar_of(("lab", b"")),
    "the host's console": lambda: tar_of(("lab/console.log", b"")),
    "a directory in place of the host's file": lambda: tar_of(("run.json/x", b"")),
    "random": lambda: hashlib.shake_256(b"x").digest(1 << 20),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_delivery_is_one_failed_boot_and_is_kept(tmp_path, name):
    planned = experiment(boots=1, runs=1)
    boot, data = planned.schedule()[0], HOSTILE[name]()
    delivery = guest.Delivery("complete", data)
    with pytest.raises(BootFailure) as raised:
        collect.store(tmp_path, planned, boot, delivery, EVIDENCE)
    failure = raised.value
    assert str(failure).isprintable() and len(str(failure)) < 2000
    kept = collect.keep_failed(tmp_path, planned, boot, delivery, EVIDENCE, failure)
    assert json.loads((kept / "run.json").read_text())["lab"]["reason"] == str(failure)
    assert (kept / "lab/console.log").read_bytes() == b"said"
    raw = kept / "lab/results.tar"
    unpacked = {path.name for path in kept.rglob("*")} & {"programs.log", "session.json", "x"}
    assert raw.read_bytes() == data if raw.exists() else unpacked
    assert [path.name for path in tmp_path.iterdir()] == [boot.label]
    assert [path.name for path in (tmp_path / boot.label).iterdir()] == [".failed"]


def test_the_number_of_files_has_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(received, "_MEMBERS", 10)
    files = [(str(number), b"") for number in range(11)]
    guest.unpack(tar_of(*files[:10]), tmp_path / "into")
    with pytest.raises(ResultsIncomplete, match="more than 10 files"):
        guest.unpack(tar_of(*files), tmp_path / "another")


def test_the_limits_leave_room_for_a_record_of_many_cpus(tmp_path):
    below = "environment/sys/devices/system/cpu"
    name = "amd_pstate_lowest_nonlinear_freq"
    files = [(f"{below}/cpu{number}/cpufreq/{name}", b"x") for number in range(4096)]
    guest.unpack(tar_of(*files), tmp_path)
    assert len(list((tmp_path / below).iterdir())) == 4096


def test_a_failure_of_the_host_is_no_failure_of_the_guest():
    with pytest.raises(OSError, match="full"):
        with guest.delivered():
            raise OSError(28, "full")
    with pytest.raises(ResultsIncomplete, match="damaged: 5"):
        with guest.delivered():
            raise OverflowError(5)


FAKE = """#!{python} -IS
import re, signal, sys
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
if "--version" in sys.argv:
    print("QEMU emulator version 7.2.22 (Debian)")
    sys.exit()
words = " ".join(sys.argv)
disk = Path(re.search("file=([^ ,]*),format=raw", words)[1])
console = Path(re.search("id=console,path=([^ ,]*)", words)[1])
console.write_text("klat-lab: ready\\nklat-lab: run 1 0\\n")
tar = Path({deliveries!r}, disk.parent.name)
if tar.exists():
    with disk.open("r+b") as out:
        out.write(tar.read_bytes())
else:
    serial = disk.with_name("serial").open("wb")
    while True:
        serial.write(bytes(1 << 20))
"""


def delivery_of(data: bytes) -> bytes:
    line = f"klat-lab 1 complete {len(data)} {hashlib.sha256(data).hexdigest()}\n"
    return line.encode().ljust(4096, b"\0") + data


def a_record(directory: Path, boot: int) -> bytes:
    record = SyntheticSession(
        directory / f"record-{boot}",
        label="planted",
        mode="counted",
        unit="instructions",
        boot_id=f"boot-{boot}",
    )
    record.run({"round_trip": [5] * 10}, order=1, run=1)
    return tar_of_directory(record.path)


def delivering(lab: Lab, directory: Path, *tars: bytes) -> tuple[list[str], dict[str, Any]]:
    """Words and environment of a lab whose emulator is a script that puts these on the boots' disks."""
    deliveries = directory / "deliveries"
    deliveries.mkdir()
    text = FAKE.format(python=sys.executable, deliveries=str(deliveries))
    emulator = made_tools.script(directory / "bin/qemu-system-x86_64", text)
    for boot, data in enumerate(tars, start=1):
        (deliveries / f"boot-{boot}").write_bytes(delivery_of(data))
    kernel = planted.kernel(directory / "k")
    own = ("--boots", str(len(tars)), "--runs", "1", "--jobs", "1", "pipes")
    words = ["run", "--kernel", f"planted={kernel}", "--mode", "counted", *own]
    return words, {"PATH": f"{emulator.parent}:{os.environ['PATH']}"}


@pytest.mark.parametrize("name", ["base-256", "log, order of 5,000 digits", "brackets"])
def test_the_lab_goes_on_after_a_hostile_guest(lab, tmp_path, name):
    hostile = HOSTILE[name]()
    words, environment = delivering(
        lab, tmp_path, a_record(tmp_path, 1), hostile, a_record(tmp_path, 3)
    )
    done = lab(*words, **environment)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "planted: 2 of 3 boots recorded" in done.stderr
    sessions = [entry for entry in (lab.results / "planted").iterdir() if entry.name != ".failed"]
    assert len(sessions) == 2
    (kept,) = (lab.results / "planted/.failed").iterdir()
    facts = json.loads((kept / "run.json").read_text())["lab"]
    assert facts["boot"] == 2 and facts["failure"] == "results"
    # As it came, or unpacked.
    held = [kept / name for name in ("lab/results.tar", "lab/programs.log", "session.json")]
    assert any(path.exists() for path in held)
    assert not lab.working()


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full", "1>/dev/full", "0<&- 1>&- 2>&-"])
def test_boots_are_recorded_whatever_the_streams_are(lab, tmp_path, streams):
    words, environment = delivering(lab, tmp_path, a_record(tmp_path, 1))
    settings = {"cwd": lab.directory, "env": lab.environment | environment, "seconds": 120}
    done = made_tools.run("sh", "-c", f'"$@" {streams}', "sh", *lab.words(*words), **settings)
    assert done.returncode == 0, done.stderr
    (held,) = (lab.results / "planted").iterdir()
    record = read_session(held)
    assert not record.problems and record.completed_orders() == {1}
    assert done.stdout == ("results/planted\n" if streams.startswith("2") else "")
    told = "recorded in results/planted; standard output: No space left on device\n"
    assert (told in done.stderr) == (streams == "1>/dev/full")


def test_a_guest_that_fills_a_serial_line_is_ended(lab, tmp_path):
    words, environment = delivering(lab, tmp_path, a_record(tmp_path, 1), b"")
    (tmp_path / "deliveries/boot-2").unlink()
    done = lab(*words, **environment)
    assert done.returncode == 1
    assert "the guest wrote more than 48 MB to a serial line (results); kept in" in done.stderr
    assert "planted: 1 of 2 boots recorded" in done.stderr
    assert not lab.working()
