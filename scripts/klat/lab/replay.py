"""Repeats boots of the lab with klat's plugin in the emulator. The plugin records what the samples execute."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import subprocess
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from klat.base import files
from klat.base.bounded_read import open_below
from klat.base.errors import KlatError
from klat.base.process import Signals, answer
from klat.explain.explanation import SampleNotFound
from klat.lab import cache, experiment, guest, initramfs, kernel_formats, qemu, suite
from klat.lab.boots import Booting, Ready
from klat.lab.experiment import KernelUnderLoad
from klat.lab.qemu import Machine
from klat.record.json_files import read_machine_json

_KEPT_BYTES = 64 << 20  # a file has 1 to 2 MB


def symbols_key(
    machine: qemu.Machine, facts: Mapping[str, Any], append: str, condition: KernelUnderLoad
) -> str:
    """The name of the symbols in the cache: a hash of everything that decides them. `facts` describe the kernel.

    The addresses in a guest are not random. klat boots an unpacked kernel, so its functions have the addresses of
    the build. The guest loads some modules before the runs. Their addresses depend on the modules in the guest's
    file system, the command line and the load. The guest loads the disk's modules after the last run. Their
    addresses can differ between boots of one key, but no sample executes these modules."""
    decides = [
        facts["vmlinux_sha256"],
        facts["initramfs_sha256"],
        qemu.command_line(machine, append),
        machine.emulator.text,
        str(machine.shape),
        condition.load,
    ]
    return hashlib.sha256(json.dumps(decides).encode()).hexdigest()


def kept_symbols(name: str) -> str | None:
    """The symbols under this name. None if the cache lacks them or the file is damaged."""
    try:
        data = kernel_formats.decompress((cache.root() / "symbols" / name).read_bytes())
    except (OSError, ValueError):
        return None
    recorded_name, _, text = data.decode(errors="replace").partition("\n")
    return text if recorded_name == name else None


def keep_symbols(name: str, kallsyms: str) -> None:
    data = gzip.compress(f"{name}\n{kallsyms}".encode(), compresslevel=1, mtime=0)
    cache.keep("symbols", name, data, _KEPT_BYTES)


# lab/plugin/qemu.c reads this variable before QEMU reads the plugin's version.
VERSION_VARIABLE = "KLAT_PLUGIN_API"
_NEWEST = 7  # the newest version that lab/plugin/qemu.c knows
_NONE_SUPPORTS = "1000000"
_SECONDS = 30


@dataclass(frozen=True)
class Plugin:
    file: Path
    api: int

    def load(self, arguments: str) -> qemu.PluginOption:
        file = qemu.quoted(self.file)
        return qemu.PluginOption(f"{file},{arguments}", {VERSION_VARIABLE: str(self.api)})


def find_plugin(emulator: qemu.Emulator) -> Plugin:
    """KlatError if this QEMU cannot load klat's plugin."""
    file = suite.trace_plugin()
    if not file.is_file():
        raise KlatError(f"{file} is missing; reinstall klat: make install", status=1)
    api = _newest_api(emulator, file)
    if api > _NEWEST:
        raise KlatError(
            f"QEMU {emulator.text} has version {api} of the plugin API; klat knows versions 1 to"
            f" {_NEWEST}",
            status=1,
        )
    return Plugin(file, api)


def _newest_api(emulator: qemu.Emulator, file: Path) -> int:
    """The newest version that QEMU supports. QEMU names this version when it refuses a plugin that
    declares a newer one."""
    words = [emulator.path, *("-machine", "none", "-nodefaults", "-display", "none")]
    words += ["-plugin", qemu.quoted(file)]
    environment = {**os.environ, VERSION_VARIABLE: _NONE_SUPPORTS}
    try:
        said = answer(words, _SECONDS, env=environment).stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    match = re.search(r"supports only up to version (\d+)", said)
    if not match:
        last = (said.splitlines() or ["no message"])[-1]
        raise KlatError(
            f"QEMU {emulator.text} cannot load klat's plugin, which lab explain needs: {last}",
            status=1,
        )
    return int(match[1])


_POLL_SECONDS = 0.1
_SAMPLES = "samples"
# If a repeated boot differs from the record, a second one shows which of the two is wrong.
_BOOTS = 2


@dataclass(frozen=True)
class Recorded:
    """A session of the lab, with the kernel and the files of its guest. `ready` lacks the guest's file system, of which a
    report can have many; loaded() has it."""

    session: Path
    boot: experiment.PlannedBoot
    planned: experiment.Experiment
    machine: Machine  # stops the clock if the recorded boot did
    ready: Ready
    file_system: Path
    programs: Mapping[str, bytes]  # by name
    symbols: str  # the name of its kernel's symbols in the cache

    def loaded(self) -> Ready:
        return replace(self.ready, initramfs=self.file_system.read_bytes())


class OtherSamples(SampleNotFound):
    """The samples of a repeated boot differ from the record."""


@dataclass(frozen=True)
class Replayed:
    trace: Path
    kallsyms: str


