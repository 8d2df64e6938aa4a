"""Runs programs with and without tracing, and explains the slow samples of the traced runs. `klat explain`
and `klat run --explain-above` use it."""

from __future__ import annotations

import io
import math
import os
import re
import shlex
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from klat.base import files, process, programs
from klat.base.bounded_read import open_below
from klat.base.errors import FAILED, INVALID, KlatError, MEASURED, SKIPPED, USAGE
from klat.base.grouping import grouped
from klat.base.process import Signals
from klat.record.plan_csv import PlannedRun
from klat.record.rows import Row
from klat.record.session import Session, plain_samples, read_session
from klat.report import slow_samples
from klat.report.renderers import terminal
from klat.report.text.columns import wrapped
from klat.running.progress import Progress
from klat.tracing.instance import clock, switch_events, tracefs, tracing_instance
from klat.tracing.kept_traces import MOST_MEGABYTES, TracedRun, parse_run
from klat.tracing.sample_split import SplitSample, TracedSession, split_samples

if TYPE_CHECKING:
    from klat.stats.means import MeanDifference

_SECONDS = 600  # limit of one run: the copy of each trace takes time
_ABOVE = "--trace-above="
# Names in the directory of a session.
_TRACES = "traces"
EXPLAINED = "explained.txt"
_FEWEST = 10  # the record has no median of fewer samples
_LONGEST = 3  # the report shows the parts of this many samples of a parameter set


def traced_words(above_ns: int, metric: str | None = None) -> tuple[str, ...]:
    """The options that mark a traced run in a plan. Without `metric`, the program takes its first metric that klat
    can explain."""
    return (f"{_ABOVE}{above_ns}", *([f"--trace-metric={metric}"] if metric else []))


def _above(arguments: Sequence[str]) -> int | None:
    """The limit of a slow sample, in ns. None if the run is not traced."""
    for word in arguments:
        if word.startswith(_ABOVE) and word.removeprefix(_ABOVE).isdecimal():
            return int(word.removeprefix(_ABOVE))
    return None


def record_pairs(
    benchmark: str,
    arguments: Sequence[str],
    tracing: Sequence[str],
    pairs: int,
    session: Path,
    signals: Signals,
    under_load: bool = False,
) -> list[PlannedRun]:
    """Record `pairs` pairs of a traced and an untraced run in the session. The traced run is first in every
    other pair. Its arguments end with `tracing`. KlatError if a run fails."""
    schedule = [
        PlannedRun(2 * pair + place, benchmark, pair, (*arguments, *(tracing if traced else ())))
        for pair in range(pairs)
        for place, traced in enumerate((pair % 2 == 0, pair % 2 == 1), start=1)
    ]
    progress = Progress(len(schedule), 0, sys.stderr)
    options = [f"--record={session}", "--quiet", *(["--under-load"] if under_load else [])]
    try:
        with SessionTraces() as traces:
            for run in schedule:
                signals.check()
                progress.before(run.order - 1, benchmark, None)
                _run(traces.complete(run, session), options, signals)
                traces.keep(run, session)
    finally:
        progress.clear()
    return schedule


def _places(instance: Path, kept: Path, used: int) -> tuple[str, ...]:
    """Makes the file for the traces. Returns the options for the tracing instance and this file. The session has
    `used` bytes of traces."""
    kept.touch()
    room = max(0, 10**6 * MOST_MEGABYTES - used)
    return f"--trace-instance={instance}", f"--trace-output={kept}", f"--trace-bytes={room}"


def _run(run: PlannedRun, options: Sequence[str], signals: Signals) -> None:
    path = programs.require(run.benchmark)
    stderr = os.memfd_create("stderr", os.MFD_CLOEXEC)
    try:
        words = [str(path), *run.arguments, f"--run={run.run}", f"--order={run.order}", *options]
        status = process.run(words, signals, seconds=_SECONDS, stderr=stderr, inherit=())
        lines = process.take_lines(stderr)
    finally:
        os.close(stderr)
    if status in (MEASURED, INVALID):
        return
    if status is None:
        raise KlatError(f"{run.benchmark}: no result after {_SECONDS} s", status=FAILED)
    message = lines[-1] if lines else f"{run.benchmark} {process.ending(status, lines)}"
    raise KlatError(message, status=status if status in (USAGE, SKIPPED) else FAILED)


