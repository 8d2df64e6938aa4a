"""A repeated boot counts only if it gives the samples of the record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from labs import tar_of

from klat.lab import plugins, qemu, replay
from klat.lab.guest import Delivery

EMULATOR = qemu.Emulator("qemu", (9, 9), "9.9")


class Signals:
    def wait(self, seconds: float) -> None:
        raise AssertionError("a boot that ended is not waited for")


class Planned:
    mode, shape, time_limit_s = "counted", qemu.GuestSize(), 1


@pytest.fixture
def session(tmp_path: Path) -> Path:
    (tmp_path / "session/samples").mkdir(parents=True)
    (tmp_path / "session/samples/pipes.u64").write_bytes(b"recorded")
    return tmp_path / "session"


def replayed(
    session: Path, monkeypatch: pytest.MonkeyPatch, given: list[bytes]
) -> tuple[list[replay.Replayed], list[str]]:
    """By boots that give these samples, in this order."""

    class Booting:
        def __init__(self, *_: Any) -> None:
            self.samples = given.pop(0)

        def poll(self) -> bool:
            return True

        def conclude(self) -> tuple[Delivery, None]:
            tar = tar_of(("samples/pipes.u64", self.samples), ("lab/kallsyms", b"symbols"))
            return Delivery("complete", tar), None

        def end(self) -> None:
            pass

        def clean(self) -> None:
            pass

    monkeypatch.setattr(replay, "Booting", Booting)
    planned: Any = Planned
    planned_boot: Any = None
    signals: Any = Signals()
    kernel = replay.Ready("lab", session / "vmlinux", b"", {})
    boot = replay.Recorded(session, planned_boot, planned, kernel, {})
    said: list[str] = []
    work = session.parent
    plugin = plugins.Plugin(work / "plugin.so", 1)
    return replay.replay([boot], [""], plugin, EMULATOR, work, signals, said.append), said


def test_a_boot_with_other_samples_is_repeated(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,), said = replayed(session, monkeypatch, [b"other", b"recorded"])
    assert found.kallsyms == "symbols"
    assert said == [f"{session}: the repeated boot gave other samples; trying again"]


def test_a_boot_that_never_gives_the_samples_is_refused(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(replay.OtherSamples, match="other samples of pipes"):
        replayed(session, monkeypatch, [b"other"] * 100)
