"""Begins or resumes an experiment, and reports what was recorded."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from klat.base import files, streams
from klat.base.errors import KlatError
from klat.base.process import Signals, Stopped
from klat.lab import cache, collect, experiment, image, initramfs, kernels, qemu, suite
from klat.lab.apt import Archive
from klat.lab.architectures import Architecture
from klat.lab.boots import Boots, Ready
from klat.lab.experiment import Begun, Experiment
from klat.lab.guest import BootFailure
from klat.lab.guest_contents import Contents, unpacked_for
from klat.lab.kernels import Kernel, Spec
from klat.lab.qemu import BootFiles, Emulator, Guest, GuestSize, Machine
from klat.record import session_directory
from klat.record.session import STATUSES, read_session
from klat.record.session_directory import SET_ASIDE
from klat.report.text.columns import wrapped
from klat.report.text.numbers import plural, too_few_units
from klat.running.loads import IDLE
from klat.running.progress import Progress, duration, say_reasons
from klat.running.recording import Outcome, count_statuses, status_of
from klat.running.runner import command_line

# Until the first program runs. An emulated kernel of many CPUs takes its time.
_BOOT_LIMIT_S = {"kvm": 60, "counted": 600, "emulated": 600}
_BOOT_LIMIT_OF_CPU_S = 15
_JOBS_MAX = 64


@dataclass(frozen=True)
class Request:
    """An experiment as typed."""

    architecture: Architecture
    specs: Sequence[Spec]
    mode: str  # or auto
    shape: GuestSize
    sets: Sequence[tuple[str, tuple[str, ...]]]
    loads: Sequence[str]
    append: str  # to the command line of every kernel
    boots: int
    runs: int
    seed: int
    clock: str
    time_limit_s: int
    profile: str = ""
    study: str = ""


class Attempt:
    """One start of klat that works on an experiment."""

    def __init__(
        self,
        command: Sequence[str],
        architecture: Architecture,
        quiet: bool = False,
        resumable: bool = True,
        progress: Progress | None = None,
    ) -> None:
        """`quiet` leaves out the paths and what to type next: the output is removed afterwards. `resumable`:
        whether lab run --resume can complete the experiment. With the `progress` of several experiments, this one
        says only what went wrong."""
        self._command = command
        self._quiet = quiet
        self._resumable = resumable
        self._progress = progress
        self._archive = Archive(self.say, architecture.name)
        self._contents = Contents(self._archive, architecture, self.say)
        self._emulator = qemu.find(architecture)
        self.recorded: list[Path] = []  # sessions, in the order of their boots
        self.failures: list[BootFailure] = []

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def begin(self, request: Request, output: Path, jobs: int | None) -> int:
        labels = experiment.checked_labels([spec.label for spec in request.specs], request.loads)
        _check_output(output, labels)
        static = self._programs(request.sets, request.loads)
        if request.mode != "auto":
            self._check_options(request, request.mode)
        booted = [
            kernels.obtain(spec, self._archive, self._emulator.architecture)
            for spec in request.specs
        ]
        for kernel in booted:
            for line in image.lacking(
                kernel.config or b"", [name for name, _ in request.sets], request.architecture
            ):
                self.say(f"{kernel.label}: {line}")
        busybox = self._contents.busybox()
        try:
            mode, why = self._mode(request.mode, booted[0], busybox)
        except Stopped as stopped:
            self.say(f"stopped: {stopped}")
            return stopped.status
        if not self._progress:
            self.say("\n".join(wrapped(f"mode {mode}: {why}", "", "  ")))
        if request.mode == "auto":
            self._check_options(request, mode)
        machine = Machine(self._emulator, mode, request.shape)
        planned = Experiment(
            identity=secrets.token_hex(8),
            kernels=tuple(kernel.spec.text for kernel in booted),
            labels=tuple(kernel.label for kernel in booted),
            releases=tuple(kernel.image.release for kernel in booted),
            hashes=tuple(kernel.image.sha256 for kernel in booted),
            programs={name: suite.hash_of(path) for name, path in sorted(static.items())},
            mode=mode,
            why=why,
            shape=request.shape,
            sets=tuple(request.sets),
            loads=tuple(request.loads),
            append=request.append,
            boots=request.boots,
            runs=request.runs,
            seed=request.seed,
            clock=request.clock,
            time_limit_s=request.time_limit_s,
            appends=tuple(kernel.spec.append for kernel in booted),
            profile=request.profile,
            arch=request.architecture.name,
            study=request.study,
        )
        if not self._quiet and mode != "emulated":
            few = ("--boots", planned.boots, len(booted), planned.sets, mode == "kvm")
            for line in too_few_units(*few):
                self.say("\n".join(wrapped(f"note: {line}", "", "  ")))
        ready = self._contents.ready(planned.sets, booted, busybox, static, machine)
        return self._follow(Begun(planned, output, {}), ready, machine, jobs)

    def resume(self, begun: Begun, jobs: int | None) -> int:
        planned = begun.experiment
        _check_output(begun.output, {boot.label for boot in planned.schedule()})
        booted = []
        for text, label, release, digest in zip(
            planned.kernels, planned.labels, planned.releases, planned.hashes
        ):
            try:
                spec = replace(kernels.parse(text), label=label)
            except ValueError as error:
                raise KlatError(f"run.json was edited: {error}") from None
            if spec.debian:  # the same build, also if the archive has a newer one
                spec = replace(spec, debian=release)
            kernel = kernels.obtain(spec, self._archive, self._emulator.architecture)
            if kernel.image.sha256 != digest:
                raise KlatError(f"{text}: differs from the kernel of the experiment's first boots")
            booted.append(kernel)
        static = self._programs(planned.sets, planned.loads)
        changed = [n for n, p in static.items() if planned.programs.get(n) != suite.hash_of(p)]
        if changed:
            raise KlatError(
                f"{', '.join(sorted(changed))} was rebuilt since the experiment began; start a new"
                " experiment"
            )
        stops_clock = all(map(collect.clock_was_stopped, begun.sessions.values()))
        machine = Machine(self._emulator, planned.mode, planned.shape, stops_clock)
        qemu.check(machine)
        busybox = self._contents.busybox()
        ready = self._contents.ready(planned.sets, booted, busybox, static, machine)
        _check_guests(begun, ready)
        return self._follow(begun, ready, machine, jobs)

    def _check_options(self, request: Request, mode: str) -> None:
        qemu.check(Machine(self._emulator, mode, request.shape))
        for line in suite.check_options(request.sets, mode, request.shape.cpus):
            self.say(line)

    def _mode(self, asked: str, kernel: Kernel, busybox: bytes) -> tuple[str, str]:
        if asked != "auto":
            return asked, "as requested"
        unpacked = unpacked_for("kvm", kernel.image)
        path = unpacked.path if unpacked else kernel.image.path
        with Signals() as signals:
            return choose_mode(self._emulator, path, busybox, signals)

    def _programs(
        self, sets: Sequence[tuple[str, tuple[str, ...]]], loads: Sequence[str]
    ) -> dict[str, Path]:
        names = dict.fromkeys(name for name, _ in sets)
        if any(load != IDLE for load in loads):
            names[suite.LOAD_PROGRAM] = None
        return suite.static_programs(list(names), self._emulator.architecture)

    def _follow(
        self, begun: Begun, ready: Sequence[Ready], machine: Machine, jobs: int | None
    ) -> int:
        planned = begun.experiment
        if jobs is None or planned.mode != "counted":
            # Only counted guests do not disturb each other.
            if jobs and jobs > 1:
                self.say(
                    f"one guest at a time: in mode {planned.mode} they would disturb each other"
                )
            jobs = len(os.sched_getaffinity(0)) if planned.mode == "counted" else 1
        limit = _BOOT_LIMIT_S[planned.mode] + _BOOT_LIMIT_OF_CPU_S * (planned.shape.cpus - 1)
        limit = min(limit, planned.time_limit_s)
        # Until here Ctrl-C ends klat at once, for example in a download. From here on klat waits for it.
        with Signals() as signals, cache.work(planned.identity) as work:
            # Read again: another lab may have been at work on it until now.
            recorded = experiment.recorded(planned, begun.output)
            collect.check_all(planned, recorded)
            progress = self._progress or self._announced_progress(begun, recorded, jobs)
            boots = Boots(
                *(planned, begun.output, ready, machine, min(jobs, _JOBS_MAX), limit),
                *(self._command, work, progress),
                lasting=not self._quiet,
            )
            failure: KlatError | Stopped | None = None
            started = time.monotonic()
            try:
                boots.run(recorded, signals)
            except (KlatError, Stopped) as error:
                failure = error
            return self._say_result(begun, boots, time.monotonic() - started, failure)

    def _announced_progress(
        self, begun: Begun, recorded: Mapping[int, Path], jobs: int
    ) -> Progress:
        """Say what will be booted. `recorded` are the sessions of finished boots."""
        planned = begun.experiment
        schedule = planned.schedule()
        self.say(
            f"{plural(len(schedule), 'boot')} of {plural(planned.runs_of_boot, 'run')}"
            f" ({', '.join(dict.fromkeys(name for name, _ in planned.sets))}), {jobs} at a time"
            + (f"; {len(recorded)} are recorded already" if recorded else "")
            + f"\nseed {planned.seed}, clock {planned.clock}"
            + ("" if self._quiet else f", into {begun.output}")
        )
        for label, release in zip(planned.labels, planned.releases):
            self.say(f"  {label}: {release}")
        runs = planned.runs_of_boot
        return Progress(len(schedule) * runs, len(recorded) * runs, sys.stderr)

    def _say_result(
        self, begun: Begun, boots: Boots, elapsed: float, failure: KlatError | Stopped | None
    ) -> int:
        planned = begun.experiment
        schedule = planned.schedule()
        statuses, reasons = count_statuses(map(read_session, boots.sessions.values()))
        if not self._progress or statuses["ok"] < len(schedule) * planned.runs_of_boot:
            self._say_counts(planned, boots, statuses)
        say_reasons(reasons, self.say)
        if boots.finished.seconds and not self._progress:
            self.say(
                f"{plural(len(boots.finished.seconds), 'boot')} in {duration(elapsed)}; one takes"
                f" {median(boots.finished.fixed):.1f} s until its first run, and"
                f" {median(boots.finished.seconds):.1f} s in all (medians)"
            )
        self.recorded = [path for _, path in sorted(boots.sessions.items())]
        self.failures = boots.finished.failures
        labels = list(dict.fromkeys(b.label for b in schedule if b.number in boots.sessions))
        if not self._quiet:
            streams.announce([begun.output / label for label in labels], self.say)
        if len(boots.sessions) < len(schedule) and boots.sessions and self._resumable:
            session = next(iter(boots.sessions.values()))
            self.say(f"to complete it: {command_line('lab', 'run', '--resume', session)}")
        if isinstance(failure, Stopped):
            self.say(f"stopped: {failure}")
            return failure.status
        if failure:
            raise failure
        if labels and not self._quiet and planned.mode != "emulated":
            paths = [begun.output / label for label in labels]
            word = "compare" if len(labels) == max(2, len(planned.labels)) else "summary"
            self.say(f"next: {command_line(word, *paths)}")
        return status_of([Outcome(statuses, reasons, len(schedule) * planned.runs_of_boot, ())])

    def _say_counts(self, planned: Experiment, boots: Boots, statuses: Mapping[str, int]) -> None:
        schedule = planned.schedule()
        for label in dict.fromkeys(boot.label for boot in schedule):
            boots_of_label = [
                b for b in schedule if b.label == label and b.number in boots.sessions
            ]
            self.say(f"{label}: {len(boots_of_label)} of {planned.boots} boots recorded")
        missing = len(boots.sessions) * planned.runs_of_boot - sum(statuses.values())
        counts = [f"{statuses[s]} {s}" for s in STATUSES if statuses[s]]
        counts += [f"{missing} without a record"] if missing else []
        ended = plural(sum(statuses.values()) + missing, "run")
        self.say(f"{ended}: {', '.join(counts) or 'none'}")


def _check_output(output: Path, labels: Iterable[str]) -> None:
    """KlatError, before a kernel is fetched, if nothing can be recorded in `output`."""
    for target in (output, *(output / label / SET_ASIDE for label in labels)):
        place = next(path for path in (target, *target.absolute().parents) if os.path.lexists(path))
        if not place.is_dir():
            raise KlatError(f"{place}: is not a directory, so nothing can be recorded in {output}")
        with files.explained("record in", place), files.directory(place):
            pass  # as it will be opened for the sessions
        if not os.access(place, os.W_OK | os.X_OK):
            raise KlatError(f"{place}: this user cannot write it, so nothing can be recorded there")


def _check_guests(begun: Begun, ready: Sequence[Ready]) -> None:
    """KlatError if the next boots would differ from the recorded ones."""
    made = {kernel.label: kernel.made for kernel in ready}
    for boot in begun.experiment.schedule():
        if boot.number not in begun.sessions:
            continue
        label = begun.experiment.labels[boot.condition.kernel]
        if collect.made_of(begun.sessions[boot.number]) != made[label]:
            raise KlatError(
                f"{label}: QEMU, busybox, klat or the modules changed since its guests were recorded;"
                " start a new experiment"
            )


_DEVICE = Path("/dev/kvm")
_LIMIT_SECONDS = 10
_FILE_BYTES = 16 << 20
_READY = b"klat-lab: ready"
_INIT = b"#!/bin/sh\nmount -t devtmpfs none /dev 2>/dev/null\necho klat-lab: ready\npoweroff -f\n"


def choose_mode(
    emulator: Emulator, kernel: Path, busybox: bytes, signals: Signals
) -> tuple[str, str]:
    """`kvm` or `counted`, and the reason in one line.

    /dev/kvm alone proves nothing: where KVM is itself emulated, a kernel can hang in its first second. So klat
    boots one of the kernels to its first program, under a time limit.
    """
    if not emulator.architecture.native:
        return "counted", f"KVM cannot run a guest of {emulator.architecture.name} on this machine"
    if not _DEVICE.exists():
        return "counted", f"there is no {_DEVICE}"
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        return "counted", f"this user cannot open {_DEVICE} (group kvm)"
    key = f"{session_directory.boot_id()} {emulator.text} {kernel.stat().st_size} {kernel}"
    cache_file = cache.folder() / "kvm.json"
    try:
        cached = json.loads(cache_file.read_text())
    except (OSError, ValueError):
        cached = None
    if not isinstance(cached, list) or len(cached) != 2 or cached[0] != key:
        cached = [key, _problem(emulator, kernel, busybox, signals)]
        files.write_whole(cache_file, json.dumps(cached).encode())
    if cached[1]:
        return "counted", f"{_DEVICE} is there, but {cached[1]}"
    return "kvm", "a guest booted by KVM"


def _problem(emulator: Emulator, kernel: Path, busybox: bytes, signals: Signals) -> str:
    """Why a guest cannot run with KVM; empty if one did."""
    with cache.work() as work:
        boot = BootFiles.below(work, kernel, 1, "2000-01-01T00:00:00")
        boot.disk.write_bytes(b"\0" * 4096)
        contents = [
            initramfs.character_device("dev/console", 5, 1),
            initramfs.file("init", _INIT, 0o755),
            initramfs.file("bin/busybox", busybox, 0o755),
            *(initramfs.link(f"bin/{name}", "busybox") for name in ("sh", "mount", "poweroff")),
        ]
        boot.initrd.write_bytes(initramfs.archive(contents))
        machine = Machine(emulator, "kvm", GuestSize())
        guest = Guest(qemu.command(machine, boot), work / "stderr", _FILE_BYTES)
        try:
            while guest.status() is None and guest.seconds < _LIMIT_SECONDS:
                signals.wait(_LIMIT_SECONDS - guest.seconds)
        finally:
            ended = guest.status()
            guest.end()
        if boot.console.exists() and _READY in boot.console.read_bytes():
            return ""
        if ended is None:
            return f"a guest did not boot within {_LIMIT_SECONDS} s"
        return f"a guest ended at once: {guest.complaint() or f'status {ended}'}"
