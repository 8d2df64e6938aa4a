"""Boots guests until an experiment is complete: several at once if they do not disturb each other."""

from __future__ import annotations

import re
import shutil
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from klat.base.process import Signals
from klat.lab import collect, guest, initramfs, qemu
from klat.lab.experiment import Experiment, PlannedBoot
from klat.lab.guest import BootFailure, Delivery, EmulatorFailed, ModuleMissing, NotBooted
from klat.lab.guest import NotRecorded, ResultsIncomplete, TimeLimit
from klat.lab.qemu import Guest, Machine
from klat.record import json_files, plan_csv
from klat.record.session import printable
from klat.report.text.numbers import plural
from klat.running.loads import IDLE
from klat.running.progress import Progress, duration

_POLL_SECONDS = 0.2
_READY = b"klat-lab: ready"
_RUN = b"klat-lab: run "
_SAYS = re.compile(r"^klat-lab: (?!run |ready)(.*)$", re.MULTILINE)
_DEATH = re.compile(r"^(?:\[ *[\d.]+\] ?)?(Kernel panic .*|BUG: .*|Oops: .*)$", re.MULTILINE)
_RUN_BYTES = 65536  # for a run's rows, and the disk's share of the environment
# The disk has room for the kernel's symbols, which only a repeated boot writes. The firmware reads the size of
# the disk, so the disks of both boots must have the same size.
_DISK_BYTES = 48 << 20
_TRACE_BYTES = 1 << 30
_SERIES = 8  # metrics a program may have
_CONSOLE_LINES = 8
_CONSOLE_WIDTH = 200


@dataclass(frozen=True)
class Ready:
    """A kernel and what its guests share, in the form that QEMU takes."""

    label: str
    kernel: Path
    initramfs: bytes
    facts: Mapping[str, Any]

    @property
    def made(self) -> tuple[str, str]:
        """As collect.made_of() reads it from a session."""
        return self.facts["initramfs_sha256"], self.facts["started_as"]


@dataclass
class FinishedBoots:
    seconds: list[float] = field(default_factory=list)  # of each boot
    fixed: list[float] = field(default_factory=list)  # of those, until the first run
    failures: list[BootFailure] = field(default_factory=list)


