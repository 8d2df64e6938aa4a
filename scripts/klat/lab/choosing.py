"""Chooses the sample of a record that klat explains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from klat.base.errors import KlatError
from klat.explain import isa, stamps, symbols, windows
from klat.explain.stamps import Bounds, Stamp
from klat.explain.windows import RecordedRun
from klat.lab import experiment
from klat.lab.replay import Recorded
from klat.record.json_files import read_machine_json
from klat.record.samples import SampleFiles
from klat.record.session import Row, Session, find_sessions, parse_pairs, read_session

TYPICAL = 0.5  # the quantile of a typical sample
_AMOUNTS = ("iterations", "warmup")  # parameters that may differ between two sides

Params = tuple[tuple[str, str], ...]  # names and values


@dataclass(frozen=True)
class Wanted:
    """Which sample to explain: the one at this quantile of a metric. `where` selects runs by parameter."""

    benchmark: str
    metric: str
    quantile: float = TYPICAL
    where: Params = ()

    @property
    def which(self) -> str:
        if self.quantile == TYPICAL:
            return "typical sample"
        return "largest sample" if self.quantile == 1 else f"sample at {100 * self.quantile:g} %"


@dataclass(frozen=True)
class Chosen:
    """One sample of a label."""

    session: Session
    runs: list[RecordedRun]  # all runs of the metric in the session, in order
    wanted_runs: list[int]  # the indices of the runs with the wanted parameters
    run: int  # the index of the sample's run
    index: int  # the index of the sample in its run
    params: Params  # the parameters in which the runs of the metric differ
    all_params: str

    @property
    def sample(self) -> int:
        return int(self.runs[self.run].samples[self.index])


def choose(path: Path, wanted: Wanted) -> Chosen:
    """The first sample of the label with the value of the quantile. Between two values, the quantile is the
    lower one. KlatError unless exactly one parameter set fits, and its sessions differ only in their
    boots."""
    sessions = _sessions(path)
    candidates = [(session, rows) for session in sessions if (rows := _rows(session, wanted))]
    sets = list(dict.fromkeys(row.params for _, rows in candidates for row in rows))
    if not sets:
        held_names = {f"{r.benchmark}.{r.metric}" for s in sessions for r in s.rows if r.n}
        raise KlatError(
            f"{path}: no run has samples of {wanted.benchmark}.{wanted.metric}; there are samples of"
            f" {', '.join(sorted(held_names)) or 'no metric'}"
        )
    chosen = _parameter_set(path, wanted, sets)
    numbered = (
        (session, rows, [number for number, row in enumerate(rows) if row.params == chosen])
        for session, rows in candidates
    )
    with_set = [
        (session, rows, wanted_runs) for session, rows, wanted_runs in numbered if wanted_runs
    ]
    _check_alike(path, wanted.benchmark, [session for session, _, _ in with_set])
    recorded = [
        (session, _runs(session, rows), wanted_runs) for session, rows, wanted_runs in with_set
    ]
    samples = [runs[number].samples for _, runs, wanted_runs in recorded for number in wanted_runs]
    all_samples = np.sort(np.concatenate(samples))
    value = all_samples[max(0, int(np.ceil(wanted.quantile * len(all_samples))) - 1)]
    session, runs, wanted_runs, number = next(
        (session, runs, wanted_runs, number)
        for session, runs, wanted_runs in recorded
        for number in wanted_runs
        if value in runs[number].samples
    )
    index = int(np.argmax(runs[number].samples == value))
    return Chosen(session, runs, wanted_runs, number, index, _differing(sets)[chosen], chosen)


def check_sides(base: Chosen, new: Chosen) -> None:
    """KlatError if both sides are one session, or ran with different options."""
    if base.session.path.resolve() == new.session.path.resolve():
        raise KlatError(f"{base.session.path}: is BASE and NEW; give two sessions")
    pairs = [parse_pairs(side.all_params) for side in (base, new)]
    base_params, new_params = ({k: v for k, v in p.items() if k not in _AMOUNTS} for p in pairs)
    either = {**base_params, **new_params}
    names = [name for name in either if base_params.get(name) != new_params.get(name)]
    if names:
        texts = [
            " ".join(f"{n}={p.get(n, 'none')}" for n in names) for p in (base_params, new_params)
        ]
        raise KlatError(
            f"{new.session.path}: NEW ran with {texts[1]}, and BASE with {texts[0]}; give sessions with"
            " the same options"
        )


def every(path: Path, where: Params) -> list[Wanted]:
    """Each metric with samples, once for each parameter set that fits `where`, by benchmark."""
    sets: dict[tuple[str, str], dict[str, None]] = {}
    for session in _sessions(path):
        for row in sorted(session.rows, key=lambda row: row.order):
            if row.n:
                sets.setdefault((row.benchmark, row.metric), {})[row.params] = None
    return [
        Wanted(benchmark, metric, where=differing)
        for (benchmark, metric), params in sorted(sets.items(), key=lambda item: item[0][0])
        for text, differing in _differing(list(params)).items()
        if _fits(text, where)
    ]


def _sessions(path: Path) -> list[Session]:
    """The sessions of a label. KlatError if there are several labels."""
    places = sorted(find_sessions(path), key=lambda place: (experiment.order(place), place))
    sessions = [read_session(place) for place in places]
    labels = sorted({session.label for session in sessions})
    if len(labels) > 1:
        raise KlatError(
            f"{path}: holds sessions of {len(labels)} labels; give one: {', '.join(labels)}"
        )
    return sessions


def _check_alike(path: Path, benchmark: str, sessions: Sequence[Session]) -> None:
    """KlatError if the sessions ran under different conditions."""
    if len(sessions) < 2:
        return
    conditions = [_conditions(session, benchmark) for session in sessions]
    names = [
        name for name in conditions[0] if len({condition[name] for condition in conditions}) > 1
    ]
    if names:
        raise KlatError(
            f"{path}: its sessions with {benchmark} differ in {', '.join(names)}; give one session:"
            f" {', '.join(session.path.name for session in sessions)}"
        )


def _conditions(session: Session, benchmark: str) -> dict[str, object]:
    """What two boots of one experiment have in common."""
    planned, boot = experiment.of_session(session.path)
    return {
        "kernel": planned.hashes[boot.condition.kernel],
        "command line": planned.append_of(boot.condition),
        "load": boot.condition.load,
        "program": planned.programs.get(benchmark),
        "mode": planned.mode,
        "guest": planned.shape,
        "emulator": read_machine_json(session.path).get("qemu"),
        "policy": frozenset(r.policy for r in session.rows if r.benchmark == benchmark),
    }


def _rows(session: Session, wanted: Wanted) -> list[Row]:
    key = (wanted.benchmark, wanted.metric)
    rows = [row for row in session.rows if (row.benchmark, row.metric) == key and row.n]
    return sorted(rows, key=lambda row: row.order)


def _runs(session: Session, rows: Iterable[Row]) -> list[RecordedRun]:
    files = SampleFiles(session)
    return [RecordedRun(files.read(row), int(parse_pairs(row.params)["warmup"])) for row in rows]


def _parameter_set(path: Path, wanted: Wanted, sets: Sequence[str]) -> str:
    fits = [params for params in sets if _fits(params, wanted.where)]
    if len(fits) == 1:
        return fits[0]
    if not fits:
        asked = " ".join(f"{name}={value}" for name, value in wanted.where)
        raise KlatError(
            f"{path}: no run of {wanted.benchmark} has {asked}; it ran with"
            f" {_listed(_differing(sets)) or sets[0]}"
        )
    raise KlatError(
        f"{path}: {wanted.benchmark} ran with several sets of options; choose one by --where:"
        f" {_listed(_differing(fits))}"
    )


def _fits(params: str, where: Params) -> bool:
    return {*where} <= {*parse_pairs(params).items()}


def _listed(sets: Mapping[str, Params]) -> str:
    return "; ".join(" ".join(f"{n}={v}" for n, v in params) for params in sets.values())


def _differing(sets: Sequence[str]) -> dict[str, Params]:
    """For each parameter set, the parameters in which the sets differ."""
    pairs = {params: parse_pairs(params) for params in sets}
    names = [
        name
        for name in dict.fromkeys(name for values in pairs.values() for name in values)
        if len({values.get(name) for values in pairs.values()}) > 1
    ]
    return {
        params: tuple((name, values[name]) for name in names if name in values)
        for params, values in pairs.items()
    }


_MOST_STAMPS = 64  # the plugin takes no more
# The plugin writes the paths between these two stamps, by number in the boot. None: it writes all.
Range = tuple[int, int] | None


class GuestPrograms:
    """The programs that boots ran, as files in `directory`. Many boots share them, so what was read of them is kept."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._stamps: dict[str, list[Stamp]] = {}

    @cached_property
    def names(self) -> list[symbols.Function]:
        """The functions of the programs."""
        return [name for p in sorted(self.directory.iterdir()) for name in symbols.of_program(p)]

    def stamps(self, program: str) -> list[Stamp]:
        if program not in self._stamps:
            self._stamps[program] = stamps.of_program(self.directory / program)
        return self._stamps[program]


