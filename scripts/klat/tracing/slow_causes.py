"""The causes of a session's slow samples, summed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from klat.stats.means import MeanDifference
from klat.tracing.kept_traces import SlowSample, TracedRun
from klat.tracing.sample_split import Part


@dataclass(frozen=True)
class SplitSample:
    sample: SlowSample
    parts: list[Part]


@dataclass(frozen=True)
class TracedSession:
    """What the runs found. `samples` are those whose trace was kept, in the order of the runs."""

    benchmark: str
    metric: str
    khz: float  # of the counter
    runs: list[TracedRun]
    samples: list[SplitSample]
    measured: int  # samples of the traced runs
    steal_ms: float
    smi: int | None
    statuses: list[tuple[str, str]]  # status and reason of each run
    overhead: MeanDifference | None  # log of the ratio of medians, traced to untraced


@dataclass(frozen=True)
class Cause:
    """What took `ticks` in all, in `samples` samples. `longest` is the most that one sample lost to it."""

    name: str
    ticks: int
    samples: int
    longest: int


def causes(samples: Sequence[SplitSample]) -> list[Cause]:
    """The largest first. Their ticks add up to the samples."""
    by_name: dict[str, list[int]] = {}
    for split in samples:
        own: dict[str, int] = {}
        for part in split.parts:
            own[part.cause] = own.get(part.cause, 0) + part.ticks
        for name, ticks in own.items():
            by_name.setdefault(name, []).append(ticks)
    found = [Cause(name, sum(t), len(t), max(t)) for name, t in by_name.items()]
    return sorted(found, key=lambda cause: (-cause.ticks, cause.name))
