"""Repeats boots of the lab with klat's plugin in the emulator, to know what their samples consist of."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from klat.base import files
from klat.base.errors import KlatError
from klat.base.process import Signals
from klat.lab import cache, cpio, experiment, guest, qemu
from klat.explain import isa
from klat.lab.boots import Booting, Ready
from klat.lab.plugins import Plugin
from klat.lab.qemu import Machine
from klat.record.json_files import read_machine_json

_POLL_SECONDS = 0.1
_SAMPLES = "samples"
_PT_LOAD = 1
# QEMU's main thread moves the clock of an idle guest to its next timer. It can do so before the
# instructions that led to the halt are counted: their number is then added to the clock, and the
# samples that follow differ. On a busy machine this happens in about one boot of fifty.
_BOOTS = 4


@dataclass(frozen=True)
class Recorded:
    """A session of the lab, with what its guest was made of."""

    session: Path
    boot: experiment.PlannedBoot
    planned: experiment.Experiment
    ready: Ready
    programs: Mapping[str, bytes]  # by name


class OtherSamples(KlatError):
    """A repeated boot gave other samples than the recorded one."""


@dataclass(frozen=True)
class Replayed:
    trace: Path
    kallsyms: str


def recorded(session: Path, emulator: qemu.Emulator) -> Recorded:
    """KlatError where the boot cannot be repeated here."""
    planned, boot = experiment.of_session(session)
    if planned.mode != "counted":
        raise KlatError(
            f"{session}: was recorded in mode {planned.mode}; only counted boots can be repeated:"
            " klat lab run --mode counted"
        )
    machine = read_machine_json(session)
    if machine.get("qemu") != emulator.text:
        raise KlatError(
            f"{session}: was recorded by QEMU {machine.get('qemu')}, and here is"
            f" {emulator.text}; record it anew"
        )
    facts = machine.get("kernel") or {}
    digest = str(facts.get("initramfs_sha256"))
    base = cache.root() / "initramfs" / digest
    image = cache.root() / "images" / f"{planned.hashes[boot.condition.kernel]}.vmlinux"
    for path, what in ((base, "the files of its guest are"), (image, "its kernel is")):
        if not re.fullmatch(r"[0-9a-f]{64}(\.vmlinux)?", path.name) or not path.is_file():
            raise KlatError(f"{session}: {what} not in the lab's cache any more; record it anew")
    data = base.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise KlatError(
            f"{session}: the files of its guest are damaged in the lab's cache; remove {base} and"
            " record it anew"
        )
    names = {f"bin/{name}": name for name in planned.programs}
    held = {names[name]: body for name, body in cpio.read(data).items() if name in names}
    return Recorded(session, boot, planned, Ready(boot.label, image, data, facts), held)


def replay(
    boots: Sequence[Recorded],
    arguments: Sequence[str],
    plugin: Plugin,
    emulator: qemu.Emulator,
    work: Path,
    signals: Signals,
    say: Callable[[str], None],
) -> list[Replayed]:
    """Side by side, each with the plugin's `arguments` of its own. A boot that gives other samples is
    repeated. KlatError unless every sample is what it was."""
    found: dict[int, Replayed] = {}
    for left in reversed(range(_BOOTS)):
        missing = [number for number in range(len(boots)) if number not in found]
        numbered = [(number, boots[number], arguments[number]) for number in missing]
        results = _replay_once(numbered, plugin, emulator, work, signals)
        for number, result in zip(missing, results):
            if isinstance(result, Replayed):
                found[number] = result
            elif not left:
                raise result
            else:
                say(f"{boots[number].session}: the repeated boot gave other samples; trying again")
        if len(found) == len(boots):
            break
    return [found[number] for number in range(len(boots))]


def _replay_once(
    boots: Sequence[tuple[int, Recorded, str]],
    plugin: Plugin,
    emulator: qemu.Emulator,
    work: Path,
    signals: Signals,
) -> list[Replayed | OtherSamples]:
    running: list[tuple[Recorded, Booting, Path]] = []
    try:
        for number, boot, words in boots:
            trace = work / f"trace-{number}"
            option = plugin.load(f"out={qemu.quoted(trace)},{words}")
            machine = Machine(emulator, boot.planned.mode, boot.planned.shape)
            limit = boot.planned.time_limit_s
            place = work / f"replay-{number}"
            running.append(
                (
                    boot,
                    Booting(boot.planned, boot.boot, boot.ready, machine, place, limit, option),
                    trace,
                )
            )
        while not all([booting.poll() for _, booting, _ in running]):
            signals.wait(_POLL_SECONDS)
        return [_result(boot, booting, trace, work) for boot, booting, trace in running]
    finally:
        for _, booting, _ in running:
            booting.end()
            booting.clean()


def _result(boot: Recorded, booting: Booting, trace: Path, work: Path) -> Replayed | OtherSamples:
    delivery, failure = booting.conclude()
    if failure or delivery is None:
        raise KlatError(f"{boot.session}: its boot could not be repeated: {failure}", status=1)
    place = work / f"{trace.name}-results"
    files.remove_tree(place)
    place.mkdir()
    guest.unpack(delivery.tar, place)
    for path in sorted((boot.session / _SAMPLES).iterdir()):
        again = place / _SAMPLES / path.name
        if not again.is_file() or again.read_bytes() != path.read_bytes():
            return OtherSamples(
                f"{boot.session}: the repeated boot gave other samples of {path.stem} {_BOOTS} times,"
                " so those in the record cannot be explained; record it anew",
                status=1,
            )
    symbols = place / "lab" / "kallsyms"
    if not symbols.is_file():
        raise KlatError(
            f"{boot.session}: the guest gave out no kernel symbols (CONFIG_KALLSYMS_ALL, virtio_blk)",
            status=1,
        )
    return Replayed(trace, symbols.read_text(errors="replace"))


def switch_address(kernel: Path) -> int | None:
    """Where an unpacked kernel reads the stack pointer of the task that it switches to."""
    data = kernel.read_bytes()
    found = isa.of_file(kernel).task_switch.search(data)
    if found is None:
        return None
    offset = found.start("load")
    (headers,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for index in range(count):
        kind, _, start, address, _, length = struct.unpack_from(
            "<IIQQQQ", data, headers + index * size
        )
        if kind == _PT_LOAD and start <= offset < start + length:
            return int(address + offset - start)
    return None