class Booting:
    """One guest: its files, its process, and its results."""

    def __init__(
        self,
        experiment: Experiment,
        boot: PlannedBoot,
        ready: Ready,
        machine: Machine,
        work: Path,
        limit_s: float,
        plugin: qemu.PluginOption | None = None,
        wants_symbols: bool = False,
    ) -> None:
        """With `wants_symbols`, the guest also delivers its kernel's symbols."""
        self.experiment, self.boot, self._machine = experiment, boot, machine
        self._facts = ready.facts  # without the guest's file system, which has megabytes
        self._limit_s = limit_s
        self._work = work
        work.mkdir()
        schedule = experiment.plan(boot)
        self._console_read = 0
        self._tail = b""
        self.runs = 0
        self.ready_s: float | None = None
        settings: dict[str, str | int] = {
            "LABEL": boot.label,
            "SEED": boot.seed,
            "LOAD": "" if boot.condition.load == IDLE else f"load {boot.condition.load}",
            "NETWORK": int(any(run.benchmark == "network" for run in schedule)),
        }
        boot_archive = initramfs.of_boot(plan_csv.to_csv(schedule), settings)
        append = experiment.append_of(boot.condition)
        files = qemu.BootFiles.below(work, ready.kernel, boot.seed, boot.clock, append)
        self._files, self._console = files, files.console
        self._file_bytes = disk_size(schedule)
        try:
            with files.initrd.open("wb") as initrd:
                initrd.write(ready.initramfs)
                initrd.write(boot_archive)
            guest.prepare(files.disk, self._file_bytes, wants_symbols)
        except OSError as error:
            raise NotRecorded(f"no room for a guest's files in {work}: {error.strerror}") from None
        self.words = qemu.command(machine, files)
        if plugin:
            self.words += qemu.plugin_words(machine, plugin)
        self._traced = plugin is not None
        # The guest's memory is then a file, too.
        memory = machine.shape.memory_mib << 20
        self._most = max(self._file_bytes, memory, _TRACE_BYTES) if plugin else self._file_bytes
        environment = {**machine.environment, **(plugin.environment if plugin else {})}
        self._guest = Guest(self.words, work / "stderr", self._most, environment)

    def poll(self) -> bool:
        """Whether the guest has ended, or has exceeded its time."""
        ended = self._guest.status() is not None
        self._read_console()
        return ended or self._overdue()

    def _overdue(self) -> bool:
        limit = self.experiment.time_limit_s if self.ready_s is not None else self._limit_s
        return self._guest.seconds > limit

    def _read_console(self) -> None:
        try:
            with self._console.open("rb") as file:
                file.seek(self._console_read)
                data = file.read()
        except OSError:
            return
        self._console_read += len(data)
        lines = (self._tail + data).split(b"\n")
        self._tail = lines.pop()
        for line in lines:
            self.runs += line.startswith(_RUN)
            if self.ready_s is None and line.startswith(_READY):
                self.ready_s = self._guest.seconds

    def end(self) -> None:
        self._guest.end()

    def clean(self) -> None:
        shutil.rmtree(self._work, ignore_errors=True)

    @property
    def seconds(self) -> float:
        return self._guest.seconds

    def conclude(self) -> tuple[Delivery | None, BootFailure | None]:
        """What the guest delivered, and the reason if it is not a valid record."""
        status = self._guest.status()
        self.end()
        self._read_console()
        text = self.console()
        lines = [line for line in text.splitlines() if line.strip()][-_CONSOLE_LINES:]
        last = tuple(line[:_CONSOLE_WIDTH] for line in lines)
        try:
            delivery = guest.receive(self._files.disk, self._files.serial)
        except ResultsIncomplete as failure:
            failure.console = last
            return None, failure
        except OSError as error:
            return None, ResultsIncomplete(f"the results cannot be read: {error.strerror}", last)
        return delivery, self._failure(status, delivery, text, last)

    def _failure(
        self, status: int | None, delivery: Delivery | None, text: str, last: tuple[str, ...]
    ) -> BootFailure | None:
        if self._traced and status == -signal.SIGXFSZ:
            # The plugin writes its last data after the guest has delivered its results.
            return self._too_large(last)
        if delivery and delivery.state in ("complete", "programs"):
            return None
        said = _SAYS.findall(text)
        death = _DEATH.search(text)
        total = self.experiment.runs_of_boot
        if delivery and delivery.state == "module":
            return ModuleMissing(f"the kernel refused the {said[0] if said else 'module'}", last)
        if status == -signal.SIGXFSZ:
            return self._too_large(last)
        if status and not death:
            complaint = self._guest.complaint() or f"ended with status {status}"
            return EmulatorFailed(f"QEMU failed: {complaint}", last)
        if death and self.ready_s is not None:
            return NotBooted(f"the kernel died after {self.runs} of {total} runs: {death[1]}", last)
        if death:
            return NotBooted(f"the kernel did not boot: {death[1]}", last)
        if self.ready_s is None and status is None:
            return NotBooted(
                f"the kernel did not boot within {self._limit_s:g} s{self._silence(text)}", last
            )
        if status is None:
            limit = duration(self.experiment.time_limit_s)
            return TimeLimit(f"{self.runs} of {total} runs were over after {limit}", last)
        if said:
            return ResultsIncomplete(f"the guest says: {said[-1]}", last)
        if self.ready_s is None:
            return NotBooted(
                f"the kernel ended before its first program{self._silence(text)}", last
            )
        return ResultsIncomplete(f"the guest ended after {self.runs} of {total} runs", last)

    def _silence(self, console: str) -> str:
        if console.strip():
            return ""
        option = self._machine.architecture.console_option
        return f", and wrote nothing to the serial console (CONFIG_{option})"

    def _too_large(self, last: tuple[str, ...]) -> BootFailure:
        most = f"more than {self._most >> 20} MB"
        lines = [line for line in (self._files.console, self._files.serial) if line.exists()]
        if not self._traced or any(line.stat().st_size >= self._most for line in lines):
            return ResultsIncomplete(f"the guest wrote {most} to a serial line", last)
        return ResultsIncomplete(
            f"the emulator's plugin wrote a trace of {most}; record fewer iterations or explain one"
            " --metric",
            last,
        )

    def console(self) -> str:
        try:
            return self._console.read_text(errors="replace").replace("\r", "")
        except OSError:
            return ""

    def evidence(self, command: Sequence[str]) -> collect.Evidence:
        machine = self._machine
        facts = {
            "qemu": machine.emulator.text,
            "mode": machine.mode,
            "mode_reason": self.experiment.why,
            "cpu_model": machine.cpu_model,
            "shape": vars(machine.shape),
            "stopped_clock": bool(machine.environment),
            "command": self.words,
            "kernel": dict(self._facts),
            "seed": self.boot.seed,
            "clock": self.boot.clock,
            "initramfs_sha256": self._facts["initramfs_sha256"],
            "seconds": round(self.seconds, 3),
            "seconds_until_ready": None if self.ready_s is None else round(self.ready_s, 3),
        }
        files = {"console.log": self.console().encode()}
        complaint = self._work / "stderr"
        if complaint.exists() and complaint.stat().st_size:
            files["qemu.log"] = complaint.read_bytes()
        return collect.Evidence(files, facts, command)


def disk_size(schedule: Sequence[plan_csv.PlannedRun]) -> int:
    """Bytes for all samples of the schedule, with room to spare."""
    size = _DISK_BYTES
    for run in schedule:
        options = dict(word.lstrip("-").partition("=")[::2] for word in run.arguments)
        iterations, responders = (
            int(value) if (value := options.get(name, "")).isdecimal() else default
            for name, default in (("iterations", 500), ("responders", 0))
        )
        size += _RUN_BYTES + 8 * iterations * (_SERIES + responders)
    return size + -size % 4096


