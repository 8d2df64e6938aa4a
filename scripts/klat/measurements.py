"""What sessions measured: rows by label, setting and metric, with their statistics.

Sessions of one label are pooled where they measured the same kernel on the same machine in the same
unit and mode; each is a boot, or a part of one, and their number is kept in sight.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from klat import statistics
from klat.programs import CORE
from klat.samples import SampleFiles, Samples
from klat.session import (
    NOT_MEASURABLE,
    STATUSES,
    USABLE,
    Row,
    Session,
    SessionError,
    find_sessions,
    parse_pairs,
    printable,
    read_session,
)
from klat.statistics import P50, P90, P99
from klat.tally import Tally

P999 = Fraction(999, 1000)
# Not among the options that a row records as params, for what was asked for may not be obtained.
_POLICY = "policy"


@dataclass(frozen=True)
class Statistics:
    """Of one metric, in the session's unit. None where there are too few runs or samples for it."""

    runs: int
    samples: int
    average: float | None  # mean over runs of the runs' means
    stdev: float | None  # of the runs' means
    min: int | None  # from here on over all samples
    median: int | None
    p90: int | None
    p99: int | None
    p999: int | None
    max: int | None
    # 95 %, of the runs' medians. Within one boot only: runs of several are not independent.
    median_interval: tuple[float, float] | None


@dataclass(frozen=True)
class RunOf:
    """One run's row of one metric, with the samples behind it."""

    row: Row
    files: SampleFiles

    def samples(self) -> Samples:
        return self.files.of(self.row)

    def parts(self) -> Iterator[Samples]:
        """The same piece by piece, each to be looked at once."""
        return self.files.parts(self.row)


@dataclass
class Measurement:
    """One metric of one setting: every run of it that has samples, in order of start."""

    metric: str
    all_runs: list[RunOf] = field(default_factory=list)
    unmeasurable: int = 0  # runs whose mode gives it no number

    @property
    def runs(self) -> list[RunOf]:
        """Those that count."""
        return [run for run in self.all_runs if run.row.usable]

    def tally(self) -> Tally:
        """All samples that count, as recorded. SessionError where some are missing."""
        return Tally.of(part for run in self.runs for part in run.parts())

    @cached_property
    def statistics(self) -> Statistics:
        """SessionError where samples are missing."""
        rows = [run.row for run in self.runs]
        samples = self.tally()
        median, p90, p99, p999 = map(samples.sample, (P50, P90, P99, P999))
        boots = len({row.boot for row in rows})
        means = np.array([float(row.mean) for row in rows if row.mean is not None])
        medians = np.array([float(row.p50) for row in rows if row.p50 is not None])
        return Statistics(
            runs=len(rows),
            samples=len(samples),
            average=float(means.mean()) if len(means) else None,
            stdev=float(means.std(ddof=1)) if len(means) > 1 else None,
            min=int(samples.values[0]) if len(samples) else None,
            median=median,
            p90=p90,
            p99=p99,
            p999=p999,
            max=int(samples.values[-1]) if len(samples) else None,
            median_interval=statistics.median_interval(medians) if boots == 1 else None,
        )


@dataclass
class Setting:
    """One benchmark with one set of parameters, among them the policy obtained, at one
    placement."""

    benchmark: str
    params: dict[str, str]
    placement: str
    statuses: Counter[str] = field(default_factory=Counter)
    reasons: list[tuple[str, str]] = field(
        default_factory=list
    )  # (status, reason), one per reason of a run
    floors: list[int] = field(default_factory=list)
    measurements: dict[str, Measurement] = field(default_factory=dict)
    # Of runs that count and in which something was not measurable: then it is what they are for.
    evidence: list[dict[str, str]] = field(default_factory=list)

    @property
    def usable_runs(self) -> int:
        return sum(self.statuses[status] for status in USABLE)

    @property
    def floor(self) -> int | None:
        """The floor that half of the runs do not exceed."""
        floors = sorted(self.floors)
        return floors[(len(floors) - 1) // 2] if floors else None

    def unmeasurable(self) -> list[str]:
        """Metrics that have no number because of the mode."""
        return [name for name, m in self.measurements.items() if m.unmeasurable]

    def evidence_ranges(self) -> list[tuple[str, int, int]]:
        """Least and largest value of each count."""
        found: dict[str, list[int]] = {}
        for counts in self.evidence:
            for name, value in counts.items():
                if _INTEGER.fullmatch(value):
                    found.setdefault(name, []).append(int(value))
        return [(name, min(values), max(values)) for name, values in found.items()]

    def grouped_reasons(self) -> list[tuple[str, str, int]]:
        """(status, reason, count), the most frequent of each status first. Reasons that differ
        only in their numbers are one, with the range of each number."""
        groups: dict[tuple[str, tuple[str, ...]], list[list[str]]] = {}
        for status, reason in self.reasons:
            pieces = _NUMBER.split(reason)
            groups.setdefault((status, tuple(pieces)), []).append(_NUMBER.findall(reason))
        counted = [
            (status, _merged(pieces, numbers), len(numbers))
            for (status, pieces), numbers in groups.items()
        ]
        return sorted(counted, key=lambda g: (STATUSES.index(g[0]), -g[2], g[1]))


# A minus is not part of the number: it would read as a range in "CPU 0-3".
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)


