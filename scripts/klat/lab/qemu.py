"""QEMU: the installed one, the machine that it emulates, and a running guest."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klat.base.errors import KlatError
from klat.base.process import answer
from klat.base.streams import say
from klat.lab import suite
from klat.lab.architectures import Architecture
from klat.lab.guest import EmulatorFailed

MODES = ("kvm", "counted", "emulated")
_PR_SET_PDEATHSIG = 1
_GUEST_MEMORY = "ram"
# lab/plugin/clock.c prints this variable.
_PROOF_VARIABLE, _PROOF = "KLAT_CLOCK_PROOF", "klat: the time of day is stopped"


@dataclass(frozen=True)
class GuestSize:
    cpus: int = 1
    nodes: int = 1
    memory_mib: int = 512

    def __str__(self) -> str:
        """Part of the text whose hash is the guest's machine-id, so recorded sessions depend on it."""
        return f"Shape(cpus={self.cpus}, nodes={self.nodes}, memory_mib={self.memory_mib})"


@dataclass(frozen=True)
class Emulator:
    path: str
    version: tuple[int, ...]
    text: str  # "7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)"
    architecture: Architecture


@dataclass(frozen=True)
class Machine:
    """All that a guest's figures depend on, besides its kernel and its seed."""

    emulator: Emulator
    mode: str
    shape: GuestSize
    stops_clock: bool = True  # in counted mode, if QEMU can

    @property
    def architecture(self) -> Architecture:
        return self.emulator.architecture

    @property
    def board(self) -> str:
        return self.architecture.boards[self.mode == "kvm"]

    @property
    def environment(self) -> dict[str, str]:
        stops_clock = self.stops_clock and self.mode == "counted"
        return _stopped_clock(self.emulator.path) if stops_clock else {}

    @property
    def cpu_model(self) -> str:
        return self.architecture.cpus[self.mode == "kvm"]

    def describe(self, host: str) -> str:
        """The values that must agree between two sessions. `host` names this machine; it matters if
        the guest runs on this machine's CPUs."""
        words = [f"qemu {self.emulator.text}", self.mode, f"cpu {self.cpu_model}", str(self.shape)]
        return "; ".join(words + ([host] if self.mode == "kvm" else []))


def find(architecture: Architecture) -> Emulator:
    path = shutil.which(architecture.emulator)
    if not path:
        raise KlatError(
            f"the lab needs {architecture.emulator}, which is not here: apt install"
            f" {architecture.emulator_package} (Debian, Ubuntu)"
        )
    done = _ask(path, "--version")
    match = re.search(r"version ((\d+)\.(\d+)[^\n]*)", done.stdout)
    if not match:
        last = (done.stderr.strip().splitlines() or ["no version"])[-1]
        raise EmulatorFailed(f"{path} --version failed: {last}")
    text = match[1] + _firmware(path, architecture)
    return Emulator(path, (int(match[2]), int(match[3])), text, architecture)


@functools.cache
def _stopped_clock(path: str) -> dict[str, str]:
    """LD_PRELOAD with klat's plugin for QEMU, whose clock.c stops the time of day. If QEMU does not load it,
    prints why, once, and returns nothing."""
    try:
        return _preload(path, suite.trace_plugin())
    except KlatError as error:
        say(
            f"note: QEMU's time of day is not stopped ({error}), so samples of a boot can differ by some"
            " instructions from a repetition"
        )
        return {}


def _preload(path: str, library: Path) -> dict[str, str]:
    """LD_PRELOAD with the library. KlatError if QEMU does not load it, or prints another text with it."""
    if not library.is_file():
        raise KlatError(f"{library} is missing")
    if set(str(library)) & {" ", ":"}:
        raise KlatError(
            f"no library with a space or a colon in its path can be preloaded: {library}"
        )
    libraries = filter(None, [str(library), os.environ.get("LD_PRELOAD")])
    variables = {"LD_PRELOAD": " ".join(libraries)}
    usual = _ask(path, "--version")
    environment = {**os.environ, **variables, _PROOF_VARIABLE: _PROOF}
    preloaded = _ask(path, "--version", env=environment)
    if (preloaded.returncode, preloaded.stdout) != (0, usual.stdout):
        raise KlatError(f"{path} --version fails or prints another text with {library} preloaded")
    if _PROOF not in preloaded.stderr.splitlines():
        raise KlatError(f"{path} does not load {library} by LD_PRELOAD")
    return variables


