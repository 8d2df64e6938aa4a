"""An experiment: its kernels, the number and order of boots, and the programs. run.json of every
session holds all of it, so any session is enough to complete the experiment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from klat.record import plan_csv, session_directory
from klat.base.errors import KlatError
from klat.base.fields import Kind, ListOf, Object, OneOf, Text, Tuple, Whole
from klat.lab.architectures import AMD64, ARCHITECTURES, Architecture
from klat.lab.qemu import MODES, GuestSize
from klat.running.loads import IDLE
from klat.record.plan_csv import PlannedRun
from klat.record.json_files import LARGEST_INTEGER, MOST_BOOTS, MOST_SECONDS, read_run_json


@dataclass(frozen=True)
class KernelUnderLoad:
    """A kernel under a load, or under none. It has one label."""

    kernel: int  # among the experiment's
    load: str

    def label(self, labels: Sequence[str]) -> str:
        return labels[self.kernel] + (f"-{self.load}" if self.load != IDLE else "")


@dataclass(frozen=True)
class PlannedBoot:
    number: int  # from 1, in the order of the experiment
    round: int  # from 1: every condition once
    condition: KernelUnderLoad
    label: str
    seed: int  # of the machine and of the order of runs
    clock: str


@dataclass(frozen=True)
class Experiment:
    identity: str
    kernels: tuple[str, ...]  # as typed
    labels: tuple[str, ...]  # of the kernels
    releases: tuple[str, ...]
    hashes: tuple[str, ...]  # of the kernels' images
    programs: dict[str, str]  # and of the programs, by name
    mode: str
    why: str  # that mode
    shape: GuestSize
    sets: tuple[tuple[str, tuple[str, ...]], ...]
    loads: tuple[str, ...]
    append: str  # to the command line of every kernel
    boots: int
    runs: int
    seed: int
    clock: str  # of the first guest; each later guest shows one second more
    time_limit_s: int
    appends: tuple[str, ...] = ()  # to that of each kernel alone; empty in older records
    profile: str = ""
    arch: str = AMD64.name  # of the guests; older records lack it
    # One name for all experiments whose kernels klat compares with each other; empty for a single experiment.
    study: str = ""

    @property
    def architecture(self) -> Architecture:
        return ARCHITECTURES[self.arch]

    def append_alone(self, condition: KernelUnderLoad) -> str:
        """The words for the command line of this condition's kernel alone."""
        return self.appends[condition.kernel] if self.appends else ""

    def append_of(self, condition: KernelUnderLoad) -> str:
        """All words for the command line. The kernel takes the last of two that disagree."""
        return f"{self.append} {self.append_alone(condition)}".strip()

    def conditions(self) -> list[KernelUnderLoad]:
        return [KernelUnderLoad(k, load) for load in self.loads for k in range(len(self.kernels))]

    def schedule(self) -> list[PlannedBoot]:
        """All boots, in the order of alternating_rounds()."""
        conditions = self.conditions()
        rounds = plan_csv.alternating_rounds(len(conditions), self.boots)
        places = ((in_round, index) for in_round, order in enumerate(rounds, 1) for index in order)
        return [
            self._planned(number, in_round, conditions[index])
            for number, (in_round, index) in enumerate(places, 1)
        ]

    def _planned(self, number: int, in_round: int, condition: KernelUnderLoad) -> PlannedBoot:
        clock = datetime.fromisoformat(self.clock) + timedelta(seconds=number - 1)
        return PlannedBoot(
            number,
            in_round,
            condition,
            condition.label(self.labels),
            plan_csv.seed_of_boot("lab", self.seed, number),
            clock.isoformat(timespec="seconds"),
        )

    def plan(self, boot: PlannedBoot) -> list[PlannedRun]:
        return plan_csv.make(self.sets, self.runs, boot.seed)

    @property
    def runs_of_boot(self) -> int:
        return self.runs * len(self.sets)

    @property
    def number_of_boots(self) -> int:
        return self.boots * len(self.kernels) * len(self.loads)

    def facts(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(facts: Any) -> Experiment:
        """ValueError or TypeError if facts() did not write it."""
        _FACTS.check("lab.experiment", facts)
        values = dict(facts)
        values["shape"] = GuestSize(**values["shape"])
        values["sets"] = tuple((name, tuple(words)) for name, words in values["sets"])
        for name in ("kernels", "labels", "releases", "hashes", "loads", "appends"):
            values[name] = tuple(values.get(name, ()))
        experiment = Experiment(**values)
        kernels = [experiment.kernels, experiment.labels, experiment.releases, experiment.hashes]
        kernels += [experiment.appends] if experiment.appends else []
        if len({len(names) for names in kernels}) > 1 or experiment.number_of_boots > MOST_BOOTS:
            raise ValueError
        for label in experiment.labels:
            session_directory.check_label(label)
        parse_clock(experiment.clock)
        return experiment


_TEXT = Text(1 << 17)
_TEXTS = ListOf(_TEXT, 4096, 1)
_SHAPE: dict[str, Kind] = {
    "cpus": Whole(1, 4096),
    "nodes": Whole(1, 4096),
    "memory_mib": Whole(1, 1 << 20),
}
_FIELDS: dict[str, Kind] = {
    "identity": _TEXT,
    **dict.fromkeys(("kernels", "labels", "releases", "hashes", "loads"), _TEXTS),
    "programs": Object(others=_TEXT),
    "mode": OneOf(MODES),
    "why": _TEXT,
    "shape": Object(_SHAPE, frozenset(_SHAPE)),
    "sets": ListOf(Tuple((_TEXT, ListOf(_TEXT, 4096))), plan_csv.MAX_RUNS, 1),
    "append": _TEXT,
    "clock": _TEXT,
    "boots": Whole(1, MOST_BOOTS),
    "runs": Whole(1, plan_csv.MAX_RUNS),
    "seed": Whole(0, LARGEST_INTEGER),
    "time_limit_s": Whole(1, MOST_SECONDS),
}
_LATER: dict[str, Kind] = {
    "appends": ListOf(_TEXT, 4096),
    "profile": _TEXT,
    "study": _TEXT,
    "arch": OneOf(tuple(ARCHITECTURES)),
}
_FACTS = Object(_FIELDS | _LATER, frozenset(_FIELDS))


def checked_labels(labels: Sequence[str], loads: Sequence[str]) -> list[str]:
    """The labels of the sessions. KlatError if two conditions would have one label, or a label is not valid."""
    made = [KernelUnderLoad(k, load).label(labels) for load in loads for k in range(len(labels))]
    for label in made:
        if labels.count(label) > 1:
            raise KlatError(
                f"two kernels have the label {label!r}: give one of them another name, NAME=KERNEL"
            )
        if made.count(label) > 1:
            raise KlatError(
                f"a kernel and another one under a load would both have the label {label!r}; give"
                " one another name"
            )
        try:
            session_directory.check_label(label)
        except ValueError as error:
            raise KlatError(f"{label[:40]!r}: {error}") from None
    return made


def now() -> str:
    return datetime.now(timezone.utc).replace(tzinfo=None).isoformat(timespec="seconds")


def parse_clock(text: str) -> str:
    """The time in the form that QEMU takes. ValueError if it is not one."""
    try:
        moment = datetime.fromisoformat(text.removesuffix("Z"))
    except ValueError:
        raise ValueError(f"{text!r} must be a time, for example 2026-01-31T12:00:00") from None
    if moment.tzinfo or not 1990 <= moment.year < 2038:
        raise ValueError(f"{text!r}: give a UTC time of 1990 to 2037")
    return moment.isoformat(timespec="seconds")


@dataclass(frozen=True)
class Begun:
    """An experiment and its recorded sessions."""

    experiment: Experiment
    output: Path
    sessions: dict[int, Path]  # by the number of the boot


def find(path: Path) -> Begun:
    """The experiment of a session, or of the sessions below the directory of a label or an output directory.
    KlatError if there is none, or several."""
    if not path.is_dir():
        raise KlatError(f"{path}: no such directory")
    experiments: dict[str, tuple[Experiment, Path]] = {}
    for facts in _run_files(path.resolve()):
        recorded_boot = _read(facts)
        if recorded_boot:
            label = facts.parent.parent
            output = (
                label.parent.parent if label.name == session_directory.SET_ASIDE else label.parent
            )
            experiments[recorded_boot[0].identity] = (recorded_boot[0], output)
    if not experiments:
        raise KlatError(f"{path}: holds no session of klat lab run, so there is none to complete")
    if len(experiments) > 1:
        raise KlatError(
            f"{path}: holds sessions of {len(experiments)} experiments; give one session"
        )
    ((experiment, output),) = experiments.values()
    return Begun(experiment, output, recorded(experiment, output))


def recorded(experiment: Experiment, output: Path) -> dict[int, Path]:
    """The recorded sessions of an experiment, by the number of the boot."""
    sessions = {}
    for label in {boot.label for boot in experiment.schedule()}:
        for facts in _sessions_of(output / label):
            recorded_boot = _read(facts)
            if recorded_boot and recorded_boot[0].identity == experiment.identity:
                sessions[recorded_boot[1]] = facts.parent
    return sessions


def _sessions_of(label: Path) -> list[Path]:
    return [p for p in sorted(label.glob("*/run.json")) if not p.parent.name.startswith(".")]


def _run_files(path: Path) -> Iterator[Path]:
    """run.json of a session, or of all below a label or an output. Includes failed boots."""
    if (path / "run.json").is_file():
        yield path / "run.json"
        return
    for label in (path, *path.glob("*")):
        yield from _sessions_of(label)
        yield from (label / session_directory.SET_ASIDE).glob("*/run.json")


def of_session(session: Path) -> tuple[Experiment, PlannedBoot]:
    """The experiment and the boot of a session. KlatError if klat lab did not record it."""
    recorded_boot = _read(session / "run.json")
    if recorded_boot is None:
        raise KlatError(f"{session}: is not a session of klat lab")
    experiment, number = recorded_boot
    return experiment, experiment.schedule()[number - 1]


def order(session: Path) -> tuple[int, int]:
    """The key that sorts sessions as planned, not by when they ended: the number of the boot and its seed. Zeros if klat
    lab did not record the session."""
    recorded_boot = _read(session / "run.json")
    if recorded_boot is None:
        return 0, 0
    experiment, number = recorded_boot
    return number, experiment.schedule()[number - 1].seed


def _read(path: Path) -> tuple[Experiment, int] | None:
    """The experiment and the number of the boot; None if klat lab run did not begin the session."""
    lab = read_run_json(path.parent).get("lab")
    if not lab:
        return None
    try:
        experiment = Experiment.of(lab["experiment"])
        number: int = lab["boot"]
        if not 1 <= number <= experiment.number_of_boots:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise KlatError(f"{path} is damaged or was edited") from None
    return experiment, number