def _merged(pieces: Sequence[str], numbers: Sequence[Sequence[str]]) -> str:
    text = [pieces[0]]
    for position, piece in enumerate(pieces[1:]):
        values = sorted({row[position] for row in numbers}, key=float)
        text.append(values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}")
        text.append(piece)
    return "".join(text)


@dataclass
class Label:
    """One kernel under test: the sessions of one label that can be pooled."""

    sessions: list[Session]
    settings: list[Setting]

    @property
    def info(self) -> dict[str, Any]:
        """session.json of the first session; what is pooled agrees in what is shown of it."""
        return self.sessions[0].info

    @property
    def name(self) -> str:
        return printable(self.sessions[0].label)

    @property
    def kernel(self) -> str:
        return printable(str(self.info.get("kernel_release") or "unknown kernel"))

    @property
    def unit(self) -> str:
        return self.sessions[0].unit

    @property
    def mode(self) -> str:
        return self.sessions[0].mode

    @property
    def boots(self) -> int:
        return len({session.boot_id for session in self.sessions})

    @property
    def khz(self) -> float | None:
        """Ticks per millisecond, the mean of the sessions' calibrations; None where time means
        nothing."""
        found = [session.khz for session in self.sessions if session.khz is not None]
        return sum(found) / len(found) if found else None

    @property
    def quantum(self) -> int:
        return max(session.quantum for session in self.sessions)

    def nanoseconds(self, value: float) -> float | None:
        return value * 1e6 / self.khz if self.khz else None


def read_labels(paths: Iterable[Path | str]) -> tuple[list[Label], list[str]]:
    """Every session below the paths, pooled by label, and what there is to say about them.

    Raises SessionError when a path leads to no session or no session holds a completed run.
    """
    sessions = [read_session(path) for path in find_sessions(paths)]
    problems = [f"{printable(str(s.path))}: {p}" for s in sessions for p in s.problems]
    held = [session for session in sessions if session.rows]
    if not held:
        first = problems[0] if problems else f"{printable(str(sessions[0].path))}: no run in it"
        raise SessionError(f"{first}; there is nothing to show yet")
    groups: dict[tuple[str, ...], list[Session]] = {}
    for session in held:
        groups.setdefault(_pool_key(session), []).append(session)
    labels = [Label(group, gather(group)) for group in groups.values()]
    for label in labels:
        problems += _disagreements(label)
    return labels, problems


def unmeasurable_lines(
    settings: Iterable[tuple[Label, Setting]], metrics: Sequence[str] = ()
) -> Iterator[str]:
    """A sentence for each label and program with metrics, of these where any is named, to which the
    mode gives no number."""
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for label, setting in settings:
        for metric in setting.unmeasurable():
            if not metrics or metric in metrics:
                key = (label.name, label.mode, printable(setting.benchmark))
                found.setdefault(key, {})[printable(metric)] = None
    for (name, mode, benchmark), held in found.items():
        yield f"label {name}, mode {mode}: {NOT_MEASURABLE}: {benchmark} {', '.join(held)}"


def by_session(labels: Iterable[Label]) -> list[Label]:
    """The same without pooling: each session on its own."""
    return [Label([s], gather([s])) for label in labels for s in label.sessions]


def _pool_key(session: Session) -> tuple[str, ...]:
    keys = ("label", "kernel_release", "kernel_version", "machine_id", "cpu_model", "mode", "unit")
    return tuple(str(session.info.get(key)) for key in keys)


