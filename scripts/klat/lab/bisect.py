"""Decides for `git bisect run` whether the figure of a kernel is like the good or the bad one."""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from klat.base.errors import KlatError
from klat.lab import cache, experiment, initramfs, qemu, suite
from klat.lab.execution import Attempt, Request
from klat.lab.guest_contents import host
from klat.lab.experiment import Experiment
from klat.lab.guest import BootFailure, EmulatorFailed
from klat.lab.kernels import Spec
from klat.lab.qemu import Machine
from klat.running.loads import IDLE
from klat.record.session import Session, find_sessions, read_session

GOOD, BAD, UNTESTABLE = 0, 1, 125

_COLUMNS = {"median": "p50"}


@dataclass(frozen=True)
class Figures:
    """One figure for each boot, with their unit and parameters."""

    values: tuple[float, ...]
    unit: str
    params: str

    @property
    def middle(self) -> float:
        return median(self.values)


def gather(sessions: Sequence[Session], benchmark: str, metric: str, statistic: str) -> Figures:
    """The figures of the sessions. KlatError if no run has one, or the runs have different options."""
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


# How far outside the range of good and bad a figure may lie, as a share of their distance. Other commits
# change the figure a little, too.
_OUTSIDE = 0.25


def verdict(good: Figures, bad: Figures, figure: float) -> int:
    """GOOD or BAD, whichever is nearer as a ratio. UNTESTABLE if the figure lies outside the range of both.
    KlatError if good and bad do not differ in every boot."""
    if (good.params, good.unit) != (bad.params, bad.unit):
        raise KlatError("good and bad were measured with different options or units")
    ranges = sorted((min(f.values), max(f.values)) for f in (good, bad))
    if ranges[0][1] >= ranges[1][0] or min(ranges[0]) <= 0:
        raise KlatError(
            f"good ({good.middle:,.0f} {good.unit}) and bad ({bad.middle:,.0f}) do not differ in"
            " every boot, so no figure can be assigned to one of them"
        )
    room = (max(good.middle, bad.middle) / min(good.middle, bad.middle)) ** _OUTSIDE
    if not ranges[0][0] / room <= figure <= ranges[1][1] * room:
        return UNTESTABLE
    boundary = math.sqrt(good.middle * bad.middle)
    return BAD if (figure > boundary) == (bad.middle > good.middle) else GOOD


@dataclass(frozen=True)
class BisectionEnd:
    """One end of the bisection, as recorded."""

    figures: Figures
    experiment: Experiment
    load: str
    append: str  # to its kernel's command line
    machine: str  # machine_id of its guests


def read_side(path: Path, benchmark: str, metric: str, statistic: str) -> BisectionEnd:
    """The end that the path leads to. KlatError unless its sessions are boots of one experiment, one kernel,
    one load and one QEMU."""
    sessions = [read_session(place) for place in find_sessions(path)]
    begun = [experiment.of_session(session.path) for session in sessions]
    machines = {str(session.info.get("machine_id")) for session in sessions}
    for values, what in (
        ({boot.condition.load for _, boot in begun}, "loads"),
        ({boot.label for _, boot in begun}, "kernels"),
        ({recorded.identity for recorded, _ in begun}, "experiments"),
    ):
        if len(values) > 1:
            raise KlatError(
                f"{path}: holds boots of several {what} ({', '.join(sorted(values))}); give the"
                " directory of one label, or one session"
            )
    if len(machines) > 1:
        raise KlatError(
            f"{path}: its boots are not all of one QEMU and one machine; measure them again"
        )
    figures = gather(sessions, benchmark, metric, statistic)
    planned, boot = begun[0]
    condition = boot.condition
    return BisectionEnd(
        figures, planned, condition.load, planned.append_of(condition), machines.pop()
    )


def programs_of(benchmark: str, load: str) -> list[str]:
    """The programs that a guest needs."""
    return [benchmark] + ["load"] * (load != IDLE)


