"""One setting of one benchmark: its runs by metric, with their statistics."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from klat.base.programs import CORE
from klat.stats import descriptive
from klat.record.rows import run_noun
from klat.record.session import STATUSES, USABLE
from klat.compare.sources import Run, by_boot, merged_distribution
from klat.stats.descriptive import P50, P90, P99, P999
from klat.stats.distribution import Distribution


@dataclass(frozen=True)
class Statistics:
    """Of one metric, in the session's unit. None where there are too few runs or samples."""

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
    tail: tuple[int, ...]  # the quantiles 9/10, 99/100, 999/1000 ... that the samples support
    # 95 %, of the runs' medians, within one boot only: runs of several are not independent.
    median_interval: tuple[float, float] | None


@dataclass(eq=False)
class Measurement:
    """One metric of one setting: every run of it that has samples, in the order taken."""

    metric: str
    all_runs: list[Run] = field(default_factory=list)
    unmeasurable: int = 0  # runs whose mode gives it no number

    @property
    def runs(self) -> list[Run]:
        """Those that count."""
        return [run for run in self.all_runs if run.row.usable]

    @property
    def unusable(self) -> list[Run]:
        """Those that do not count."""
        return [run for run in self.all_runs if not run.row.usable]

    @property
    def boots(self) -> int:
        """The number of boots with a run that counts."""
        return len({run.row.boot for run in self.runs})

    def distribution(self) -> Distribution:
        """All samples that count, as recorded. SessionError where some are missing."""
        return merged_distribution(self.runs)

    def by_boot(self) -> tuple[Distribution, ...]:
        """The same for each boot."""
        return tuple(map(merged_distribution, by_boot(self.runs).values()))

    @cached_property
    def statistics(self) -> Statistics:
        """SessionError where samples are missing."""
        rows = [run.row for run in self.runs]
        samples = self.distribution()
        median, p90, p99, p999 = map(samples.quantile, (P50, P90, P99, P999))
        means = np.array([float(row.mean) for row in rows if row.mean is not None])
        medians = np.array([float(row.p50) for row in rows if row.p50 is not None])
        return Statistics(
            runs=len(rows),
            samples=samples.n,
            average=float(means.mean()) if len(means) else None,
            stdev=float(means.std(ddof=1)) if len(means) > 1 else None,
            min=samples.min if samples.n else None,
            median=median,
            p90=p90,
            p99=p99,
            p999=p999,
            max=samples.max if samples.n else None,
            tail=samples.tail(),
            median_interval=descriptive.median_interval(medians) if self.boots == 1 else None,
        )


@dataclass(eq=False)
class Setting:
    """One benchmark with one set of params, including the policy obtained, at one placement."""

    benchmark: str
    params: dict[str, str]
    placement: str
    statuses: Counter[str] = field(default_factory=Counter)
    reasons: list[tuple[str, str]] = field(default_factory=list)  # status, one reason of a run
    floors: list[int] = field(default_factory=list)
    measurements: dict[str, Measurement] = field(default_factory=dict)
    # The evidence of runs that count although the mode gives no number: their only result.
    evidence: list[dict[str, str]] = field(default_factory=list)

    @property
    def is_soak(self) -> bool:
        return "soak" in self.params

    @property
    def noun(self) -> str:
        """The word for a run."""
        return run_noun(self.is_soak)

    @property
    def usable_runs(self) -> int:
        return sum(self.statuses[status] for status in USABLE)

    @property
    def floor(self) -> int | None:
        """The floor that half of the runs do not exceed."""
        floors = sorted(self.floors)
        return floors[(len(floors) - 1) // 2] if floors else None

    def unmeasurable(self) -> list[str]:
        """Metrics that have no number in this mode."""
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
        """(status, reason, count), the most frequent of each status first. Reasons that differ only
        in numbers are one reason, with the range of each number."""
        groups: dict[tuple[str, tuple[str, ...]], list[list[str]]] = {}
        for status, reason in self.reasons:
            pieces = NUMBER.split(reason)
            groups.setdefault((status, tuple(pieces)), []).append(NUMBER.findall(reason))
        counted = [
            (status, _merged(pieces, numbers), len(numbers))
            for (status, pieces), numbers in groups.items()
        ]
        return sorted(counted, key=lambda g: (STATUSES.index(g[0]), -g[2], g[1]))


def counted(settings: Iterable[Setting]) -> Iterator[tuple[Setting, Measurement]]:
    """The measurements with a run that counts."""
    for setting in settings:
        for measurement in setting.measurements.values():
            if measurement.runs:
                yield setting, measurement


# A minus is not part of the number: it would read as a range in "CPU 0-3".
NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)


def _merged(pieces: Sequence[str], numbers: Sequence[Sequence[str]]) -> str:
    text = [pieces[0]]
    for position, piece in enumerate(pieces[1:]):
        values = sorted({row[position] for row in numbers}, key=float)
        text.append(values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}")
        text.append(piece)
    return "".join(text)


def program_order(benchmark: str) -> tuple[int, str]:
    """Sorts the five programs first, in their order, and others by name."""
    return (CORE.index(benchmark) if benchmark in CORE else len(CORE), benchmark)


def by_value(text: str) -> tuple[int, float, str]:
    """Sorts numbers by value, so that responders=10 follows responders=9, and words after them."""
    return (0, float(text), "") if NUMBER.fullmatch(text) else (1, 0.0, text)


def common_params(settings: Iterable[Setting]) -> dict[str, str]:
    """What all the settings have in common."""
    common: dict[str, str] | None = None
    for setting in settings:
        if common is None:
            common = dict(setting.params)
        else:
            common = {k: v for k, v in common.items() if setting.params.get(k) == v}
    return common or {}