def _disagreements(label: Label) -> list[str]:
    khz = [session.khz for session in label.sessions if session.khz is not None]
    if khz and max(khz) > 1.001 * min(khz):
        return [
            f"label {label.name}: the sessions' counters differ in frequency, {min(khz):,.0f} to"
            f" {max(khz):,.0f} kHz, so pooled ticks are not the same time; look at them one by one"
        ]
    return []


def gather(sessions: Sequence[Session]) -> list[Setting]:
    """The settings of some sessions: the five programs in their order, others by name, then by
    params."""
    settings: dict[tuple[str, str, str, str], Setting] = {}
    policies: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for session in sessions:
        for rows in session.runs():
            if any(row.usable for row in rows):
                policies[_what(rows[0])].add(_policy(rows[0]))
    for session in sessions:
        files = SampleFiles(session)
        for rows in session.runs():
            first = rows[0]
            what, policy = _what(first), _policy(first)
            # A run that does not count may be that because it lost its policy on the way.
            if not any(row.usable for row in rows) and len(policies[what]) == 1:
                (policy,) = policies[what]
            key = (*what, policy)
            if key not in settings:
                params = parse_pairs(first.params) | ({_POLICY: policy} if policy else {})
                settings[key] = Setting(first.benchmark, params, first.placement)
            _count_run(settings[key], rows, files)
    for setting in settings.values():
        for measurement in setting.measurements.values():
            measurement.all_runs.sort(key=lambda run: run.row.start_ns)
    return _placed(sorted(settings.values(), key=_sort_key))


def _what(row: Row) -> tuple[str, str, str]:
    return (row.benchmark, row.params, row.placement)


def _policy(row: Row) -> str:
    """`fifo:50` where all roles have the same, else `rr:98/rr:19`, the higher first. Which role has
    which, the program and its low-priority tell."""

    def priority(policy: str) -> int:
        number = policy.partition(":")[2]
        return int(number) if number.isascii() and number.isdigit() else 0

    obtained = sorted(set(parse_pairs(row.policy).values()))
    return "/".join(sorted(obtained, key=priority, reverse=True))


def _without_policy(setting: Setting) -> tuple[str, dict[str, str]]:
    return (setting.benchmark, {k: v for k, v in setting.params.items() if k != _POLICY})


def _count_run(setting: Setting, rows: Sequence[Row], files: SampleFiles) -> None:
    # The rows of a run share a status; should they not, the run is as bad as its worst.
    worst = max(rows, key=lambda row: STATUSES.index(row.status))
    setting.statuses[worst.status] += 1
    if worst.status != "ok":
        # A run that measured nothing has one reason, which may say after a semicolon what to do.
        whole = worst.status in ("error", "skipped")
        parts = [worst.reason] if whole else worst.reason.split(";")
        reasons = [part.strip() for part in parts if part.strip()]
        setting.reasons += [(worst.status, r) for r in reasons or ["no reason was recorded"]]
    if worst.floor is not None:
        setting.floors.append(worst.floor)
    for row in rows:
        if row.metric:
            found = setting.measurements.setdefault(row.metric, Measurement(row.metric))
            if row.n:
                found.all_runs.append(RunOf(row, files))
            elif not files.session.measurable(row):
                found.unmeasurable += 1
    if worst.status in USABLE and not all(map(files.session.measurable, rows)):
        setting.evidence.append(parse_pairs(rows[0].evidence))


def _placed(settings: Sequence[Setting]) -> list[Setting]:
    """Runs that failed before they were placed, counted with those of the same params that were."""
    kept: list[Setting] = []
    for setting in settings:
        same = [
            other
            for other in settings
            if _without_policy(other) == _without_policy(setting) and other is not setting
        ]
        if setting.measurements or len(same) != 1 or not same[0].measurements:
            kept.append(setting)
            continue
        same[0].statuses += setting.statuses
        same[0].reasons += setting.reasons
    return kept


def _sort_key(setting: Setting) -> tuple[int, str, list[tuple[int, float, str]]]:
    name = setting.benchmark
    place = CORE.index(name) if name in CORE else len(CORE)
    # Numbers by value, so that responders=10 follows responders=9.
    values = [
        (0, float(value), "") if _NUMBER.fullmatch(value) else (1, 0.0, value)
        for value in chain(setting.params.values(), [setting.placement])
    ]
    return (place, name, values)


def common_params(settings: Iterable[Setting]) -> dict[str, str]:
    """What all the settings have in common."""
    common: dict[str, str] | None = None
    for setting in settings:
        if common is None:
            common = dict(setting.params)
        else:
            common = {k: v for k, v in common.items() if setting.params.get(k) == v}
    return common or {}