class Boots:
    """The boots of an experiment, while klat completes it."""

    def __init__(
        self,
        experiment: Experiment,
        output: Path,
        kernels: Sequence[Ready],
        machine: Machine,
        jobs: int,
        boot_limit_s: float,
        command: Sequence[str],
        work: Path,
        progress: Progress,
        lasting: bool = True,
    ) -> None:
        """`lasting`: whether the output is kept afterwards."""
        self._lasting = lasting
        self._experiment, self._output, self._kernels = experiment, output, kernels
        self._machine, self._jobs, self._boot_limit_s = machine, jobs, boot_limit_s
        self._command, self._work, self._progress = command, work, progress
        self._active: list[Booting] = []
        self._runs_of_others = 0  # experiments with the same progress
        self.sessions: dict[int, Path] = {}
        self.finished = FinishedBoots()

    def run(self, done: Mapping[int, Path], signals: Signals) -> None:
        """Boot what is missing. Raises Stopped, and the failure of a boot if no boot of its label has ever
        succeeded: the next would fail in the same way."""
        self.sessions = dict(done)
        pending = deque(b for b in self._experiment.schedule() if b.number not in done)
        self._runs_of_others = self._progress.done - len(done) * self._experiment.runs_of_boot
        try:
            while pending or self._active:
                while pending and len(self._active) < self._jobs:
                    self._active.append(self._start(pending.popleft()))
                signals.wait(_POLL_SECONDS)
                for booting in [b for b in self._active if b.poll()]:
                    self._active.remove(booting)
                    self._conclude(booting)
                    booting.clean()
                self._show()
        finally:
            self._progress.clear()
            self._progress.done = (
                self._runs_of_others + len(self.sessions) * self._experiment.runs_of_boot
            )
            for booting in self._active:
                booting.end()

    def _show(self) -> None:
        runs = self._runs_of_others + len(self.sessions) * self._experiment.runs_of_boot
        runs += sum(booting.runs for booting in self._active)
        if runs >= self._progress.total:
            return
        label = self._active[0].boot.label if self._active else ""
        self._progress.before(runs, label, self._seconds_left())

    def _seconds_left(self) -> float | None:
        """None until a boot has ended: most of a boot's time is before its first run."""
        if self.finished.seconds:
            self._progress.part_seconds = median(self.finished.seconds)
        if not self._progress.part_seconds:
            return None
        parts = [min(1.0, b.seconds / self._progress.part_seconds) for b in self._active]
        done = (len(self.sessions) + sum(parts)) * self._experiment.runs_of_boot
        return self._progress.left_after(self._runs_of_others + done)

    def _start(self, boot: PlannedBoot) -> Booting:
        return Booting(
            self._experiment,
            boot,
            self._kernels[boot.condition.kernel],
            self._machine,
            self._work / f"boot-{boot.number}",
            self._boot_limit_s,
        )

    def _conclude(self, booting: Booting) -> None:
        try:
            self._record(booting)
        except OSError as error:
            raise NotRecorded(
                f"{booting.boot.label}: boot {booting.boot.number} cannot be recorded in"
                f" {self._output}: {error.strerror or error}"
            ) from error

    def _record(self, booting: Booting) -> None:
        boot = booting.boot
        delivery, failure = booting.conclude()
        evidence = booting.evidence(self._command)
        place = None
        if failure is None:
            assert delivery
            try:
                place = collect.store(self._output, self._experiment, boot, delivery, evidence)
            except BootFailure as refused:
                failure = refused
        name = f"boot {boot.number} of {len(self._experiment.schedule())}, {boot.label}"
        if failure is None:
            assert place
            self.sessions[boot.number] = place
            self.finished.seconds.append(booting.seconds)
            self.finished.fixed.append(booting.ready_s or 0.0)
            self._progress.say_detail(
                f"{name}: {plural(booting.runs, 'run')} in {booting.seconds:.1f} s"
                f" (boot: {booting.ready_s or 0:.1f} s)"
            )
            for left in json_files.unrecorded(place):
                self._progress.say(f"{name}: {left.sentence()}")
            return
        self.finished.failures.append(failure)
        kept = collect.keep_failed(
            self._output, self._experiment, boot, delivery, evidence, failure
        )
        where = f"; kept in {kept}" if self._lasting else ""
        self._progress.say(f"{name}: {failure} ({failure.kind}){where}")
        for line in failure.console:
            self._progress.say(f"  | {printable(line.expandtabs())}")
        labels = {b.label for b in self._experiment.schedule() if b.number in self.sessions}
        if boot.label not in labels:
            raise type(failure)(f"{boot.label}: {failure}", failure.console)
