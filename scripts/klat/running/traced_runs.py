"""Runs a program in pairs, once traced and once untraced, for `klat explain`."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from klat.base import process, programs
from klat.base.errors import KlatError
from klat.base.process import Signals
from klat.record.rows import Row
from klat.record.session import Session, read_session
from klat.running.progress import Progress
from klat.running.recording import FAILED, INVALID, MEASURED, SKIPPED, USAGE, take_lines
from klat.stats.means import MeanDifference, paired
from klat.tracing.kept_traces import TracedRun, parse_run
from klat.tracing.sample_split import split
from klat.tracing.slow_causes import SplitSample, TracedSession

_SECONDS = 600  # of one run: the copy of each trace takes time


@dataclass(frozen=True)
class TracedProgram:
    """What to run, and the limit of a slow sample. `metric` is "" for the program's first."""

    benchmark: str
    arguments: Sequence[str]
    above_ns: int
    metric: str = ""


def perform(
    program: TracedProgram,
    pairs: int,
    instance: Path,
    session: Path,
    traces: Path,
    signals: Signals,
) -> TracedSession:
    """Run `pairs` pairs into the session, in the order TU UT TU ..., with the traces in a directory of their own.
    KlatError if a run fails."""
    runs: list[TracedRun] = []
    progress = Progress(2 * pairs, 0, sys.stderr)
    try:
        for pair in range(pairs):
            for traced in (True, False) if pair % 2 == 0 else (False, True):
                signals.check()
                progress.before(2 * pair + (traced == (pair % 2 == 1)), program.benchmark, None)
                kept = traces / str(pair)
                more = _options(program, instance, kept) if traced else []
                order = ("--run", str(pair), "--order", str(2 * pair + 1 + (not traced)))
                _run(program, [*more, *order, "--record", str(session)], signals)
                if traced:
                    with kept.open(errors="replace") as lines:
                        runs.append(parse_run(pair, lines))
    finally:
        progress.clear()
    return _judged(read_session(session), runs)


def _options(program: TracedProgram, instance: Path, kept: Path) -> list[str]:
    kept.touch()
    given = [
        f"--trace-above={program.above_ns}",
        f"--trace-instance={instance}",
        f"--trace-output={kept}",
    ]
    return given + ([f"--trace-metric={program.metric}"] if program.metric else [])


def _run(program: TracedProgram, own: Sequence[str], signals: Signals) -> None:
    path = programs.require(program.benchmark)
    stderr = os.memfd_create("stderr", os.MFD_CLOEXEC)
    try:
        words = [str(path), *program.arguments, *own, "--quiet"]
        status = process.run(words, signals, seconds=_SECONDS, stderr=stderr, inherit=())
        lines = take_lines(stderr)
    finally:
        os.close(stderr)
    if status in (MEASURED, INVALID):
        return
    if status is None:
        raise KlatError(f"{program.benchmark}: no result after {_SECONDS} s", status=FAILED)
    message = lines[-1] if lines else f"{program.benchmark} {process.ending(status, lines)}"
    raise KlatError(message, status=status if status in (USAGE, SKIPPED) else FAILED)


def _judged(record: Session, runs: list[TracedRun]) -> TracedSession:
    metric = runs[0].metric
    rows = [row for row in record.rows if row.metric == metric]
    traced = {row.run: row for row in rows if "traced" in row.options()}
    untraced = {row.run: row for row in rows if "traced" not in row.options()}
    samples = [
        SplitSample(sample, split(sample, run.workers, round(_median(traced[number]))))
        for number, run in enumerate(runs)
        for sample in run.samples
        if number in traced
    ]
    smi = [row.smi for row in traced.values()]
    if record.khz is None:
        raise KlatError("ticks are no time in an emulator: nothing to explain", status=SKIPPED)
    return TracedSession(
        rows[0].benchmark,
        metric,
        record.khz,
        runs,
        samples,
        sum(row.n or 0 for row in traced.values()),
        float(sum(row.steal_ms or 0 for row in traced.values())),
        sum(count or 0 for count in smi) if None not in smi else None,
        [(row.status, row.reason) for row in rows],
        _overhead(traced, untraced),
    )


def _median(row: Row) -> float:
    """The mean, of a run that is too short for a median."""
    return float(row.p50 if row.p50 is not None else row.mean or 0)


def _overhead(traced: Mapping[int, Row], untraced: Mapping[int, Row]) -> MeanDifference | None:
    """From the pairs whose medians are not 0."""
    medians = [(_median(traced[n]), _median(untraced[n])) for n in traced if n in untraced]
    return paired(
        [math.log(with_it / without) for with_it, without in medians if with_it and without]
    )