def traceable_sets(
    sets: Sequence[tuple[str, tuple[str, ...]]]
) -> tuple[list[tuple[str, tuple[str, ...]]], list[str]]:
    """Returns the parameter sets with a metric that klat can explain. Also returns the reasons why the other
    sets have no such metric, one line for each reason.

    KlatError in these cases:

    - This machine or user cannot trace.
    - A program refuses its options.
    - No set has such a metric.
    """
    clock()
    tracefs()
    traceable: list[tuple[str, tuple[str, ...]]] = []
    refusals: dict[str, int] = {}
    for benchmark, words in sets:
        places = ("--trace-above=1", "--trace-instance=/", "--trace-output=/")
        status, message = _refusal(benchmark, (*words, *places))
        if not status:
            traceable.append((benchmark, words))
            continue
        without, wrong = _refusal(benchmark, words)
        if without == USAGE:
            raise KlatError(wrong)
        refusals.setdefault(message, status)
    if not traceable:
        message, status = next(iter(refusals.items()))
        raise KlatError(message, status=status)
    return traceable, list(refusals)


def _refusal(benchmark: str, words: Sequence[str]) -> tuple[int, str]:
    """The exit status and the message of a program that refuses these options. 0 if it accepts them."""
    return programs.check_options(programs.require(benchmark), words, "virtual")


class SessionTraces(ExitStack):
    """Traces the traced runs of a session. Makes the tracing instance before the first traced run, and removes it at
    the end of the context."""

    def __init__(self) -> None:
        super().__init__()
        self._instance: Path | None = None
        self._kept = Path()
        self._used: int | None = None

    def complete(self, run: PlannedRun, session: Path) -> PlannedRun:
        """Adds the tracing options that the plan lacks. Switches the events on or off for this run."""
        traced = _above(run.arguments) is not None
        if self._instance:
            switch_events(self._instance, traced)
        if not traced:
            return run
        if self._instance is None:
            self._kept = Path(self.enter_context(_private_directory())) / "kept"
            self._instance = self.enter_context(tracing_instance())
            switch_events(self._instance, True)
        self._kept.unlink(missing_ok=True)
        if self._used is None:
            self._used = sum(file.lstat().st_size for file in (session / _TRACES).glob("*"))
        places = _places(self._instance, self._kept, self._used)
        return replace(run, arguments=(*run.arguments, *places))

    def keep(self, run: PlannedRun, session: Path) -> None:
        """Store the traces of the finished run in the session."""
        if _above(run.arguments) is not None:
            traces = session / _TRACES
            with files.explained("write", traces):
                files.make_directories(traces)
                content = self._kept.read_bytes()
                files.write_whole(traces / str(run.order), content)
            self._used = (self._used or 0) + len(content)


def _report(traced: TracedSession, above_ns: int) -> Iterator[str]:
    return terminal.lines(slow_samples.document(traced, above_ns, _LONGEST), colour=False)


@dataclass(frozen=True)
class ExplainedSet:
    """The explained runs of one parameter set. `arguments` are the arguments of its untraced runs."""

    benchmark: str
    arguments: tuple[str, ...]
    above_ns: int
    traced: TracedSession

    def lines(self) -> Iterator[str]:
        """The report, for a terminal of 80 columns."""
        if self.arguments:
            yield from wrapped(f"{shlex.join([self.benchmark, *self.arguments])}:")
        yield from _report(self.traced, self.above_ns)


@dataclass(frozen=True)
class SoakTraces:
    """Traces a soak that ends at its first sample above a limit."""

    above_ns: int
    instance: Path
    directory: Path
    kept: list[Path] = field(default_factory=list)  # by program

    def words(self) -> tuple[str, ...]:
        """The options of the next program. Each has a file of its own."""
        self.kept.append(self.directory / str(len(self.kept)))
        return (*traced_words(self.above_ns), *_places(self.instance, self.kept[-1], 0))

    def keep(self, session: Path) -> None:
        """Store the traces in the session."""
        traces = session / _TRACES
        with files.explained("write", traces):
            for kept in self.kept:
                if content := kept.read_bytes():
                    files.make_directories(traces)
                    files.write_whole(traces / kept.name, content)


@contextmanager
def soak_traces(above_ns: int) -> Iterator[SoakTraces]:
    with tracing_instance() as instance, _private_directory() as private:
        switch_events(instance, True)
        yield SoakTraces(above_ns, instance, Path(private))


def _private_directory() -> tempfile.TemporaryDirectory[str]:
    """The program writes the traces as root, so no other user may enter the directory."""
    return tempfile.TemporaryDirectory(prefix="klat-traces-")


