"""Sessions with their conditions, in the order taken, and their runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from klat.compare.conditions import Declared, RunConditions, conditions, declared_options
from klat.compare.environment_conditions import Values
from klat.compare.session_problems import without_copies
from klat.record import json_files
from klat.record.environment import changed
from klat.record.evidence import state_of
from klat.record.json_files import read_run_json
from klat.record.samples import PART, SampleBudget, SampleFiles, Samples, is_counted
from klat.record.session import Row, Session, SessionError, find_sessions, printable, read_session
from klat.record.verification import believed
from klat.stats import descriptive
from klat.stats.descriptive import RunQuantile, STRETCH, quantile_of
from klat.stats.distribution import Distribution

UnitKey = tuple[str, str]  # boot, pair
_FIRST_YEAR = "2020"  # klat did not exist before


@dataclass(frozen=True)
class Pairing:
    """`pairing` in run.json: the runs alternated with runs of another label.

    `experiment` is the same on both sides. `pairs` has (first order, last order, pair), or one pair
    for all runs. `turns` has the first and last order of each turn, if a pair has several. `looks` has
    the numbers of pairs at which the comparison was planned, if that was before the end.
    """

    experiment: str
    pairs: tuple[tuple[int, int, str], ...] | str
    turns: tuple[tuple[int, int], ...] = ()
    looks: tuple[int, ...] = ()

    @staticmethod
    def of(facts: dict[str, Any]) -> Pairing | None:
        declared = facts.get("pairing") or {}
        experiment = declared.get("experiment")
        if not experiment:
            return None
        if "pair" in declared:
            looks = tuple(sorted(set(declared.get("looks") or ())))
            return Pairing(experiment, str(declared["pair"]), looks=looks)
        if "pairs" not in declared:
            return None
        spans = tuple((first, last, str(pair)) for first, last, pair in declared["pairs"])
        turns = tuple((turn[0], turn[1]) for turn in facts.get("turns") or ())
        return Pairing(experiment, spans, turns)

    def of_order(self, order: int) -> str:
        """The experiment and the pair of the run at that place of the plan; empty without a pair."""
        if isinstance(self.pairs, str):
            return f"{self.experiment} {self.pairs}"
        for first, last, pair in self.pairs:
            if first <= order <= last:
                return f"{self.experiment} {pair}"
        return ""

    def is_complete(self, orders: Sequence[int], last_recorded: int) -> bool:
        """Whether these runs are from all turns of their pair, and the session did not end during the pair. If not, a
        drift does not cancel. True if there are no pairs."""
        for first, last, _ in () if isinstance(self.pairs, str) else self.pairs:
            if first <= orders[0] <= last:
                turns = [turn for turn in self.turns if first <= turn[0] and turn[1] <= last]
                has_turns = all(any(a <= order <= b for order in orders) for a, b in turns)
                return last <= last_recorded and has_turns
        return True


@dataclass(frozen=True, eq=False)
class Source:
    """One session, with what is needed to read its runs."""

    session: Session
    files: SampleFiles
    values: Values
    pairing: Pairing | None = None
    declared: Declared = frozenset()
    # The experiment of klat lab and the number of the boot in it, or the campaign and the number of
    # the round; else empty and 0.
    experiment: str = ""
    boot_number: int = 0
    profile: str = ""
    begun: str = ""  # by a clock that no guest sets: ISO 8601, UTC
    # Runs with the same conditions share one object.
    _run_conditions: dict[tuple[str, ...], RunConditions] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(session: Session, files: SampleFiles, facts: dict[str, Any]) -> Source:
        """`facts` is run.json of the session, or empty."""
        experiment, number = _place_in_lab(facts)
        # A guest's clock is set to what the experiment says, the same in many boots.
        begun = facts.get("created") if experiment else session.info.get("created")
        pairing = Pairing.of(facts)
        if pairing and not experiment:
            experiment, number = _place_in_campaign(pairing)
        values, declared = conditions(session, facts), declared_options(facts)
        profile = facts.get("profile") or ""
        place = (pairing, declared, experiment, number)
        return Source(session, files, values, *place, profile, str(begun))

    @property
    def is_dated(self) -> bool:
        """Whether `begun` can be right. A machine without a clock battery can begin each boot in 1970."""
        return self.begun[:4].isdigit() and self.begun >= _FIRST_YEAR

    @property
    def runs(self) -> list[list[Run]]:
        """The runs in the order recorded, each with a `Run` for every metric."""
        return [[Run(row, self) for row in rows] for rows in self.session.runs]

    def run_conditions(self, row: Row) -> RunConditions:
        obtained = (row.benchmark, row.policy, row.cpus, state_of(row))
        if (conditions := self._run_conditions.get(obtained)) is None:
            build = (self.session.info.get("programs") or {}).get(row.benchmark)
            way, _, state = obtained[-1].partition("=")
            states = {way: state} if way else {}
            conditions = RunConditions(row.policy, row.cpus, str(build or "")[:12], **states)
            self._run_conditions[obtained] = conditions
        return conditions

    @cached_property
    def first_start(self) -> int:
        return self.session.rows[0].start_ns

    @cached_property
    def span(self) -> tuple[int, int]:
        """When the first run began and the last one ended, in ns of the wall clock."""
        return self.first_start, max(r.start_ns + (r.elapsed_ns or 0) for r in self.session.rows)

    @cached_property
    def last_order(self) -> int:
        """The place in the plan of the last run that was recorded."""
        return max(row.order for row in self.session.rows)

    @cached_property
    def scale(self) -> float:
        """The length of a tick in ns; 1 where time means nothing."""
        return 1e6 / self.session.khz if self.session.khz else 1.0

    @cached_property
    def step(self) -> float:
        """How much the counter's granularity can round a sample, in the unit of figures."""
        return self.session.quantum * self.scale if self.session.unit == "ticks" else 0.0


