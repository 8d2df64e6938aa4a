"""From sessions of the lab to the functions that a metric's samples consist of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from klat.base.errors import KlatError
from klat.base.process import Signals
from klat.explain import explanation, stamps, symbols, trace, windows
from klat.explain.explanation import Explanation, PathKind, Side
from klat.explain.stamps import Bounds, Stamp
from klat.explain.windows import RecordedRun, Sample, Stamps
from klat.lab import cache, qemu, replay, suite
from klat.lab.experiment import IDLE
from klat.lab.replay import Recorded, Replayed
from klat.record.samples import SampleFiles
from klat.record.session import Row, Session, find_sessions, parse_pairs, read_session

TYPICAL = 0.5  # the quantile of a typical sample
# klat's workers go on for two iterations behind the samples (lib/klat.h), with two stamps or one in
# each. Where a program takes more, the boot is repeated once more with what the first one told.
_TAIL = 2


@dataclass(frozen=True)
class Chosen:
    """A sample among those of a label: in which session, the how manieth run and sample."""

    session: Session
    runs: list[RecordedRun]
    run: int
    index: int

    @property
    def sample(self) -> int:
        return int(self.runs[self.run].samples[self.index])


@dataclass(frozen=True)
class Subject:
    """What is to be explained, and by which boot."""

    chosen: Chosen
    boot: Recorded
    programs: list[Path]  # the benchmark's is the first
    bounds: Bounds
    stamps: list[Stamp]  # that begin or end a window
    whole: bool  # the paths of all samples are wanted


def explain(
    paths: Sequence[Path],
    benchmark: str,
    metric: str,
    quantile: float,
    say: Callable[[str], None],
) -> Explanation:
    """One side for each path: its sample at that quantile. KlatError if one cannot be explained."""
    emulator = qemu.find()
    plugin = suite.trace_plugin()
    with Signals() as signals, cache.work("explain") as work:
        subjects = [
            _subject(path, benchmark, metric, quantile, emulator, work / f"program-{number}")
            for number, path in enumerate(paths)
        ]
        found: list[Side | None] = [None] * len(subjects)
        wanted = [None if each.whole else _expected_stamps(each) for each in subjects]
        for attempt in (1, 2):
            missing = [number for number, side in enumerate(found) if side is None]
            for number in missing:
                say(f"repeating the boot of {subjects[number].chosen.session.path}")
            replayed = replay.replay(
                [subjects[n].boot for n in missing],
                [_arguments(subjects[n], wanted[n]) for n in missing],
                plugin,
                emulator,
                work,
                signals,
            )
            for number, boot in zip(missing, replayed):
                found[number], wanted[number] = _explained(subjects[number], boot)
            if None not in found:
                break
        return Explanation(
            f"{benchmark}.{metric}",
            _which(quantile),
            subjects[0].bounds.from_deadline,
            [side for side in found if side is not None],
        )


def _which(quantile: float) -> str:
    if quantile == TYPICAL:
        return "typical sample"
    return "largest sample" if quantile == 1 else f"sample at {100 * quantile:g} %"


def _subject(
    path: Path,
    benchmark: str,
    metric: str,
    quantile: float,
    emulator: qemu.Emulator,
    place: Path,
) -> Subject:
    chosen = _choose(path, benchmark, metric, quantile)
    boot = replay.recorded(chosen.session.path, emulator)
    if benchmark not in boot.programs:
        raise KlatError(f"{chosen.session.path}: ran no {benchmark}")
    place.mkdir()
    for name, data in boot.programs.items():
        (place / name).write_bytes(data)
        (place / name).chmod(0o755)
    program = place / benchmark
    bounds = stamps.bounds(program, metric)
    held = [
        stamp
        for stamp in stamps.of_program(program)
        if {*stamp.functions} & {*(bounds.begins_in if stamp.begins else bounds.ends_in)}
    ]
    whole = quantile == TYPICAL and boot.boot.condition.load == IDLE
    programs = sorted(place.iterdir(), key=lambda path: path != program)
    return Subject(chosen, boot, programs, bounds, held, whole)


def _choose(path: Path, benchmark: str, metric: str, quantile: float) -> Chosen:
    """The first sample that is the quantile of all that the label has (the lower of two)."""
    held: list[tuple[Session, list[RecordedRun]]] = []
    for place in find_sessions(path):
        session = read_session(place)
        files = SampleFiles(session)
        runs = [
            RecordedRun(files.read(row), int(parse_pairs(row.params)["warmup"]))
            for row in _rows(session, benchmark, metric)
        ]
        if runs:
            held.append((session, runs))
    if not held:
        raise KlatError(f"{path}: no run has samples of {benchmark}.{metric}")
    every = np.sort(np.concatenate([run.samples for _, runs in held for run in runs]))
    wanted = every[max(0, int(np.ceil(quantile * len(every))) - 1)]
    for session, runs in held:
        for number, run in enumerate(runs):
            if wanted in run.samples:
                return Chosen(session, runs, number, int(np.argmax(run.samples == wanted)))
    raise AssertionError


def _rows(session: Session, benchmark: str, metric: str) -> list[Row]:
    rows = [r for r in session.rows if (r.benchmark, r.metric) == (benchmark, metric) and r.n]
    if len({row.params for row in rows}) > 1:
        raise KlatError(
            f"{session.path}: {benchmark} ran with several sets of options; record one of them"
        )
    return sorted(rows, key=lambda row: row.order)


def _expected_stamps(subject: Subject) -> tuple[int, int]:
    """Between which stamps of the boot the sample should lie, with the window before it."""
    chosen = subject.chosen
    windows_before = sum(run.warmup + len(run.samples) + _TAIL for run in chosen.runs[: chosen.run])
    window = windows_before + chosen.runs[chosen.run].warmup + chosen.index
    each = 2 * subject.bounds.mean_of
    return max(0, each * (window - 2)), each * (window + 2)


def _arguments(subject: Subject, stamps_wanted: tuple[int, int] | None) -> str:
    words = [
        f"{'open' if stamp.begins else 'close'}={stamp.address:#x}" for stamp in subject.stamps
    ]
    words += [f"halt={replay.HALT}", "ram=memory-backend-memfd"]
    switch = replay.switch_address(subject.boot.ready.kernel)
    if switch:
        words.append(f"switch={switch:#x}")
    if stamps_wanted:
        words += [f"from={stamps_wanted[0]}", f"to={stamps_wanted[1]}"]
    return ",".join(words)


def _explained(subject: Subject, replayed: Replayed) -> tuple[Side | None, tuple[int, int] | None]:
    """None if the sample's paths are not in the trace; and between which stamps they are."""
    names = symbols.Symbols(
        [
            *symbols.of_kernel(replayed.kallsyms),
            *(function for path in subject.programs for function in symbols.of_program(path)),
        ]
    )
    held, samples = _find(subject, trace.read(replayed.trace))
    kinds: list[PathKind] = []
    sample = samples[subject.chosen.run][subject.chosen.index]
    if subject.whole:
        deadline = subject.bounds.from_deadline
        sample, kinds = explanation.choose_typical(held, samples, deadline)
    elif not all(held.kept(window) for window in sample.windows):
        first, last = held.ordinals(sample.windows[0])[0], held.ordinals(sample.windows[-1])[1]
        return None, (max(0, 2 * first - last), last)
    contents = windows.contents(held, sample, subject.bounds.from_deadline)
    session = subject.chosen.session
    return (
        Side(
            session.label,
            subject.boot.planned.releases[subject.boot.boot.condition.kernel],
            str(session.path),
            names,
            kinds,
            explanation.explain(contents, names, sample.ticks),
        ),
        None,
    )


def _find(subject: Subject, recorded: trace.Trace) -> tuple[Stamps, list[list[Sample]]]:
    """The samples of the record in the trace. KlatError if one is not there."""
    runs = subject.chosen.runs
    begins = [n for n, stamp in enumerate(subject.stamps) if stamp.begins]
    ends = [n for n, stamp in enumerate(subject.stamps) if not stamp.begins]
    # A function may have several stamps. The pair of a metric is the one that has all its samples.
    pairs = [(begins, ends), *(([begin], [end]) for begin in begins for end in ends)]
    for mean_of in sorted({1, subject.bounds.mean_of}, reverse=True):
        for first, last in pairs:
            held = Stamps(recorded, first, last)
            if subject.bounds.from_deadline:
                samples = windows.from_deadline(held, runs)
            else:
                samples = windows.find(held, runs, mean_of)
            if samples is not None:
                return held, samples
    raise KlatError(
        f"{subject.chosen.session.path}: the repeated boot has all samples, but their stamps were not"
        " found in its trace"
    )