def check_alike(good: BisectionEnd, bad: BisectionEnd, benchmark: str) -> None:
    """KlatError if the two differ in more than their kernels."""
    for name in ("arch", "mode", "shape", "runs"):
        if getattr(good.experiment, name) != getattr(bad.experiment, name):
            raise KlatError(f"good and bad were measured with different {name}")
    if good.append != bad.append:
        raise KlatError(
            "good and bad were measured with different words on the kernel's command line:"
            f" {good.append or 'none'} and {bad.append or 'none'}"
        )
    if good.load != bad.load:
        raise KlatError(
            f"good and bad were measured under different loads: {good.load} and {bad.load}"
        )
    for name in programs_of(benchmark, good.load):
        if good.experiment.programs.get(name) != bad.experiment.programs.get(name):
            raise KlatError(f"good and bad were measured by different builds of {name}")
    if good.machine != bad.machine:
        raise KlatError(
            "good and bad were measured by different QEMUs or on different machines, which alone"
            " changes the figures; measure both again"
        )


def check(arguments: argparse.Namespace, command: Sequence[str]) -> int:
    """The exit status for git bisect. KlatError if the bisection must end."""
    benchmark, _, metric = arguments.metric.partition(".")
    good, bad = (
        read_side(path, benchmark, metric, arguments.statistic)
        for path in (arguments.good, arguments.bad)
    )
    verdict(good.figures, bad.figures, good.figures.middle)
    check_alike(good, bad, benchmark)
    kernel = arguments.kernel or Path()
    if kernel.is_dir():  # a built tree
        kernel /= good.experiment.architecture.format.target
    if not kernel.is_file():
        raise KlatError(f"there is no {kernel}: build it, or give --kernel")
    figure = _measure(arguments, kernel, good, benchmark, metric, command)
    if figure is None:
        return UNTESTABLE
    likeness = verdict(good.figures, bad.figures, figure)
    like = {GOOD: "like good", BAD: "like bad", UNTESTABLE: "like neither"}
    print(
        f"{arguments.metric} {arguments.statistic}: {figure:,.0f} {good.figures.unit}; good"
        f" {good.figures.middle:,.0f}, bad {bad.figures.middle:,.0f}: {like[likeness]}",
        flush=True,  # a failure to print must not pass for a bad kernel
    )
    return likeness


def _measure(
    arguments: argparse.Namespace,
    kernel: Path,
    like: BisectionEnd,
    benchmark: str,
    metric: str,
    command: Sequence[str],
) -> float | None:
    """The kernel's figure; None if the kernel cannot be tested."""
    begun = like.experiment
    needed = programs_of(benchmark, like.load)
    suite.use_static_programs(needed, begun.architecture)
    for name, path in suite.static_programs(needed, begun.architecture).items():
        if suite.hash_of(path) != begun.programs.get(name):
            raise KlatError(f"{name} was rebuilt since; measure good and bad again")
    machine = Machine(qemu.find(begun.architecture), begun.mode, begun.shape)
    if initramfs.recorded_machine_id(machine.describe(host())) != like.machine:
        raise KlatError(
            f"this machine or its QEMU ({machine.emulator.text}) differs from the one that measured"
            " good and bad, which alone changes the figures;"
            " measure both again"
        )
    request = Request(
        architecture=begun.architecture,
        specs=[Spec(str(kernel), "bisected", "", kernel, arguments.modules)],
        mode=begun.mode,
        shape=begun.shape,
        sets=[(name, words) for name, words in begun.sets if name == benchmark],
        loads=[like.load],
        append=like.append,
        boots=arguments.boots,
        runs=begun.runs,
        seed=begun.seed,
        clock=begun.clock,
        time_limit_s=arguments.time_limit or begun.time_limit_s,
    )
    with cache.work() as output:
        attempt = Attempt(command, begun.architecture, quiet=True)
        try:
            status = attempt.begin(request, output, None)
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
