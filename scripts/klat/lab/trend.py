"""The boots and explanations of `klat lab trend`. Both are kept: a second call reads them."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from itertools import chain
from pathlib import Path

from klat.base import files
from klat.base.bounded_read import read_named
from klat.base.errors import KlatError
from klat.base.fields import ListOf, Object, Text, Tuple, Whole
from klat.compare.dataset import Dataset, Key
from klat.compare.sources import read_sources
from klat.explain import explanation
from klat.explain.explanation import KeptSample, SampleNotFound, kept_sample
from klat.lab import collect, experiment, explaining, kernels, needed, qemu, suite
from klat.lab.apt import Archive, Unavailable
from klat.lab.architectures import Architecture
from klat.lab.choosing import Wanted
from klat.lab.execution import Attempt, Request
from klat.lab.experiment import Begun
from klat.lab.guest import BootFailure, EmulatorFailed, ModuleMissing, NotRecorded
from klat.lab.kernels import Kernel, Spec
from klat.lab.replay import OtherSamples
from klat.record.session import parse_pairs
from klat.report.text.numbers import plural
from klat.running.progress import Progress, duration

Say = Callable[[str], None]

# The time of the first guest's clock. With a fixed seed and clock, a report is the same on every machine.
CLOCK = "2026-01-01T00:00:00"
STUDY = "trend"  # Experiment.study of all these experiments: the words added for one kernel are under test
_EXPLAINED = "explained.json"
# Measured with 2 and 11 kernels.
_REPEATED_BOOTS = 2.5  # of each kernel, to explain jumps
_TRACED_BOOT_RATIO = 1.7  # the time of a traced boot, divided by that of another boot
_MOST_BYTES = 64 << 20
_MOST_SESSIONS = 3  # tried for a sample, if repeated boots give other samples
_NEAR = 0.001  # a small part of the smallest margin in use


def default_kernels(archive: Archive, architecture: Architecture) -> list[Spec]:
    """Every release line of the archive, the oldest first: those without RT, then those with it. Says which lines
    lack a package."""
    offers = kernels.offered(archive.packages())
    names = dict.fromkeys(kernel.name for kernel in offers if not kernel.missing)
    if lacking := dict.fromkeys(kernel.name for kernel in offers if kernel.name not in names):
        archive.say(f"no complete build in the archive: {', '.join(lacking)}")
    ordered = sorted(names, key=lambda name: name.endswith("-rt"))
    specs = [kernels.parse(f"debian:{name}") for name in ordered]
    return kernels.labelled(specs, architecture)


def chains(specs: Sequence[Spec], every: bool) -> list[list[int]]:
    """The indices of the kernels that follow each other: all in the order given, or with `every`, those
    without RT and those with it."""
    if not every:
        return [list(range(len(specs)))]
    rt = [number for number, spec in enumerate(specs) if spec.debian.endswith("-rt")]
    return [c for c in ([n for n in range(len(specs)) if n not in rt], rt) if c]


def obtain_kernels(
    request: Request, every: bool, locked: bool, say: Say
) -> tuple[dict[int, Kernel], dict[int, str]]:
    """Returns the kernels, and why the others are missing, by index in request.specs. KlatError if a kernel of a lock
    file is missing, or if the user named a kernel that does not exist. `every`: the user named no kernels.
    """
    archive = Archive(say, request.architecture.name)
    by_number: dict[int, Kernel] = {}
    failures: dict[int, str] = {}
    refused: dict[int, str] = {}
    if locked:
        _check_packages(request.specs, archive)
    for number, spec in enumerate(request.specs):
        try:
            by_number[number] = kernels.obtain(spec, archive, request.architecture)
        except Unavailable as error:
            (refused if locked else failures)[number] = str(error)
        except KlatError as error:
            (failures if every else refused)[number] = str(error)
    if refused:
        raise KlatError("; ".join(dict.fromkeys(refused.values())))
    return by_number, failures


def _check_packages(specs: Sequence[Spec], archive: Archive) -> None:
    """KlatError, before anything is fetched, with the packages that the archive and the cache lack."""
    there = [*archive.packages().values(), *archive.kept().values()]
    names = {(package.name, package.version) for package in there}
    wanted = [spec.package for spec in specs if any(spec.package)]
    if gone := [" ".join(package) for package in wanted if package not in names]:
        raise KlatError(f"Debian's archive no longer has {', '.join(gone)}")


def boots_of(
    request: Request,
    by_number: Mapping[int, Kernel],
    output: Path,
    jobs: int | None,
    command: Sequence[str],
    say: Say,
    explains: bool,
) -> tuple[dict[int, Dataset], dict[int, str]]:
    """The boots of each kernel, by the numbers of `by_number`, and why a kernel has none. Boots only what `output`
    lacks. KlatError if klat was stopped, or QEMU does not work."""
    sides: dict[int, Dataset] = {}
    failures: dict[int, str] = {}
    experiments: dict[int, tuple[Request, Begun | None]] = {}
    emulator = qemu.find(request.architecture)
    archive = Archive(say, request.architecture.name)
    for number, kernel in by_number.items():
        spec = kernel.spec
        # Guests of one image with one seed would be one boot.
        digest = hashlib.sha256(f"{request.seed} {spec.label}".encode()).digest()
        kernel_request = replace(request, specs=[spec], seed=int.from_bytes(digest[:4], "big"))
        begun = _recorded_experiment(kernel_request, kernel, archive, output, emulator)
        experiments[number] = kernel_request, begun
    runs_of_boot = request.runs * len(request.sets)
    runs = request.boots * runs_of_boot
    kept = sum(len(begun.sessions) for _, begun in experiments.values() if begun)
    missing = request.boots * len(experiments) - kept
    what = f"{plural(missing, 'boot')} of {plural(len(request.sets), 'program')}"
    what += f", {kept} are kept: " if kept else ": "
    done = kept * runs_of_boot
    repeated = boots_to_repeat([begun for _, begun in experiments.values()], output)

    def then_explained(left: float) -> str:
        # Repeated boots are traced, which takes longer.
        seconds = left / missing * repeated * _TRACED_BOOT_RATIO
        return f", then up to about {duration(seconds)} to explain jumps" if explains else ""

    progress = Progress(
        runs * len(experiments), done, sys.stderr, detail=False, what=what, after=then_explained
    )
    for number, (kernel_request, begun) in experiments.items():
        (spec,) = kernel_request.specs
        attempt = Attempt(command, request.architecture, True, False, progress)
        reasons: list[KlatError] = []
        try:
            paths = _sessions(attempt, kernel_request, begun, output, jobs)
        except EmulatorFailed:
            raise
        except (BootFailure, NotRecorded) as failure:
            paths, reasons = attempt.recorded, [failure]
        reasons += attempt.failures
        # Without those that failed.
        kept_before = len(begun.sessions) if begun and not paths else 0
        progress.total -= (request.boots - max(len(paths), kept_before)) * runs_of_boot
        why = str(reasons[0]).splitlines()[0] if len(paths) < request.boots else ""
        if paths:
            sides[number] = _side(paths, output / spec.label, request.boots, why)
        else:
            failures[number] = why
    return sides, failures


def _side(paths: Sequence[Path], place: Path, boots: int, why: str) -> Dataset:
    """The recorded boots of a kernel. `why`: the reason if there are fewer than `boots`."""
    by_label, problems = read_sources(paths)
    ((label, sources),) = by_label.items()
    if why:
        problems.append(f"{label}: {len(paths)} of {boots} boots count: {why}")
    return Dataset(sources, path=place, problems=problems)


def boots_to_repeat(experiments: Sequence[Begun | None], output: Path) -> float:
    """Estimates how many boots are repeated to explain jumps, from the kernels that lack boots or a kept explanation."""
    explained = {name.partition(" ")[0] for name in _read_cache(output)}
    lacking = [
        begun
        for begun in experiments
        if not begun
        or len(begun.sessions) < begun.experiment.number_of_boots
        or explained.isdisjoint(map(_kept_name, begun.sessions.values()))
    ]
    return len(lacking) * _REPEATED_BOOTS


def _kept_name(session: Path) -> str:
    """The name of a session in the file of kept explanations."""
    return f"{session.parent.name}/{session.name}"


def _sessions(
    attempt: Attempt, request: Request, begun: Begun | None, output: Path, jobs: int | None
) -> list[Path]:
    if begun and len(begun.sessions) == begun.experiment.number_of_boots:
        return [path for _, path in sorted(begun.sessions.items())]
    status = attempt.resume(begun, jobs) if begun else attempt.begin(request, output, jobs)
    if status > 128:
        raise KlatError("stopped; the same command continues with the kept boots", status=status)
    return attempt.recorded


def _recorded_experiment(
    request: Request, kernel: Kernel, archive: Archive, output: Path, emulator: qemu.Emulator
) -> Begun | None:
    """The newest experiment in `output` that asked for the same boots of the same kernel."""
    kept = sorted((output / request.specs[0].label).glob("*/run.json"), reverse=True)
    if not kept:
        return None
    fixed = frozenset(("seed", "clock", "boots", "runs"))
    try:
        made = needed.ready(request, kernel, archive, emulator)
    except ModuleMissing:
        return None  # the boot says so
    for facts in kept:
        try:
            if planned := needed.reusable(facts.parent, request, fixed, made, emulator):
                sessions = experiment.recorded(planned, output)
                for session in sessions.values():
                    needed.require_trusted(session)
                collect.check_all(planned, sessions)
                return Begun(planned, output, sessions)
        except KlatError:
            continue  # it cannot be repeated
    return None


_CACHED = Object(
    others=Object(
        {
            "ticks": Whole(0, 2**63 - 1),
            "windows": Whole(1, 2),
            "idle": Whole(0, 2**63 - 1),
            "chains": ListOf(
                Tuple((Whole(1, 1024), Text(4096), *(Whole(0, 2**63 - 1),) * 2)), 1 << 16
            ),
            "why": Text(4096),
            "not_found_by": Text(64),
        },
        frozenset(("ticks", "windows", "idle", "chains", "why")),
    ),
    most=1 << 16,
)

Measurement = tuple[Dataset, Key, float]


def samples_of(
    measurements: Sequence[Measurement], output: Path, jobs: int | None, say: Say
) -> list[KeptSample]:
    """The typical sample of each measurement (its kernel's boots, key and figure). `output` keeps what was explained. If a
    repeated boot gives other samples than its record, another boot is taken."""
    samples = _read_cache(output)
    names: list[str] = []
    for _ in range(_MOST_SESSIONS):
        sessions = sessions_to_repeat(measurements, samples)
        names = [f"{_kept_name(p)} {' '.join(k)}" for p, (_, k, _) in zip(sessions, measurements)]
        missing = [number for number, name in enumerate(names) if name not in samples]
        asked = {names[n]: (sessions[n], _metric(measurements[n][1])) for n in missing}
        if asked:
            samples |= _explained(asked, jobs, say)
            _keep(samples, output, say)
        if samples.keys().isdisjoint(map(_kept_name, sessions)):
            break
    return [samples[name] for name in names]


def _explained(
    asked: Mapping[str, tuple[Path, Wanted]], jobs: int | None, say: Say
) -> dict[str, KeptSample]:
    """Samples by name. A boot whose repetition gave other samples has an entry, too, by the name of its session."""
    kept: dict[int, KeptSample] = {}
    try:
        kept, failures = explaining.explain_samples([*asked.values()], kept_sample, say, jobs)
    except KlatError as error:  # nothing can be explained here; the verdicts stand
        failures = dict.fromkeys(range(len(asked)), error)
    samples: dict[str, KeptSample] = {}
    for place, (name, (session, _)) in enumerate(asked.items()):
        samples[name] = kept.get(place) or _without_sample(failures[place])
        if isinstance(failures.get(place), OtherSamples):
            samples[_kept_name(session)] = samples[name]
    return samples


def _keep(samples: Mapping[str, KeptSample], output: Path, say: Say) -> None:
    """Writes the samples, and which were not found. Other failures are tried again the next time."""
    kept = {n: asdict(sample) for n, sample in sorted(samples.items()) if sample.can_be_kept}
    try:
        files.write_whole(output / _EXPLAINED, json.dumps(kept).encode())
    except KlatError as error:
        say(f"the explanations are not kept: {error}")


def _without_sample(error: KlatError) -> KeptSample:
    return KeptSample(
        why=str(error)[:4000], not_found_by=_code() if isinstance(error, SampleNotFound) else ""
    )


@cache
def _code() -> str:
    """A hash of the code that looks for samples: the lab with QEMU's plugin, and the explanation."""
    directories = (Path(file).parent for file in (__file__, explanation.__file__))
    modules = chain.from_iterable(directory.glob("*.py") for directory in directories)
    texts = [path.read_bytes() for path in sorted(modules)]
    with suppress(KlatError, OSError):  # without the plugin, no sample is looked for
        texts.append(suite.trace_plugin().read_bytes())
    return hashlib.sha256(b"".join(texts)).hexdigest()


def _read_cache(output: Path) -> dict[str, KeptSample]:
    """Without what is missing or damaged: it is explained again."""
    try:
        needed.require_trusted(output / _EXPLAINED)
        values = json.loads(read_named(output / _EXPLAINED, _MOST_BYTES))
        _CACHED.check("", values)
    except (OSError, KlatError, ValueError):
        return {}
    samples = {
        name: KeptSample(**value | {"chains": tuple(map(tuple, value["chains"]))})
        for name, value in values.items()
    }
    return {
        name: sample
        for name, sample in samples.items()
        if sample.can_be_kept and (not sample.not_found_by or sample.not_found_by == _code())
    }


def sessions_to_repeat(
    measurements: Sequence[Measurement], without: Container[str] = ()
) -> list[Path]:
    """For each measurement, a session whose median is the figure within _NEAR, or else the nearest one. Takes as few
    sessions as it can: each is a boot to repeat. Sessions whose names are in `without` are taken only if there is no other.
    """
    sessions = [_sessions_near(*measurement, without) for measurement in measurements]
    order = {path: (experiment.order(path), path) for path in set().union(*sessions)}
    chosen: dict[int, Path] = {}
    while len(chosen) < len(sessions):
        uncovered = [number for number in range(len(sessions)) if number not in chosen]
        counts = Counter(path for number in uncovered for path in sessions[number])
        best = min(counts, key=lambda path: (-counts[path], order[path]))
        chosen |= {number: best for number in uncovered if best in sessions[number]}
    return [chosen[number] for number in range(len(sessions))]


def _sessions_near(side: Dataset, key: Key, value: float, without: Container[str]) -> set[Path]:
    every = {r.source.session.path: abs((r.row.p50 or 0) - value) for r in side.cells[key].runs}
    distances = {path: d for path, d in every.items() if _kept_name(path) not in without} or every
    allowed = max(_NEAR * value, min(distances.values()))
    return {path for path, distance in distances.items() if distance <= allowed}


def _metric(key: Key) -> Wanted:
    benchmark, params, _, metric = key
    return Wanted(benchmark, metric, where=tuple(parse_pairs(params).items()))