@dataclass(frozen=True)
class GuestFiles:
    """A session's boot, with the programs that it ran."""

    boot: Recorded
    programs: GuestPrograms


@dataclass(frozen=True)
class Subject:
    """A sample to explain, and its boot."""

    wanted: Wanted
    chosen: Chosen
    guest: GuestFiles
    bounds: Bounds
    stamps: list[Stamp]  # the stamps that begin or end a window
    whole: bool  # the explanation needs the paths of all samples

    @property
    def name(self) -> str:
        params = (f"{name}={value}" for name, value in self.chosen.params)
        return " ".join([f"{self.wanted.benchmark}.{self.wanted.metric}", *params])


def grouped(numbers: Sequence[int], subjects: Sequence[Subject]) -> list[list[int]]:
    """Groups of subjects that share a boot. A group has at most _MOST_STAMPS stamps."""
    groups: list[list[int]] = []
    for number in numbers:
        for group in groups:
            more = [subjects[n] for n in (*group, number)]
            same = more[0].guest is more[-1].guest
            if same and len(sites(more)) <= _MOST_STAMPS:
                group.append(number)
                break
        else:
            groups.append([number])
    return groups


def sites(subjects: Sequence[Subject]) -> list[int]:
    return list(dict.fromkeys(stamp.address for subject in subjects for stamp in subject.stamps))