def recorded(session: Path, emulator: qemu.Emulator) -> Recorded:
    """The recorded boot of a session. KlatError if this machine cannot repeat it."""
    planned, boot = experiment.of_session(session)
    if planned.mode != "counted":
        raise KlatError(
            f"{session}: was recorded in mode {planned.mode}; klat can repeat only counted boots;"
            " record it again: klat lab run --mode counted"
        )
    recorded_machine = read_machine_json(session)
    version = recorded_machine.get("qemu")
    if version != emulator.text:
        raise KlatError(
            f"{session}: was recorded with QEMU {version}, and this machine has {emulator.text}; record"
            " it again"
        )
    facts = recorded_machine.get("kernel") or {}
    digest, kernel_digest = str(facts.get("initramfs_sha256")), facts.get("vmlinux_sha256")
    packed = planned.architecture.format.packed
    if facts.get("started_as") == packed:
        raise KlatError(
            f"{session}: its kernel was booted as a {packed}, because it has no PVH entry or klat could"
            " not unpack it; klat can repeat only boots of unpacked kernels"
        )
    if not kernel_digest:
        raise KlatError(
            f"{session}: an earlier klat recorded it without the hash of its kernel; record it again"
        )
    base = cache.root() / "initramfs" / digest
    image = cache.root() / "images" / f"{planned.hashes[boot.condition.kernel]}.vmlinux"
    data = _cached(session, base, digest, "file system")
    _cached(session, image, str(kernel_digest), "kernel")
    names = {f"bin/{name}": name for name in planned.programs}
    files_of_programs = {
        names[name]: body for name, body in initramfs.read_archive(data).items() if name in names
    }
    append = planned.append_of(boot.condition)
    stops_clock = bool(recorded_machine.get("stopped_clock"))
    machine = Machine(emulator, planned.mode, planned.shape, stops_clock)
    symbols = symbols_key(machine, facts, append, boot.condition)
    ready = Ready(boot.label, image, b"", facts)
    return Recorded(session, boot, planned, machine, ready, base, files_of_programs, symbols)


def _cached(session: Path, path: Path, digest: str, what: str) -> bytes:
    """A file of the lab's cache. KlatError unless it is the recorded one."""
    name = re.fullmatch(r"[0-9a-f]{64}(\.vmlinux)?", path.name)
    if not name or not path.is_file():
        raise KlatError(f"{session}: the lab's cache no longer has its {what}; record it again")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise KlatError(
            f"{session}: {path} differs from the {what} that was booted; remove this file and record"
            " the session again"
        )
    return data


def replay(
    boots: Sequence[Recorded],
    arguments: Sequence[str],
    plugin: Plugin,
    work: Path,
    signals: Signals,
    at_once: int,
    say: Callable[[str], None],
) -> Generator[tuple[int, Replayed | KlatError], None, None]:
    """Repeats the boots, each with its own plugin `arguments`, `at_once` of them in parallel. Yields the index of each boot
    in the order in which they end, while further ones run. If the samples of a boot differ from the record, it is repeated
    once more. A boot that cannot be repeated has an error. Close the iterator to end the guests."""
    pending = deque((number, _BOOTS) for number in range(len(boots)))
    running: dict[int, tuple[int, Booting, Path]] = {}

    def start() -> None:
        while pending and len(running) < at_once:
            number, tries = pending.popleft()
            trace = work / f"trace-{number}"
            option = plugin.load(f"out={qemu.quoted(trace)},{arguments[number]}")
            booting = _booting(boots[number], option, work / f"replay-{number}")
            running[number] = tries, booting, trace

    try:
        while pending or running:
            start()
            ended = [number for number, (_, booting, _) in running.items() if booting.poll()]
            signals.check()
            if not ended:
                signals.wait(_POLL_SECONDS)
            for number in ended:
                tries, booting, trace = running.pop(number)
                result: Replayed | KlatError
                try:
                    result = _result(boots[number], booting, trace, work)
                except KlatError as error:
                    result = error
                booting.clean()
                if isinstance(result, OtherSamples) and tries > 1:
                    pending.append((number, tries - 1))
                    say(
                        f"{boots[number].session}: the samples of the repeated boot differ from the"
                        " record; trying again"
                    )
                else:
                    start()  # before the caller reads the trace, which takes seconds
                    yield number, result
    finally:
        for _, booting, _ in running.values():
            booting.end()
            booting.clean()


def _booting(boot: Recorded, option: qemu.PluginOption, place: Path) -> Booting:
    return Booting(
        boot.planned,
        boot.boot,
        boot.loaded(),
        boot.machine,
        place,
        boot.planned.time_limit_s,
        option,
        wants_symbols=kept_symbols(boot.symbols) is None,
    )


def _result(boot: Recorded, booting: Booting, trace: Path, work: Path) -> Replayed:
    delivery, failure = booting.conclude()
    if failure or delivery is None:
        raise KlatError(f"{boot.session}: its boot could not be repeated: {failure}", status=1)
    place = work / f"{trace.name}-results"
    files.remove_tree(place)
    place.mkdir()
    guest.unpack(delivery.tar, place)
    for path in sorted((boot.session / _SAMPLES).iterdir()):
        again = place / _SAMPLES / path.name
        with open_below(path) as file:
            same = again.is_file() and again.read_bytes() == file.readall()
        if not same:
            raise OtherSamples(
                f"{boot.session}: {_BOOTS} repeated boots gave other samples of {path.stem} than the"
                " record, so klat cannot explain the recorded samples; record the session again",
                status=1,
            )
    delivered = place / "lab" / "kallsyms"
    if delivered.is_file():
        keep_symbols(boot.symbols, delivered.read_text(errors="replace"))
    symbols = kept_symbols(boot.symbols)
    if symbols is None:
        raise KlatError(
            f"{boot.session}: the guest delivered no kernel symbols; its kernel needs"
            " CONFIG_KALLSYMS_ALL and virtio_blk",
            status=1,
        )
    return Replayed(trace, symbols)
