"""A repeated boot counts only if it gives the samples of the record."""

import sys
import time
from pathlib import Path
from typing import Any

import made_tools
import pytest
from labs import experiment, tar_of
from test_lab_explain_refusals import Recording

from klat.lab.architectures import AMD64
from klat.lab.boots import Ready
from klat.lab import boots, qemu, replay
from klat.lab.guest import Delivery

EMULATOR = qemu.Emulator("qemu", (9, 9), "9.9", AMD64)
MACHINE = qemu.Machine(EMULATOR, "counted", qemu.GuestSize(), stops_clock=False)


class Signals:
    def check(self) -> None:
        pass

    def wait(self, seconds: float) -> None:
        raise AssertionError("a boot that ended is not waited for")


class Planned:
    time_limit_s = 1


@pytest.fixture
def session(tmp_path: Path) -> Path:
    (tmp_path / "session/samples").mkdir(parents=True)
    (tmp_path / "session/samples/pipes.u64").write_bytes(b"recorded")
    return tmp_path / "session"


def replayed(
    session: Path, monkeypatch: pytest.MonkeyPatch, given: list[bytes]
) -> tuple[list[Any], list[str]]:
    """Repeats a boot. The repeated boots give these samples, in this order."""

    class Booting:
        def __init__(self, *inputs: Any, wants_symbols: bool) -> None:
            assert MACHINE in inputs, "the machine of the record"
            self.samples = given.pop(0)
            self.symbols = [("lab/kallsyms", b"symbols")] if wants_symbols else []

        def poll(self) -> bool:
            return True

        def conclude(self) -> tuple[Delivery, None]:
            tar = tar_of(("samples/pipes.u64", self.samples), *self.symbols)
            return Delivery("complete", tar), None

        def end(self) -> None:
            pass

        def clean(self) -> None:
            pass

    monkeypatch.setattr(replay, "Booting", Booting)
    monkeypatch.setenv("XDG_CACHE_HOME", str(session.parent / "cache"))
    planned: Any = Planned
    planned_boot: Any = None
    signals: Any = Signals()
    kernel = Ready("lab", session / "vmlinux", b"", {})
    archive = session.parent / "initramfs"
    archive.touch()
    boot = replay.Recorded(session, planned_boot, planned, MACHINE, kernel, archive, {}, "ab")
    said: list[str] = []
    work = session.parent
    plugin = replay.Plugin(work / "plugin.so", 1)
    results = dict(replay.replay([boot], [""], plugin, work, signals, 1, said.append))
    return [*results.values()], said


@pytest.mark.usefixtures("qemu")
@pytest.mark.parametrize(
    ("facts", "stops"),
    [({}, False), ({"stopped_clock": False}, False), ({"stopped_clock": True}, True)],
)
def test_a_boot_is_repeated_with_the_clock_of_its_record(lab, monkeypatch, facts, stops):
    recording = Recording(lab)
    recording.machine |= facts
    recording.write()
    monkeypatch.setenv("XDG_CACHE_HOME", str(lab.cache))
    machine = replay.recorded(recording.path, qemu.find(AMD64)).machine
    assert bool(machine.environment) == stops


def test_a_boot_with_other_samples_is_repeated(session, monkeypatch):
    (found,), said = replayed(session, monkeypatch, [b"other", b"recorded"])
    assert found.kallsyms == "symbols"
    assert said == [
        f"{session}: the samples of the repeated boot differ from the record; trying again"
    ]


def test_a_boot_that_never_gives_the_samples_is_refused(session, monkeypatch):
    (refused,), _ = replayed(session, monkeypatch, [b"other"] * 100)
    assert isinstance(refused, replay.OtherSamples) and "other samples of pipes" in str(refused)


def test_a_boot_is_asked_for_its_symbols_once(session, monkeypatch):
    replayed(session, monkeypatch, [b"recorded"])

    def never(*_: object) -> None:
        raise AssertionError("asked again")

    monkeypatch.setattr(replay, "keep_symbols", never)
    (found,), _ = replayed(session, monkeypatch, [b"recorded"])
    assert found.kallsyms == "symbols"


FILLS = """#!{python} -IS
import re, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
file = open(re.search("{file}([^ ,]*)", " ".join(sys.argv))[1], "wb", buffering=0)
file.seek(most - 1)
file.write(b"xx")
file.write(b"x")
"""


TRACE_TOO_LARGE = "the emulator's plugin wrote a trace of more than 1024 MB; record fewer"


@pytest.mark.parametrize(
    ("file", "delivered", "said"),
    [
        ("out=", False, TRACE_TOO_LARGE),
        ("out=", True, TRACE_TOO_LARGE),
        ("id=results,path=", False, "the guest wrote more than 1024 MB to a serial line"),
    ],
)
def test_a_file_of_a_repeated_boot_that_is_too_large(tmp_path, monkeypatch, file, delivered, said):
    """The plugin still writes after the guest has delivered its results."""
    if delivered:
        monkeypatch.setattr("klat.lab.boots.guest.receive", lambda *_: Delivery("complete", b""))
    text = FILLS.format(python=sys.executable, file=file)
    emulator = made_tools.script(tmp_path / "qemu", text)
    planned = experiment(boots=1)
    again = boots.Booting(
        planned,
        planned.schedule()[0],
        Ready("lab", tmp_path / "vmlinux", b"", {}),
        qemu.Machine(qemu.Emulator(str(emulator), (7, 2), "7.2", AMD64), "counted", planned.shape),
        tmp_path / "work",
        60,
        qemu.PluginOption(f"plugin.so,out={tmp_path}/trace", {}),
    )
    try:
        while not again.poll():
            time.sleep(0.01)
        _, failure = again.conclude()
    finally:
        again.end()
    assert said in str(failure)