def explain_soak(session: Path, above_ns: int) -> Iterator[str]:
    """The report on the sample that ended a traced soak; nothing if no sample ended it."""
    record = read_session(session)
    for path in sorted((session / _TRACES).glob("*")):
        with _lines(path) as lines:
            run = parse_run(0, lines)
        threads = {sample.cpu for sample in run.samples}
        rows = [r for r in record.rows if r.metric == run.metric and _is_on(r, threads)]
        if run.samples and rows:
            explained = _explained(record, (), rows[-1:], {rows[-1].run: path})
            yield from _report(explained, above_ns)


def _lines(path: Path) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedReader(open_below(path)), errors="replace")


def _is_on(row: Row, cpus: set[int]) -> bool:
    return bool(cpus & {int(cpu) for cpu in re.findall(r"\d+", row.cpus)})


def explain_session(session: Path, schedule: Sequence[PlannedRun]) -> Iterator[ExplainedSet]:
    """Explain the recorded traced runs of a session, one parameter set after the other."""
    if all(_above(run.arguments) is None for run in schedule):
        return
    record = read_session(session)
    sets = grouped(schedule, lambda run: (run.benchmark, run.arguments))
    rows = grouped(record.rows, lambda row: row.order)

    def rows_of(runs: Sequence[PlannedRun]) -> list[Row]:
        return [row for run in runs for row in rows.get(run.order, ())]

    for (benchmark, arguments), runs in sorted(sets.items()):
        above = _above(arguments)
        paths = {r.run: session / _TRACES / str(r.order) for r in runs if r.order in rows}
        traces = {n: path for n, path in paths.items() if path.is_file() and path.stat().st_size}
        if above is None or not traces:
            continue
        plain = tuple(word for word in arguments if not word.startswith("--trace-"))
        untraced = rows_of(sets.get((benchmark, plain), ()))
        explained = _explained(record, untraced, rows_of(runs), traces)
        yield ExplainedSet(benchmark, plain, above, explained)


def _explained(
    record: Session, without: Sequence[Row], with_trace: Sequence[Row], traces: Mapping[int, Path]
) -> TracedSession:
    """Explains traced runs. `without` has the rows of untraced runs, `with_trace` those of traced runs.
    `traces` has the file of each traced run by its number."""
    if record.khz is None:
        raise KlatError(
            "in an emulator ticks are not time; use klat lab explain instead", status=SKIPPED
        )
    metric = ""
    rows: dict[int, Row] = {}
    traced: dict[int, TracedRun] = {}
    samples: list[SplitSample] = []
    medians: dict[int, float] = {}
    for number, path in traces.items():
        try:
            with _lines(path) as lines:
                run = parse_run(number, lines)
        except KlatError as error:
            raise KlatError(f"{path}: {error}") from None
        metric = metric or run.metric
        rows = rows or {row.run: row for row in with_trace if row.metric == metric}
        if number in rows:
            traced[number] = run
            row = rows[number]
            # The trace of a soak is that of its last sample.
            values = () if row.soak else plain_samples(record, row)
            medians[number] = _undisturbed_median(values, run) or row.middle
            samples += split_samples(run, medians[number])
            run.samples.clear()
    untraced = {row.run: row for row in without if row.metric == metric}
    smi = [row.smi for row in rows.values()]
    return TracedSession(
        with_trace[0].benchmark,
        metric,
        record.khz,
        list(traced.values()),
        samples,
        float(sum(row.steal_ms or 0 for row in rows.values())),
        sum(count or 0 for count in smi) if None not in smi else None,
        {
            kind: [(row.status, row.reason) for row in of.values()]
            for kind, of in (("traced", rows), ("untraced", untraced))
        },
        frozenset(number for number, row in rows.items() if not row.usable),
        _overhead(medians, {n: row.middle for n, row in untraced.items()}),
    )


def _undisturbed_median(samples: Sequence[int], run: TracedRun) -> int | None:
    """The median without the samples right after the copy of a trace. The delay of these
    samples comes from the copy, not from the trace events. None if too few samples are left."""
    late = {n for s in run.samples for n in range(s.index + 1, s.index + 1 + run.settle)}
    others = [sample for n, sample in enumerate(samples) if n not in late]
    return statistics.median_low(others) if len(others) >= _FEWEST else None


def _overhead(traced: Mapping[int, float], untraced: Mapping[int, float]) -> MeanDifference | None:
    """The overhead of tracing. Leaves out pairs with a median of 0."""
    from klat.stats.means import paired  # it imports numpy, which only a report needs

    medians = [(traced[n], untraced[n]) for n in traced if n in untraced]
    return paired(
        [math.log(with_it / without) for with_it, without in medians if with_it and without]
    )
