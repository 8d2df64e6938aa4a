"""What a soak adds to the figures of a metric: how these drift, and the longest samples with their
times."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import attrgetter
from statistics import median

from klat.base.errors import SessionError
from klat.base.grouping import grouped
from klat.compare.runs import Runs
from klat.compare.sources import Run
from klat.record.json_files import read_run_json
from klat.record.longest import KeptSample, NoLongestSamples, longest_samples
from klat.record.rows import Row
from klat.record.session import Session
from klat.stats.positions import Coincidence, coincidence
from klat.stats.descriptive import P999

# Delays are looked for in this number of the longest samples of a series, and in at most one of _PART
# samples: in a short soak, more would include usual samples, which would join two delays.
_LONG = 200
_PART = 100
# The delays of a report.
_DELAYS = 5
# Programs that soak together: long samples within this time may have one cause.
WINDOW_NS = 1_000_000
# In the evidence of a segment in which somebody set the clock.
_CLOCK_SET = re.compile(r"(?:^|;)clock_set_ms=(-?[0-9]{1,15})(?:;|$)", re.ASCII)


@dataclass(frozen=True)
class SoakDrift:
    """A figure of segments: its median over the first quarter of them and over the last, as
    recorded."""

    figure: str
    first: float
    last: float


@dataclass(frozen=True)
class Delay:
    """The longest of `samples` long samples that follow each other without a gap."""

    longest: KeptSample
    samples: int


@dataclass(frozen=True)
class ClockSet:
    """Somebody set the clock forward by `ns` in this segment. The times of its samples are by the clock
    as it was at the segment's start."""

    segment: int
    ns: int


@dataclass(frozen=True)
class Together:
    """How often delays of a metric on two sets of CPUs came at the same time."""

    metric: str
    cpus: tuple[str, str]
    coincidence: Coincidence


@dataclass(frozen=True)
class SoakReport:
    """One metric of one soak. `asked_s` is the length that the user asked for; None if klat soak did not
    start the soak. `segments` counts those that were not cut short. `delays` is None if the longest
    samples cannot be read, and `missing` is the reason if their file does not exist. `clock_sets` are
    those of all segments, also of invalid ones."""

    session: Session
    metric: str
    segments: int
    seconds: float
    asked_s: int | None
    drifts: tuple[SoakDrift, ...]
    delays: tuple[Delay, ...] | None
    missing: str
    clock_sets: tuple[ClockSet, ...]


def soak_reports(measurement: Runs, failed: Callable[[str], None]) -> Iterator[SoakReport]:
    """For each soak of the metric. `failed` gets a sentence on what cannot be read."""
    soaked = (run for run in measurement.runs if run.row.soak)
    for runs in grouped(soaked, attrgetter("source.session.path")).values():
        try:
            report = _report(measurement.metric, runs, failed)
        except SessionError as error:
            failed(str(error))
        else:
            yield report


def _report(metric: str, runs: Sequence[Run], failed: Callable[[str], None]) -> SoakReport:
    session = runs[0].source.session
    asked = read_run_json(session.path).get("soak") or {}
    delays, missing = _longest_delays(runs, failed)
    return SoakReport(
        session,
        metric,
        len(_whole(runs)),
        sum(run.row.elapsed_ns or 0 for run in runs) / 1e9,
        asked.get("seconds"),
        tuple(_drifts(runs)),
        delays,
        missing,
        tuple(_clock_sets(session, runs[0].row)),
    )


def _clock_sets(session: Session, series: Row) -> Iterator[ClockSet]:
    """Of the soak that this row is a segment of."""
    for row in session.rows:
        match = _CLOCK_SET.search(row.evidence)
        if match and (row.benchmark, row.params, row.metric) == (
            series.benchmark,
            series.params,
            series.metric,
        ):
            yield ClockSet(row.run, int(match[1]) * 10**6)


def _steady_times(session: Session, samples: Sequence[KeptSample]) -> list[int]:
    """The times of samples of one soak, by a clock that nobody sets."""
    sets = list(_clock_sets(session, samples[0].row))
    return [
        sample.time_ns - sum(change.ns for change in sets if change.segment < sample.row.run)
        for sample in samples
        if sample.time_ns is not None
    ]


def _longest_delays(
    runs: Sequence[Run], failed: Callable[[str], None]
) -> tuple[tuple[Delay, ...] | None, str]:
    """The longest delays, and why there are none."""
    session, row = runs[0].source.session, runs[0].row
    count = max(_DELAYS, min(_LONG, sum(run.row.n or 0 for run in runs) // _PART))
    problems: list[str] = []
    try:
        kept = longest_samples(session, count, problems, {run.row.line for run in runs})
    except NoLongestSamples as error:
        return None, str(error)
    except SessionError as error:
        failed(str(error))
        return None, ""
    for problem in problems:
        failed(problem)
    return tuple(_delays(kept.get((row.benchmark, row.params, row.metric), ()))[:_DELAYS]), ""


def _whole(runs: Sequence[Run]) -> list[Run]:
    """Without segments that were cut short by the end of the soak: their maximum is of fewer
    samples."""
    usual = median(run.row.n or 0 for run in runs)
    return [run for run in runs if 2 * (run.row.n or 0) >= usual]


def _drifts(runs: Sequence[Run]) -> Iterator[SoakDrift]:
    whole = _whole(runs)
    quarter = len(whole) // 4 or 1
    if len(whole) < 2:
        return
    ends = [*whole[:quarter], *whole[-quarter:]]
    figures = {
        "median": [run.row.p50 for run in ends],
        "p99.9": [run.distribution().quantile(P999) for run in ends],
        "max": [run.row.max for run in ends],
    }
    for name, values in figures.items():
        if None not in values:
            yield SoakDrift(name, median(values[:quarter]), median(values[quarter:]))


def _delays(samples: Iterable[KeptSample]) -> list[Delay]:
    """The delays, the longest first. Samples of consecutive iterations are one delay. Two soaks of a
    session can have the same indices, but not the same times."""
    groups: list[list[KeptSample]] = []
    for sample in sorted(samples, key=lambda late: (late.time_ns or 0, late.index)):
        if groups and sample.index == groups[-1][-1].index + 1:
            groups[-1].append(sample)
        else:
            groups.append([sample])
    delays = [Delay(max(group, key=lambda late: late.value), len(group)) for group in groups]
    return sorted(delays, key=lambda late: -late.longest.value)


def soaks_together(session: Session, failed: Callable[[str], None]) -> Iterator[Together]:
    """Each pair of programs that soaked at the same time, by their longest delays. `failed` gets a
    sentence on what cannot be read. Needs scipy."""
    problems: list[str] = []
    try:
        kept = longest_samples(session, _LONG, problems)
    except NoLongestSamples:
        return  # the report of each soak has the reason
    except SessionError as error:
        failed(str(error))
        return
    for problem in problems:
        failed(problem)
    for (a, first), (b, second) in combinations(kept.items(), 2):
        rows = first[0].row, second[0].row
        options = rows[0].options(), rows[1].options()
        if (a[0], a[2]) != (b[0], b[2]) or not all("together" in given for given in options):
            continue
        times = [_steady_times(session, series) for series in (first, second)]
        of_a = (r for r in session.rows if (r.benchmark, r.params, r.metric) == a)
        span = sum(row.elapsed_ns or 0 for row in of_a)
        together = coincidence(times[0], times[1], WINDOW_NS, span)
        if together:
            yield Together(a[2], (rows[0].cpus, rows[1].cpus), together)
