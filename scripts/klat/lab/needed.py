"""The sessions that an explanation of kernels needs: those that are there, or new ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from klat.base.errors import KlatError
from klat.lab import experiment, kernels, qemu, replay, suite
from klat.lab.apt import Archive
from klat.lab.execution import INVALID, MEASURED, Attempt, Request
from klat.lab.experiment import Experiment, PlannedBoot
from klat.lab.kernels import Kernel

Say = Callable[[str], None]


def sessions(
    request: Request,
    fixed: frozenset[str],
    output: Path,
    command: Sequence[str],
    say: Say,
) -> list[Path]:
    """A session for each kernel, of one boot. A kernel without a fitting session in `output` is booted,
    with the seed and the clock of the kernel before it. `fixed`: which of seed and clock a session must
    have as requested."""
    archive = Archive(say)
    emulator = qemu.find()
    programs = hashes(request)
    found = []
    for spec in request.specs:
        one = replace(request, specs=[spec])
        kernel = kernels.obtain(spec, say, archive)
        held = _newest(one, fixed, kernel, programs, output, emulator)
        if held:
            session, planned = held
            say(f"{kernel.label}: {session} is there")
            request = replace(request, seed=planned.seed, clock=planned.clock)
        else:
            session = _boot(one, output, command, say)
        found.append(session)
    return found


def hashes(request: Request) -> dict[str, str]:
    """By name of the programs that the request needs."""
    names = dict.fromkeys(name for name, _ in request.sets)
    names |= dict.fromkeys([suite.LOAD_PROGRAM] if [*request.loads] != [experiment.IDLE] else [])
    return {name: suite.hash_of(path) for name, path in suite.static_programs([*names]).items()}


def _boot(request: Request, output: Path, command: Sequence[str], say: Say) -> Path:
    say(f"{request.specs[0].label}: no fitting session in {output}; booting it once, into {output}")
    attempt = Attempt(command, quiet=True)
    status = attempt.begin(request, output, None)
    if status not in (MEASURED, INVALID) or not attempt.recorded:
        raise KlatError(f"{request.specs[0].text}: was not recorded", status=status or 1)
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
    """Whether a boot was of this kernel, by SHA-256, and did what is requested."""
    (spec,) = request.specs
    append = f"{request.append} {spec.append}".strip()
    return (
        planned.mode == request.mode
        and planned.hashes[boot.condition.kernel] == kernel
        and {name: planned.programs.get(name) for name in programs} == programs
        and planned.sets == tuple(request.sets)
        and boot.condition.load == request.loads[0]
        and planned.append_of(boot.condition) == append
        and planned.shape == request.shape
        and all(getattr(planned, name) == getattr(request, name) for name in fixed)
    )