def _place_in_lab(facts: dict[str, Any]) -> tuple[str, int]:
    """The experiment's identity and the boot's number in it, from 1; else empty and 0."""
    lab = facts.get("lab") or {}
    identity = (lab.get("experiment") or {}).get("identity")
    number = lab.get("boot")
    return (identity, number) if identity and number is not None else ("", 0)


def _place_in_campaign(pairing: Pairing) -> tuple[str, int]:
    """The campaign's identity and the number of the round; else empty and 0. A label has one boot in a
    round."""
    pair = pairing.pairs if isinstance(pairing.pairs, str) else ""
    return (pairing.experiment, int(pair[:20])) if pair.isascii() and pair.isdigit() else ("", 0)


@dataclass(eq=False, slots=True)
class Run:
    """One run's row of one metric, with the samples behind it."""

    row: Row
    source: Source

    @property
    def conditions(self) -> RunConditions:
        return self.source.run_conditions(self.row)

    @property
    def unit(self) -> UnitKey:
        """The boot, and the pair if there is one."""
        pairing = self.source.pairing
        return self.row.boot, pairing.of_order(self.row.order) if pairing else ""

    @property
    def is_measurable(self) -> bool:
        return self.source.session.measurable(self.row)

    @property
    def is_counted(self) -> bool:
        return is_counted(self.row)

    def parts(self, length: int = PART) -> Iterator[Samples]:
        """The samples in pieces of this length. They are read and not mapped, to free memory at once."""
        return self.source.files.parts(self.row, length)

    def distribution(self) -> Distribution:
        """The samples as recorded, by value. SessionError if they are missing or damaged."""
        return self.source.files.distribution(self.row)

    def ranked(self, places: Sequence[int]) -> list[int]:
        """The samples at these places, from 0, in ascending order."""
        if self.is_counted:
            return [int(sample) for sample in self.distribution().take(np.array(places))]
        samples = np.partition(self.source.files.read(self.row), sorted(set(places)))
        return [int(samples[place]) for place in places]

    def quantiles(self, qs: Sequence[Fraction]) -> list[int | None]:
        """In ticks or instructions; None where the run does not support one."""
        n = self.row.n or 0
        supported = [q for q in qs if descriptive.supports(n, q)]
        places = [descriptive.rank(n, q) - 1 for q in supported]
        ranked = dict(zip(supported, self.ranked(places))) if places else {}
        return [ranked.get(q) for q in qs]

    def run_quantile(self, q: Fraction) -> RunQuantile | None:
        """Quantile q with its interval."""
        if self.row.soak or not self.row.n:
            return None  # the interval needs the order of the samples
        first = next(self.parts())
        return quantile_of(first[:STRETCH], self.row.n or 0, self.ranked, q)


# Sorts the runs of one boot in the order taken, even if the clock was set in a session.
place_of = attrgetter("source.first_start", "row.line")


def read_sources(
    paths: Path | str | Iterable[Path | str],
) -> tuple[dict[str, list[Source]], list[str]]:
    """Every session below the paths that has a run, by label in the order taken, and sentences on
    problems. Each row was checked against its samples.

    SessionError if a path leads to no session, or if no session has a run.
    """
    recorded = [read_session(place) for place in find_sessions(paths)]
    kept = SampleBudget()
    files = {session.path: SampleFiles(session, kept) for session in recorded}
    sessions = without_copies([believed(session, files[session.path]) for session in recorded])
    problems = [f"{printable(str(s.path))}: {p}" for s in sessions for p in s.problems]
    facts = {session.path: read_run_json(session.path) for session in sessions}
    problems += [*json_files.failures(facts), *changed(facts)]
    by_label: dict[str, list[Source]] = {}
    for session in sessions:
        if session.rows:
            source = Source.of(session, files[session.path], facts[session.path])
            by_label.setdefault(session.label, []).append(source)
    if not by_label:
        first = problems[0] if problems else f"{printable(str(sessions[0].path))}: no run in it"
        raise SessionError(f"{first}; there is nothing to show or compare")
    return {label: _as_taken(sources) for label, sources in by_label.items()}, problems


def undated(sources: Iterable[Source]) -> Source | None:
    """The first session whose date cannot be right. None if the order of the boots is known: from dates
    that can be right, or from the numbers in one experiment or campaign."""
    sources = list(sources)
    boots = {source.session.boot_id for source in sources}
    experiments = {source.experiment for source in sources}
    numbered = len(experiments) == 1 and "" not in experiments
    lost = [source for source in sources if not source.is_dated]
    return lost[0] if lost and len(boots) > 1 and not numbered else None


def _as_taken(sources: Sequence[Source]) -> list[Source]:
    """By time. The boots of an experiment or campaign follow each other in the order of their numbers."""
    first: dict[str, str] = {}
    for source in sources:
        if source.experiment:
            earliest = first.get(source.experiment, source.begun)
            first[source.experiment] = min(earliest, source.begun)

    def place(source: Source) -> tuple[str, str, int, str, str]:
        begun = first.get(source.experiment, source.begun)
        path = str(source.session.path)
        return (begun, source.experiment, source.boot_number, source.begun, path)

    return sorted(sources, key=place)
