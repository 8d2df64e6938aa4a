"""Finds or records the sessions that an explanation of kernels needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from klat.base.errors import INVALID, KlatError, MEASURED
from klat.lab import experiment, kernels, qemu, replay, suite
from klat.lab.apt import Archive
from klat.lab.execution import Attempt, Request
from klat.lab.experiment import Experiment, PlannedBoot
from klat.lab.kernels import Kernel
from klat.running.loads import IDLE

Say = Callable[[str], None]


def sessions(
    request: Request,
    fixed: frozenset[str],
    output: Path,
    command: Sequence[str],
    say: Say,
) -> list[Path]:
    """A session of one boot for each kernel. If `output` has no fitting session of a kernel, boots this
    kernel with the seed and the clock of the previous kernel. `fixed` has the names of the values (seed, clock)
    that must be as requested in a fitting session."""
    archive = Archive(say, request.architecture.name)
    emulator = qemu.find(request.architecture)
    programs = hashes(request)
    reused = []
    for spec in request.specs:
        request_of_kernel = replace(request, specs=[spec])
        kernel = kernels.obtain(spec, archive, request.architecture)
        fitting = _newest(request_of_kernel, fixed, kernel, programs, output, emulator)
        if fitting:
            session, planned = fitting
            say(f"{kernel.label}: using {session}")
            request = replace(request, seed=planned.seed, clock=planned.clock)
        else:
            session = _boot(request_of_kernel, output, command, say)
        reused.append(session)
    return reused


def hashes(request: Request) -> dict[str, str]:
    """SHA-256 of the programs that the request needs, by name."""
    names = dict.fromkeys(name for name, _ in request.sets)
    names |= dict.fromkeys([suite.LOAD_PROGRAM] if [*request.loads] != [IDLE] else [])
    return {
        name: suite.hash_of(path)
        for name, path in suite.static_programs([*names], request.architecture).items()
    }


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
    programs: dict[str, str],
    output: Path,
    emulator: qemu.Emulator,
) -> tuple[Path, Experiment] | None:
    ((label, load),) = [(kernel.label, load) for load in request.loads]
    place = output / experiment.KernelUnderLoad(0, load).label([label])
    for facts in sorted(place.glob("*/run.json"), reverse=True):
        try:
            planned, boot = experiment.of_session(facts.parent)
            if fits(planned, boot, request, fixed, programs, kernel.image.sha256):
                replay.recorded(facts.parent, emulator)
                return facts.parent, planned
        except KlatError:
            continue  # it cannot be repeated
    return None


def fits(
    planned: Experiment,
    boot: PlannedBoot,
    request: Request,
    fixed: frozenset[str],
    programs: dict[str, str],
    kernel: str,
) -> bool:
    """Whether the recorded boot is what `request` asks for. `kernel` is the SHA-256 of the image."""
    (spec,) = request.specs
    append = f"{request.append} {spec.append}".strip()
    return (
        planned.architecture == request.architecture
        and planned.mode == request.mode
        and planned.hashes[boot.condition.kernel] == kernel
        and {name: planned.programs.get(name) for name in programs} == programs
        and planned.sets == tuple(request.sets)
        and boot.condition.load == request.loads[0]
        and planned.append_of(boot.condition) == append
        and planned.shape == request.shape
        and planned.study == request.study
        and all(getattr(planned, name) == getattr(request, name) for name in fixed)
    )