def expected_stamps(subject: Subject) -> tuple[int, int]:
    """Two stamps, by number in the boot. The sample and the window before it should lie between them. If a
    program takes more stamps than expected, the sample lies elsewhere. klat then repeats the boot once more,
    with the numbers that the first repetition found."""
    chosen = subject.chosen
    windows_before = sum(
        run.warmup + len(run.samples) + windows.TAIL for run in chosen.runs[: chosen.run]
    )
    window = windows_before + chosen.runs[chosen.run].warmup + chosen.index
    stamps_of_sample = 2 * subject.bounds.mean_of
    return max(0, stamps_of_sample * (window - 2)), stamps_of_sample * (window + 2)


def plugin_arguments(subjects: Sequence[Subject], kept: Range) -> tuple[str, list[int]]:
    """The plugin's arguments, and the addresses of the stamps in the order of the trace's numbers."""
    words = []
    # Metrics with the same stamps share a kind of window.
    kinds = dict.fromkeys(tuple(subject.stamps) for subject in subjects)
    for kind, of_kind in enumerate(kinds):
        words.append(f"window={kind}")
        words += [f"{'open' if stamp.begins else 'close'}={stamp.address:#x}" for stamp in of_kind]
    boot = subjects[0].guest.boot
    isa_of_guest = isa.of_machine(boot.planned.architecture.elf_machine)
    words += [f"halt={isa_of_guest.halt}", "ram=memory-backend-memfd"]
    switch = isa_of_guest.task_switch.search(boot.ready.kernel.read_bytes())
    if not switch:
        raise KlatError(
            f"{boot.planned.releases[boot.boot.condition.kernel]}: klat does not find the code in which this"
            " kernel switches tasks, so it cannot explain its samples"
        )
    words.append(f"switch={switch[0].hex()}")
    if kept:
        words += [f"from={kept[0]}", f"to={kept[1]}"]
    return ",".join(words), sites(subjects)