def _ask(path: str, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    try:
        return answer([path, *words], seconds=30, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmulatorFailed(f"{path} {' '.join(words)}: {error}") from None


def _firmware(path: str, architecture: Architecture) -> str:
    """The firmware's hash. The firmware can change without QEMU."""
    if not architecture.firmware:
        return ""
    for directory in _ask(path, "-L", "help").stdout.splitlines():
        with contextlib.suppress(OSError):
            data = Path(directory, architecture.firmware).read_bytes()
            return f", firmware {hashlib.sha256(data).hexdigest()[:12]}"
    raise KlatError(
        f"{architecture.emulator} needs {architecture.firmware}, which is not here: apt install"
        f" {architecture.firmware_package} (Debian, Ubuntu)"
    )


def check(machine: Machine) -> None:
    """KlatError if this QEMU cannot make the machine, or its figures would have no meaning."""
    shape, emulator, architecture = machine.shape, machine.emulator, machine.architecture
    if machine.mode == "kvm" and not architecture.native:
        raise KlatError(
            f"--mode kvm: KVM cannot run a guest of {architecture.name} on this machine"
            f" ({platform.machine()}); --mode counted can"
        )
    if machine.mode == "counted" and shape.cpus > 1:
        raise KlatError(
            f"--cpus {shape.cpus}: instructions are counted on one CPU; QEMU emulates several in"
            " turns, which is no measure of one waiting for another: --mode emulated has as many"
            " as you like, for counts of events"
        )
    if architecture.cpus_before and machine.mode != "kvm":
        most, since = architecture.cpus_before
        if shape.cpus > most and emulator.version < since:
            raise KlatError(
                f"--cpus {shape.cpus}: QEMU {emulator.text} emulates at most {most} CPUs; from"
                f" {'.'.join(map(str, since))} on it emulates more"
            )
    if architecture.nodes_before and machine.mode != "kvm":
        most, since = architecture.nodes_before
        if shape.nodes > most and emulator.version < since:
            raise KlatError(
                f"--numa {shape.nodes}: with QEMU {emulator.text}, the disk of a guest of {architecture.name}"
                f" may not work with more than {most} node; with {'.'.join(map(str, since))} it works"
            )
    if shape.nodes > shape.cpus:
        raise KlatError(f"--numa {shape.nodes}: there are only {shape.cpus} CPUs for the nodes")


def quoted(path: Path) -> str:
    """Within an option of QEMU, where a comma ends a value."""
    return str(path).replace(",", ",,")


@dataclass(frozen=True)
class BootFiles:
    """One boot's inputs, in files."""

    kernel: Path
    initrd: Path
    disk: Path
    console: Path
    serial: Path
    seed: int
    clock: str  # of the guest, as 2026-01-31T00:00:00
    append: str = ""  # to the kernel's command line

    @classmethod
    def below(cls, work: Path, kernel: Path, seed: int, clock: str, append: str = "") -> BootFiles:
        """With the files in the directory `work`."""
        outputs = (work / "console", work / "serial")
        return cls(kernel, work / "initrd", work / "disk", *outputs, seed, clock, append)


def check_append(words: str) -> None:
    """KlatError if a word for the command line decides what the lab itself decides: the guest's first program, or its
    mode."""
    for word in words.split():
        if re.match('"?(rdinit=|init=|.*klat[.])', word):
            raise KlatError(f"append {word!r}: the lab itself sets the first program and the mode")


def command_line(machine: Machine, append: str) -> str:
    """Of the guest's kernel."""
    words = [
        f"console={machine.architecture.console}",
        "rdinit=/init",
        "panic=-1",  # resets, which ends QEMU
        "oops=panic",
        "cryptomgr.notests",
    ]
    if machine.mode != "kvm":
        words += machine.architecture.emulated_words
    if machine.mode == "counted":
        words += ["klat.mode=counted"]
    elif machine.mode == "emulated":
        # /init brings up the other CPUs. During the kernel's start they would only tick, and that
        # takes all the time of a small host.
        words += ["maxcpus=1"]
    return " ".join([*words, append]).strip()


def command(machine: Machine, boot: BootFiles) -> list[str]:
    shape = machine.shape
    words = [
        machine.emulator.path,
        *("-nodefaults", "-no-user-config", "-no-reboot"),
        *("-display", "none", "-monitor", "none"),
        *("-machine", machine.board, "-cpu", machine.cpu_model),
        *("-m", str(shape.memory_mib), "-smp", str(shape.cpus)),
        *_nodes(shape),
        *_accelerator(machine),
        *("-seed", str(boot.seed), "-rtc", f"base={boot.clock},clock=vm"),
        # With cache=unsafe, a flush ends at once, and QEMU's recorder never completes such a flush.
        *("-drive", f"file={quoted(boot.disk)},format=raw,if=none,id=results,cache=writeback"),
        *("-device", "virtio-blk-pci,drive=results"),
        *("-chardev", f"file,id=console,path={quoted(boot.console)}"),
        *("-serial", "chardev:console"),
        *("-chardev", f"file,id=results,path={quoted(boot.serial)}"),
        *machine.architecture.second_line,
        *("-kernel", str(boot.kernel), "-initrd", str(boot.initrd)),
        *("-append", command_line(machine, boot.append)),
    ]
    return words


@dataclass(frozen=True)
class PluginOption:
    """The argument of -plugin, and variables that the plugin needs in QEMU's environment."""

    text: str
    environment: Mapping[str, str]


def plugin_words(machine: Machine, plugin: PluginOption) -> list[str]:
    """Load a plugin that can read the memory of the guest: a memfd of QEMU. The guest
    sees the same machine."""
    size = f"{machine.shape.memory_mib}M"
    return [
        *("-plugin", plugin.text),
        *("-object", f"memory-backend-memfd,id={_GUEST_MEMORY},size={size}"),
        *("-machine", f"memory-backend={_GUEST_MEMORY}"),
    ]


def _accelerator(machine: Machine) -> list[str]:
    if machine.mode == "kvm":
        return ["-accel", "kvm"]
    if machine.mode == "counted":
        # shift=0: an instruction is a nanosecond. sleep=off: an idle guest's clock jumps to its next
        # timer, so that nothing depends on the host. rr=record: QEMU's main thread, which moves the
        # clock, waits until the guest's instructions are counted. Without the recorder's lock, the
        # main thread can see the halted guest too early. The clock then jumps too far, by the
        # instructions that are not counted yet.
        return [
            *("-accel", "tcg,thread=single"),
            *("-icount", f"shift=0,sleep=off,rr=record,rrfile={os.devnull}"),
        ]
    return ["-accel", "tcg,thread=multi"]


def _nodes(shape: GuestSize) -> list[str]:
    if shape.nodes == 1:
        return []
    words: list[str] = []
    for node in range(shape.nodes):
        memory = shape.memory_mib * (node + 1) // shape.nodes
        memory -= shape.memory_mib * node // shape.nodes
        first = shape.cpus * node // shape.nodes
        last = shape.cpus * (node + 1) // shape.nodes - 1
        words += ["-object", f"memory-backend-ram,id=memory{node},size={memory}M"]
        words += ["-numa", f"node,nodeid={node},cpus={first}-{last},memdev=memory{node}"]
    return words


class Guest:
    """A running QEMU. It ends when klat ends, in any way."""

    def __init__(
        self,
        words: Sequence[str],
        stderr: Path,
        file_bytes: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """SIGXFSZ kills QEMU when a file that it writes would exceed `file_bytes`. `environment` adds to
        klat's own."""
        parent = os.getpid()
        library = ctypes.CDLL(None, use_errno=True)

        def die_with_parent() -> None:
            library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            most = file_bytes if hard == resource.RLIM_INFINITY else min(file_bytes, hard)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            if os.getppid() != parent:
                os._exit(1)

        self.begun = time.monotonic()
        self._stderr, self._words = stderr, words
        try:
            with stderr.open("wb") as file:
                self._process = subprocess.Popen(
                    words,
                    env={**os.environ, **(environment or {})},
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    # Ctrl-C is for klat, which ends the guest itself.
                    start_new_session=True,
                    preexec_fn=die_with_parent,
                )
        except OSError as error:
            raise EmulatorFailed(f"{words[0]} cannot be started: {error.strerror}") from None

    def status(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun

    def complaint(self) -> str:
        """The last line that QEMU itself wrote."""
        try:
            lines = self._stderr.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        complaints = [line.strip() for line in lines if line.strip() and "warning:" not in line]
        return complaints[-1].removeprefix(f"{Path(self._words[0]).name}: ") if complaints else ""
