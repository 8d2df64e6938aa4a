"""Explains samples of the lab's sessions: repeats their boots and counts instructions by function."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import TypeVar

from klat.base import programs
from klat.base.errors import KlatError
from klat.base.process import Signals
from klat.explain import explanation, isa, stamps, symbols
from klat.explain.explanation import Explanation, SampleNotFound, Side
from klat.lab import cache, choosing, elf, experiment, qemu, reading, replay, suite
from klat.lab.architectures import ARCHITECTURES, Architecture, HOST
from klat.lab.choosing import GuestFiles, GuestPrograms, Range, Subject, TYPICAL, Wanted
from klat.lab.choosing import expected_stamps, grouped, plugin_arguments
from klat.lab.reading import Reading
from klat.record.session import find_sessions
from klat.running.loads import IDLE
from klat.running.progress import Progress

_NAMED = 4  # up to this number of boots, name each; of more, show the progress

Say = Callable[[str], None]
T = TypeVar("T")


def check(architecture: Architecture) -> None:
    """KlatError if klat cannot explain samples of guests of this architecture."""
    if not isa.is_known(architecture.elf_machine):
        known = [a.name for a in ARCHITECTURES.values() if isa.is_known(a.elf_machine)]
        raise KlatError(
            f"klat cannot explain samples of {architecture.name}, only those of {', '.join(known)}"
        )


def explain(
    paths: Sequence[Path],
    wanted: Wanted,
    say: Say,
    debug: Sequence[Path | None] = (),
    least: int | None = None,
) -> Explanation:
    """Explains one sample for each of `paths`. Without a metric, klat takes the first explainable metric of the
    recorded benchmark. KlatError if a side cannot be explained.

    `debug` has a kernel with debug information for each side. With it, the functions that
    functions_of(sides, least) returns get source lines."""
    with _replays(paths, say) as replays:
        if not wanted.metric:
            wanted = replays.with_metric(paths[0], wanted)
        subjects = [replays.subject(path, wanted) for path in paths]
        for base, new in pairwise(subjects):
            choosing.check_sides(base.chosen, new.chosen)
        kernels = list(zip_longest(subjects, debug))
        for subject, path in kernels:
            if path:
                elf.check_vmlinux(path, subject.guest.boot.ready.kernel)
        sides = replays.sides(subjects)
        shown = explanation.functions_of(sides, least)
        for number, (_, path) in enumerate(kernels):
            if path:
                side = sides[number]
                contents = side.sample.contents
                lines = symbols.lines_by_function(path, side.symbols, contents, shown)
                sides[number] = replace(side, lines=lines)
        return _explanation(subjects[0], sides)


def explain_samples(
    wanted: Sequence[tuple[Path, Wanted]],
    keep: Callable[[Side], T],
    say: Say,
    jobs: int | None = None,
) -> tuple[dict[int, T], dict[int, KlatError]]:
    """Explains the typical sample of a metric of each session. What `keep` makes of each side, or its error, by index:
    a side with its symbols is large. Metrics of one session share a boot. `jobs` boots run at once (default: as many as
    klat may use CPUs)."""
    with _replays([path for path, _ in wanted], say, jobs) as replays:
        subjects: dict[int, Subject] = {}
        failures: dict[int, KlatError] = {}
        for number, (path, metric) in enumerate(wanted):
            try:
                subjects[number] = replays.subject(path, metric)
            except KlatError as error:
                failures[number] = error
        sides, failed = replays.sides_at_once([*subjects.values()], keep)
        numbers = [*subjects]
        failures |= {numbers[place]: error for place, error in failed.items()}
        return {numbers[place]: side for place, side in sides.items()}, failures


def explain_every(
    path: Path, wanted: Wanted, say: Say
) -> tuple[list[Explanation], dict[str, KlatError]]:
    """Explains the typical sample of each metric and parameter set. If `wanted` names no benchmark, klat
    explains all benchmarks. The second value has the errors, by metric."""
    with _replays([path], say) as replays:
        metrics = replays.explainable(path, wanted)
        subjects = [replays.subject(path, metric) for metric in metrics]
        sides, failures = replays.sides_at_once(subjects, lambda side: side)
        return [
            _explanation(subject, [sides[number]])
            for number, subject in enumerate(subjects)
            if number in sides
        ], {subjects[number].name: error for number, error in failures.items()}


def _explanation(subject: Subject, sides: list[Side]) -> Explanation:
    return Explanation(
        f"{subject.wanted.benchmark}.{subject.wanted.metric}",
        subject.wanted.which,
        subject.bounds.from_deadline,
        sides,
        dict(subject.chosen.params),
    )


@contextmanager
def _replays(paths: Sequence[Path], say: Say, jobs: int | None = None) -> Iterator[_Replays]:
    """Repeats boots of guests that have the architecture of the sessions of `paths`. KlatError if these have
    several."""
    architectures = [experiment.of_session(find_sessions(p)[0])[0].architecture for p in paths]
    for architecture, path in zip(architectures, paths):
        check(architecture)
        if architecture != architectures[0]:
            raise KlatError(
                f"{path} is of {architecture.name} and {paths[0]} of {architectures[0].name}: klat can explain a"
                " difference only between kernels of one architecture"
            )
    emulator = qemu.find(architectures[0])
    plugin = replay.find_plugin(emulator)
    with Signals() as signals, cache.work() as work:
        at_once = jobs or len(os.sched_getaffinity(0))
        yield _Replays(emulator, plugin, work, signals, say, at_once)


@dataclass(frozen=True)
class _Replays:
    emulator: qemu.Emulator
    plugin: replay.Plugin
    work: Path
    signals: Signals
    say: Say
    at_once: int = 1  # boots
    guests: dict[Path, GuestFiles] = field(default_factory=dict)  # by session
    programs: dict[tuple[tuple[str, bytes], ...], GuestPrograms] = field(default_factory=dict)
    bounds: dict[Path, dict[str, stamps.Bounds]] = field(default_factory=dict)

    def guest(self, session: Path) -> GuestFiles:
        guest_files = self.guests.get(session)
        if guest_files is None:
            boot = replay.recorded(session, self.emulator)
            written = self._written(boot.programs)
            boot = replace(boot, programs=dict.fromkeys(boot.programs, b""))
            guest_files = self.guests[session] = GuestFiles(boot, written)
        return guest_files

    def _written(self, files: Mapping[str, bytes]) -> GuestPrograms:
        """The programs as files. Boots with the same programs share them."""
        key = tuple((name, hashlib.sha256(data).digest()) for name, data in sorted(files.items()))
        if key not in self.programs:
            place = self.work / f"programs-{len(self.programs)}"
            place.mkdir()
            for name, data in files.items():
                (place / name).write_bytes(data)
                (place / name).chmod(0o755)
            self.programs[key] = GuestPrograms(place)
        return self.programs[key]

    def explainable(self, path: Path, wanted: Wanted) -> list[Wanted]:
        """The metrics that klat can explain, in the order of each program's table. KlatError if there is
        none."""
        every = choosing.every(path, wanted.where)
        asked = [c for c in every if wanted.benchmark in ("", c.benchmark)]
        ran = self._programs(path, dict.fromkeys(c.benchmark for c in asked))
        bounds = {name: self._bounds(path) for name, path in ran.items()}
        pairs = ((name, metric) for name, metrics in bounds.items() for metric in metrics)
        explainable = [c for pair in pairs for c in asked if (c.benchmark, c.metric) == pair]
        if not explainable:
            names = " and ".join(ran) or "its programs"
            first = next(iter(ran), "BENCHMARK")
            raise KlatError(
                f"{path}: no sample of {names} begins and ends at a stamp of the program, so it cannot be counted by"
                f" function; klat explain {first} traces slow samples of a running kernel"
            )
        return explainable

    def _programs(self, path: Path, names: Iterable[str]) -> dict[str, Path]:
        """Each program that the boot of a session had, from the first such session."""
        paths: dict[str, Path] = {}
        for session in find_sessions(path):
            if paths.keys() >= set(names):
                break
            guest = self.guest(session)
            for name in names:
                if name in guest.boot.programs:
                    paths.setdefault(name, guest.programs.directory / name)
        return {name: paths[name] for name in names if name in paths}

    def _bounds(self, program: Path) -> dict[str, stamps.Bounds]:
        if program not in self.bounds:
            self.bounds[program] = stamps.bounds_of_all(self._runnable(program))
        return self.bounds[program]

    def _runnable(self, program: Path) -> Path:
        """A program of a guest, or this machine's program of that name if the guest has another architecture."""
        architecture = self.emulator.architecture
        if architecture.native:
            return program
        suite.use_static_programs([program.name], HOST)
        return programs.require(program.name)

    def with_metric(self, path: Path, wanted: Wanted) -> Wanted:
        asked = self.explainable(path, wanted)
        if len({c.benchmark for c in asked}) > 1:
            names = dict.fromkeys(f"{c.benchmark}.{c.metric}" for c in asked)
            raise KlatError(
                f"{path}: has several metrics; choose one by --metric: {', '.join(names)}"
            )
        return replace(wanted, benchmark=asked[0].benchmark, metric=asked[0].metric)

    def subject(self, path: Path, wanted: Wanted) -> Subject:
        chosen = choosing.choose(path, wanted)
        guest = self.guest(chosen.session.path)
        if wanted.benchmark not in guest.boot.programs:
            raise KlatError(f"{chosen.session.path}: ran no {wanted.benchmark}")
        program = guest.programs.directory / wanted.benchmark
        bounds = stamps.of_metric(program.name, self._bounds(program), wanted.metric)
        of_metric = [
            stamp
            for stamp in guest.programs.stamps(program.name)
            if {*stamp.functions} & {*(bounds.begins_in if stamp.begins else bounds.ends_in)}
        ]
        whole = wanted.quantile == TYPICAL and guest.boot.boot.condition.load == IDLE
        return Subject(wanted, chosen, guest, bounds, of_metric, whole)

    def sides(self, subjects: Sequence[Subject]) -> list[Side]:
        """Explain each subject. Each gets its own boot."""
        sides, failures = self._each_by_its_own(dict(enumerate(subjects)), {}, lambda side: side)
        for _, error in sorted(failures.items()):
            raise error
        return [side for _, side in sorted(sides.items())]

    def _each_by_its_own(
        self,
        subjects: Mapping[int, Subject],
        known_ranges: Mapping[int, Range],
        keep: Callable[[Side], T],
    ) -> tuple[dict[int, T], dict[int, KlatError]]:
        """What `keep` makes of the side of each subject, or the error. Each subject gets its own boot, and a second
        one if the trace of the first lacks the sample's paths. `known_ranges` has the ranges of these paths, as far as they are known.
        """
        sides: dict[int, T] = {}
        failures: dict[int, KlatError] = {}
        current = dict(subjects)
        ranges = {
            n: None if s.whole else known_ranges.get(n) or expected_stamps(s)
            for n, s in current.items()
        }
        for repetition in (1, 2):
            numbers = [n for n in current if n not in sides and n not in failures]
            if not numbers:
                break
            if repetition == 2:
                self.say(
                    "the first repetition did not keep the sample's instructions; the second one does"
                )
            groups = [[current[n]] for n in numbers]
            with closing(self._read(groups, [ranges[n] for n in numbers])) as readings:
                for place, result in readings:
                    number = numbers[place]
                    try:
                        if isinstance(result, KlatError):
                            raise result
                        side, ranges[number] = reading.explained(current[number], result)
                    except SampleNotFound as error:
                        # Only where the trace has the instructions does klat see that some started twice (restarts.py).
                        if repetition == 2 or ranges[number] is None:
                            failures[number] = error
                        ranges[number] = None
                        continue
                    except KlatError as error:
                        failures[number] = error
                        continue
                    if side:
                        sides[number] = keep(side)
                    current[number] = replace(current[number], whole=False)
        why = "two repetitions of the boot did not keep the sample's instructions"
        lacking = [n for n in current if n not in sides and n not in failures]
        return sides, failures | {n: SampleNotFound(why, status=1) for n in lacking}

    def sides_at_once(
        self, subjects: Sequence[Subject], keep: Callable[[Side], T]
    ) -> tuple[dict[int, T], dict[int, KlatError]]:
        """What `keep` makes of the side of each subject, or the error, by index. Subjects of one session share a boot. If
        klat cannot find a subject's windows among the other stamps, the subject gets its own boot.
        """
        sides: dict[int, T] = {}
        failures: dict[int, KlatError] = {}
        ranges: dict[int, Range] = {}
        subjects = list(subjects)
        groups = grouped([number for number, s in enumerate(subjects) if s.whole], subjects)
        with closing(self._read([[subjects[n] for n in group] for group in groups])) as readings:
            for place, result in readings:
                if isinstance(result, KlatError):
                    failures |= dict.fromkeys(groups[place], result)
                    continue
                for number in groups[place]:
                    try:
                        side, ranges[number] = reading.explained(subjects[number], result)
                    except KlatError:
                        continue
                    if side:
                        sides[number] = keep(side)
                    else:
                        subjects[number] = replace(subjects[number], whole=False)
        unexplained = {n: s for n, s in enumerate(subjects) if n not in sides and n not in failures}
        for subject in unexplained.values():
            if subject.whole:
                self.say(
                    f"{subject.name}: klat cannot find its windows among the stamps of the other metrics;"
                    " repeating the boot with its own stamps only"
                )
        more, failed = self._each_by_its_own(unexplained, ranges, keep)
        return sides | more, failures | failed

    def _read(
        self, groups: Sequence[Sequence[Subject]], ranges: Sequence[Range] = ()
    ) -> Generator[tuple[int, Reading | KlatError], None, None]:
        """One boot for each group: the index of the group with the reading, or with why the boot could not be repeated. Take
        them one by one, because a reading is large."""
        arguments = [plugin_arguments(group, kept) for group, kept in zip_longest(groups, ranges)]
        if len(groups) <= _NAMED:
            for group in groups:
                self.say(f"repeating the boot of {group[0].chosen.session.path}")
        what = f"repeating {len(groups)} boots to explain their samples: "
        progress = Progress(len(groups), 0, sys.stderr, what=what, noun="boots")
        replayed = replay.replay(
            [group[0].guest.boot for group in groups],
            [words for words, _ in arguments],
            self.plugin,
            self.work,
            self.signals,
            self.at_once,
            self.say,
        )
        with closing(replayed):
            for done, (place, boot) in enumerate(replayed):
                if len(groups) > _NAMED and done:
                    progress.before(done, "", progress.left_after(done))
                if isinstance(boot, KlatError):
                    yield place, boot
                else:
                    traced = reading.read(boot, groups[place][0].guest, arguments[place][1])
                    boot.trace.unlink()  # it can have hundreds of megabytes
                    yield place, traced
        progress.clear()
