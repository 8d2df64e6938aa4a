"""Which sample of a record is to be explained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from klat.base.errors import KlatError
from klat.explain.windows import RecordedRun
from klat.record.samples import SampleFiles
from klat.record.session import Row, Session, find_sessions, parse_pairs, read_session

TYPICAL = 0.5  # the quantile of a typical sample

Params = tuple[tuple[str, str], ...]  # names and values


@dataclass(frozen=True)
class Wanted:
    """The sample at a quantile of all samples of a metric. `where`: of the runs with these parameters."""

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
    """A sample among those of a label."""

    session: Session
    runs: list[RecordedRun]  # of the metric in that session, in order
    own: list[int]  # the numbers of those with the wanted parameters
    run: int  # its number
    index: int  # of the sample in the run
    params: Params  # what the metric's other runs have otherwise

    @property
    def sample(self) -> int:
        return int(self.runs[self.run].samples[self.index])


def choose(path: Path, wanted: Wanted) -> Chosen:
    """The first sample that is the quantile of all that the label has (the lower of two). KlatError if
    several parameter sets fit, or none."""
    held = [(session, _rows(session, wanted)) for session in _sessions(path)]
    sets = list(dict.fromkeys(row.params for _, rows in held for row in rows))
    if not sets:
        held_names = {f"{r.benchmark}.{r.metric}" for s, _ in held for r in s.rows if r.n}
        raise KlatError(
            f"{path}: no run has samples of {wanted.benchmark}.{wanted.metric}; there are samples of"
            f" {', '.join(sorted(held_names)) or 'no metric'}"
        )
    chosen = _parameter_set(path, wanted, sets)
    runs = {id(session): _runs(session, rows) for session, rows in held}
    own = {
        id(session): [number for number, row in enumerate(rows) if row.params == chosen]
        for session, rows in held
    }
    every = np.sort(
        np.concatenate(
            [
                runs[id(session)][number].samples
                for session, _ in held
                for number in own[id(session)]
            ]
        )
    )
    value = every[max(0, int(np.ceil(wanted.quantile * len(every))) - 1)]
    for session, _ in held:
        for number in own[id(session)]:
            samples = runs[id(session)][number].samples
            if value in samples:
                return Chosen(
                    session,
                    runs[id(session)],
                    own[id(session)],
                    number,
                    int(np.argmax(samples == value)),
                    _differing(sets)[chosen],
                )
    raise AssertionError


def every(path: Path, where: Params) -> list[Wanted]:
    """Each metric that has samples, with each of its parameter sets that fits, by benchmark."""
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
    return [read_session(place) for place in find_sessions(path)]


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
    """By parameter set: its parameters that differ from those of another set."""
    pairs = {params: parse_pairs(params) for params in sets}
    names = [
        name
        for name in dict.fromkeys(name for held in pairs.values() for name in held)
        if len({held.get(name) for held in pairs.values()}) > 1
    ]
    return {
        params: tuple((name, held[name]) for name in names if name in held)
        for params, held in pairs.items()
    }
