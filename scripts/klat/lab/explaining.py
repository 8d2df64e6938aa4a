"""From sessions of the lab to the functions that a metric's samples consist of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path

from klat.base.errors import KlatError
from klat.base.process import Signals
from klat.explain import explanation, isa, source_lines, stamps, symbols, trace, windows
from klat.explain.explanation import Explanation, PathKind, Side
from klat.explain.stamps import Bounds, Stamp
from klat.explain.windows import RecordedRun, Sample, Stamps
from klat.lab import cache, choosing, plugins, qemu, replay, vmlinux
from klat.lab.choosing import TYPICAL, Chosen, Wanted
from klat.lab.experiment import IDLE
from klat.lab.replay import Recorded, Replayed
from klat.record.session import find_sessions

# klat's workers go on for two iterations behind the samples (lib/klat.h), with two stamps or one in
# each. Where a program takes more, the boot is repeated once more with what the first one told.
_TAIL = 2
_MOST_STAMPS = 64  # of the plugin
Say = Callable[[str], None]
# Between which stamps of a boot the paths are kept; None: between all.
Range = tuple[int, int] | None


@dataclass(frozen=True)
class GuestFiles:
    """What was booted for a session: `programs` is a directory with its programs."""

    boot: Recorded
    programs: Path

    @cached_property
    def names(self) -> list[symbols.Function]:
        """Of the programs."""
        return [
            name for path in sorted(self.programs.iterdir()) for name in symbols.of_program(path)
        ]


@dataclass(frozen=True)
class Subject:
    """What is to be explained, and by which boot."""

    wanted: Wanted
    chosen: Chosen
    guest: GuestFiles
    bounds: Bounds
    stamps: list[Stamp]  # that begin or end a window
    whole: bool  # the paths of all samples are wanted

    @property
    def name(self) -> str:
        return " ".join(
            [
                f"{self.wanted.benchmark}.{self.wanted.metric}",
                *(f"{name}={value}" for name, value in self.chosen.params),
            ]
        )


@dataclass(frozen=True)
class Reading:
    """What a repeated boot told of its subjects."""

    recorded: trace.Trace
    names: symbols.Symbols
    sites: list[int]  # the stamps' addresses, as the trace numbers them


def explain(
    paths: Sequence[Path],
    wanted: Wanted,
    say: Say,
    debug: Sequence[Path | None] = (),
    least: int = 0,
) -> Explanation:
    """One side for each path. Without a metric, it is the first one that can be explained of the
    benchmark that was recorded. KlatError if a side cannot be explained. `debug`: by side, its kernel
    with debug information, for the source lines of functions that have or differ by `least`
    instructions."""
    with _replays(say) as replays:
        if not wanted.metric:
            wanted = replays.with_metric(paths[0], wanted)
        subjects = [replays.subject(path, wanted) for path in paths]
        kernels = list(zip_longest(subjects, debug))
        for subject, path in kernels:
            if path:
                vmlinux.check(path, subject.guest.boot.ready.kernel)
        sides = replays.sides(subjects)
        shown = explanation.functions_of(sides, least)
        for number, (subject, path) in enumerate(kernels):
            if path:
                sides[number] = _with_lines(sides[number], path, subject, shown)
        return _explanation(subjects[0], sides)


def _with_lines(side: Side, path: Path, subject: Subject, shown: Sequence[str]) -> Side:
    booted, sample = subject.guest.boot.ready.kernel, side.sample
    lines = source_lines.by_function(path, booted, side.symbols, sample.contents, shown)
    return replace(side, lines=lines)


def explain_every(
    path: Path, wanted: Wanted, say: Say
) -> tuple[list[Explanation], dict[str, KlatError]]:
    """The typical sample of each metric and parameter set that can be explained, of one benchmark or,
    if `wanted` names none, of all. And by metric, why it could not be explained."""
    with _replays(say) as replays:
        held = replays.explainable(path, wanted)
        subjects = [replays.subject(path, each) for each in held]
        sides, failures = replays.sides_at_once(subjects)
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
def _replays(say: Say) -> Iterator[_Replays]:
    emulator = qemu.find()
    plugin = plugins.find(emulator)
    with Signals() as signals, cache.work() as work:
        yield _Replays(emulator, plugin, work, signals, say, {})


@dataclass(frozen=True)
class _Replays:
    emulator: qemu.Emulator
    plugin: plugins.Plugin
    work: Path
    signals: Signals
    say: Say
    guests: dict[Path, GuestFiles]  # by session

    def guest(self, session: Path) -> GuestFiles:
        found = self.guests.get(session)
        if found is None:
            boot = replay.recorded(session, self.emulator)
            place = self.work / f"programs-{len(self.guests)}"
            place.mkdir()
            for name, data in boot.programs.items():
                (place / name).write_bytes(data)
                (place / name).chmod(0o755)
            found = self.guests[session] = GuestFiles(boot, place)
        return found

    def explainable(self, path: Path, wanted: Wanted) -> list[Wanted]:
        """The metrics in the order of their programs. KlatError if there is none."""
        guest = self.guest(find_sessions(path)[0])
        every = choosing.every(path, wanted.where)
        held = [each for each in every if wanted.benchmark in ("", each.benchmark)]
        bounds = {
            name: stamps.bounds_of_all(guest.programs / name)
            for name in dict.fromkeys(each.benchmark for each in held)
            if name in guest.boot.programs
        }
        found = [
            each
            for name, metrics in bounds.items()
            for metric in metrics
            for each in held
            if (each.benchmark, each.metric) == (name, metric)
        ]
        if not found:
            raise KlatError(f"{path}: has no samples that can be explained")
        return found

    def with_metric(self, path: Path, wanted: Wanted) -> Wanted:
        held = self.explainable(path, wanted)
        if len({each.benchmark for each in held}) > 1:
            names = dict.fromkeys(f"{each.benchmark}.{each.metric}" for each in held)
            raise KlatError(f"{path}: choose one by --metric: {', '.join(names)}")
        return replace(wanted, benchmark=held[0].benchmark, metric=held[0].metric)

    def subject(self, path: Path, wanted: Wanted) -> Subject:
        chosen = choosing.choose(path, wanted)
        guest = self.guest(chosen.session.path)
        if wanted.benchmark not in guest.boot.programs:
            raise KlatError(f"{chosen.session.path}: ran no {wanted.benchmark}")
        program = guest.programs / wanted.benchmark
        bounds = stamps.bounds(program, wanted.metric)
        held = [
            stamp
            for stamp in stamps.of_program(program)
            if {*stamp.functions} & {*(bounds.begins_in if stamp.begins else bounds.ends_in)}
        ]
        whole = wanted.quantile == TYPICAL and guest.boot.boot.condition.load == IDLE
        return Subject(wanted, chosen, guest, bounds, held, whole)

    def sides(self, subjects: Sequence[Subject]) -> list[Side]:
        """Each subject by a boot of its own."""
        found: list[Side | None] = [None] * len(subjects)
        ranges = [None if each.whole else _expected_stamps(each) for each in subjects]
        for _ in (1, 2):
            missing = [number for number, side in enumerate(found) if side is None]
            readings = self._read([[subjects[n]] for n in missing], [ranges[n] for n in missing])
            for number, reading in zip(missing, readings):
                found[number], ranges[number] = _explained(subjects[number], reading)
            if None not in found:
                break
        return [side for side in found if side is not None]

    def sides_at_once(
        self, subjects: Sequence[Subject]
    ) -> tuple[dict[int, Side], dict[int, KlatError]]:
        """By number of the subject: its side, or why there is none. Subjects of one session share a
        boot, as far as their stamps are told apart in it."""
        sides: dict[int, Side] = {}
        groups = _groups([number for number, each in enumerate(subjects) if each.whole], subjects)
        readings = self._read([[subjects[n] for n in group] for group in groups])
        for group, reading in zip(groups, readings):
            for number in group:
                try:
                    side, _ = _explained(subjects[number], reading)
                except KlatError:
                    continue
                if side:
                    sides[number] = side
        failures: dict[int, KlatError] = {}
        for number, subject in enumerate(subjects):
            if number in sides:
                continue
            if subject.whole:
                self.say(f"{subject.name}: its stamps are not clear among all; once more, alone")
            try:
                (sides[number],) = self.sides([subject])
            except KlatError as error:
                failures[number] = error
        return sides, failures

    def _read(
        self, groups: Sequence[Sequence[Subject]], ranges: Sequence[Range] = ()
    ) -> list[Reading]:
        """One boot for each group."""
        for group in groups:
            self.say(f"repeating the boot of {group[0].chosen.session.path}")
        arguments = [_arguments(group, kept) for group, kept in zip_longest(groups, ranges)]
        boots = [group[0].guest.boot for group in groups]
        replayed = replay.replay(
            boots,
            [words for words, _ in arguments],
            self.plugin,
            self.emulator,
            self.work,
            self.signals,
            self.say,
        )
        return [
            Reading(trace.read(boot.trace), _symbols(group[0].guest, boot), sites)
            for boot, group, (_, sites) in zip(replayed, groups, arguments)
        ]


def _symbols(guest: GuestFiles, boot: Replayed) -> symbols.Symbols:
    return symbols.Symbols([*symbols.of_kernel(boot.kallsyms), *guest.names])


def _groups(numbers: Sequence[int], subjects: Sequence[Subject]) -> list[list[int]]:
    """Of one boot each, with as many stamps as the plugin takes."""
    found: list[list[int]] = []
    for number in numbers:
        for group in found:
            more = [subjects[n] for n in (*group, number)]
            same = more[0].guest is more[-1].guest
            if same and len(_sites(more)) <= _MOST_STAMPS:
                group.append(number)
                break
        else:
            found.append([number])
    return found


def _sites(subjects: Sequence[Subject]) -> list[int]:
    return list(dict.fromkeys(stamp.address for each in subjects for stamp in each.stamps))


def _expected_stamps(subject: Subject) -> tuple[int, int]:
    """Between which stamps of the boot the sample should lie, with the window before it."""
    chosen = subject.chosen
    windows_before = sum(run.warmup + len(run.samples) + _TAIL for run in chosen.runs[: chosen.run])
    window = windows_before + chosen.runs[chosen.run].warmup + chosen.index
    each = 2 * subject.bounds.mean_of
    return max(0, each * (window - 2)), each * (window + 2)


def _arguments(subjects: Sequence[Subject], kept: Range) -> tuple[str, list[int]]:
    """Of the plugin, and the addresses of the stamps in the order in which it numbers them."""
    words = []
    # Metrics with the same stamps have windows of one kind.
    kinds = dict.fromkeys(tuple(subject.stamps) for subject in subjects)
    for kind, held in enumerate(kinds):
        words.append(f"window={kind}")
        words += [f"{'open' if stamp.begins else 'close'}={stamp.address:#x}" for stamp in held]
    kernel = subjects[0].guest.boot.ready.kernel
    words += [f"halt={isa.of_file(kernel).halt}", "ram=memory-backend-memfd"]
    switch = replay.switch_address(kernel)
    if switch:
        words.append(f"switch={switch:#x}")
    if kept:
        words += [f"from={kept[0]}", f"to={kept[1]}"]
    return ",".join(words), _sites(subjects)


def _explained(subject: Subject, reading: Reading) -> tuple[Side | None, Range]:
    """None if the sample's paths are not in the trace; and between which stamps they are."""
    chosen = subject.chosen
    held, samples = _find(subject, reading)
    kinds: list[PathKind] = []
    sample = samples[chosen.own.index(chosen.run)][chosen.index]
    if subject.whole:
        deadline = subject.bounds.from_deadline
        sample, kinds = explanation.choose_typical(held, samples, subject.chosen.sample, deadline)
    elif not all(held.kept(window) for window in sample.windows):
        first, last = held.ordinals(sample.windows[0])[0], held.ordinals(sample.windows[-1])[1]
        return None, (max(0, 2 * first - last), last)
    contents = windows.contents(held, sample, subject.bounds.from_deadline)
    boot = subject.guest.boot
    side = Side(
        chosen.session.label,
        boot.planned.releases[boot.boot.condition.kernel],
        str(chosen.session.path),
        reading.names,
        kinds,
        explanation.explain(contents, reading.names, sample.ticks),
    )
    return side, None


