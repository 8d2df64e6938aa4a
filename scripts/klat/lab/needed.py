"""Finds or records the sessions that an explanation of kernels needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from klat.base import owners
from klat.base.errors import INVALID, KlatError, MEASURED
from klat.lab import collect, experiment, kernels, qemu, replay, suite
from klat.lab.apt import Archive
from klat.lab.boots import Ready
from klat.lab.execution import Attempt, Request
from klat.lab.experiment import Experiment, PlannedBoot
from klat.lab.guest_contents import Contents
from klat.lab.kernels import Kernel
from klat.lab.qemu import Machine
from klat.running.loads import IDLE

Say = Callable[[str], None]


def sessions(
    request: Request, fixed: frozenset[str], output: Path, command: Sequence[str], say: Say
) -> list[Path]:
    """A session of one boot for each kernel. If `output` has no fitting session of a kernel, boots this
    kernel with the seed and the clock of the previous kernel. `fixed` has the names of the values (seed, clock)
    that must be as requested in a fitting session."""
    archive = Archive(say, request.architecture.name)
    emulator = qemu.find(request.architecture)
    reused = []
    for spec in request.specs:
        kernel = kernels.obtain(spec, archive, request.architecture)
        request_of_kernel = replace(request, specs=[kernel.spec])
        fitting = _newest(request_of_kernel, fixed, kernel, archive, output, emulator)
        if fitting:
            session, planned = fitting
            say(f"{kernel.label}: using {session}")
            request = replace(request, seed=planned.seed, clock=planned.clock)
        else:
            session = _boot(request_of_kernel, output, command, say)
        reused.append(session)
    return reused


def ready(request: Request, kernel: Kernel, archive: Archive, emulator: qemu.Emulator) -> Ready:
    """The kernel and the files of its guests as they would be booted now."""
    names = dict.fromkeys(name for name, _ in request.sets)
    names |= dict.fromkeys([suite.LOAD_PROGRAM] if [*request.loads] != [IDLE] else [])
    static = suite.static_programs([*names], request.architecture)
    contents = Contents(archive, request.architecture, lambda note: None)
    machine = Machine(emulator, request.mode, request.shape)
    (made,) = contents.ready(request.sets, [kernel], contents.busybox(), static, machine)
    return made


def _boot(request: Request, output: Path, command: Sequence[str], say: Say) -> Path:
    say(f"{request.specs[0].label}: no fitting session in {output}; booting it once, into {output}")
    attempt = Attempt(command, request.architecture, quiet=True)
    status = attempt.begin(request, output, None)
    if status not in (MEASURED, INVALID) or not attempt.recorded:
        raise KlatError(f"{request.specs[0].text}: the boot was not recorded", status=status or 1)
    return attempt.recorded[0]


def _newest(
    request: Request,
    fixed: frozenset[str],
    kernel: Kernel,
    archive: Archive,
    output: Path,
    emulator: qemu.Emulator,
) -> tuple[Path, Experiment] | None:
    ((label, load),) = [(kernel.label, load) for load in request.loads]
    sessions_of_label = output / experiment.KernelUnderLoad(0, load).label([label])
    places = [facts.parent for facts in sorted(sessions_of_label.glob("*/run.json"), reverse=True)]
    made = ready(request, kernel, archive, emulator) if places else None
    for place in places:
        try:
            if made and (planned := reusable(place, request, fixed, made, emulator)):
                return place, planned
        except KlatError:
            continue  # it cannot be repeated
    return None


def require_trusted(path: Path) -> None:
    """KlatError if klat runs as root, and another user may have written the file or directory."""
    try:
        doubt = owners.doubt_of_path(path) if os.geteuid() == 0 else ""
    except OSError as error:
        raise KlatError(f"{path}: {error.strerror}") from None
    if doubt:
        raise KlatError(f"{path}: not used, because {doubt}")


def reusable(
    session: Path, request: Request, fixed: frozenset[str], made: Ready, emulator: qemu.Emulator
) -> Experiment | None:
    """The experiment of a session, if its boot is the one that `request` asks for, with the kernel and the files of
    `made`. KlatError if the boot cannot be repeated, or if another user may have written the session.
    """
    require_trusted(session)
    planned, boot = experiment.of_session(session)
    if not fits(planned, boot, request, fixed, made, collect.made_of(session)):
        return None
    machine = replay.recorded(session, emulator).machine
    if not machine.stops_clock and replace(machine, stops_clock=True).environment:
        return None  # a new boot can be repeated exactly, because its clock can be stopped
    return planned


def fits(
    planned: Experiment,
    boot: PlannedBoot,
    request: Request,
    fixed: frozenset[str],
    made: Ready,
    recorded: tuple[str, str],
) -> bool:
    """`recorded` is collect.made_of() of the boot's session."""
    (spec,) = request.specs
    append = f"{request.append} {spec.append}".strip()
    return (
        planned.architecture == request.architecture
        and planned.mode == request.mode
        and planned.hashes[boot.condition.kernel] == made.facts["sha256"]
        and recorded == made.made
        and planned.sets == tuple(request.sets)
        and boot.condition.load == request.loads[0]
        and planned.append_of(boot.condition) == append
        and planned.shape == request.shape
        and planned.study == request.study
        and all(getattr(planned, name) == getattr(request, name) for name in fixed)
    )
