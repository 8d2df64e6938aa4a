"""Whether a kernel's figure is like that of a good or of a bad one, for `git bisect run`."""

from __future__ import annotations

import argparse
import math
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from klat.errors import KlatError
from klat.lab import cache, experiment, suite
from klat.lab.attempt import Attempt, Request
from klat.lab.experiment import Experiment
from klat.lab.failures import BootFailure, EmulatorFailed
from klat.lab.kernels import Spec
from klat.session import Session, find_sessions, read_session

GOOD, BAD, UNTESTABLE = 0, 1, 125

_COLUMNS = {"median": "p50"}


@dataclass(frozen=True)
class Figures:
    """One figure for each boot, and what they are figures of."""

    values: tuple[float, ...]
    unit: str
    params: str

    @property
    def middle(self) -> float:
        return median(self.values)


def gather(sessions: Sequence[Session], benchmark: str, metric: str, statistic: str) -> Figures:
    """KlatError where no run tells, or the runs are of several kinds."""
    column = _COLUMNS.get(statistic, statistic)
    values: dict[str, list[float]] = defaultdict(list)
    kinds = set()
    units = set()
    for session in sessions:
        for row in session.rows:
            if (row.benchmark, row.metric) != (benchmark, metric) or not row.usable:
                continue
            value = getattr(row, column)
            if value is None:
                raise KlatError(
                    f"{session.path}: runs of {row.n} samples have no {statistic} of"
                    f" {benchmark}.{metric}"
                )
            values[session.boot_id].append(float(value))
            kinds.add(row.params)
            units.add(row.unit)
    where = ", ".join(str(session.path) for session in sessions[:2])
    if not values:
        raise KlatError(f"{where}: no run with figures of {benchmark}.{metric}")
    if len(kinds) > 1:
        raise KlatError(
            f"{where}: {benchmark} ran with several sets of options; record one of them"
        )
    return Figures(tuple(map(median, values.values())), units.pop(), kinds.pop())


def verdict(good: Figures, bad: Figures, figure: float) -> int:
    """GOOD or BAD, by the nearer of the two as a ratio. KlatError where they cannot be told apart."""
    if (good.params, good.unit) != (bad.params, bad.unit):
        raise KlatError("good and bad were measured with different options or units")
    ranges = sorted((min(f.values), max(f.values)) for f in (good, bad))
    if ranges[0][1] >= ranges[1][0] or min(ranges[0]) <= 0:
        raise KlatError(
            f"good ({good.middle:,.0f} {good.unit}) and bad ({bad.middle:,.0f}) do not differ in"
            " every boot, so nothing can be like one of them"
        )
    boundary = math.sqrt(good.middle * bad.middle)
    return BAD if (figure > boundary) == (bad.middle > good.middle) else GOOD


def check(arguments: argparse.Namespace, command: Sequence[str]) -> int:
    """The exit status. KlatError where the bisection had better end."""
    benchmark, dot, metric = arguments.metric.partition(".")
    if not dot or not metric:
        raise KlatError(f"--metric {arguments.metric!r} is not BENCHMARK.METRIC")
    sides = [[read_session(p) for p in find_sessions(s)] for s in (arguments.good, arguments.bad)]
    good, bad = (gather(side, benchmark, metric, arguments.statistic) for side in sides)
    verdict(good, bad, good.middle)
    begun = [experiment.find(path).experiment for path in (arguments.good, arguments.bad)]
    for name in ("mode", "shape", "append", "loads", "programs"):
        if getattr(begun[0], name) != getattr(begun[1], name):
            raise KlatError(f"good and bad were measured with different {name}")
    if not arguments.kernel.is_file():
        raise KlatError(f"there is no {arguments.kernel}: build it, or give --kernel")
    figure = _measure(arguments, begun[0], benchmark, metric, command)
    if figure is None:
        return UNTESTABLE
    found = verdict(good, bad, figure)
    print(
        f"{arguments.metric} {arguments.statistic}: {figure:,.0f} {good.unit}; good"
        f" {good.middle:,.0f}, bad {bad.middle:,.0f}: like {'bad' if found else 'good'}"
    )
    return found


def _measure(
    arguments: argparse.Namespace,
    like: Experiment,
    benchmark: str,
    metric: str,
    command: Sequence[str],
) -> float | None:
    """The kernel's figure; None where it cannot be tested."""
    suite.use_static_programs([benchmark])
    (path,) = suite.static_programs([benchmark]).values()
    if suite.hash_of(path) != like.programs.get(benchmark):
        raise KlatError(f"{benchmark} was built anew since; measure good and bad again")
    request = Request(
        specs=[Spec(str(arguments.kernel), "bisected", "", arguments.kernel, arguments.modules)],
        mode=like.mode,
        shape=like.shape,
        sets=[(name, words) for name, words in like.sets if name == benchmark],
        loads=like.loads,
        append=like.append,
        boots=arguments.boots,
        runs=like.runs,
        seed=like.seed,
        clock=like.clock,
        time_limit_s=arguments.time_limit or like.time_limit_s,
    )
    with tempfile.TemporaryDirectory(dir=cache.folder()) as output:
        attempt = Attempt(command, quiet=True)
        try:
            status = attempt.begin(request, Path(output), None)
        except EmulatorFailed:
            raise
        except BootFailure as failure:
            attempt.say(f"cannot be tested: {failure}")
            return None
        if status > 128:
            raise KlatError("stopped")
        sessions = [read_session(path) for path in attempt.recorded]
        try:
            return gather(sessions, benchmark, metric, arguments.statistic).middle
        except KlatError as error:
            attempt.say(f"cannot be tested: {error}")
            return None