def _find(subject: Subject, reading: Reading) -> tuple[Stamps, list[list[Sample]]]:
    """The samples of the wanted runs in the trace. KlatError if one is not there."""
    chosen = subject.chosen
    # Runs with other parameters may have other windows: then they are not in the trace.
    for numbers in dict.fromkeys((tuple(range(len(chosen.runs))), tuple(chosen.own))):
        found = _find_runs(subject, reading, [chosen.runs[number] for number in numbers])
        if found:
            held, samples = found
            return held, [samples[numbers.index(number)] for number in chosen.own]
    raise KlatError(
        f"{chosen.session.path}: the repeated boot has all samples, but their stamps were not"
        " found in its trace",
        status=1,
    )


def _find_runs(
    subject: Subject, reading: Reading, runs: Sequence[RecordedRun]
) -> tuple[Stamps, list[list[Sample]]] | None:
    begins = [reading.sites.index(stamp.address) for stamp in subject.stamps if stamp.begins]
    ends = [reading.sites.index(stamp.address) for stamp in subject.stamps if not stamp.begins]
    # A function may have several stamps. The pair of a metric is the one that has all its samples.
    pairs = [(begins, ends), *(([begin], [end]) for begin in begins for end in ends)]
    for mean_of in sorted({1, subject.bounds.mean_of}, reverse=True):
        for first, last in pairs:
            held = Stamps(reading.recorded, first, last)
            if subject.bounds.from_deadline:
                samples = windows.from_deadline(held, runs)
            else:
                samples = windows.find(held, runs, mean_of)
            if samples is not None:
                return held, samples
    return None
