"""The causes of a session's slow samples, summed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from klat.stats.means import MeanDifference
from klat.tracing.kept_traces import SlowSample, TracedRun
from klat.tracing.sample_split import Part, split


@dataclass(frozen=True)
class SplitSample:
    """A slow sample without its trace. `page_faults` counts page faults of the run's threads.
    `overwritten`: the trace lost events of the sample."""

    run: int
    index: int
    begin: int
    ticks: int
    parts: list[Part]
    page_faults: int
    frequency_changes: int
    overwritten: bool


def split_sample(sample: SlowSample, workers: Mapping[int, str], usual: float) -> SplitSample:
    """Splits a slow sample: see split(). `usual` is the median of the run's samples."""
    return SplitSample(
        sample.run,
        sample.index,
        sample.begin,
        sample.ticks,
        split(sample, workers, round(usual)),
        sample.count("page_fault", workers),
        sample.count("cpu_frequency"),
        sample.overwritten,
    )


@dataclass(frozen=True)
class TracedSession:
    """The traced runs of a session. `samples` are the slow samples with a kept trace, in the order of the
    runs. `invalid` are the numbers of the traced runs that the evidence refutes."""

    benchmark: str
    metric: str
    khz: float  # the frequency of the counter
    runs: list[TracedRun]  # without their samples
    samples: list[SplitSample]
    steal_ms: float
    smi: int | None
    # The status and the reason of each run, for "traced" and for "untraced".
    statuses: Mapping[str, list[tuple[str, str]]]
    invalid: frozenset[int]
    overhead: MeanDifference | None  # log of the ratio of medians, traced to untraced runs

    @property
    def refuted(self) -> bool:
        """Whether every traced run is invalid."""
        return all(status == "invalid" for status, _ in self.statuses["traced"])


@dataclass(frozen=True)
class Cause:
    """A cause that took `ticks` in total, in `samples` samples. `longest` is its largest share of one
    sample, in ticks."""

    name: str
    ticks: int
    samples: int
    longest: int


def causes(samples: Sequence[SplitSample]) -> list[Cause]:
    """The causes, the largest first. Their ticks add up to the samples."""
    by_name: dict[str, list[int]] = {}
    for split in samples:
        own: dict[str, int] = {}
        for part in split.parts:
            own[part.cause] = own.get(part.cause, 0) + part.ticks
        for name, ticks in own.items():
            by_name.setdefault(name, []).append(ticks)
    found = [Cause(name, sum(t), len(t), max(t)) for name, t in by_name.items()]
    return sorted(found, key=lambda cause: (-cause.ticks, cause.name))
